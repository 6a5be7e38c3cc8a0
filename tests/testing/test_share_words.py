"""Share groups in a test: acquired records, progress, and locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from groupcoord import ErrorCode
from groupcoord.errors import UnknownNameError
from groupcoord.schema.engine import Values
from groupcoord.testing.faults.control import AcquiredRange, SharedRecords
from groupcoord.testing.server import ServerThread
from tests.client import Client, Request

INITIALIZE, SHARE_FETCH, SHARE_ACKNOWLEDGE = 83, 78, 79


class Member(Client):
    """Share consumer ``ann`` of the group ``workers``."""

    epoch = 0

    def __init__(self, server: ServerThread, port: int | None = None) -> None:
        super().__init__(port or server.port)
        topic = server.run(lambda broker: broker.topics.get("jobs"))
        assert topic is not None
        self.topic_id: UUID = topic.topic_id

    def _ask_of_jobs(self, api_key: int, version: int, partition: Values, **fields: Any) -> Values:
        topics = [{"topic_id": self.topic_id, "partitions": [partition]}]
        return self.ask(Request(api_key, version, {"group_id": "workers", "topics": topics, **fields}))

    def _ask_in_session(self, api_key: int, batches: list[Values], **fields: Any) -> Values:
        session = {"member_id": "ann", "share_session_epoch": self.epoch, "is_renew_ack": False}
        self.epoch += 1
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        return self._ask_of_jobs(api_key, 2, partition, **session, **fields)

    def initialize(self) -> None:
        self._ask_of_jobs(INITIALIZE, 0, {"partition": 0, "state_epoch": 1, "start_offset": 0})

    def fetch(self) -> None:
        limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**20, "max_records": 500, "batch_size": 500}
        response = self._ask_in_session(SHARE_FETCH, [], **limits, share_acquire_mode=0, forgotten_topics_data=[])
        assert response["error_code"] == ErrorCode.NONE

    def accept(self, first: int, last: int) -> int:
        batch = {"first_offset": first, "last_offset": last, "acknowledge_types": [1]}
        response = self._ask_in_session(SHARE_ACKNOWLEDGE, [batch])
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
    """A worker whose locks expired, or were released, can't accept any more; the records are redelivered."""
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
