"""Consumer groups (KIP-848) in simulated worlds: alone, with both protocols in one, and moved to the other one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from attrs import evolve

from groupcoord.config import MigrationPolicy
from groupcoord.core.groups.base.assignor import GroupAssignment, GroupSpec
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.consumer.assignors import UniformAssignor
from groupcoord.core.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from groupcoord.core.groups.consumer.reconciliation import Reconciliation as ReconciliationStep
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
)
from groupcoord.core.groups.conversion import ConvertibleGroups
from groupcoord.core.log.records import OffsetTombstone
from groupcoord.core.topics import KnownTopics
from groupcoord.laws.modern_groups import consumer_group_of
from groupcoord.log_store import LogRecord, Ticket
from groupcoord.member.consumer import Reconciliation
from groupcoord.sim import (
    BusyApplication,
    ConsumerCrash,
    ConsumerPause,
    ConsumerStop,
    CutOff,
    Fault,
    GroupProtocol,
    LawBrokenError,
    LogTrouble,
    LossyNetwork,
    NodeCrash,
    ProtocolChange,
    TopicCreation,
    TopicDeletion,
    TopicGrowth,
    World,
    rolling_restart,
)
from groupcoord.sim.cluster.log import ClusterLog
from tests.samples import portion, sampled
from tests.tables import as_one_test

from .worlds import consumer_group_world

FAULTS: dict[str, list[Fault]] = {
    "none": [],
    "node crash": [NodeCrash(start_ms=60_000, end_ms=70_000, node_id=node_id) for node_id in (1, 2)],
    "cut off": [CutOff(start_ms=60_000, end_ms=80_000, consumers=(0, 2), node_ids=(1, 2))],
    "lossy network": [LossyNetwork(start_ms=60_000, end_ms=80_000, probability=0.2)],
    "slow log": [LogTrouble(start_ms=60_000, end_ms=80_000, flush_ms=3_000)],
    "failing log": [LogTrouble(start_ms=60_000, end_ms=80_000, refusal_percent=60)],
    "consumer crash": [ConsumerCrash(start_ms=60_000, end_ms=90_000, consumer=1, group="billing")],
    "stop": [ConsumerStop(start_ms=60_000, end_ms=65_000, consumer=1, group="billing")],
    "pause": [ConsumerPause(start_ms=60_000, end_ms=80_000, consumer=1, group="billing")],
    "busy": [BusyApplication(start_ms=60_000, end_ms=140_000, consumer=1, group="billing")],
    "growth": [TopicGrowth(start_ms=60_000, end_ms=60_000, topic="orders", partition_count=9)],
    "roll": rolling_restart("billing", range(3), 60_000, 1, 10_000, 3_000),
    "downgrade": rolling_restart("billing", range(3), 60_000, 1, 10_000, 3_000, protocol=GroupProtocol.CLASSIC),
}

UPGRADE = rolling_restart("billing", range(3), 30_000, 1, 10_000, 2_000, protocol=GroupProtocol.CONSUMER)
WAY_BACK = ProtocolChange(
    start_ms=60_000, end_ms=60_000, consumer=0, group="billing", protocol=GroupProtocol.CLASSIC, is_graceful=False
)
CRASHES = [NodeCrash(start_ms=43_000, end_ms=50_000, node_id=node_id) for node_id in (1, 2)]
LOG_TROUBLE = LogTrouble(start_ms=29_000, end_ms=60_000, refusal_percent=30)


def billing_of(world: World) -> ConsumerGroup | None:
    """Return the group as its coordinator has it, if that is a consumer group."""
    coordinator = world.cluster.serving("billing")
    assert coordinator is not None
    return consumer_group_of(coordinator, "billing")


@sampled
@as_one_test
@pytest.mark.parametrize("name", portion(list(FAULTS)))
def test_skipping_what_repeats_changes_nothing(name: str) -> None:
    """A consumer group with each fault has the same events with and without fast-forwarding."""
    options = consumer_group_world(*FAULTS[name], duration_ms=180_000)

    skipping, whole = World(7, options), World(7, evolve(options, fast_forwards=False))

    first, second = skipping.run(), whole.run()
    assert evolve(first, events=0, looks=0) == evolve(second, events=0, looks=0)
    assert first.events < second.events


@pytest.mark.parametrize("growth_ms", [60_320, 60_340, 60_360, 60_380])
def test_a_member_that_may_soon_hear_of_new_partitions_is_not_steady(growth_ms: int) -> None:
    """A topic grows while a response is in flight: its member is not skipped, since its next heartbeat brings new
    partitions.
    """
    growth = TopicGrowth(start_ms=growth_ms, end_ms=growth_ms, topic="orders", partition_count=9)
    options = consumer_group_world(growth)
    options = evolve(options, cluster=evolve(options.cluster, most_latency_ms=100))

    skipping, whole = World(7, options).run(), World(7, evolve(options, fast_forwards=False)).run()

    assert evolve(skipping, events=0, looks=0) == evolve(whole, events=0, looks=0)


@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
def test_a_rolling_upgrade_in_the_middle_of_trouble(is_static: bool) -> None:
    """Member by member a classic group becomes a consumer group, while the log fails and all coordinators die."""
    options = consumer_group_world(
        *UPGRADE, *CRASHES, LOG_TROUBLE, on_consumer_protocol=0, group={"is_static": is_static}
    )
    world = World(3, options)

    world.run()

    group = billing_of(world)
    assert group is not None
    assert group.group_state is ConsumerGroupState.STABLE
    assert not group.state.classic_member_count
    assert sorted(len(consumer.owned) for consumer in world.consumers) == [2, 2, 2]


def test_the_way_back() -> None:
    """When the last consumer has gone back to the classic protocol, so has the group; and nothing was read twice from
    the start."""
    back = rolling_restart("billing", range(3), 30_000, 1, 10_000, 2_000, protocol=GroupProtocol.CLASSIC)
    lines: list[str] = []
    world = World(3, consumer_group_world(*back), lines.append)

    world.run()

    assert billing_of(world) is None
    assert any("is gone (conversion)" in line for line in lines)
    figures = world.groups[0].observations.partitions
    assert max(figure.longest_duplicate_ms for figure in figures.values()) < 10_000


def test_both_protocols_in_one_group() -> None:
    """Consumers of both protocols share the partitions of one consumer group."""
    world = World(5, consumer_group_world(on_consumer_protocol=1))

    world.run()

    group = billing_of(world)
    assert group is not None
    assert (len(group.state.members), group.state.classic_member_count) == (3, 2)
    assert sorted(len(consumer.owned) for consumer in world.consumers) == [2, 2, 2]


@pytest.mark.parametrize("then", [GroupProtocol.CONSUMER, GroupProtocol.CLASSIC], ids=["upgrade", "and back"])
def test_what_static_members_find_when_they_come_back(then: GroupProtocol) -> None:
    """Static members that all come back with the other protocol have what they had: what is new is nobody's, at rest.

    So it is in Kafka 4.4: what members have is taken for the target, and the topics as they are for those it was made
    for. A group that goes back to the classic protocol in the same way keeps that, too.
    """
    changes = rolling_restart("billing", range(3), 60_000, 3, 0, 4_000, protocol=GroupProtocol.CONSUMER)
    growth = TopicGrowth(start_ms=62_000, end_ms=62_000, topic="orders", partition_count=9)
    if then is GroupProtocol.CLASSIC:
        changes += rolling_restart("billing", range(3), 80_000, 3, 0, 0, protocol=then)
    world = World(3, consumer_group_world(*changes, growth, on_consumer_protocol=0, group={"is_static": True}))

    world.run()

    owned = [partition.partition for consumer in world.consumers for partition in consumer.owned]
    assert sorted(owned) == list(range(6))


@pytest.mark.parametrize("on_consumer_protocol", [0, 1, 3], ids=["classic", "mixed", "consumer"])
def test_a_new_topic_that_an_expression_matches(on_consumer_protocol: int) -> None:
    creation = TopicCreation(start_ms=40_000, end_ms=40_000, topic="orders-new", partition_count=3)
    options = consumer_group_world(creation, on_consumer_protocol=on_consumer_protocol, group={"regex": "orders.*"})
    world = World(5, options)

    world.run()

    owned = [partition for consumer in world.consumers for partition in consumer.owned]
    assert len(owned) == len(set(owned)) == 9
    assert sum(partition.topic == "orders-new" for partition in owned) == 3


def test_a_topic_that_goes_and_that_an_expression_has_matched() -> None:
    """The world isn't at rest before the expression is matched again, which begins one more epoch (as in Kafka)."""
    deletion = TopicDeletion(start_ms=110_000, end_ms=110_000, topic="orders")
    lines: list[str] = []
    world = World(5, consumer_group_world(deletion, group={"regex": "orders.*"}, duration_ms=112_000), lines.append)

    outcome = world.run()

    assert outcome.rest_ms > 0
    assert any("rebalance: regular expression change" in line for line in lines)


