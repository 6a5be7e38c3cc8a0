"""What a test asks of a share group: who has what, how far it is; and what it does to locks."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from groupcoord import ErrorCode
from groupcoord.errors import UnknownNameError
from groupcoord.testing.faults.control import AcquiredRange, SharedRecords
from groupcoord.testing.server import ServerThread
from tests.wire.kio_client import read_response, request_frame

INITIALIZE, SHARE_FETCH, SHARE_ACKNOWLEDGE = 83, 78, 79


class Member:
    """A connection of a share consumer."""

    def __init__(self, server: ServerThread, port: int | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port or server.port), timeout=10)
        topic = server.run(lambda broker: broker.topics.get("jobs"))
        assert topic is not None
        self.topic_id: UUID = topic.topic_id
        self.epoch = 0

    def ask(self, api_key: int, version: int, body: dict[str, Any]) -> Any:
        frame = request_frame(api_key, version, body)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        head = self._read(4)
        return read_response(api_key, version, head + self._read(*struct.unpack(">i", head)))

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._socket.recv(size - len(data))
        return data

    def initialize(self) -> None:
        partition = {"partition": 0, "state_epoch": 1, "start_offset": 0}
        topics = [{"topic_id": self.topic_id, "partitions": [partition]}]
        self.ask(INITIALIZE, 0, {"group_id": "workers", "topics": topics})

    def fetch(self) -> None:
        partitions = [{"partition_index": 0, "acknowledgement_batches": []}]
        body = {
            "group_id": "workers",
            "member_id": "ann",
            "share_session_epoch": self.epoch,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 2**20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "forgotten_topics_data": [],
            "topics": [{"topic_id": self.topic_id, "partitions": partitions}],
        }
        assert self.ask(SHARE_FETCH, 2, body)["error_code"] == ErrorCode.NONE
        self.epoch += 1

    def accept(self, first: int, last: int) -> int:
        batch = {"first_offset": first, "last_offset": last, "acknowledge_types": [1]}
        partitions = [{"partition_index": 0, "acknowledgement_batches": [batch]}]
        body = {
            "group_id": "workers",
            "member_id": "ann",
            "share_session_epoch": self.epoch,
            "is_renew_ack": False,
            "topics": [{"topic_id": self.topic_id, "partitions": partitions}],
        }
        self.epoch += 1
        response = self.ask(SHARE_ACKNOWLEDGE, 2, body)
        return int(response["responses"][0]["partitions"][0]["error_code"])


@pytest.fixture
def server(groupcoord_server: ServerThread) -> ServerThread:
    groupcoord_server.create_topics({"jobs": 1})
    groupcoord_server.produce("jobs", ["a", "b", "c", "d"])
    return groupcoord_server


@pytest.fixture
def ann(server: ServerThread) -> Iterator[Member]:
    member = Member(server)
    yield member
    member.close()


def test_who_has_what(server: ServerThread, ann: Member) -> None:
    """Acquired records are one entry for what a member has in one go; what is accepted is finished."""
    workers = server.share("workers")
    ann.initialize()
    assert workers.acquired() == ()
    ann.fetch()
    (held,) = workers.acquired()
    assert held[:6] == ("jobs", 0, 0, 3, "ann", 1)
    assert ann.accept(1, 1) == ErrorCode.NONE
    assert [entry[2:4] for entry in workers.acquired()] == [(0, 0), (2, 3)]
    assert workers.progress() == (SharedRecords("jobs", 0, 0, 3, 0, 1),)
    assert isinstance(held, AcquiredRange)


def test_records_are_taken_away(server: ServerThread, ann: Member) -> None:
    """A worker whose locks are over, or that is made to let go, can't accept any more; the records come again."""
    workers = server.share("workers")
    ann.initialize()
    ann.fetch()
    with pytest.raises(UnknownNameError, match=r"group 'workers' has no member 'nobody' \(members: 'ann'\)"):
        workers.release("nobody")
    assert workers.expire_locks() == 4
    assert ann.accept(0, 0) == ErrorCode.INVALID_RECORD_STATE
    ann.fetch()
    assert [entry.delivery_count for entry in workers.acquired()] == [2]
    assert workers.release("ann") == 4
    assert workers.acquired() == ()
    assert workers.progress() == (SharedRecords("jobs", 0, 0, 0, 4, 0),)


@pytest.mark.ci
def test_another_node_leads_what_is_shared() -> None:
    """The former leader takes no acknowledgement; the new one keeps what was accepted and redelivers the rest."""
    with ServerThread(nodes=2, topics={"jobs": 1}) as server:
        server.produce("jobs", ["a", "b", "c"])
        ports = [int(address.rsplit(":", 1)[1]) for address in server.bootstrap.split(",")]
        workers, first = server.share("workers"), server.leader("jobs")
        ann, ben = (Member(server, ports[node - 1]) for node in (first, 3 - first))
        ann.initialize()
        ann.fetch()
        assert ann.accept(0, 0) == ErrorCode.NONE
        server.move_leader("jobs")
        assert ann.accept(1, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ben.fetch()
        assert [entry[2:6] for entry in workers.acquired()] == [(1, 2, "ann", 1)]
        assert ben.accept(1, 2) == ErrorCode.NONE
        assert workers.progress() == (SharedRecords("jobs", 0, 3, 0, 0, 0),)
        for member in (ann, ben):
            member.close()


def test_who_leads_again_has_forgotten_who_had_what() -> None:
    """What was acquired before another node led can't be accepted after that, though nobody else had it."""
    with ServerThread(nodes=2, topics={"jobs": 1}) as server:
        server.produce("jobs", ["a"])
        ports = [int(address.rsplit(":", 1)[1]) for address in server.bootstrap.split(",")]
        ann = Member(server, ports[server.leader("jobs") - 1])
        ann.initialize()
        ann.fetch()
        for _ in range(2):
            server.move_leader("jobs")
        assert ann.accept(0, 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ann.close()
