"""Requests that a server received, kept for its test, decoded and with responses, within limits."""

from __future__ import annotations

from struct import pack

import pytest

from groupcoord import ErrorCode
from groupcoord.messages import HeartbeatResponse, OffsetCommit
from groupcoord.testing import ReceivedRequest, ServerThread
from groupcoord.testing.asserting import requests
from groupcoord.testing.faults import Call
from groupcoord.wire.broker_messages import Fetch, Produce
from tests.client import Client, Request, heartbeat, join_group

CLIENTS_TIMEOUT_S = 60.0
DESCRIBE_GROUPS, UNKNOWN_API = 15, 999


BEAT = heartbeat("g", 1, "m")


def test_requests_are_decoded_and_filtered() -> None:
    """Of real clients' requests those of an API, of a client, about a group are found, with their answers."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    with ServerThread(topics=["orders"]) as server:
        server.produce("orders", ["one", "two"])
        settings = {"bootstrap.servers": server.bootstrap, "auto.offset.reset": "earliest"}
        for name in ("bills", "mails"):
            consumer = confluent_kafka.Consumer({**settings, "client.id": f"{name}-1", "group.id": name})
            consumer.subscribe(["orders"])
            assert len(consumer.consume(2, CLIENTS_TIMEOUT_S)) == 2
            consumer.close()
        received = server.requests

    commits = received.where("OffsetCommit", client_id="bills-1")
    assert {commit.message.topics[0].partitions[0].committed_offset for commit in commits} == {2}
    assert commits[0].answer.topics[0].partitions[0].error_code is ErrorCode.NONE
    assert commits[-1] == received.where(OffsetCommit, group_id="bills")[-1]
    assert {request.api for request in received.where(group_id="mails")} >= {"JoinGroup", "OffsetFetch"}
    assert {request.client_id for request in received.where("FindCoordinator", group_id="mails")} == {"mails-1"}
    assert [request.number for request in received] == sorted({request.number for request in received})
    fetched = [request for request in received.where(Fetch) if request.answer and any(request.answer.topics)]
    assert b"two" in b"".join(fetched[0].answer.topics[0].partitions[0].records)
    assert not received.where(Produce)  # what a test does itself isn't among them


def test_times_connections_and_places_are_told() -> None:
    """Each request has a number, its connection and client, and when it came and was answered."""
    with ServerThread() as server, Client(server.port) as first, Client(server.port) as second:
        for client in (first, second, first):
            client.ask(BEAT)
        received = server.requests

    assert [(request.number, request.connection) for request in received] == [(1, 1), (2, 2), (3, 1)]
    one = received[0]
    assert (one.api, one.version, one.client_id, one.client_host) == ("Heartbeat", 1, "tests", "/127.0.0.1")
    assert one.answer == HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert one.answered_ms is not None
    assert one.answered_ms >= one.received_ms
    assert one.refusal is None


def test_requests_are_a_sequence_that_stays() -> None:
    """A taken sequence does not grow; slices are sequences; dropped ones are gone, and numbers continue."""
    with ServerThread() as server, Client(server.port) as client:
        for group_id in ("a", "b", "c"):
            client.ask(heartbeat(group_id, 1, "m"))
        taken = server.requests
        server.clear_requests()
        assert list(server.requests) == []
        client.ask(heartbeat("d", 1, "m"))
        (last,) = server.requests

    assert (len(taken), last.number) == (3, 4)
    assert taken[1:].where(group_id="c")[0] is taken[-1]
    assert repr(taken[:0]) == "Requests([])"


def test_requests_outlive_their_server() -> None:
    """After the end received requests are still available, and a restart continues them."""
    server = ServerThread()
    for _ in range(2):
        with server, Client(server.port) as client:
            client.ask(BEAT)

    assert [request.number for request in server.requests] == [1, 2]


def test_a_request_that_is_read_in_portions_is_kept_once() -> None:
    """A long request, and one that is answered bit by bit, are each one request, with the whole answer."""
    names = [f"group-{number}" for number in range(5_000)]
    with ServerThread() as server, Client(server.port) as client:
        client.ask(Request(DESCRIBE_GROUPS, 0, {"groups": names}))
        (request,) = server.requests

    assert request.group_ids == tuple(names)
    assert len(request.answer.groups) == len(names)


def test_what_gets_no_answer_says_why() -> None:
    """A join whose client disconnects has no response; an unsupported request closes its
    connection, and is not kept.
    """
    with ServerThread(settings={"group.initial.rebalance.delay.ms": 60_000}) as server:
        with Client(server.port) as client:
            client.socket.sendall(join_group("g")._replace(version=3).encode())  # needs no member id
            server.wait_until(lambda: server.requests)
        server.wait_until(lambda: server.requests[0].refusal)
        with Client(server.port) as client:
            client.socket.sendall(pack(">ihhih", 10, UNKNOWN_API, 0, 7, -1))
            assert client.socket.recv(1) == b""
        (request,) = server.requests
        assert ": API key 999 is not served" in server.report()

    assert (request.answer, request.refusal) == (None, "the connection was closed before")


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that runs for long keeps a bounded number of requests, and a bounded size of records in them."""
    monkeypatch.setattr(requests, "KEPT_COUNT", 10)
    monkeypatch.setattr(requests, "KEPT_RECORD_BYTES", 2_500)
    confluent_kafka = pytest.importorskip("confluent_kafka")
    with ServerThread(topics=["orders"]) as server:
        with Client(server.port) as client:
            for _ in range(12):
                client.ask(BEAT)
        assert [request.number for request in server.requests] == list(range(3, 13))
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0})
        for _ in range(4):
            producer.produce("orders", b"v" * 900)
            producer.flush(CLIENTS_TIMEOUT_S)
        kept = server.requests.where(Produce)

    assert len(kept) == 2
    assert sum(size_of(request) for request in kept) <= 2_500


def size_of(request: ReceivedRequest) -> int:
    return sum(len(partition.records) for topic in request.message.topics for partition in topic.partitions)


def test_faults_change_what_is_answered_not_what_came() -> None:
    def disguise(call: Call) -> HeartbeatResponse:
        return HeartbeatResponse(ErrorCode.FENCED_INSTANCE_ID)

    with ServerThread() as server, Client(server.port) as client:
        server.fail_next("Heartbeat", "REBALANCE_IN_PROGRESS")
        server.on("Heartbeat", disguise, times=1, after=True, where={"group_id": "b"})
        with server.on("Heartbeat", lambda call: None, after=True, where={"group_id": "c"}):
            for group_id in ("a", "b", "c"):
                client.ask(heartbeat(group_id, 1, "m"))
        with server.hold("Heartbeat") as held:
            client.socket.sendall((last := heartbeat("d", 1, "m")).encode())
            held.wait()
            waiting = server.requests[-1]
        client.receive(last)
        received = server.requests

    assert [request.message.group_id for request in received] == ["a", "b", "c", "d"]
    assert [request.answer.error_code for request in received] == [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert (waiting.number, waiting.answer) == (4, None)


def test_requests_are_kept_over_a_crash() -> None:
    """Requests before a crash are available after the restart; waiting ones have no response, with the reason."""
    with ServerThread() as server:
        with Client(server.port) as client:
            held = server.hold("Heartbeat")
            client.socket.sendall(BEAT.encode())
            held.wait()
            server.crash()
            held.remove()
        crashed = server.requests
        server.restart()
        with Client(server.port) as client:
            client.ask(BEAT)
        received = server.requests

    assert [request.refusal for request in crashed] == ["the connection was closed before"]
    assert [(request.number, request.connection) for request in received] == [(1, 1), (2, 2)]