@as_one_test
@pytest.mark.parametrize("on_consumer_protocol", [0, 1, 3], ids=["classic", "mixed", "consumer"])
@pytest.mark.parametrize("down_ms", [0, 20_000])
def test_a_topic_that_goes_and_comes_again(on_consumer_protocol: int, down_ms: int) -> None:
    end_ms = 60_000 + down_ms
    deletion = TopicDeletion(start_ms=60_000, end_ms=end_ms, topic="orders", partition_count=9)
    lines: list[str] = []
    options = consumer_group_world(deletion, on_consumer_protocol=on_consumer_protocol, duration_ms=180_000)
    world = World(3, options, lines.append)

    world.run()

    owned = [partition.partition for consumer in world.consumers for partition in consumer.owned]
    assert sorted(owned) == list(range(9))
    assert world.stage.topics.was_deleted("orders")


@pytest.mark.parametrize("on_consumer_protocol", [0, 1, 3], ids=["classic", "mixed", "consumer"])
def test_a_topic_that_goes_for_good(on_consumer_protocol: int) -> None:
    """Partitions of a deleted topic have no owner, and that time is not counted."""
    deletion = TopicDeletion(start_ms=60_000, end_ms=60_000, topic="orders")
    world = World(3, consumer_group_world(deletion, on_consumer_protocol=on_consumer_protocol, duration_ms=180_000))

    world.run()

    assert not any(consumer.owned for consumer in world.consumers)
    figures = world.groups[0].observations.partitions
    assert max(figure.unowned_ms for figure in figures.values()) < 20_000


