"""Connections without sockets: framing, order, bounds, and what ends a connection."""

from __future__ import annotations

import logging
import re
import struct
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from groupcoord import Config, ManualClock, MemoryLogStore
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.connection import BACKLOG_LIMIT_BYTES, OUTPUT_LIMIT_BYTES, OUTPUT_PORTION_BYTES
from groupcoord.broker.topics.registry import TopicRegistry
from tests.broker.driving import drain, feed
from tests.broker.kafka_bytes import (
    api_versions,
    blob,
    correlation_ids,
    fetch,
    frame,
    heartbeat,
    join,
    metadata,
    string,
)
from tests.tables import as_one_test

LIMIT = 20_000


def new_broker(**config: int) -> Broker:
    topics = TopicRegistry()
    with topics.edit() as edit:
        edit.create("t", 3)
    settings = {"group_initial_rebalance_delay_ms": 1_000, "socket_request_max_bytes": LIMIT, **config}
    return make_broker(config=Config(**settings), clock=ManualClock(), log_store=MemoryLogStore(), topics=topics)


def advance(broker: Broker, duration_ms: int) -> None:
    assert isinstance(broker.clock, ManualClock)
    broker.clock.advance(duration_ms)
    broker.tick()
    broker.handle_waiting()


REQUESTS = st.lists(
    st.sampled_from(
        [
            api_versions(1),
            heartbeat(2),
            heartbeat(3, "g" * 300),
            metadata(4, "t"),
            metadata(5, "t", "missing"),
            frame(12, 0, 6, string("g") + struct.pack(">i", 0) + string(""), None),
        ]
    ),
    max_size=12,
)


@given(REQUESTS, st.lists(st.integers(1, 60), max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_chunking_gives_the_same_answers(requests: list[bytes], sizes: list[int]) -> None:
    """The boundaries of received data make no difference."""
    broker = new_broker(auto_create_topics_enable=False)  # what isn't there stays so
    whole = broker.connect("/127.0.0.1")
    one_by_one = b""
    for request in requests:
        feed(whole, request)
        one_by_one += drain(whole)
    stream = b"".join(requests)
    chunked = broker.connect("/127.0.0.1")
    for size in sizes:
        feed(chunked, stream[:size])
        stream = stream[size:]
    feed(chunked, stream)
    assert drain(chunked) == one_by_one


def test_requests_wait_behind_a_join() -> None:
    """While a join waits, nothing behind it is handled; then all is answered in order. Other connections go on."""
    broker = new_broker()
    waiting, other = broker.connect("/127.0.0.1"), broker.connect("/127.0.0.2")
    feed(waiting, join(1) + heartbeat(2)[:7])
    feed(waiting, heartbeat(2)[7:] + metadata(3, "t"))
    assert drain(waiting) == b""
    assert waiting.is_waiting
    feed(other, heartbeat(9))
    assert correlation_ids(drain(other)) == [9]
    broker.take_dirty()
    advance(broker, 1_000)
    assert broker.take_dirty() == [waiting]
    assert correlation_ids(drain(waiting)) == [1, 2, 3]


@as_one_test
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", -1), "negative size"),
        (struct.pack(">i", LIMIT + 1), r"larger than socket\.request\.max\.bytes \(20000\)"),
        (struct.pack(">i", 0), ""),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (bytes.fromhex("16030100c8010000c4"), "TLS"),
        (blob(b"\x00"), ""),
        (frame(999, 0, 1, b""), ""),
        (frame(0, 2, 1, b""), "Produce of version 2 is not served: 3 to 13 are"),
        (frame(12, 99, 1, b""), ""),
        (frame(12, 0, 1, b"\x00\x05g"), ""),
        (frame(12, 0, 1, b"\xff\xff"), ""),
        (blob(bytes(range(256)) * 20), ""),
    ],
)
@pytest.mark.parametrize("cut", [None, 3])
def test_bytes_that_are_no_request_end_the_connection(data: bytes, reason: str, cut: int | None) -> None:
    """There is one clear reason, earlier answers are still given, and nothing after it is looked at."""
    broker = new_broker()
    connection = broker.connect("/127.0.0.1")
    feed(connection, heartbeat(1) + data[:cut])
    feed(connection, data[cut:] if cut else b"")
    feed(connection, heartbeat(2))
    assert connection.closing is not None
    assert len(connection.closing) > 10
    assert "\n" not in connection.closing
    assert re.search(reason, connection.closing)
    assert correlation_ids(drain(connection)) == [1]
    assert connection in broker.take_dirty()


