"""``__transaction_state``: what the transaction coordinator keeps, for its readers and for the next start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from groupcoord import Config, ErrorCode, ManualClock
from groupcoord.broker.broker import make_broker
from groupcoord.broker.cluster.administration import answer_describe_log_dirs
from groupcoord.broker.records.list_offsets import answer_delete_records, answer_list_offsets
from groupcoord.broker.transactions.log import (
    MEMORY_SEGMENT_BYTES,
    NoProducerIdError,
    ProducerIds,
    ProducerIdsFileError,
    TransactionState,
)
from groupcoord.broker.work import do_whole
from groupcoord.core.log.records import TRANSACTIONS_TOPIC
from groupcoord.core.messages import CoordinatorType, FindCoordinator
from groupcoord.core.router.authorization import Operation, Principal, Resource, ResourceType
from groupcoord.records.batches import iter_batches
from groupcoord.records.transactions import decode_transaction_key, decode_transaction_value
from groupcoord.storage.log.folder import LogFolder
from groupcoord.wire.broker_messages import (
    CreatePartitions,
    CreatePartitionsTopic,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteTopics,
    FetchedPartitionData,
    ListOffsets,
    ListOffsetsPartition,
    TopicEntry,
    TopicReference,
)
from groupcoord.wire.cluster_messages import DescribeLogDirs
from groupcoord.wire.transaction_messages import InitProducerId, InitProducerIdResponse
from tests.broker.data_world import FakeConnection, fetch_of, part
from tests.broker.transaction_world import WRITER, ProducerClient, TransactionWorld, append, log_of, open_on
from tests.tables import as_one_test

PARTITION = 7
"""Where ``writer`` is, of 50."""

OPEN, PREPARED_COMMIT, PREPARED_ABORT, COMMITTED, ABORTED = 1, 2, 3, 4, 5


def may_not_describe_ids(principal: Principal, operation: Operation, resource: Resource) -> bool:
    return resource.resource_type is not ResourceType.TRANSACTIONAL_ID


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


@pytest.fixture
def client(world: TransactionWorld) -> ProducerClient:
    return world.open()


def fetch(client: ProducerClient, offset: int = 0, **fields: Any) -> FakeConnection:
    connection = FakeConnection()
    request = fetch_of(part(PARTITION, fetch_offset=offset), name=TRANSACTIONS_TOPIC, **{"max_wait_ms": 0, **fields})
    connection.answer(do_whole(client.broker.fetch_requests.fetch(connection, request)))  # type: ignore[arg-type]
    return connection


def fetched(connection: FakeConnection) -> FetchedPartitionData:
    (answer,) = connection.answers
    found: FetchedPartitionData = answer.topics[0].partitions[0]
    assert found.error_code is ErrorCode.NONE
    return found


def records_in(connection: FakeConnection) -> list[tuple[str | None, dict[str, Any] | None]]:
    batches = list(iter_batches(b"".join(fetched(connection).records)))
    headers = {(batch.attributes, batch.producer_id, batch.producer_epoch, batch.base_sequence) for batch in batches}
    assert headers <= {(0, -1, -1, -1)}
    return [
        (decode_transaction_key(key or b""), None if value is None else decode_transaction_value(value))
        for batch in batches
        for _, _, key, value in batch.records()
    ]


def steps(client: ProducerClient) -> list[tuple[int, int, list[tuple[str, list[int]]] | None, int]]:
    """Return each state that ``writer`` was in: the state, its epoch, its partitions, and the client's version."""
    found = []
    for transactional_id, value in records_in(fetch(client)):
        assert transactional_id == WRITER
        assert value is not None
        assert value["previousProducerId"] == value["producerId"]
        partitions = value["transactionPartitions"]
        places = None if partitions is None else [(place["topic"], place["partitionIds"]) for place in partitions]
        version = value.get("clientTransactionVersion", 0)
        found.append((value["transactionStatus"], value["producerEpoch"], places, version))
    return found


