"""Transactions over restarts and failures of a log, and markers that others ask for."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from groupcoord import LogRecord, LogStoreError, ManualClock, Ticket
from groupcoord.broker.transactions.coordinator import RETRY_MS
from groupcoord.core.log.records import ZERO_UUID, OffsetCommitRecord, Record, TransactionMarker
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import TopicEntry
from groupcoord.wire.transaction_messages import MarkerToWrite, WriteTxnMarkers
from tests.broker.data_world import FakeConnection
from tests.broker.driving import KioClient
from tests.broker.transaction_world import CHECK_INTERVAL_MS, ProducerClient, TransactionWorld, open_on

WRITE_TXN_MARKERS = 27


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


@pytest.fixture
def client(world: TransactionWorld) -> ProducerClient:
    return world.open()


# ---------------------------------------------------------------- restarts


@pytest.mark.parametrize(("committed", "offset"), [(True, 10), (False, -1)])
def test_a_prepared_transaction_is_completed(
    world: TransactionWorld, client: ProducerClient, committed: bool, offset: int
) -> None:
    """The markers that a kill prevented are written at the start."""
    producer = client.start()
    client.commit(producer, adds_group=True)
    world.store.fail_next(LogStoreError("no space"))
    assert client.end(producer, committed)[0] == "NONE"
    client = world.open()
    assert client.state() == ("CompleteCommit" if committed else "CompleteAbort")
    assert client.committed() == (offset, "NONE")


def test_a_transaction_times_out_after_a_restart(world: TransactionWorld, client: ProducerClient) -> None:
    """The timeout continues while the process is down."""
    client.commit(client.start(timeout_ms=1_000), adds_group=True)
    world.clock.advance(2_000)
    client = world.open()
    world.pass_ms(client, CHECK_INTERVAL_MS)
    assert (client.state(), client.committed()) == ("CompleteAbort", (-1, "NONE"))


def test_producer_ids_are_unique_over_restarts(world: TransactionWorld) -> None:
    """No id is given twice, however often and whenever the process is killed."""
    seen: list[int] = []
    for count in (3, 0, 1_500, 1):
        client = world.open()
        seen += [client.init(None)[1] for _ in range(count)]
    assert len(set(seen)) == len(seen)
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    "record",
    [OffsetCommitRecord("g", "t", 0, 5, -1, "", 1, -1, ZERO_UUID, 41, 0), TransactionMarker(41, 7, True)],
    ids=["open", "ended"],
)
def test_producer_ids_of_a_foreign_log(world: TransactionWorld, record: Record) -> None:
    """Producer ids in a log of another origin, for instance a broker's directory, are not allocated again."""
    world.store.append(3, Ticket(3, 0), [LogRecord(record, 1)])
    assert world.open().init(None) == ("NONE", 42, 0)


# ---------------------------------------------------------------- failures of the transaction log


def test_what_can_not_be_kept_is_not_promised(
    world: TransactionWorld, client: ProducerClient, caplog: pytest.LogCaptureFixture
) -> None:
    """While the transaction log can't be written everything is COORDINATOR_NOT_AVAILABLE, and nothing changes."""
    producer = client.start()
    client.commit(producer, adds_group=True)
    world.data.is_broken = True
    assert client.init("other") == client.init() == ("COORDINATOR_NOT_AVAILABLE", -1, -1)
    assert client.add_group(producer, "another group") == "COORDINATOR_NOT_AVAILABLE"
    assert client.commit(producer, group_id="another group", adds_group=True) == ["COORDINATOR_NOT_AVAILABLE"]
    assert client.end(producer)[0] == "COORDINATOR_NOT_AVAILABLE"
    world.pass_ms(client, 120_000)
    assert (client.state(), client.committed()) == ("Ongoing", (-1, "UNSTABLE_OFFSET_COMMIT"))
    assert "the disk is full" in caplog.text
    world.data.is_broken = False
    world.pass_ms(client, CHECK_INTERVAL_MS)
    assert (client.state(), client.committed()) == ("CompleteAbort", (-1, "NONE"))


def test_refused_changes_make_few_lines(
    world: TransactionWorld, client: ProducerClient, caplog: pytest.LogCaptureFixture
) -> None:
    """However many changes are refused, there is one line at once, one for the others, and one when it works again."""
    world.data.is_broken = True
    for _ in range(100):
        client.init()
    world.clock.advance(10_000)
    client.broker.reload_failed()
    world.data.is_broken = False
    for _ in range(100):
        client.init()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "a change of a transaction was refused: the disk is full"),
        (
            "ERROR",
            "a change of a transaction was refused: the disk is full (refused: the last of 99 lines left out in 10 s)",
        ),
        ("WARNING", "transactions can be written again (changes refused in the meantime: 100)"),
    ]


