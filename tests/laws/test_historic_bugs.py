"""Histories in which a law must hold although a member is fenced, refused or dropped, as in Kafka."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.laws import LawBrokenError, served_partitions
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import CompleteTransaction, OffsetToCommit, TopicToCommit, TxnOffsetCommit
from groupcoord.testing.machine.consumers import REBALANCE_TIMEOUT_MS, ClassicConsumer
from tests.laws.test_scenarios import Scenario
from tests.plants import plant

GROUP = "alpha"
SWEEP_MS = 30_000


def group_of(world: Scenario) -> GroupMetadata:
    for partition in served_partitions(world.coordinator):
        if GROUP in partition.groups:
            group = partition.groups[GROUP]
            assert isinstance(group, GroupMetadata)
            return group
    raise AssertionError("there is no such group")


def a_group_of(world: Scenario, *instances: str | None) -> list[ClassicConsumer]:
    """Join consumers into a group, static ones with their instance ids."""
    consumers = [ClassicConsumer(f"c{number}", GROUP, instance) for number, instance in enumerate(instances)]
    for consumer in consumers:
        world.start_consumer(consumer)
    world.live_on(8, 500)
    assert group_of(world).state is GroupState.STABLE
    return consumers


def nobody_but_a_producer() -> None:
    """A producer commits an offset in a group that has nothing else; its transaction ends after some sweeps."""
    world = Scenario()
    topics = (TopicToCommit("orders", (OffsetToCommit(0, 5),)),)
    world.submit(TxnOffsetCommit(GROUP, topics, 7, 0))
    world.sleep(3 * SWEEP_MS)
    partition = world.coordinator.partition_of(GROUP)
    world.submit(CompleteTransaction(partition, 7, 0, committed=True))


def test_what_was_committed_in_a_transaction_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expiry does not interfere: the producer's pending offset is removed when its transaction is committed."""
    monkeypatch.setattr(Scenario, "on_append", lambda self, records: None)
    nobody_but_a_producer()
    plant(monkeypatch, "KAFKA-19163")
    with pytest.raises(LawBrokenError, match=r"is committed, its offset of .* is missing"):
        nobody_but_a_producer()


def test_who_is_fenced_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that fences who has no successor breaks a law, unless the log has never heard of its id."""
    world = Scenario()
    (consumer,) = a_group_of(world, "i1")
    monkeypatch.setattr(GroupMetadata, "identify", lambda self, *ids: ErrorCode.FENCED_INSTANCE_ID)
    with pytest.raises(LawBrokenError, match="is fenced without a successor"):
        world.go_on(consumer)


def test_a_restart_in_an_unfinished_round_is_fenced() -> None:
    """As in Kafka: the new id was not yet in a record when the coordinator died, so the old one is current."""
    world = Scenario(late=True)
    consumer = ClassicConsumer("c", GROUP, "i1")
    world.start_consumer(consumer)
    world.go_on(consumer)
    world.advance(0)
    world.write_all()
    world.go_on(consumer)
    member_id = consumer.member_id
    restarted = world.restart_static(consumer)
    assert (restarted.phase, group_of(world).generation_id) == ("syncing", 2)

    world.kill(written=1)
    world.coordinator.load_all()
    world.deliver()
    world.go_on(restarted)

    assert not restarted.is_alive
    assert list(group_of(world).members) == [member_id]


def test_two_returns_that_are_refused() -> None:
    """A static member that returns twice, with both ids refused late by the log, has the durable id."""
    world = Scenario(late=True)
    consumer = ClassicConsumer("c", GROUP, "i1")
    world.start_consumer(consumer)
    for _ in range(2):
        world.go_on(consumer)
        world.advance(0)
        world.write_all()
    member_id = consumer.member_id
    world.restart_static(world.restart_static(consumer))

    world.refuse(NotEnoughReplicasError("no"))

    assert list(group_of(world).members) == [member_id]


def test_nobody_looks_after_a_member_was_sent_away() -> None:
    """As in Kafka: who finds no room is dropped, and the others wait on although all that are left have joined."""
    world = Scenario(group_max_size=2)
    first, late = a_group_of(world, "i1", "i2")
    first.protocols = ("roundrobin", "range")
    first.rejoin()
    newcomer = world.start_consumer(ClassicConsumer("n", GROUP, "i3"))
    for consumer in (first, newcomer):
        world.go_on(consumer)

    refused = world.submit(late.join_request())

    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (group_of(world).state, group_of(world).all_joined) == (GroupState.PREPARING_REBALANCE, True)
    world.sleep(REBALANCE_TIMEOUT_MS)
    assert group_of(world).state is GroupState.COMPLETING_REBALANCE