@as_one_test
@pytest.mark.parametrize("policy", MigrationPolicy)
@pytest.mark.parametrize("first", GroupProtocol)
def test_who_may_meet_in_a_group(first: GroupProtocol, policy: MigrationPolicy) -> None:
    """A later member with the other protocol joins as the policy allows, or retries without disturbing the group."""
    latecomer = GroupProtocol.CONSUMER if first is GroupProtocol.CLASSIC else GroupProtocol.CLASSIC
    change = rolling_restart("billing", [2], 60_000, 1, 0, 15_000, protocol=latecomer)
    options = consumer_group_world(*change, on_consumer_protocol=3 if first is GroupProtocol.CONSUMER else 0)
    config = evolve(options.cluster.config, group_consumer_migration_policy=policy)
    world = World(3, evolve(options, cluster=evolve(options.cluster, config=config)))

    world.run()

    may_meet = policy.allows_upgrade if latecomer is GroupProtocol.CONSUMER else policy is not MigrationPolicy.DISABLED
    assert bool(world.consumers[2].owned) == may_meet
    assert sorted(len(consumer.owned) for consumer in world.consumers) == ([2, 2, 2] if may_meet else [0, 3, 3])


@pytest.mark.parametrize("down_ms", [0, 20_000, None], ids=["made anew", "comes again", "for good"])
def test_a_topic_that_goes_from_a_group_left_to_classic_members(down_ms: int | None) -> None:
    """Classic members alone in a consumer group get no notice: they keep their partitions, as in Kafka 4.4."""
    death = ConsumerCrash(start_ms=30_000, end_ms=30_000, consumer=2, group="billing", stays_dead=True)
    end_ms, count = (60_000 + down_ms, 9) if down_ms is not None else (60_000, 0)
    deletion = TopicDeletion(start_ms=60_000, end_ms=end_ms, topic="orders", partition_count=count)
    options = consumer_group_world(death, deletion, on_consumer_protocol=1)
    config = evolve(options.cluster.config, group_consumer_migration_policy=MigrationPolicy.UPGRADE)
    world = World(3, evolve(options, cluster=evolve(options.cluster, config=config)))

    world.run()

    group = billing_of(world)
    assert group is not None
    assert group.state.classic_member_count == len(group.state.members) == 2
    assert [len(consumer.owned) for consumer in world.consumers] == [2, 2, 0]