def test_each_change_is_a_record(world: TransactionWorld, client: ProducerClient) -> None:
    """Equal to the records of Apache Kafka 4.4.0 for the same requests: states, epochs, partitions, client version."""
    producer = client.start()
    assert client.add(producer, ("t", (2, 0))) == ["NONE"] * 2
    assert client.add_group(producer) == "NONE"
    assert client.end(producer)[0] == "NONE"
    client.commit(producer, adds_group=True)
    producer = client.end(producer, False, bumps=True)[1:]
    producer = client.end(producer, False, bumps=True)[1:]
    client.add(producer, ("t", (1,)))
    assert client.init()[0] == "CONCURRENT_TRANSACTIONS"
    client.start()
    offsets = ("__consumer_offsets", [client.broker.coordinator.partition_of("g")])
    assert steps(client) == [
        (0, 0, None, 0),
        (OPEN, 0, [("t", [0, 2])], 0),
        (OPEN, 0, [offsets, ("t", [0, 2])], 0),
        (PREPARED_COMMIT, 0, [offsets, ("t", [0, 2])], 0),
        (COMMITTED, 0, [], 0),
        (OPEN, 0, [offsets], 2),
        (PREPARED_ABORT, 1, [offsets], 2),
        (ABORTED, 1, [], 2),
        (PREPARED_ABORT, 2, [], 2),
        (ABORTED, 2, [], 2),
        (OPEN, 2, [("t", [1])], 0),
        (PREPARED_ABORT, 3, [("t", [1])], 2),
        (ABORTED, 3, [], 2),
        (0, 4, None, 2),
    ]


def test_a_time_out_and_the_end_of_an_id(world: TransactionWorld, client: ProducerClient) -> None:
    """An open transaction that takes too long is aborted in version 2; an id that is forgotten has a tombstone."""
    client.add(client.start(timeout_ms=1_000), ("t", (1,)))
    world.pass_ms(client, 2_000)
    assert steps(client)[-2:] == [(PREPARED_ABORT, 1, [("t", [1])], 2), (ABORTED, 1, [], 2)]
    world.pass_ms(client, 604_800_000 + 3_600_000)
    assert records_in(fetch(client))[-1] == (WRITER, None)


def test_readers_follow_it(client: ProducerClient) -> None:
    """A change wakes waiting fetches; its offsets and size are described, and its records can't be deleted."""
    client.start()
    waiting = fetch(client, 1, max_wait_ms=10_000, min_bytes=1)
    assert waiting.answers == []
    client.init("another of these")
    assert waiting.answers == []
    client.start()
    assert [key for key, _ in records_in(waiting)] == [WRITER]
    found = fetched(fetch(client, isolation_level=1))
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (2, 2, 0)
    data, topics, requests = client.broker.data, client.broker.topics, client.broker.topic_requests
    wanted = ListOffsets((TopicEntry(TRANSACTIONS_TOPIC, (ListOffsetsPartition(PARTITION, -1),)),))
    assert do_whole(answer_list_offsets(wanted, data)).topics[0].partitions[0].offset == 2
    (folder,) = do_whole(answer_describe_log_dirs(DescribeLogDirs(None), data)).results
    (sizes,) = [topic.partitions for topic in folder.topics if topic.name == TRANSACTIONS_TOPIC]
    assert [size.partition_index for size in sizes if size.partition_size == sum(map(len, found.records))] == [
        PARTITION
    ]
    deleted = DeleteRecords((TopicEntry(TRANSACTIONS_TOPIC, (DeleteRecordsPartition(PARTITION, 1),)),), 1_000)
    answer = do_whole(answer_delete_records(deleted, data)).topics[0].partitions[0]
    assert answer.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
    grown = CreatePartitions((CreatePartitionsTopic(TRANSACTIONS_TOPIC, 60, None),))
    assert do_whole(requests.create_partitions(grown)).results[0].error_code is ErrorCode.INVALID_REQUEST
    refused = do_whole(requests.delete(DeleteTopics((TopicReference(TRANSACTIONS_TOPIC),), 1_000)))
    assert refused.responses[0].error_code is ErrorCode.INVALID_REQUEST
    assert topics.get(TRANSACTIONS_TOPIC) is not None


def test_it_is_made_when_a_coordinator_is_looked_for(world: TransactionWorld) -> None:
    """As in Kafka the first FindCoordinator of a transactional id by a permitted client creates the topic."""
    for authorize, key_type, is_made in (
        (None, CoordinatorType.GROUP, False),
        (may_not_describe_ids, CoordinatorType.TRANSACTION, False),
        (None, CoordinatorType.TRANSACTION, True),
    ):
        broker = make_broker(config=Config(), clock=world.clock, log_store=world.store, authorize=authorize)
        broker.handle(FakeConnection(broker), FindCoordinator(key_type, (WRITER,)))  # type: ignore[arg-type]
        topic = broker.topics.get(TRANSACTIONS_TOPIC)
        assert (topic is not None) is is_made
    assert topic is not None
    assert (topic.partition_count, topic.configs) == (
        50,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        },
    )


