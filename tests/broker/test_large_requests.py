"""Requests of many bytes: those that name little are handled at once, the others while others have their turn."""

from __future__ import annotations

import asyncio
import itertools
import struct
import tracemalloc
from collections.abc import Callable

import pytest

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.connection import LARGE_REQUEST_BYTES, Connection
from groupcoord.broker.records.produce import MANY_APPENDS
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.host.server import Server
from groupcoord.records.batches import encode_batch
from groupcoord.storage.log.batches import SHORT_BYTES, is_compressed, read_produced
from groupcoord.wire.produce import FEW
from tests.broker.driving import LateJobs, drain, feed
from tests.broker.kafka_bytes import array, blob, correlation_ids, frame, heartbeat, split, string
from tests.client import produce
from tests.host.test_server import loop_factories
from tests.topic_logs.batches import gzipped

TOPIC = "written"
NOW_MS = 1_700_000_000_000
LARGE = LARGE_REQUEST_BYTES + 5_000


def large(correlation_id: int, value: bytes = b"v", size: int = LARGE) -> bytes:
    """Return a Produce of one batch with a minimum size."""
    return produce(TOPIC, 0, [value * 1_000] * (size // 1_000), NOW_MS, acks=1).encode(correlation_id)


def of_many_partitions(correlation_id: int, count: int) -> bytes:
    """Return a Produce of small batches for a number of partitions, and a large one without records behind them."""
    batch = encode_batch(0, [(None, b"v", NOW_MS)], leader_epoch=-1, base_sequence=-1)
    partitions = [struct.pack(">i", index) + blob(batch) for index in range(count - 1)]
    partitions.append(struct.pack(">i", count) + blob(bytes(LARGE)))
    body = b"\xff\xff" + struct.pack(">hi", 1, 0) + array([string(TOPIC) + array(partitions)])
    return frame(0, 3, correlation_id, body)


def produce_of(records: bytes, acks: int) -> bytes:
    partitions = [struct.pack(">i", 0) + blob(records)]
    body = b"\xff\xff" + struct.pack(">hi", acks, 0) + array([string(TOPIC) + array(partitions)])
    return frame(0, 3, 1, body)


def new_broker(**config: int) -> Broker:
    topics = TopicRegistry()
    with topics.edit() as edit:
        edit.create(TOPIC, 1_000)
    return make_broker(config=Config(**config), clock=ManualClock(NOW_MS), log_store=MemoryLogStore(), topics=topics)


def end_offset(broker: Broker, index: int = 0) -> int:
    topic = broker.topics.get(TOPIC)
    assert topic is not None
    log = broker.data.log(topic, index)
    assert log is not None
    return log.end_offset


def log_of(broker: Broker) -> bytes:
    topic = broker.topics.get(TOPIC)
    assert topic is not None
    log = broker.data.log(topic, 0)
    assert log is not None
    return b"".join(log.read(0, log.end_offset, 1 << 30, takes_first=True).parts)


def never_ending(broker: Broker) -> None:
    broker.now_s = broker.turns.now_s = itertools.count(1e9).__next__


def test_a_large_produce_is_answered_at_once() -> None:
    """It has one partition, so it needs no turn and no job; its log is that of a small one."""
    broker = new_broker()
    connection = broker.connect("/127.0.0.1")
    assert connection.receive_data(large(1))
    assert not connection.is_busy
    assert correlation_ids(connection.take_output()) == [1]
    assert end_offset(broker) == LARGE // 1_000


@pytest.mark.parametrize("count", [FEW - 1, FEW, FEW + 1, 900])
def test_many_partitions_let_others_go_in_between(count: int) -> None:
    """A Produce of more partitions than a few is read by a job; all are handled while others are answered."""
    broker = new_broker()
    jobs = LateJobs(broker)
    never_ending(broker)
    busy, other = broker.connect("/127.0.0.1"), broker.connect("/127.0.0.2")
    busy.receive_data(of_many_partitions(1, count))
    assert bool(jobs.waiting) == (count >= FEW)
    meanwhile = 0
    while busy.is_busy or busy.is_waiting:
        broker.run_turn()
        other.receive_data(heartbeat(meanwhile))
        broker.run_turn()
        meanwhile += bool(correlation_ids(other.take_output()))
        jobs.do_next()
    assert correlation_ids(drain(busy)) == [1]
    assert end_offset(broker, count - 2) == 1
    assert meanwhile >= count // (2 * MANY_APPENDS)


def test_a_topic_that_goes_meanwhile() -> None:
    """The rest of a Produce whose topic is deleted in between is refused, and creates no log."""
    broker = new_broker()
    never_ending(broker)
    connection = broker.connect("/127.0.0.1")
    connection.receive_data(of_many_partitions(1, 60))
    broker.run_turn()
    topic = broker.topics.get(TOPIC)
    assert topic is not None
    assert (end_offset(broker), end_offset(broker, 58)) == (1, 0)
    with broker.topics.edit() as edit:
        edit.delete(TOPIC)
    broker.data.delete(topic)
    broker.handle_waiting()
    (answer,) = split(drain(connection))
    places = range(14 + len(TOPIC), len(answer) - 4, 22)
    errors = [struct.unpack_from(">h", answer, place + 4)[0] for place in places]
    assert errors[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert 0 < errors.count(ErrorCode.NONE) < 59
    assert broker.data.logs is not None
    assert not broker.data.logs._logs.get(topic.topic_id)


def keyed(count: int) -> bytes:
    """Return a batch of a number of small records with keys."""
    return encode_batch(0, [(b"k", b"v" * 20, NOW_MS)] * count, leader_epoch=-1, base_sequence=-1)


@pytest.mark.parametrize(
    ("records", "is_divided"), [(keyed(1_000), True), (gzipped(keyed(500)), True), (keyed(10), False)]
)
def test_records_that_are_looked_into_let_others_go_in_between(records: bytes, is_divided: bool) -> None:
    """Where a compacted topic checks keys, with many records or compressed ones, however few their bytes."""
    assert is_divided == (is_compressed(records) or len(records) > SHORT_BYTES)
    assert len(gzipped(keyed(500))) < SHORT_BYTES
    broker = new_broker()
    with broker.topics.edit() as edit:
        edit.configure(TOPIC, {"cleanup.policy": "compact"})
    jobs = LateJobs(broker)
    for acks in (1, 0):
        busy, other = broker.connect("/127.0.0.1"), broker.connect("/127.0.0.2")
        busy.receive_data(produce_of(records, acks))
        assert bool(jobs.waiting) == busy.is_busy == is_divided
        feed(other, heartbeat(7))
        assert correlation_ids(other.take_output()) == [7]
        assert jobs.do_next() == is_divided
        broker.handle_waiting()
        assert len(split(drain(busy))) == acks
        assert not busy.is_waiting
    assert end_offset(broker) == 2 * read_produced(records).record_count


@pytest.mark.parametrize("count", [1, FEW + 1])
def test_any_cut_gives_the_same_log(count: int) -> None:
    """However a large Produce is cut, alone or with requests around it, answers and log are the same."""
    request = large(2) if count == 1 else of_many_partitions(2, count)
    stream = heartbeat(1) + request + large(3, b"w") + heartbeat(4)
    whole = new_broker()
    connection = whole.connect("/127.0.0.1")
    feed(connection, stream)
    expected = drain(connection), log_of(whole)
    assert correlation_ids(expected[0]) == [1, 2, 3, 4]
    begin, end = len(heartbeat(1)), len(heartbeat(1)) + len(request)
    ends = (begin, begin + 4, end, end + 4, len(stream) - len(heartbeat(4)))
    cuts = sorted({edge + shift for edge in ends for shift in range(-2, 3)} | {begin + LARGE_REQUEST_BYTES})
    for first, second in zip(cuts, [*cuts[len(cuts) // 2 :], *cuts[: len(cuts) // 2]], strict=True):
        broker = new_broker()
        connection = broker.connect("/127.0.0.1")
        low, high = min(first, second), max(first, second)
        for piece in (stream[:low], stream[low:high], stream[high:]):
            feed(connection, piece)
        assert (drain(connection), log_of(broker)) == expected, (low, high)


def test_what_is_claimed_takes_no_memory() -> None:
    """A peer that announces 100 MiB and sends a little of it takes no more memory than that."""
    connection = new_broker().connect("/127.0.0.1")
    tracemalloc.start()
    connection.receive_data(struct.pack(">i", 100 * 1024 * 1024) + bytes(1_000))
    connection.receive_data(bytes(100_000))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 400_000
    assert connection.wants_reading


def test_a_large_request_that_is_none() -> None:
    """One that is cut short inside, or is of a version that isn't served, closes the connection with a reason."""
    for body, reason in ((large(1)[8 + 4 :], "Produce version 3"), (b"\xff\xff" + bytes(LARGE), "of version 2")):
        broker = new_broker()
        connection = broker.connect("/127.0.0.1")
        version = 3 if "version 3" in reason else 2
        feed(connection, frame(0, version, 1, body[: LARGE - 3_000]))
        assert connection.closing is not None
        assert reason in connection.closing
        assert end_offset(broker) == 0


@pytest.mark.parametrize("loop_factory", loop_factories())
def test_a_peer_that_leaves_in_mid_request(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Nothing of a request that did not come whole is written, and its connection is forgotten."""

    async def test() -> None:
        broker = new_broker()
        async with Server(broker, port=0) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(large(1) + large(2)[:-1])
            answer = await reader.readexactly(4)
            assert await reader.readexactly(int.from_bytes(answer, "big"))
            assert server.connection_count == 1
            writer.transport.abort()
            while server.connection_count:
                await asyncio.sleep(0.001)
            assert end_offset(broker) == LARGE // 1_000

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(asyncio.wait_for(test(), 20))


def test_a_connection_type_sees_large_ones() -> None:
    """An interceptor sees large requests before they are handled, and may take them."""
    seen = []

    class Taker:
        def takes(self, connection: Connection, header: object, request: object) -> bool:
            seen.append(type(request).__name__)
            return True

        def disconnected(self, connection: Connection) -> None:
            """Nothing is kept of it."""

        def next_deadline_ms(self) -> None:
            return None

        def tick(self, now_ms: int) -> None:
            """Nothing is due."""

    broker = new_broker()
    broker.interceptor = Taker()
    connection = broker.connect("/127.0.0.1")
    feed(connection, large(1))
    assert seen == ["Produce"]
    assert connection.is_waiting
    assert end_offset(broker) == 0