def test_a_crash_after_the_way_back() -> None:
    """That members must rejoin after a conversion is not in the log: as in Kafka 4.4, members that wait for partitions
    get none if the coordinator dies first.
    """
    crashes = [NodeCrash(start_ms=68_000, end_ms=70_000, node_id=node_id) for node_id in (1, 2)]
    lines: list[str] = []
    world = World(3, consumer_group_world(WAY_BACK, *crashes, on_consumer_protocol=1, members=1), lines.append)

    world.run()

    assert any("is gone (conversion)" in line for line in lines)
    assert not world.consumers[0].owned


# ---------------------------------------------------------------- the laws bite


def test_targets_that_move_without_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A uniform assignor that ignores former assignments breaks a law when a member joins."""
    assign = UniformAssignor.assign

    def forgetful(self: UniformAssignor, group: GroupSpec) -> GroupAssignment:
        members = {member_id: evolve(member, assigned={}) for member_id, member in group.members.items()}
        order = tuple(reversed(group.visiting_order)) if len(members) == 3 else group.visiting_order
        return assign(self, evolve(group, members=members, visiting_order=order))

    monkeypatch.setattr(UniformAssignor, "assign", forgetful)

    with pytest.raises(LawBrokenError, match=r"is to have .* and others have"):
        World(1, consumer_group_world(group={"start_spread_ms": 20_000})).run()


def test_targets_that_are_uneven(monkeypatch: pytest.MonkeyPatch) -> None:
    """A uniform assignor that gives everything to one member is caught at once."""

    def greedy(self: UniformAssignor, group: GroupSpec) -> GroupAssignment:
        everything = {topic_id: tuple(range(topic.partition_count)) for topic_id, topic in group.topics.items()}
        return {min(group.members): everything}

    monkeypatch.setattr(UniformAssignor, "assign", greedy)

    with pytest.raises(LawBrokenError, match="have the sizes"):
        World(1, consumer_group_world()).run()


def test_a_partition_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that hands a partition on before it was given back is caught."""
    monkeypatch.setattr(ReconciliationStep, "owner_epochs", property(lambda self: {}, lambda self, epochs: None))
    monkeypatch.setattr(ConsumerGroup, "check", lambda self: None)

    with pytest.raises(LawBrokenError, match=r"is of '.*' and '|is given|which others can be given"):
        World(1, consumer_group_world()).run()


