"""Topics that hold records: what is produced is fetched, waited for, looked up and deleted."""

from __future__ import annotations

import pytest

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.records.topic_data import NodeData
from groupcoord.broker.transactions.log import Writer
from groupcoord.broker.transactions.requests import answer_describe_producers
from groupcoord.broker.work import do_whole
from groupcoord.core.log.records import TransactionMarker
from groupcoord.core.messages import Node
from groupcoord.core.router.authorization import Operation, Permissions, ResourceType
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import (
    DeleteRecords,
    DeleteRecordsPartition,
    FetchedPartitionData,
    ListedOffsetsPartition,
    ListOffsets,
    ListOffsetsPartition,
    Produce,
    ProducedPartition,
    ProducePartition,
    TopicEntry,
    TopicNameOrIdEntry,
)
from groupcoord.wire.transaction_messages import DescribeProducers
from tests.broker.data_world import NO_ID, START_MS, DataWorld, batch, fetch_of, part, records_of
from tests.tables import as_one_test


@pytest.fixture
def world() -> DataWorld:
    return DataWorld()


def transactional(sequence: int = 0, epoch: int = 0, **fields: bool) -> bytes:
    producer = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": sequence}
    return batch(b"v", **producer, **{"is_transactional": True, **fields})


def lookup(world: DataWorld, timestamp: int, isolation_level: int = 0) -> ListedOffsetsPartition:
    request = ListOffsets((TopicEntry("one", (ListOffsetsPartition(0, timestamp),)),), -1, isolation_level)
    listed: ListedOffsetsPartition = world.ask(request).topics[0].partitions[0]
    return listed


# ---------------------------------------------------------------- Produce


def test_a_topic_made_again_is_empty(world: DataWorld) -> None:
    """A deleted topic takes its records along."""
    world.produce(batch(b"a"))
    world.delete("one")
    assert world.produce(batch(b"a")).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with world.topics.edit() as edit:
        edit.create("one", 1)
    assert world.fetch().high_watermark == 0


def test_acks_0(world: DataWorld) -> None:
    """An accepted Produce has no response; a refused one closes the connection, with the reason."""
    good = TopicNameOrIdEntry("one", NO_ID, (ProducePartition(0, batch(b"a")),))
    assert world.send(Produce((good,), acks=0)).answers == ["nothing"]
    bad = TopicNameOrIdEntry("one", NO_ID, (ProducePartition(0, batch(b"a")), ProducePartition(1, batch(b"a"))))
    assert world.send(Produce((bad,), acks=0)).refusal == "Produce with acks=0 failed: UNKNOWN_TOPIC_OR_PARTITION"
    assert world.fetch().high_watermark == 2


def test_a_full_memory_is_an_error() -> None:
    """A producer that goes past the bound learns it at once, and others read on."""
    world = DataWorld(records_memory_max_bytes=20_000)
    codes = [world.produce(batch(b"x" * 1_000)).error_code for _ in range(40)]
    taken = codes.count(ErrorCode.NONE)
    assert 5 < taken < 20
    assert set(codes[taken:]) == {ErrorCode.POLICY_VIOLATION}
    assert world.fetch().high_watermark == taken


# ---------------------------------------------------------------- Fetch that waits


def test_a_deleted_topic_ends_waiting(world: DataWorld) -> None:
    """The error is the recorded one, with no list of aborted transactions."""
    connection = world.send(fetch_of(part(0), name="one", max_wait_ms=500))
    world.delete("one")
    (response,) = connection.answers
    assert response.topics[0].partitions[0] == FetchedPartitionData(
        0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, aborted_transactions=None
    )


def test_nobody_watches_for_those_who_left(world: DataWorld) -> None:
    """Answered and disconnected fetches leave no watcher."""
    world.produce(batch(b"a"))
    log = world.data.log(world.topics.get("one"), 0)  # type: ignore[arg-type]
    assert log is not None
    gone = world.send(fetch_of(part(0, 1), name="one", max_wait_ms=500))
    world.send(fetch_of(part(0, 1), name="one", max_wait_ms=600))
    assert len(log.watchers) == 2
    world.requests.disconnected(gone)  # type: ignore[arg-type]
    assert len(log.watchers) == 1
    world.advance(600)
    assert not log.watchers


# ---------------------------------------------------------------- transactions


def test_read_committed(world: DataWorld) -> None:
    """Until a transaction ends, read_committed stops where it begins, in Fetch and in ListOffsets."""
    world.produce(batch(b"plain"))
    assert world.produce(transactional(), transactional_id="x").base_offset == 1
    assert (world.fetch().high_watermark, world.fetch(isolation_level=1).last_stable_offset) == (2, 1)
    assert (lookup(world, -1).offset, lookup(world, -1, 1).offset) == (2, 1)
    assert lookup(world, START_MS, 1).offset == 0
    waiting = world.send(fetch_of(part(0, 1), name="one", isolation_level=1, max_wait_ms=500))
    world.produce(batch(b"behind"))
    assert not waiting.answers
    end(world, committed=False)
    (response,) = waiting.answers
    (data,) = response.topics[0].partitions
    assert (data.last_stable_offset, data.aborted_transactions) == (4, ((7, 1),))


def end(world: DataWorld, *, committed: bool, epoch: int = 0) -> None:
    assert world.data.append_marker("one", 0, TransactionMarker(7, epoch, committed)) is ErrorCode.NONE


