"""Random lives of consumer groups under a log that answers late, fails and crashes: the laws hold at every step.

The published machine, extended with all that :class:`Actions` has: other kinds of consumers and groups, permissions,
topics that come and go, loads in steps and loads that fail.
"""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import rule

from groupcoord.testing import CoordinatorMachine
from groupcoord.testing.machine.consumers import PARTITIONS
from groupcoord.testing.machine.state_machine import PRODUCERS, PROTOCOLS
from groupcoord.testing.machine.world import LOG_PARTITIONS, MAX_SIZE
from tests.laws.actions import ERRORS, KINDS, Actions
from tests.laws.full_world import GROUPS, METADATA_LIMIT

WHO = st.integers(0, 8)
GROUP = st.sampled_from(GROUPS)
ANY_GROUP = st.sampled_from([*GROUPS, "gamma"])
PARTITION = st.integers(0, LOG_PARTITIONS - 1)
INDEX = st.integers(0, PARTITIONS - 1)
KIND = st.integers(0, len(KINDS) - 1)
CHANCE = st.booleans()
AT_ONCE = st.sampled_from([None, 1, 3])


class FullMachine(Actions, CoordinatorMachine):
    """Everything of :class:`Actions`, and of the published machine, in any order."""

    # ------------------------------------------------------------ consumers

    a_consumer_of_some_kind_starts = rule(
        target=CoordinatorMachine.consumers,
        group_id=GROUP,
        instance_id=st.sampled_from([None, None, "i1", "i2"]),
        protocols=st.sampled_from(PROTOCOLS),
        kind=KIND,
    )(Actions.a_consumer_of_some_kind_starts)
    a_group_comes_to_be = rule(
        group_id=GROUP, instances=st.sampled_from([(None, None), ("i1", None), ("i1", "i2", None)]), kind=KIND
    )(Actions.a_group_comes_to_be)
    a_consumer_commits = rule(who=WHO, by_id=CHANCE)(Actions.a_consumer_commits)
    a_consumer_joins_again = rule(who=WHO, changes=CHANCE)(Actions.a_consumer_joins_again)
    a_static_consumer_returns = rule(who=WHO, skips=CHANCE)(Actions.a_static_consumer_returns)
    several_are_removed = rule(group_id=ANY_GROUP, by_instance=CHANCE, count=st.integers(0, 4))(
        Actions.several_are_removed
    )
    a_ghost_speaks = rule(who=WHO, kind=st.sampled_from(["joining", "syncing", "stable", "commit", "leave"]))(
        Actions.a_ghost_speaks
    )
    a_stranger_joins = rule(
        group_id=ANY_GROUP,
        asks_for_id=CHANCE,
        protocols=st.sampled_from([(), ("range",), ("range", "range"), ("sticky",)]),
        misfit=st.sampled_from([False, False, True]),
    )(Actions.a_stranger_joins)
    a_consumer_commits_in_a_transaction = rule(who=WHO, producer_id=st.sampled_from(PRODUCERS))(
        Actions.a_consumer_commits_in_a_transaction
    )

    # ------------------------------------------------------------ administrators, producers, people

    somebody_commits_in_a_peculiar_way = rule(
        group_id=GROUP,
        by_id=CHANCE,
        size=st.sampled_from([0, 1, METADATA_LIMIT, METADATA_LIMIT + 1]),
        retention_ms=st.sampled_from([-1, 0, 45_000]),
    )(Actions.somebody_commits_in_a_peculiar_way)
    a_clerk_deals_with_offsets = rule(group_id=GROUP)(Actions.a_clerk_deals_with_offsets)
    somebody_deletes = rule(group_ids=st.permutations(GROUPS))(Actions.somebody_deletes)
    somebody_deletes_offsets = rule(group_id=GROUP, indexes=st.sets(INDEX, min_size=1))(
        Actions.somebody_deletes_offsets
    )
    a_topic_is_deleted = rule(name=st.sampled_from(["orders", "audit"]))(Actions.a_topic_is_deleted)
    somebody_without_permission_asks = rule(
        group_id=st.sampled_from([*GROUPS, "", "gamma"]), member_id=st.sampled_from(["", "nobody"])
    )(Actions.somebody_without_permission_asks)
    somebody_errs = rule()(Actions.somebody_errs)
    somebody_asks_where_nobody_serves = rule(group_id=GROUP)(Actions.somebody_asks_where_nobody_serves)
    an_observer_looks = rule(group_id=ANY_GROUP)(Actions.an_observer_looks)

    # ------------------------------------------------------------ time, log, process

    time_passes_exactly = rule(duration_ms=st.sampled_from([500, 3_000, 10_000, 60_000]))(Actions.sleep)
    the_log_answers_for_several = rule(count=st.integers(2, 6))(Actions.write_together)
    the_log_refuses = rule(error=st.sampled_from(ERRORS), count=AT_ONCE)(Actions.the_log_refuses)
    an_answer_is_lost = rule()(Actions.an_answer_is_lost)
    another_writer_leaves_a_gap = rule(partition=PARTITION, count=st.integers(1, 3))(
        Actions.another_writer_leaves_a_gap
    )
    the_process_restarts = rule(
        written=st.integers(0, 6),
        max_size=st.sampled_from([MAX_SIZE, MAX_SIZE, 2]),
        loads=st.sampled_from([True, True, False]),
        breaks_after=st.sampled_from([None, None, 0, 2]),
    )(Actions.the_process_restarts)
    a_partition_moves_away = rule(partition=PARTITION, is_late=CHANCE)(Actions.a_partition_moves_away)
    a_partition_moves_here = rule(partition=PARTITION, is_late=CHANCE, records_at_once=AT_ONCE)(
        Actions.a_partition_moves_here
    )
    a_load_goes_on = rule(partition=PARTITION, records_at_once=AT_ONCE)(Actions.a_load_goes_on)
    a_load_fails = rule(partition=PARTITION, breaks_after=st.sampled_from([0, 1, 5]))(Actions.a_load_fails)

    def teardown(self) -> None:
        """However it went, it ends well."""
        if hasattr(self, "coordinator"):
            self.come_to_rest()

    def close(self) -> None:
        """Before it ends, members of the newer kinds of groups are served as well."""
        self.check_all_members_are_served()
        super().close()


TestCoordinatorMachine = FullMachine.TestCase
TestCoordinatorMachine.settings = settings(max_examples=250, stateful_step_count=50)


@pytest.mark.slow
class TestCoordinatorMachineForLong(FullMachine.TestCase):
    """The same, for ten times as many lives."""

    settings = settings(max_examples=1500, stateful_step_count=80, deadline=None)