def test_a_member_that_keeps_what_it_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that acknowledges a revocation and continues with the partitions breaks a law."""
    monkeypatch.setattr(Reconciliation, "_revoked", lambda self: ())

    with pytest.raises(LawBrokenError, match=r"which others can be given|which billing-. has as a member"):
        World(1, consumer_group_world(group={"start_spread_ms": 20_000})).run()


def test_an_epoch_that_is_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that falsely reports an assignment as written breaks a law when the member receives it."""
    write = ClusterLog.write

    def forgetful(self: ClusterLog, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        kept = [e for e in records if not isinstance(e.record, ConsumerGroupCurrentMemberAssignmentRecord)]
        base_offset = write(self, partition, ticket, kept)
        self.memory.skip_offsets(partition, len(records) - len(kept))
        return base_offset

    monkeypatch.setattr(ClusterLog, "write", forgetful)

    with pytest.raises(LawBrokenError, match=r"is told ConsumerGroupHeartbeatResponse.*the log has \[\]"):
        World(1, consumer_group_world()).run()


def test_a_conversion_that_forgets_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = ConvertibleGroups.begin_conversion

    def forgetful(self: ConvertibleGroups[Any, Any], written: Any, records: Iterable[Any], *held: Any) -> None:
        begin(self, written, [*records, OffsetTombstone("billing", "orders", 0)], *held)

    monkeypatch.setattr(ConvertibleGroups, "begin_conversion", forgetful)

    with pytest.raises(LawBrokenError, match="makes another kind of group"):
        World(3, consumer_group_world(*UPGRADE, on_consumer_protocol=0)).run()


def test_a_conversion_that_forgets_to_rebalance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A classic group converted from a consumer group, whose member is not asked to rejoin, is not stable."""
    go_on = ClassicGroups.go_on

    def forgetful(self: ClassicGroups, group: GroupMetadata, protocols: Any, trigger: Any, now_ms: int) -> None:
        go_on(self, group, protocols, None, now_ms)

    monkeypatch.setattr(ClassicGroups, "go_on", forgetful)

    with pytest.raises(LawBrokenError, match="billing did not come to rest"):
        World(3, consumer_group_world(WAY_BACK, on_consumer_protocol=1, members=1, settle_ms=60_000)).run()


def test_a_restart_that_makes_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator whose records depend on state that a restart loses breaks a law before any restart."""
    hashes = iter(range(10**9))
    monkeypatch.setattr(KnownTopics, "metadata_hash", lambda self, names: next(hashes))

    with pytest.raises(LawBrokenError, match="after a load"):
        World(1, consumer_group_world()).run()


def test_epochs_that_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group whose epoch restarts while it lives breaks a law, at the latest in the end."""
    write = ClusterLog.write

    def forgetful(self: ClusterLog, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        first = ConsumerGroupMetadataRecord("billing", 1)
        told = [LogRecord(first, entry.timestamp_ms) for entry in records if is_later_epoch(entry)]
        base_offset = write(self, partition, ticket, records)
        if told:
            self.write_foreign(partition, told[0])
        return base_offset

    monkeypatch.setattr(ClusterLog, "write", forgetful)

    with pytest.raises(LawBrokenError, match=r"a restart would change what is known|goes back"):
        World(1, consumer_group_world()).run()


def is_later_epoch(entry: LogRecord) -> bool:
    """Return whether a record begins an epoch after the first."""
    return isinstance(entry.record, ConsumerGroupMetadataRecord) and entry.record.epoch > 2


def test_members_of_the_log_are_those_that_live() -> None:
    """When a consumer has died for good, its group continues without it, in the log as well."""
    death = ConsumerCrash(start_ms=30_000, end_ms=30_000, consumer=1, group="billing", stays_dead=True)
    world = World(1, consumer_group_world(death))

    world.run()

    partition = world.cluster.partition_of("billing")
    records = [record for _, record in world.laws.log.replayed[partition].groups["billing"].values()]
    members = {r.client_id for r in records if isinstance(r, ConsumerGroupMemberMetadataRecord)}
    assert members == {"billing-0", "billing-2"}