def test_a_request_of_exactly_the_limit_is_taken() -> None:
    """The limit counts the request without its length, as in Kafka."""
    connection = new_broker().connect("/127.0.0.1")
    empty = len(frame(3, 1, 1, b"\x00\x00\x00\x01" + string(""))) - 4
    request = metadata(1, "x" * (LIMIT - empty))
    assert len(request) - 4 == LIMIT
    feed(connection, request)
    assert correlation_ids(drain(connection)) == [1]
    feed(connection, metadata(2, "x" * (LIMIT - empty + 1)))
    assert connection.closing is not None


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_garbage_never_raises(garbage: bytes) -> None:
    """Any bytes lead to a response, a wait or a closed connection, never to an internal error."""
    connection = new_broker().connect("/127.0.0.1")
    feed(connection, garbage)
    feed(connection, blob(garbage))
    assert connection.closing is None or "internal" not in connection.closing


def test_reading_stops_when_too_much_waits() -> None:
    """Behind an unanswered request a bounded amount is buffered; afterwards all of it is handled."""
    broker = new_broker()
    connection = broker.connect("/127.0.0.1")
    feed(connection, join(0))
    count = 0
    while connection.wants_reading:
        count += 1
        feed(connection, heartbeat(count))
        assert count * len(heartbeat(1)) < BACKLOG_LIMIT_BYTES + 100
    advance(broker, 1_000)
    assert correlation_ids(drain(connection)) == list(range(count + 1))
    assert connection.wants_reading


def test_output_that_nobody_takes_stops_the_handling() -> None:
    """Requests with large answers are handled as fast as their answers are taken, all of them in the end."""
    broker = new_broker()
    with broker.topics.edit() as edit:
        edit.create("large", 5_000)
    connection = broker.connect("/127.0.0.1")
    feed(connection, metadata(0, "large"))
    answer_bytes = len(connection.take_output())
    feed(connection, b"".join(metadata(number, "large") for number in range(100)))
    assert not connection.is_waiting
    outputs = []
    while taken := connection.take_output():
        assert len(taken) < OUTPUT_PORTION_BYTES + answer_bytes
        assert connection.output_bytes < OUTPUT_LIMIT_BYTES + answer_bytes
        outputs.append(taken)
        broker.handle_waiting()
    assert len(outputs) > 3
    assert correlation_ids(b"".join(outputs)) == list(range(100))


def test_a_paused_connection_handles_nothing() -> None:
    """Between pause and resume requests only pile up."""
    broker = new_broker()
    connection = broker.connect("/127.0.0.1")
    connection.pause()
    feed(connection, heartbeat(1))
    assert not connection.wants_reading
    assert drain(connection) == b""
    connection.resume()
    broker.handle_waiting()
    assert connection.wants_reading
    assert correlation_ids(drain(connection)) == [1]


def test_a_closed_connection_is_forgotten() -> None:
    """Later responses are dropped, and its waiting Fetch wakes no one."""
    broker = new_broker()
    joined, fetching = broker.connect("/127.0.0.1"), broker.connect("/127.0.0.1")
    before_ms = broker.next_deadline_ms()
    feed(fetching, fetch(1, "t", 0, 10))
    assert broker.next_deadline_ms() == 10
    feed(joined, join(1) + heartbeat(2))
    fetching.close()
    joined.close()
    advance(broker, 1_000)
    assert drain(joined) == drain(fetching) == b""
    assert broker.take_dirty() == []
    assert before_ms != 10


def test_a_bug_ends_one_connection(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected exception is logged with its traceback and closes the connection it happened on, no other."""
    broker = new_broker()
    unlucky, other = broker.connect("/127.0.0.1"), broker.connect("/127.0.0.1")

    def explode(*_: Any) -> None:
        raise RuntimeError("boom")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "groupcoord.host"):
        patch.setattr(broker.coordinator, "submit", explode)
        feed(unlucky, heartbeat(1) + heartbeat(2))
    assert unlucky.closing == "internal error: a request could not be handled"
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "boom" in caplog.text
    feed(other, heartbeat(3))
    assert correlation_ids(drain(other)) == [3]


def test_an_answer_that_can_not_be_encoded_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """A wrong answer is our bug: logged, and the connection is closed instead of hanging."""
    broker = new_broker()
    connection = broker.connect("/127.0.0.1")
    feed(connection, join(1))
    connection.answer(object())  # type: ignore[arg-type]
    assert connection.closing == "internal error: the answer could not be encoded"
    assert "Traceback" in caplog.text