@as_one_test
@pytest.mark.parametrize(
    ("said", "version", "error"),
    [
        ("TRANSACTION_ABORTABLE", 10, "INVALID_TXN_STATE"),
        ("TRANSACTION_ABORTABLE", 11, "TRANSACTION_ABORTABLE"),
        ("CONCURRENT_TRANSACTIONS", 11, "NOT_ENOUGH_REPLICAS"),
        ("CONCURRENT_TRANSACTIONS", 12, "CONCURRENT_TRANSACTIONS"),
        ("INVALID_PRODUCER_ID_MAPPING", 9, "INVALID_PRODUCER_ID_MAPPING"),
        ("INVALID_PRODUCER_EPOCH", 12, "INVALID_PRODUCER_EPOCH"),
        ("COORDINATOR_NOT_AVAILABLE", 12, "NOT_ENOUGH_REPLICAS"),
    ],
)
def test_who_is_not_in_a_transaction(said: str, version: int, error: str) -> None:
    """The coordinator's error becomes the one that the request's version knows, as recorded."""
    asked: list[Writer] = []

    def verify(writer: Writer) -> ErrorCode:
        asked.append(writer)
        return ErrorCode[said]

    world = DataWorld(verify)
    versioned = {"knows_abortable": version >= 11, "adds_partitions": version >= 12}
    refused = world.produce(transactional(), transactional_id="x", **versioned)
    assert refused.error_code.name == error
    assert (refused.error_message is None) == (error != "INVALID_TXN_STATE")
    assert asked == [Writer("x", 7, 0, ("one", 0), version >= 12)]  # type: ignore[arg-type]
    assert world.fetch().high_watermark == 0


def test_only_leaders_append_markers() -> None:
    data = DataWorld().data
    node = NodeData(data, Leadership(Node(node_id, "h", 1) for node_id in (1, 2)), 1)
    marker = TransactionMarker(7, 0, committed=True)
    errors = [node.append_marker(*place, marker).name for place in (("two", 0), ("two", 1), ("gone", 0))]
    assert errors == ["NONE", "NOT_LEADER_OR_FOLLOWER", "NONE"]


def test_the_coordinator_is_asked_once_for_each_transaction() -> None:
    """While a transaction is open in a partition, its producer is not verified again."""
    asked: list[Writer] = []
    world = DataWorld(lambda writer: asked.append(writer) or ErrorCode.NONE)
    for sequence in range(3):
        world.produce(transactional(sequence), transactional_id="x")
    assert len(asked) == 1
    end(world, committed=True)
    world.produce(transactional(3), transactional_id="x")
    assert len(asked) == 2
    outside = world.produce(transactional(4, is_transactional=False))
    assert outside.error_code is ErrorCode.INVALID_TXN_STATE


def test_a_transactional_batch_needs_an_id(world: DataWorld) -> None:
    """Without a transactional id it is not allowed, as recorded."""
    refused = world.produce(transactional())
    assert refused == ProducedPartition(0, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def test_describe_producers(world: DataWorld) -> None:
    """Producers with their last sequence and the start of their transaction; each partition once."""
    world.produce(transactional(), transactional_id="x")
    request = DescribeProducers((TopicEntry("one", (0, 0, 5)), TopicEntry("nope", (0,))))
    one, nope = do_whole(answer_describe_producers(request, world.data)).topics
    assert [partition.error_code.name for partition in (*one.partitions, *nope.partitions)] == [
        "NONE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    assert one.partitions[0].active_producers == ((7, 0, 0, START_MS, -1, 0),)


@pytest.mark.parametrize(("policy", "error"), [("compact", "POLICY_VIOLATION"), ("compact,delete", "NONE")])
def test_records_are_deleted_only_where_the_policy_deletes(world: DataWorld, policy: str, error: str) -> None:
    """As Kafka refuses it for a topic that is compacted and nothing else."""
    world.produce(batch(b"a"))
    world.configure("one", cleanup_policy=policy)
    request = DeleteRecords((TopicEntry("one", (DeleteRecordsPartition(0, -1),)),))
    assert world.ask(request).topics[0].partitions[0].error_code.name == error


def test_an_empty_partition_has_no_records_to_delete(world: DataWorld) -> None:
    """Offset -1 stands for the end, which is 0 before anything is produced."""
    offsets = (DeleteRecordsPartition(0, -1), DeleteRecordsPartition(1, 1))
    deleted = world.ask(DeleteRecords((TopicEntry("two", offsets),))).topics[0].partitions
    assert deleted == ((0, ErrorCode.NONE, 0), (1, ErrorCode.OFFSET_OUT_OF_RANGE, -1))


# ---------------------------------------------------------------- who may


def test_deleting_and_reading_need_permission() -> None:
    def authorize(_: object, operation: Operation, resource: object) -> bool:
        return operation is Operation.WRITE or resource[0] is not ResourceType.TOPIC  # type: ignore[index]

    world = DataWorld(permissions=Permissions(authorize, None))
    world.produce(batch(b"a"))
    request = DeleteRecords((TopicEntry("one", (DeleteRecordsPartition(0, -1),)),))
    assert world.ask(request).topics[0].partitions[0].error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert world.fetch().error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


# ---------------------------------------------------------------- compaction


def test_compacted_topics_are_compacted_between_requests(world: DataWorld) -> None:
    """Of what was replaced nothing is fetched or looked up any more, as the topic's settings want it; others stay."""
    for name in ("one", "two"):
        for number in range(9):
            world.produce(batch(b"%d" % number, at_ms=START_MS + 2_000 * number), name)
    assert not world.data.compact_some(START_MS)
    world.configure("one", cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.1")
    for number in range(9, 18):
        world.produce(batch(b"%d" % number, at_ms=START_MS + 2_000 * number))
    while world.data.compact_some(START_MS):
        pass
    assert len(records_of(world.fetch())) == 2 * len(batch(b"17"))
    assert lookup(world, START_MS)[2:4] == (START_MS + 32_000, 16)
    assert len(records_of(world.fetch(name="two"))) == 9 * len(batch(b"1"))