def test_an_end_that_can_not_be_noted(
    world: TransactionWorld, client: ProducerClient, caplog: pytest.LogCaptureFixture
) -> None:
    """If only the completion can't be kept, the end is answered, and noted later."""
    producer = client.start()
    client.commit(producer, adds_group=True)
    world.store.is_late = True
    assert client.end(producer) is None
    world.store.is_late = False
    world.data.is_broken = True
    with caplog.at_level(logging.WARNING):
        world.acknowledge(client)
    assert [response.error_code for response in client.answers] == [ErrorCode.NONE]
    assert (client.state(), client.committed()) == ("PrepareCommit", (10, "NONE"))
    world.data.is_broken = False
    world.pass_ms(client, RETRY_MS)
    assert (client.state(), client.committed()) == ("CompleteCommit", (10, "NONE"))


# ---------------------------------------------------------------- WriteTxnMarkers


def write(client: ProducerClient, *markers: MarkerToWrite) -> list[tuple[int, list[tuple[str | None, int, str]]]]:
    connection = FakeConnection(client.broker)
    client.broker.handle(connection, WriteTxnMarkers(markers))  # type: ignore[arg-type]
    (response,) = connection.answers
    return [
        (marker.producer_id, [(t.name, index, error.name) for t in marker.topics for index, error in t.partitions])
        for marker in response.markers
    ]


def test_markers_from_outside(client: ProducerClient) -> None:
    """An administrator ends a transaction that hangs: its offsets appear; other partitions get markers, too."""
    producer_id, epoch = client.start()
    client.commit((producer_id, epoch), adds_group=True)
    index = client.broker.coordinator.partition_of("g")
    topics = (
        TopicEntry("__consumer_offsets", (index, 77)),
        TopicEntry("t", (0, 9)),
        TopicEntry("t", ()),
    )
    assert write(client, MarkerToWrite(producer_id, epoch, True, topics)) == [
        (
            producer_id,
            [
                ("__consumer_offsets", index, "NONE"),
                ("__consumer_offsets", 77, "UNKNOWN_TOPIC_OR_PARTITION"),
                ("t", 0, "NONE"),
                ("t", 9, "UNKNOWN_TOPIC_OR_PARTITION"),
            ],
        )
    ]
    assert client.committed() == (10, "NONE")


def test_markers_wait_for_the_log(world: TransactionWorld, client: ProducerClient) -> None:
    """The answer comes when the group coordinator's log has the marker."""
    producer_id, epoch = client.start()
    client.commit((producer_id, epoch), adds_group=True)
    index = client.broker.coordinator.partition_of("g")
    topics = [{"name": "__consumer_offsets", "partition_indexes": [index]}]
    marker = {"producer_id": producer_id, "producer_epoch": epoch, "transaction_result": True, "coordinator_epoch": 0}
    kio_client = KioClient(client.broker.connect("/127.0.0.1"))
    world.store.is_late = True
    assert kio_client.ask(WRITE_TXN_MARKERS, 1, {"markers": [marker | {"topics": topics}]}) is None
    world.acknowledge(client)
    client.broker.handle_waiting()
    (written,) = kio_client.receive()["markers"]
    assert written["topics"][0]["partitions"] == [{"partition_index": index, "error_code": 0}]


def test_markers_of_nobody(client: ProducerClient) -> None:
    """Without a producer or an epoch nothing is written; a marker for no partition is not answered for."""
    topics = (TopicEntry("__consumer_offsets", (1,)),)
    markers = (MarkerToWrite(-1, 0, True, topics), MarkerToWrite(5, -3, True, topics), MarkerToWrite(5, 0, True, ()))
    assert write(client, *markers) == [
        (-1, [("__consumer_offsets", 1, "UNKNOWN_SERVER_ERROR")]),
        (5, [("__consumer_offsets", 1, "INVALID_PRODUCER_EPOCH")]),
    ]


# ---------------------------------------------------------------- on disk


def test_an_open_transaction_survives_on_disk(tmp_path: Path) -> None:
    """A directory that is copied while the broker runs, as a kill would leave it, holds all that was acknowledged."""
    client = open_on(tmp_path / "a", ManualClock(1_000))
    producer = client.start()
    client.commit(producer, 10, adds_group=True)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    client.end(producer, False)
    copy = open_on(tmp_path / "b", ManualClock(2_000))
    assert (copy.state(), copy.committed()) == ("Ongoing", (-1, "UNSTABLE_OFFSET_COMMIT"))
    assert copy.end(producer)[0] == "NONE"
    copy.broker.close()
    client.broker.close()
    again = open_on(tmp_path / "b", ManualClock(3_000))
    assert (again.state(), again.committed()) == ("CompleteCommit", (10, "NONE"))
    assert again.init(None)[1] > producer[0]
    again.broker.close()