def test_markers_name_the_epoch_of_the_coordinator(world: TransactionWorld, client: ProducerClient) -> None:
    """It is the leader epoch of the transactional id's partition."""
    producer = client.start()
    client.add(producer, ("t", (1,)))
    log_of(world.data, TRANSACTIONS_TOPIC, PARTITION).begin_epoch(5)
    client.end(producer)
    ends = log_of(world.data, "t", 1).producers.last_entries().values()
    assert [found.coordinator_epoch for found in ends] == [5]


def test_memory_does_not_grow_with_transactions(world: TransactionWorld, client: ProducerClient) -> None:
    """In memory what is out of date is dropped before long, and what counts stays."""
    producer = client.start()
    for _ in range(4_000):
        client.add(producer, ("t", (1,)))
        producer = client.end(producer, True, bumps=True)[1:]
        client.broker.compact_some()
    while client.broker.compact_some():
        pass
    log = log_of(world.data, TRANSACTIONS_TOPIC, PARTITION)
    assert log.end_offset == 12_001
    assert sum(segment.size_bytes for segment in log.segments) < 3 * MEMORY_SEGMENT_BYTES
    assert world.open().state() == "CompleteCommit"


# ---------------------------------------------------------------- on disk


def test_topics_that_hold_nothing(tmp_path: Path) -> None:
    """With ``records.enable=false`` transactions are kept, and can be read, all the same."""
    client = open_on(tmp_path, records_enable=False)
    client.add_group(client.start())
    assert [state for state, *_ in steps(client)] == [0, OPEN]
    client.broker.close()
    again = open_on(tmp_path, records_enable=False)
    assert again.state() == "Ongoing"
    again.broker.close()


def test_logs_that_nobody_looked_at_are_not_in_order(tmp_path: Path) -> None:
    """A run without records doesn't promise the next one that the logs of topics need no look after a kill."""
    client = open_on(tmp_path)
    append(client.broker.data, "t", 0, b"k", b"v")
    client.broker.abandon()
    (segment,) = (tmp_path / "t-0").glob("*.log")
    segment.write_bytes(segment.read_bytes() + b"torn")
    open_on(tmp_path, records_enable=False).broker.close()
    again = open_on(tmp_path)
    assert (log_of(again.broker.data, "t", 0).end_offset, segment.read_bytes()[-4:] == b"torn") == (1, False)
    again.broker.close()


def test_transactions_of_a_broker_are_taken_over(tmp_path: Path) -> None:
    """In a broker's directory open transactions are known, go on, and can end; their topic is found by its folders."""
    client = open_on(tmp_path)
    producer = client.start()
    client.commit(producer, adds_group=True)
    topic = client.broker.topics.get(TRANSACTIONS_TOPIC)
    client.broker.close()
    assert topic is not None
    for name in ("topics.json", "producer-ids.json"):
        (tmp_path / name).unlink()
    LogFolder(tmp_path / f"{TRANSACTIONS_TOPIC}-49", topic.topic_id).create()  # a broker makes all fifty
    (tmp_path / "meta.properties").touch()
    again = open_on(tmp_path)
    assert again.broker.topics.get(TRANSACTIONS_TOPIC) == topic
    assert again.state() == "Ongoing"
    assert again.end(producer)[0] == "NONE"
    assert again.committed() == (10, "NONE")
    assert again.init(None)[1] == 2**40
    again.broker.close()


KEY = b"\x00\x00\x00\x06before"
DAMAGES = {
    "no key": (None, b"x"),
    "an empty key": (b"", b"x"),
    "half a version": (b"\x00", b"x"),
    "half a key": (KEY[:-1], b"x"),
    "an empty value": (KEY, b""),
    "half a value": (KEY, b"\x00\x01damaged"),
    "an unknown state": (KEY, b"\x00\x00" + bytes(14) + b"\x09" + bytes(20)),
    "a wrong CRC": (17, 9),
}
"""A record, or the position of a byte in a batch and its new value."""
UNREADABLE = {"an unknown format": (16, 9, 2), "a negative length": (8, 0xFF, 0)}
NEWER = {"a key": (b"\x00\x07new", b"x"), "a value": (KEY, b"\x00\x63x"), "a negative version": (KEY, b"\xff\xffx")}


def change_byte(directory: Path, at: int, new: int) -> None:
    """Change a byte of the second batch."""
    segment = directory / f"{TRANSACTIONS_TOPIC}-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[next(iter_batches(bytes(data))).size_bytes + at] = new
    segment.write_bytes(data)


