"""The transaction coordinator inside a broker, on a clock that tests turn by hand, with a log that can be late."""

from __future__ import annotations

import pytest
from attrs import evolve

from groupcoord import LogStoreError
from groupcoord.broker.transactions.coordinator import RETRY_MS
from groupcoord.broker.transactions.log import LAST_EPOCH
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import OffsetToCommit, TopicToCommit, TxnOffsetCommit
from groupcoord.errors import ErrorCode
from tests.broker.driving import KioClient
from tests.broker.transaction_world import WRITER, ProducerClient, TransactionWorld, names


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


@pytest.fixture
def client(world: TransactionWorld) -> ProducerClient:
    return world.open()


# ---------------------------------------------------------------- producer ids


def test_a_producer_resumes(client: ProducerClient) -> None:
    """With its epoch a producer gets the next one, and a repetition gets the same; any other epoch is fenced."""
    producer_id, _ = client.start()
    assert client.init(producer=(producer_id, 0)) == ("NONE", producer_id, 1)
    assert client.init(producer=(producer_id, 0)) == ("NONE", producer_id, 1)
    assert client.init(producer=(producer_id, 5)) == ("PRODUCER_FENCED", -1, -1)
    assert client.init(producer=(producer_id + 9, 0)) == ("PRODUCER_FENCED", -1, -1)
    assert client.init() == ("NONE", producer_id, 2)
    assert client.init(producer=(producer_id, 1)) == ("PRODUCER_FENCED", -1, -1)


def test_a_producer_that_nobody_knows_any_more_resumes(client: ProducerClient) -> None:
    """After its id expired it gets a new producer id."""
    assert client.init(producer=(123_456, 5)) == ("NONE", 0, 0)


def use_up_epochs(client: ProducerClient) -> tuple[int, int]:
    """Return a producer with the last epoch that a client may have."""
    producer_id, _ = client.start()
    transactions = client.broker.transactions._transactions
    transactions[WRITER] = evolve(transactions[WRITER], producer_epoch=LAST_EPOCH - 1)
    _, _, epoch = client.end((producer_id, LAST_EPOCH - 1), False, bumps=True)
    assert epoch == LAST_EPOCH
    return producer_id, epoch


def test_epochs_run_out(client: ProducerClient) -> None:
    """After the last epoch a producer continues with a new id; a repeated EndTxn gets the same response."""
    producer_id, epoch = use_up_epochs(client)
    client.commit((producer_id, epoch), 33, adds_group=True)
    ended = client.end((producer_id, epoch), bumps=True)
    assert ended == ("NONE", producer_id + 1, 0)
    assert client.end((producer_id, epoch), bumps=True) == ended
    assert client.committed() == (33, "NONE")
    assert client.add_group((producer_id, epoch)) == "INVALID_PRODUCER_ID_MAPPING"
    assert client.add_group((producer_id + 1, 0)) == "NONE"


def test_init_with_the_last_epoch(client: ProducerClient) -> None:
    """InitProducerId then returns a new id, also for a producer that names its id and epoch."""
    producer_id, epoch = use_up_epochs(client)
    assert client.init(producer=(producer_id, epoch)) == ("NONE", producer_id + 1, 0)
    assert client.init(producer=(producer_id, epoch)) == ("NONE", producer_id + 1, 0)
    assert client.init() == ("NONE", producer_id + 1, 1)


# ---------------------------------------------------------------- offsets


def test_a_transaction_of_many_groups(client: ProducerClient) -> None:
    """Every log partition gets its marker."""
    producer = client.start()
    groups = [f"group-{number}" for number in range(20)]
    for group_id in groups:
        assert client.commit(producer, group_id=group_id, adds_group=True) == ["NONE"]
    assert client.end(producer)[0] == "NONE"
    assert {client.committed(group_id) for group_id in groups} == {(10, "NONE")}


def test_the_order_of_refusals(client: ProducerClient) -> None:
    """Missing topics come first, each once; without them, topics are in request order, with repetitions."""
    topic_id = client.broker.topics.topic_id("t") or ZERO_UUID
    offsets = (OffsetToCommit(1, 1), OffsetToCommit(8, 1))
    request = TxnOffsetCommit("g", (TopicToCommit("t", offsets[:1]), TopicToCommit("t", offsets)), 77, 7, WRITER)
    response = client.ask(client.broker.transactions.commit_offsets, request)
    (topic,) = response.topics
    assert [(index, error.name) for index, error in topic.partitions] == [
        (8, "UNKNOWN_TOPIC_OR_PARTITION"),
        (1, "INVALID_PRODUCER_ID_MAPPING"),
        (1, "INVALID_PRODUCER_ID_MAPPING"),
    ]
    request.topics = (TopicToCommit(None, offsets[:1], topic_id), TopicToCommit(None, offsets[:1], topic_id))
    response = client.ask(client.broker.transactions.commit_offsets, request)
    assert [(topic.name, topic.topic_id) for topic in response.topics] == [("t", topic_id)] * 2


# ---------------------------------------------------------------- ends


def test_ends_that_raise_the_epoch(client: ProducerClient) -> None:
    """Each end raises the epoch (KIP-890); a repetition with the old one gets the same response."""
    producer_id, _ = client.start()
    client.commit((producer_id, 0), adds_group=True)
    assert client.end((producer_id, 0), bumps=True) == ("NONE", producer_id, 1)
    assert client.end((producer_id, 0), bumps=True) == ("NONE", producer_id, 1)
    assert client.end((producer_id, 0), False, bumps=True)[0] == "INVALID_TXN_STATE"
    assert client.end((producer_id, 1), bumps=True)[0] == "INVALID_TXN_STATE"
    assert client.end((producer_id, 2), bumps=True)[0] == "PRODUCER_FENCED"
    assert client.add_group((producer_id, 0)) == "PRODUCER_FENCED"
    assert client.init(producer=(producer_id, 0)) == ("NONE", producer_id, 1)


