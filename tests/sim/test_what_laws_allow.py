"""The laws know what Kafka does, surprising as it may be: a world that does the same breaks none of them."""

from __future__ import annotations

import pytest

from groupcoord import Config
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
)
from groupcoord.core.log.records import GroupMetadataRecord, GroupTombstone
from groupcoord.log_store import LogRecord
from groupcoord.sim import (
    AdminAction,
    Administrator,
    ClusterOptions,
    GroupProtocol,
    LawBrokenError,
    NodeCrash,
    SimpleConsumer,
    TopicDeletion,
    World,
    run_seed,
)
from groupcoord.sim.actors.environment import Claim
from groupcoord.sim.scenarios.swarm import swarm_options

from .worlds import consumer_group_world, small_world

ONE_LOG_PARTITION = ClusterOptions(config=Config(offsets_topic_num_partitions=1))


def test_a_group_of_which_the_log_knows_nothing() -> None:
    """A group is listed though all its commits were refused: it is in the memory of its node alone."""
    tool = SimpleConsumer(start_ms=30_000, end_ms=60_000, group="tool", metadata_lengths=(5_000,))
    looks = [
        Administrator(start_ms=at_ms, end_ms=at_ms, group="billing", action=AdminAction.LOOK)
        for at_ms in range(31_000, 60_000, 4_000)
    ]
    world = World(1, small_world(tool, *looks, cluster=ONE_LOG_PARTITION))

    world.run()

    assert "tool" not in world.laws.log.follow(0).groups


def test_a_group_that_compaction_forgets() -> None:
    """A group whose offsets were deleted with their topic is gone after loading a compacted log."""
    tool = SimpleConsumer(start_ms=30_000, end_ms=40_000, group="tool", metadata_lengths=(0,))
    deletion = TopicDeletion(start_ms=50_000, end_ms=60_000, topic="orders", partition_count=6)
    crash = NodeCrash(start_ms=70_000, end_ms=80_000, node_id=1)
    world = World(1, small_world(tool, deletion, crash, cluster=ONE_LOG_PARTITION))

    world.run()

    assert world.laws.log.follow(0).groups["tool"] == {}
    coordinator = world.cluster.serving("tool")
    assert coordinator is not None
    partition = coordinator.partition(0)
    assert partition is not None
    assert "tool" not in partition.groups


def test_the_first_epoch_of_a_group_that_has_changed_its_kind() -> None:
    """A member of what was a classic group may have epoch 1 before a record says so, but no later one.

    No record says the epoch before an expression of its members is matched, and the classic group had generation 0.
    """
    world = World(1, consumer_group_world())
    log, partition = world.cluster.log, world.cluster.partition_of("billing")
    for record in (
        GroupMetadataRecord("billing", "", 0, None, None),
        GroupTombstone("billing"),
        ConsumerGroupMemberMetadataRecord("billing", "member", None, None, "", "", subscribed_topic_regex="ord.*"),
    ):
        log.write_foreign(partition, LogRecord(record, 0))

    world.laws.joined("billing", 1)
    with pytest.raises(LawBrokenError, match="the log knows 1"):
        world.laws.joined("billing", 2)


def test_what_a_member_had_in_an_earlier_generation_of_a_classic_group() -> None:
    """A consumer group that was a classic one goes by its last generation; who has not heard of that has more.

    Of the last generation itself everybody has what the log says.
    """
    world = World(1, consumer_group_world(on_consumer_protocol=0))
    log, partition = world.cluster.log, world.cluster.partition_of("billing")
    for generation_id in (4, 5):
        claim = Claim(f"old-{generation_id}", "old", GroupProtocol.CLASSIC, generation_id, None)
        world.laws.assigned(claim, ("billing", "orders", generation_id))
    for written in (
        GroupMetadataRecord("billing", "consumer", 5, "range", "old"),
        GroupTombstone("billing"),
        ConsumerGroupMemberMetadataRecord("billing", "old", None, None, "", "", ("orders",)),
        ConsumerGroupCurrentMemberAssignmentRecord("billing", "old", 5, 5, 0),
        ConsumerGroupMemberMetadataRecord("billing", "new", None, None, "", "", ("orders",)),
        ConsumerGroupCurrentMemberAssignmentRecord("billing", "new", 5, 5, 0),
    ):
        log.write_foreign(partition, LogRecord(written, 0))

    given = Claim("new", "new", GroupProtocol.CONSUMER, 6, None)
    world.laws.assigned(given, ("billing", "orders", 4))
    with pytest.raises(LawBrokenError, match="which old-5 has as a member"):
        world.laws.assigned(given, ("billing", "orders", 5))


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(402198, id="a heartbeat that waited behind a join that the log refuses"),
        pytest.param(403282, id="a group that is unloaded just after it became a classic one"),
        pytest.param(405539, id="a client that asks something at each second of the clock"),
        pytest.param(405682, id="a static member's old id that is back since the log refuses the new one"),
        pytest.param(635803, id="a fenced member whose successor is told of as the group becomes a classic one"),
        pytest.param(20093, id="a share-partition that is initialized again after its records were worked off"),
        pytest.param(900937, id="a busy member of the classic protocol that was out and has joined again unawares"),
        pytest.param(950289, id="a join that comes late, on a connection that was given up"),
        pytest.param(902674, id="a node that gets the log back which it had lost, and can't read it at once"),
        pytest.param(672810, id="a static member that gives a partition up and is started anew before it joins again"),
    ],
)
def test_small_fleets_with_everything_going_wrong(seed: int) -> None:
    """Fleets that were wrongly reported as breaking laws, though their coordinator does as Kafka does."""
    run = run_seed(seed, swarm_options(seed))
    assert run.outcome is not None, run.failure
