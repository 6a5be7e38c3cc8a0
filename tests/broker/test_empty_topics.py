"""Topics that hold no records (``records.enable=false``): Produce, ListOffsets and Fetch."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord import ErrorCode
from groupcoord.broker.records.produce import NO_DATA
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.wire.broker_messages import (
    Fetch,
    ListOffsets,
    ListOffsetsPartition,
    Produce,
    ProducePartition,
    TopicEntry,
    TopicNameOrIdEntry,
)
from tests.broker.data_world import DataWorld, fetch_of, part, partitions_of
from tests.tables import as_one_test

OTHER_ID = UUID(int=99)


@pytest.fixture
def world() -> DataWorld:
    return DataWorld(records_enable=False)


@as_one_test
@pytest.mark.parametrize(
    ("partition", "error", "offset", "epoch"),
    [
        (ListOffsetsPartition(0, -1), "NONE", 0, 0),
        (ListOffsetsPartition(0, -2), "NONE", 0, 0),
        (ListOffsetsPartition(0, -3), "NONE", -1, -1),
        (ListOffsetsPartition(0, -4), "NONE", 0, 0),
        (ListOffsetsPartition(0, -5), "NONE", -1, -1),
        (ListOffsetsPartition(0, -6), "NONE", -1, -1),
        (ListOffsetsPartition(0, -7), "UNSUPPORTED_VERSION", -1, -1),
        (ListOffsetsPartition(0, 0), "NONE", -1, -1),
        (ListOffsetsPartition(0, 1_700_000_000_000), "NONE", -1, -1),
        (ListOffsetsPartition(0, -1, 0), "NONE", 0, 0),
        (ListOffsetsPartition(0, -1, 1), "UNKNOWN_LEADER_EPOCH", -1, -1),
        (ListOffsetsPartition(1, -7), "UNSUPPORTED_VERSION", -1, -1),
        (ListOffsetsPartition(0, -7, 5), "UNSUPPORTED_VERSION", -1, -1),
    ],
)
def test_list_offsets_as_recorded(
    world: DataWorld, partition: ListOffsetsPartition, error: str, offset: int, epoch: int
) -> None:
    """An empty log starts and ends at 0 and has nothing at any other time."""
    (topic,) = world.ask(ListOffsets((TopicEntry("one", (partition,)),))).topics
    (listed,) = topic.partitions
    assert (listed.error_code.name, listed.offset, listed.leader_epoch) == (error, offset, epoch)
    assert listed.timestamp == -1


@pytest.mark.parametrize(
    ("request_", "errors", "wait_ms"),
    [
        (fetch_of(part()), ["NONE"], 300),
        (fetch_of(part(fetch_offset=42)), ["NONE"], 300),
        (fetch_of(part(fetch_offset=-1)), ["OFFSET_OUT_OF_RANGE"], 0),
        (fetch_of(part(current_leader_epoch=0)), ["NONE"], 300),
        (fetch_of(part(current_leader_epoch=3)), ["UNKNOWN_LEADER_EPOCH"], 0),
        (fetch_of(part(), part(9)), ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"], 300),
        (fetch_of(part(0, -1), part(1)), ["OFFSET_OUT_OF_RANGE", "NONE"], 0),
        (fetch_of(part(), part()), ["NONE"], 300),
        (fetch_of(part(1), name=None, topic_id=UUID(int=2)), ["NONE"], 300),
        (fetch_of(part(), min_bytes=0), ["NONE"], 0),
        (fetch_of(part(), max_bytes=0), ["NONE"], 0),
        (fetch_of(part(), max_wait_ms=0), ["NONE"], 0),
        (fetch_of(part(), max_wait_ms=-5), ["NONE"], 0),
        (fetch_of(part(), replica_id=4), ["NOT_LEADER_OR_FOLLOWER"], 0),
        (fetch_of(), [], 0),
        (Fetch(()), [], 0),
    ],
)
def test_fetch_as_recorded(world: DataWorld, request_: Fetch, errors: list[str], wait_ms: int) -> None:
    """Errors, and whether a Fetch waits for data, are as Kafka 4.4 answered, but for offsets beyond the empty log."""
    connection = world.send(request_)
    if wait_ms:
        assert not connection.answers
        world.advance(wait_ms - 1)
        assert not connection.answers
        world.advance(1)
    (response,) = connection.answers
    assert response.error_code is ErrorCode.NONE
    assert [data.error_code.name for data in partitions_of(response)] == errors


def test_fetch_beyond_the_log_keeps_the_position(world: DataWorld) -> None:
    """A consumer that committed 42 reads on there: the log seems to end at 42, so there is no lag and no reset."""
    data = world.fetch(42)
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset, data.records) == (42, 42, 0, ())


def test_fetch_sessions(world: DataWorld) -> None:
    """A new session is not made: the answer has session id 0. One that was never made is not found."""
    response = world.ask(fetch_of(part(), session_epoch=0, max_wait_ms=0))
    assert (response.session_id, response.error_code) == (0, ErrorCode.NONE)
    for session_id in (0, 77):
        refused = world.ask(fetch_of(part(), session_id=session_id, session_epoch=5))
        assert (refused.error_code, refused.topics) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())


def test_aborted_transactions_are_listed_for_read_committed_only(world: DataWorld) -> None:
    """An empty list for read_committed, null for read_uncommitted.

    On errors, as recorded: an empty list for a partition that is not there, null for one that can't be read.
    """
    assert world.fetch(isolation_level=1).aborted_transactions == ()
    assert world.fetch(isolation_level=0).aborted_transactions is None
    for isolation_level in (0, 1):
        failed = world.ask(fetch_of(part(0, -1), part(9), isolation_level=isolation_level))
        assert [data.aborted_transactions for data in partitions_of(failed)] == [None, ()]


# ---------------------------------------------------------------- Produce


NO_ID, TOPIC_ID = UUID(int=0), UUID(int=2)


def named(name: str, *partition_indexes: int) -> TopicNameOrIdEntry[ProducePartition]:
    return TopicNameOrIdEntry(name, NO_ID, tuple(ProducePartition(index, b"") for index in partition_indexes))


def by_id(topic_id: UUID, *partition_indexes: int) -> TopicNameOrIdEntry[ProducePartition]:
    return TopicNameOrIdEntry(None, topic_id, tuple(ProducePartition(index, b"") for index in partition_indexes))


@pytest.mark.parametrize(
    ("asked", "acks", "errors"),
    [
        ([named("two", 1)], -1, ["POLICY_VIOLATION"]),
        ([by_id(TOPIC_ID, 0)], -1, ["POLICY_VIOLATION"]),
        ([named("two", 2, -1)], -1, ["UNKNOWN_TOPIC_OR_PARTITION"] * 2),
        ([by_id(TOPIC_ID, 2)], -1, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        ([named("bad name", 0)], -1, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        ([by_id(OTHER_ID, 0)], -1, ["UNKNOWN_TOPIC_ID"]),
        ([named("two", 0)], 2, ["INVALID_REQUIRED_ACKS"]),
        ([named("nope", 0)], 2, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        ([named(OFFSETS_TOPIC, 0)], -1, ["INVALID_TOPIC_EXCEPTION"]),
        ([named(OFFSETS_TOPIC, 77)], -1, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        ([named("nope", 0), named("two", 0)], -1, ["UNKNOWN_TOPIC_OR_PARTITION", "POLICY_VIOLATION"]),
    ],
)
def test_produce_as_recorded(
    world: DataWorld, asked: list[TopicNameOrIdEntry[ProducePartition]], acks: int, errors: list[str]
) -> None:
    """All but the refusal of the records itself is as recorded from Kafka 4.4."""
    answered = world.ask(Produce(tuple(asked), acks)).topics
    assert [(topic.name, topic.topic_id) for topic in answered] == [(topic.name, topic.topic_id) for topic in asked]
    partitions = [partition for topic in answered for partition in topic.partitions]
    assert [partition.partition_index for partition in partitions] == [
        index for topic in asked for index, _ in topic.partitions
    ]
    assert [partition.error_code.name for partition in partitions] == errors
    for partition in partitions:
        assert (partition.error_message == NO_DATA) == (partition.error_code is ErrorCode.POLICY_VIOLATION)


def test_repetitions(world: DataWorld) -> None:
    """A partition or topic named twice is answered once, one without partitions not at all, as recorded."""
    request = Produce((named("two", 0, 0), named("nope"), named("two", 1)))
    (topic,) = world.ask(request).topics
    assert [partition.partition_index for partition in topic.partitions] == [0, 1]
