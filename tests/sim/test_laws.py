"""Laws of the simulator: a world with a planted bug breaks one, and names it."""

from __future__ import annotations

import pytest
from attrs import evolve

from groupcoord import Config, ErrorCode, GroupCoordinator
from groupcoord.core.consumer_protocol import Assignment, TopicPartition
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.classic.rebalance import Rebalance
from groupcoord.core.log.records import GroupMetadataRecord
from groupcoord.log_store import LogRecord, Ticket
from groupcoord.member.assignors.base import RangeAssignor
from groupcoord.member.subscription import TopicMetadata
from groupcoord.messages import HeartbeatResponse
from groupcoord.sim import (
    ClusterOptions,
    ConsumerCrash,
    ConsumerPause,
    LawBrokenError,
    NodeCrash,
    TopicGrowth,
    TransactionalProducer,
    World,
    run_seed,
)
from groupcoord.sim.actors.environment import Claim
from groupcoord.sim.cluster.log import ClusterLog
from groupcoord.sim.laws.run_laws import RunLaws
from tests.plants import plant

from .worlds import MEMBER, small_world

STATIC_RESTART = small_world(
    ConsumerCrash(start_ms=30_000, end_ms=32_000, consumer=1, group="billing"), group={"is_static": True}
)
SILENCE_IN_A_ROUND = small_world(
    ConsumerCrash(start_ms=30_000, end_ms=90_000, consumer=1, group="billing"),
    TopicGrowth(start_ms=30_100, end_ms=30_100, topic="orders", partition_count=8),
)
LONG_TRANSACTION = small_world(
    TransactionalProducer(
        start_ms=0,
        end_ms=10_000,
        producer_id=7,
        group="billing",
        crash_percent=100,
        least_timeout_ms=30_000,
        most_timeout_ms=30_000,
    ),
    cluster=ClusterOptions(
        node_count=2,
        config=Config(offsets_topic_num_partitions=2, offsets_retention_check_interval_ms=10_000),
    ),
    group={"start_spread_ms": 100_000},
    members=1,
)
WORLDS_OF_HISTORIC_BUGS = {
    "KAFKA-10284": (STATIC_RESTART, "a restart would make"),
    "KAFKA-7909": (SILENCE_IN_A_ROUND, "still waits"),
    "KAFKA-19163": (LONG_TRANSACTION, "of which a transaction is open"),
}


def test_two_owners_in_one_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """An assignor that gives everything to everybody is caught."""
    everything = Assignment(tuple(TopicPartition("orders", index) for index in range(6)))
    monkeypatch.setattr(RangeAssignor, "assign", lambda self, cluster, members: dict.fromkeys(members, everything))

    with pytest.raises(LawBrokenError, match="both own"):
        World(1, small_world()).run()


def test_ownership_counts_from_the_assignment_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation without a delivered assignment may be lost in a crash, and its number used again."""
    generations: set[int] = set()

    def assigned(self: RunLaws, claim: Claim, key: tuple[str, str, int]) -> None:
        record = self.log.follow(self._cluster.partition_of(key[0])).classic_record(key[0])
        assert record is not None
        assert record.generation_id >= claim.generation_id
        generations.add(claim.generation_id)

    monkeypatch.setattr(RunLaws, "assigned", assigned)
    member = evolve(MEMBER, partition_assignment_strategy=("cooperative-sticky",))
    pause = ConsumerPause(start_ms=30_000, end_ms=50_000, consumer=1, group="billing")
    World(1, small_world(pause, member=member)).run()

    assert len(generations) > 1


def test_a_commit_that_is_not_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that falsely reports a commit as written breaks a law when the commit is acknowledged."""
    write = ClusterLog.write

    def forgetful(self: ClusterLog, partition: int, ticket: Ticket, records: list[LogRecord]) -> int:
        if isinstance(records[0].record, GroupMetadataRecord):
            return write(self, partition, ticket, records)
        end_offset = self.memory.end_offset(partition)
        self.memory.skip_offsets(partition, len(records))
        return end_offset

    monkeypatch.setattr(ClusterLog, "write", forgetful)

    with pytest.raises(LawBrokenError, match="is acknowledged, but not in the log"):
        World(1, small_world()).run()


def test_a_heartbeat_of_somebody_who_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes every heartbeat is caught once a member that expired comes back."""
    taken = HeartbeatResponse(ErrorCode.NONE)
    monkeypatch.setattr(
        ClassicGroups, "heartbeat", lambda self, request, token, now_ms: self._effects.reply(token, taken)
    )
    pause = ConsumerPause(start_ms=30_000, end_ms=50_000, consumer=1, group="billing")

    with pytest.raises(LawBrokenError, match="its heartbeat is taken"):
        World(1, small_world(pause)).run()


def test_a_rebalance_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that omits assignments breaks a law when nothing else is pending."""
    monkeypatch.setattr(Rebalance, "assign", lambda self, written, now_ms: None)

    with pytest.raises(LawBrokenError, match="waits without end for its assignment"):
        World(1, small_world(settle_ms=60_000)).run()


def test_a_static_leader_that_does_not_look_at_the_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that has worked out the assignment and does not join again when a topic grows is caught."""
    monkeypatch.setattr(TopicMetadata, "has_changed", property(lambda self: False, lambda self, value: None))
    growth = TopicGrowth(start_ms=60_000, end_ms=60_000, topic="orders", partition_count=8)

    with pytest.raises(LawBrokenError, match="did not come to rest"):
        World(1, small_world(growth, group={"is_static": True}, settle_ms=60_000)).run()


def test_a_load_that_leaves_something_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator whose loaded state lacks records of the log breaks a law at the next check."""
    crash = NodeCrash(start_ms=30_000, end_ms=31_000, node_id=1)
    other = NodeCrash(start_ms=30_000, end_ms=31_000, node_id=2)
    replay = GroupCoordinator.continue_load

    def shortened(self: GroupCoordinator, partition: int, max_records: int | None = None) -> bool:
        read = self.log_store.read
        monkeypatch.setattr(self.log_store, "read", lambda index: list(read(index))[:-1])
        return replay(self, partition, max_records)

    monkeypatch.setattr(GroupCoordinator, "continue_load", shortened)

    with pytest.raises(LawBrokenError, match="a restart would change what is known"):
        World(1, small_world(crash, other)).run()


@pytest.mark.parametrize("name", WORLDS_OF_HISTORIC_BUGS)
def test_a_bug_that_kafka_has_had(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without the bug all laws hold; with it, the law made for it is broken."""
    options, broken = WORLDS_OF_HISTORIC_BUGS[name]
    World(1, options).run()
    plant(monkeypatch, name)

    with pytest.raises(LawBrokenError, match=broken):
        World(1, options).run()


def test_who_is_fenced_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that fences a member without a successor breaks a law at once."""
    fenced = HeartbeatResponse(ErrorCode.FENCED_INSTANCE_ID)
    monkeypatch.setattr(
        ClassicGroups, "heartbeat", lambda self, request, token, now_ms: self._effects.reply(token, fenced)
    )

    with pytest.raises(LawBrokenError, match="is fenced, but no member has replaced it"):
        World(1, small_world(group={"is_static": True})).run()


def test_a_failed_run_tells_how_it_came_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that broke a law carries the reason and the last lines of its trace."""
    monkeypatch.setattr(Rebalance, "assign", lambda self, written, now_ms: None)

    run = run_seed(1, small_world(settle_ms=10_000))

    assert run.outcome is None
    assert run.failure is not None
    assert "waits without end for its assignment" in run.failure
    assert any("billing-0" in line for line in run.tail)