def test_an_end_waits_for_its_markers(world: TransactionWorld, client: ProducerClient) -> None:
    """EndTxn is answered when they are durable; until then all requests fail with CONCURRENT_TRANSACTIONS."""
    producer = client.start()
    client.commit(producer, adds_group=True)
    world.store.is_late = True
    assert client.end(producer) is None
    assert client.state() == "PrepareCommit"
    assert client.add_group(producer) == "CONCURRENT_TRANSACTIONS"
    assert client.commit(producer, adds_group=True) == ["CONCURRENT_TRANSACTIONS"]
    assert client.init()[0] == client.end(producer)[0] == "CONCURRENT_TRANSACTIONS"
    assert client.end(producer, False)[0] == "INVALID_TXN_STATE"
    world.acknowledge(client)
    assert [response.error_code for response in client.answers] == [ErrorCode.NONE]
    assert (client.committed(), client.state()) == ((10, "NONE"), "CompleteCommit")


def test_an_end_does_not_overtake_offsets(world: TransactionWorld, client: ProducerClient) -> None:
    """While offsets are on their way to the log nothing ends the transaction: no EndTxn, InitProducerId or time-out."""
    producer = client.start(timeout_ms=1_000)
    world.store.is_late = True
    assert client.commit(producer, adds_group=True) is None
    assert client.end(producer)[0] == client.init()[0] == "CONCURRENT_TRANSACTIONS"
    world.pass_ms(client, 4_000)
    assert client.state() == "Ongoing"
    world.acknowledge(client)
    assert names(client.answers.pop().topics) == ["NONE"]
    world.store.is_late = False
    assert client.end(producer)[0] == "NONE"
    assert client.committed() == (10, "NONE")


def test_markers_that_fail_are_written_later(world: TransactionWorld, client: ProducerClient) -> None:
    """The outcome is decided, so the end is answered; the marker follows as soon as the log takes it."""
    producer = client.start()
    client.commit(producer, adds_group=True)
    world.store.fail_next(LogStoreError("no space"))
    assert client.end(producer) == ("NONE", *producer)
    assert (client.state(), client.committed()) == ("PrepareCommit", (-1, "UNSTABLE_OFFSET_COMMIT"))
    world.pass_ms(client, RETRY_MS)
    assert (client.state(), client.committed()) == ("CompleteCommit", (10, "NONE"))


# ---------------------------------------------------------------- time


def test_the_time_counts_from_the_beginning(world: TransactionWorld, client: ProducerClient) -> None:
    """Adding to a transaction does not make it last longer; the next one has its own time."""
    producer = client.start(timeout_ms=1_000)
    client.add_group(producer)
    world.pass_ms(client, 900)
    client.add(producer, ("t", (0,)))
    client.end(producer)
    client.add_group(producer)
    world.pass_ms(client, 900)
    assert client.state() == "Ongoing"
    world.pass_ms(client, 700)
    assert client.state() == "CompleteAbort"


@pytest.mark.parametrize("settings", [{}, {"expiration": 60_000, "interval": 5_000}])
def test_unused_ids_are_forgotten(world: TransactionWorld, settings: dict[str, int]) -> None:
    """A transactional id is kept for so long after its last use, be it by a time-out; from time to time one looks."""
    expiration_ms, interval_ms = settings.get("expiration", 604_800_000), settings.get("interval", 3_600_000)
    config = {
        "transactional_id_expiration_ms": expiration_ms,
        "transaction_remove_expired_transaction_cleanup_interval_ms": interval_ms,
    }
    client = world.open(**config if settings else {})
    producer = client.start()
    opened = client.start("open", 900_000)
    client.add_group(opened, name="open")
    world.clock.advance(expiration_ms - 1)
    client.broker.tick()
    assert client.state() == "Empty"
    world.clock.advance(interval_ms)
    client.broker.tick()
    assert client.describe().error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.open().describe().error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert client.start() != producer


def test_a_time_out_is_a_use(world: TransactionWorld, client: ProducerClient) -> None:
    """A transaction that times out is aborted first; its id expires a full period later."""
    opened = client.start("open", 900_000)
    client.add_group(opened, name="open")
    world.clock.advance(604_800_000 + 3_600_000)
    client.broker.tick()
    assert client.state("open") == "CompleteAbort"


# ---------------------------------------------------------------- through a connection


@pytest.mark.parametrize(("version", "error"), [(3, "INVALID_TXN_STATE"), (4, "TRANSACTION_ABORTABLE"), (5, "NONE")])
def test_the_version_decides_whether_the_group_is_added(client: ProducerClient, version: int, error: str) -> None:
    """A TxnOffsetCommit of version 5 adds its group, an older one is refused in the words of its version."""
    producer_id, epoch = client.start()
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    body = {
        "transactional_id": WRITER,
        "group_id": "g",
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": [partition]}],
    }
    (topic,) = KioClient(client.broker.connect("/127.0.0.1")).ask(28, version, body)["topics"]
    assert [ErrorCode(result["error_code"]).name for result in topic["partitions"]] == [error]