def open_damaged(directory: Path, at: int | bytes | None, new: Any) -> ProducerClient:
    """Start a broker on a log with the id ``before``, a damaged record, and ``after``, which is prepared to abort."""
    client = open_on(directory, transaction_state_log_num_partitions=1)
    transactions, data = client.broker.transactions, client.broker.data
    client.start("before")
    append(data, TRANSACTIONS_TOPIC, 0, *((KEY, None) if isinstance(at, int) else (at, new)))
    client.start("after")
    (after,) = (found for found in transactions.all if found.transactional_id == "after")
    transactions._log.put(evolve(after, state=TransactionState.PREPARE_ABORT), 1)
    client.broker.close()
    if isinstance(at, int):
        change_byte(directory, at, new)
    return open_on(directory, transaction_state_log_num_partitions=1)


@as_one_test
@pytest.mark.parametrize("name", DAMAGES)
def test_a_malformed_record_ends_the_loading(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """As recorded from Kafka 4.4, transactions are loaded up to it, and every id is served."""
    client = open_damaged(tmp_path, *DAMAGES[name])
    assert f"{TRANSACTIONS_TOPIC}-0 is loaded up to its first malformed record: " in caplog.text
    assert (client.state("before"), client.describe("after").error_code.name) == ("Empty", "TRANSACTIONAL_ID_NOT_FOUND")
    assert (client.init("before")[::2], client.init("after")[::2]) == (("NONE", 1), ("NONE", 0))
    client.broker.close()


@as_one_test
@pytest.mark.parametrize("name", NEWER)
def test_records_of_newer_brokers_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """As recorded from Kafka 4.4, they change nothing."""
    client = open_damaged(tmp_path, *NEWER[name])
    assert (client.init("before")[::2], client.init("after")[::2], caplog.text) == (("NONE", 1), ("NONE", 1), "")
    client.broker.close()


@as_one_test
@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_log_is_loaded_later(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Until it can be read, nothing of its ids is forgotten: clients look for another coordinator."""
    at, damage, sound = UNREADABLE[name]
    client = open_damaged(tmp_path, at, damage)
    broker, request = client.broker, InitProducerId("after", 60_000)
    requests, connection = broker.transaction_requests, broker.connect("/127.0.0.1")
    assert requests is not None
    assert requests.init_producer_id(connection, request) == InitProducerIdResponse(ErrorCode.NOT_COORDINATOR)
    assert client.commit((0, 0), name="after") == ["COORDINATOR_NOT_AVAILABLE"]
    assert f"transactions are not served: {TRANSACTIONS_TOPIC}-0 can't be read: " in caplog.text
    change_byte(tmp_path, at, sound)
    assert isinstance(broker.clock, ManualClock)
    broker.clock.advance(1_000)
    broker.reload_failed()
    assert client.state("after") == "CompleteAbort"
    assert requests.init_producer_id(connection, request).producer_epoch == 1
    broker.close()


def test_the_topic_can_not_be_made(
    world: TransactionWorld, client: ProducerClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without disk space a producer gets a retriable error, and later gets its epoch."""

    def edit(**_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full, caplog.at_level(logging.ERROR):
        full.setattr(world.topics, "edit", edit)
        assert client.broker.transactions.prepare() is None
        assert client.init()[0] == "COORDINATOR_NOT_AVAILABLE"
    assert f"{TRANSACTIONS_TOPIC} can't be made: [Errno 28] No space left on device" in caplog.text
    assert client.init()[0] == "NONE"


# ---------------------------------------------------------------- producer ids


def test_producer_ids_are_set_aside_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write is for a thousand ids; after a restart the rest of them is not used. Without room none is given out."""
    ids = ProducerIds(tmp_path)
    assert [ids.take(lambda: 7) for _ in range(1_000)] == list(range(7, 1_007))
    assert ids.take(lambda: 0) == 1_007
    again = ProducerIds(tmp_path)
    with monkeypatch.context() as full:
        full.setattr("groupcoord.broker.json_file.replace_file", _no_room)
        with pytest.raises(NoProducerIdError, match="No space left"):
            again.take(lambda: 0)
    assert again.take(lambda: 0) == 2_007
    (tmp_path / "producer-ids.json").write_text("{}")
    with pytest.raises(ProducerIdsFileError, match=r"producer-ids\.json"):
        ProducerIds(tmp_path)


def _no_room(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_no_id_is_left(world: TransactionWorld, client: ProducerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is retriable, and logged like any refused change."""

    def take(_: Callable[[], int]) -> int:
        raise NoProducerIdError("no room")

    with monkeypatch.context() as full:
        full.setattr(world.producer_ids, "take", take)
        assert client.init() == client.init(None) == ("COORDINATOR_NOT_AVAILABLE", -1, -1)
    assert client.init()[0] == "NONE"
