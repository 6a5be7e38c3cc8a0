"""Random lives of consumer groups under a log that answers late, fails and crashes: the laws hold at every step."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from groupcoord.testing.fleet import PARTITIONS
from tests.laws.actions import ERRORS, MANNERS, PROTOCOLS, Lives
from tests.laws.world import GROUPS, LOG_PARTITIONS, MAX_SIZE, METADATA_LIMIT, World

WHO = st.integers(0, 8)
GROUP = st.sampled_from(GROUPS)
ANY_GROUP = st.sampled_from([*GROUPS, "gamma"])
PARTITION = st.integers(0, LOG_PARTITIONS - 1)
INDEX = st.integers(0, PARTITIONS - 1)
PRODUCER = st.sampled_from([7, 8])
CHANCE = st.booleans()
AT_ONCE = st.sampled_from([None, 1, 3])


class CoordinatorMachine(Lives, RuleBasedStateMachine):
    """Everything of :class:`Lives`, in any order."""

    begin = initialize(seed=st.integers(0, 2**32), delay_ms=st.sampled_from([0, 3_000]), late=CHANCE)(World.begin)

    # ------------------------------------------------------------ consumers

    a_consumer_starts = rule(
        group_id=GROUP,
        instance=st.sampled_from([None, None, "i1", "i2"]),
        protocols=st.integers(0, len(PROTOCOLS) - 1),
        manner=st.integers(0, len(MANNERS) - 1),
    )(Lives.a_consumer_starts)
    a_group_comes_to_be = rule(
        group_id=GROUP,
        instances=st.sampled_from([(None, None), ("i1", None), ("i1", "i2", None)]),
        manner=st.integers(0, len(MANNERS) - 1),
    )(Lives.a_group_comes_to_be)
    a_consumer_goes_on = rule(who=WHO)(Lives.a_consumer_goes_on)
    everybody_goes_on_for_a_while = rule(rounds=st.integers(1, 6))(Lives.everybody_goes_on_for_a_while)
    a_consumer_commits = rule(who=WHO, by_id=CHANCE)(Lives.a_consumer_commits)
    a_consumer_repeats_its_request = rule(who=WHO)(Lives.a_consumer_repeats_its_request)
    a_consumer_joins_again = rule(who=WHO, changes=CHANCE)(Lives.a_consumer_joins_again)
    a_static_consumer_restarts = rule(
        who=WHO, protocols=st.sampled_from([None, None, *range(len(PROTOCOLS))]), skips=CHANCE
    )(Lives.a_static_consumer_restarts)
    a_consumer_dies = rule(who=WHO)(Lives.a_consumer_dies)
    a_consumer_leaves = rule(who=WHO)(Lives.a_consumer_leaves)
    several_are_removed = rule(group_id=ANY_GROUP, by_instance=CHANCE, count=st.integers(0, 4))(
        Lives.several_are_removed
    )
    a_ghost_speaks = rule(who=WHO, kind=st.sampled_from(["joining", "syncing", "stable", "commit", "leave"]))(
        Lives.a_ghost_speaks
    )
    a_stranger_joins = rule(
        group_id=ANY_GROUP,
        asks_for_id=CHANCE,
        protocols=st.sampled_from([(), ("range",), ("range", "range"), ("sticky",)]),
        misfit=st.sampled_from([False, False, True]),
    )(Lives.a_stranger_joins)
    a_consumer_commits_in_a_transaction = rule(who=WHO, producer_id=PRODUCER)(Lives.a_consumer_commits_in_a_transaction)

    # ------------------------------------------------------------ administrators, producers, people

    somebody_commits_from_outside = rule(group_id=GROUP, index=INDEX)(Lives.somebody_commits_from_outside)
    somebody_commits_in_a_peculiar_way = rule(
        group_id=GROUP,
        by_id=CHANCE,
        size=st.sampled_from([0, 1, METADATA_LIMIT, METADATA_LIMIT + 1]),
        retention_ms=st.sampled_from([-1, 0, 45_000]),
    )(Lives.somebody_commits_in_a_peculiar_way)
    a_clerk_deals_with_offsets = rule(group_id=GROUP)(Lives.a_clerk_deals_with_offsets)
    somebody_deletes = rule(group_ids=st.permutations(GROUPS))(Lives.somebody_deletes)
    somebody_deletes_offsets = rule(group_id=GROUP, indexes=st.sets(INDEX, min_size=1))(Lives.somebody_deletes_offsets)
    a_topic_is_deleted = rule(name=st.sampled_from(["orders", "audit"]))(Lives.a_topic_is_deleted)
    a_producer_commits = rule(producer_id=PRODUCER, group_id=GROUP, index=INDEX)(Lives.a_producer_commits)
    a_transaction_ends = rule(producer_id=PRODUCER, partition=PARTITION, committed=CHANCE)(Lives.a_transaction_ends)
    somebody_without_permission_asks = rule(
        group_id=st.sampled_from([*GROUPS, "", "gamma"]), member_id=st.sampled_from(["", "nobody"])
    )(Lives.somebody_without_permission_asks)
    somebody_errs = rule()(Lives.somebody_errs)
    somebody_asks_where_nobody_serves = rule(group_id=GROUP)(Lives.somebody_asks_where_nobody_serves)
    an_observer_looks = rule(group_id=ANY_GROUP)(Lives.an_observer_looks)

    # ------------------------------------------------------------ time, log, process

    time_passes = rule(
        duration_ms=st.sampled_from([1, 500, 3_000, 9_999, 10_000, 20_000, 60_000, 300_000]), exactly=CHANCE
    )(Lives.time_passes)
    the_log_answers = precondition(lambda self: self.store.waiting())(
        rule(count=st.integers(1, 6), together=CHANCE)(Lives.the_log_answers)
    )
    the_log_refuses = rule(error=st.sampled_from(ERRORS), count=AT_ONCE)(Lives.the_log_refuses)
    an_append_times_out = rule(is_written=CHANCE)(Lives.an_append_times_out)
    another_writer_leaves_a_gap = rule(partition=PARTITION, count=st.integers(1, 3))(Lives.another_writer_leaves_a_gap)
    the_process_restarts = rule(
        written=st.integers(0, 6),
        max_size=st.sampled_from([MAX_SIZE, MAX_SIZE, 2]),
        loads=st.sampled_from([True, True, False]),
        breaks_after=st.sampled_from([None, None, 0, 2]),
    )(Lives.the_process_restarts)
    a_partition_moves_away = rule(partition=PARTITION, is_late=CHANCE)(Lives.a_partition_moves_away)
    a_partition_moves_here = rule(partition=PARTITION, is_late=CHANCE, records_at_once=AT_ONCE)(
        Lives.a_partition_moves_here
    )
    a_load_goes_on = rule(partition=PARTITION, records_at_once=AT_ONCE)(Lives.a_load_goes_on)
    a_load_fails = rule(partition=PARTITION, breaks_after=st.sampled_from([0, 1, 5]))(Lives.a_load_fails)

    # ------------------------------------------------------------ laws

    laws_hold = invariant()(World.laws_hold)

    def teardown(self) -> None:
        """However it went, it ends well."""
        if hasattr(self, "coordinator"):
            self.come_to_rest()


TestCoordinatorMachine = CoordinatorMachine.TestCase
TestCoordinatorMachine.settings = settings(max_examples=250, stateful_step_count=50, deadline=None, derandomize=True)


@pytest.mark.slow
class TestCoordinatorMachineForLong(CoordinatorMachine.TestCase):
    """The same, for ten times as many lives."""

    settings = settings(max_examples=1500, stateful_step_count=80, deadline=None)
