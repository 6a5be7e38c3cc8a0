"""Clients of the kill harness: each has one connection at a time, and remembers what it was promised.

A *committer* commits all partitions of a group without members at once, several requests ahead. A *member* joins,
syncs, commits and rejoins at random in a group of two. Both outlive the server: :meth:`KillClient.connected` restarts
them.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from typing import Generic, TypeVar

from groupcoord import ErrorCode
from groupcoord.laws import errors_in
from groupcoord.messages import (
    Heartbeat,
    HeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetToCommit,
    PartitionResult,
    Request,
    Response,
    SyncGroup,
    SyncGroupResponse,
    TopicResult,
    TopicToCommit,
)
from groupcoord.schema.engine import Values
from groupcoord.testing.machine.consumers import ClassicConsumer
from tests import client as wire
from tests.client import commit_errors, offset_commit

TOPIC = "orders"
PARTITION_COUNT = 6
AHEAD = 3

NONE, ILLEGAL_GENERATION = ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION
REFUSED_JOINS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.MEMBER_ID_REQUIRED}
REFUSALS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


class BrokenPromiseError(AssertionError):
    """Acknowledged data is lost, or data appeared that no client sent."""


class Promises:
    """What the clients of one group sent, and what was acknowledged.

    Every commit names the same new offset for all partitions, so that a commit that was written in part shows.

    Attributes:
        acknowledged: the newest offset whose commit was answered; -1 before the first.
        sent: the newest offset that was sent.
        generation_id: the newest generation in which a member was told its assignment.
        synced: generations whose leader sent its assignments: these may be in the log.
        dealt: generation and member id → every assignment that a leader sent for it; older generations are forgotten.
        assignments: member id → assignment, as it was told in ``generation_id``.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.acknowledged = -1
        self.sent = -1
        self.generation_id = 0
        self.synced: set[int] = set()
        self.dealt: dict[tuple[int, str], set[bytes]] = {}
        self.assignments: dict[str, bytes] = {}

    def next_offset(self) -> int:
        self.sent += 1
        return self.sent

    def told(self, generation_id: int, member_id: str, assignment: bytes) -> None:
        """Record the assignment that a member received."""
        if generation_id < self.generation_id:
            raise BrokenPromiseError(f"{self.group_id}: generation {generation_id} after {self.generation_id}")
        if generation_id > self.generation_id:
            self.generation_id, self.assignments = generation_id, {}
            self.synced = {synced for synced in self.synced if synced > generation_id}
            self.dealt = {key: dealt for key, dealt in self.dealt.items() if key[0] >= generation_id}
        if assignment and assignment not in self.dealt.get((generation_id, member_id), ()):
            raise BrokenPromiseError(f"{member_id} was told {assignment!r}, which is not dealt in {generation_id}")
        known = self.assignments.setdefault(member_id, assignment)
        if known != assignment:
            raise BrokenPromiseError(f"{self.group_id}: {member_id} was told {known!r}, then {assignment!r}")

    def check_offsets(self, fetched: dict[tuple[str, int], int]) -> None:
        """Compare with what a restarted server has.

        Raises:
            BrokenPromiseError: it lacks something, or has something that was never sent.
        """
        offsets = set(fetched.values()) or {-1}
        whole = not fetched or fetched.keys() == {(TOPIC, index) for index in range(PARTITION_COUNT)}
        if len(offsets) != 1 or not whole or not self.acknowledged <= max(offsets) <= self.sent:
            raise BrokenPromiseError(
                f"{self.group_id}: offset {self.acknowledged} was acknowledged, {self.sent} was the last sent, "
                f"and the server has {fetched}"
            )
        # What was written without an answer counts as acknowledged once a restarted server has shown it.
        self.acknowledged = max(offsets)


PromisesT = TypeVar("PromisesT")


class KillClient(ABC, Generic[PromisesT]):
    """One connection at a time; ``outbox`` is what it has to send."""

    def __init__(self, promises: PromisesT, seed: str) -> None:
        self.promises = promises
        self.random = random.Random(seed)
        self.outbox = bytearray()
        self._correlation_id = 0
        self._unanswered: deque[tuple[int, wire.Request]] = deque()

    def connected(self) -> None:
        """Begin on a new connection, and forget requests that were sent on the one before."""
        self.outbox.clear()
        self._unanswered.clear()

    def send(self, request: wire.Request) -> None:
        """Append a request to the outbox."""
        self._correlation_id += 1
        self._unanswered.append((self._correlation_id, request))
        self.outbox += request.encode(self._correlation_id)

    def receive(self, response: bytes) -> None:
        """Handle a response, which is given without its length."""
        correlation_id, request = self._unanswered.popleft()
        assert int.from_bytes(response[:4], "big") == correlation_id
        self.on_response(request.values, request.decode(response))

    @abstractmethod
    def on_response(self, request: Values, response: Values) -> None:
        """Handle the fields of a response to the oldest request without one."""


class Committer(KillClient[Promises]):
    """Commits from outside, as a group without members."""

    def connected(self) -> None:
        super().connected()
        for _ in range(self.random.randint(1, AHEAD)):
            self._commit()

    def on_response(self, request: Values, response: Values) -> None:
        errors = set(commit_errors(response))
        if errors != {NONE}:
            raise BrokenPromiseError(f"{self.promises.group_id}: a commit failed with {errors}")
        offset = request["topics"][0]["partitions"][0]["committed_offset"]
        self.promises.acknowledged = max(self.promises.acknowledged, offset)
        self._commit()

    def _commit(self) -> None:
        offsets = dict.fromkeys(range(PARTITION_COUNT), self.promises.next_offset())
        self.send(offset_commit(self.promises.group_id, TOPIC, offsets))


class Member(KillClient[Promises]):
    """Joins, syncs, heartbeats and, now and then, rejoins. One of each group commits, so offsets never go back."""

    def __init__(self, promises: Promises, seed: str, *, commits: bool) -> None:
        super().__init__(promises, seed)
        self._commits = commits
        self._consumer = ClassicConsumer("crash", promises.group_id)
        self._sent: Request | None = None
        self._offset = -1

    def connected(self) -> None:
        """Send a heartbeat in the generation that it knows, or join if there is none."""
        super().connected()
        if self._consumer.generation_id > 0:
            self._consumer.phase = "stable"
            self._send(self._consumer.heartbeat())
        else:
            self._consumer.rejoin()
            self._send(self._consumer.next_request())

    def on_response(self, request: Values, response: Values) -> None:
        assert self._sent is not None
        message = to_message(self._sent, response)
        self._check(self._sent, message)
        self._consumer.receive(message)
        consumer, chance = self._consumer, self.random.random()
        if consumer.phase == "stable" and chance < 0.2:
            consumer.rejoin()
        if consumer.phase == "stable" and self._commits and chance >= 0.35:
            self._offset = self.promises.next_offset()
            offsets = tuple(OffsetToCommit(index, self._offset) for index in range(PARTITION_COUNT))
            self._send(consumer.commit_request((TopicToCommit(TOPIC, offsets),)))
        else:
            self._send(consumer.next_request())

    def _check(self, request: Request, response: Response) -> None:
        """Compare an answer with what was promised."""
        consumer, promises = self._consumer, self.promises
        errors = set(errors_in(response))
        if errors - (REFUSED_JOINS if isinstance(request, JoinGroup) else REFUSALS):
            raise BrokenPromiseError(f"{promises.group_id}: {request!r} was refused with {errors}")
        if ErrorCode.UNKNOWN_MEMBER_ID in errors and consumer.member_id in promises.assignments:
            raise BrokenPromiseError(f"{promises.group_id}: the server forgot {consumer.member_id}")
        if errors:
            return
        match response:
            case JoinGroupResponse(generation_id=generation_id, member_id=member_id, leader=leader):
                # A follower that joins again without a change is told the generation that there is.
                if generation_id < promises.generation_id + (leader == member_id):
                    raise BrokenPromiseError(
                        f"{promises.group_id}: generation {generation_id} after {promises.generation_id}"
                    )
                if leader == member_id:
                    promises.synced.add(generation_id)
                    consumer.tag = f"{self.random.getrandbits(32):x}"
            case SyncGroupResponse(assignment=assignment):
                promises.told(consumer.generation_id, consumer.member_id, assignment)
            case OffsetCommitResponse():
                promises.acknowledged = max(promises.acknowledged, self._offset)

    def _send(self, request: Request) -> None:
        self._sent = request
        if isinstance(request, SyncGroup):
            for member_id, assignment in request.assignments:
                self.promises.dealt.setdefault((request.generation_id, member_id), set()).add(assignment)
        self.send(from_message(request))


def from_message(request: Request) -> wire.Request:
    """Return a consumer's request in an old version."""
    match request:
        case JoinGroup():
            return wire.join_group(request.group_id, request.member_id)
        case SyncGroup(group_id, generation_id, member_id):
            assignments = {entry.member_id: entry.assignment for entry in request.assignments}
            return wire.sync_group(group_id, generation_id, member_id, assignments)
        case Heartbeat(group_id, generation_id, member_id):
            return wire.heartbeat(group_id, generation_id, member_id)
        case OffsetCommit(group_id, (topic,), generation_id, member_id):
            offsets = {offset.partition_index: offset.committed_offset for offset in topic.partitions}
            return offset_commit(group_id or "", topic.name or "", offsets, generation_id, member_id)
        case _:
            raise TypeError(f"no consumer sends {request!r}")


def to_message(request: Request, response: Values) -> Response:
    """Return the response to what :func:`from_message` made of a request, as the core's message."""
    match request:
        case OffsetCommit(topics=(topic,)):
            codes = enumerate(commit_errors(response))
            results = tuple(PartitionResult(index, ErrorCode(code)) for index, code in codes)
            return OffsetCommitResponse((TopicResult(topic.name, topic.topic_id, results),))
        case JoinGroup():
            joined = [JoinedMember(member["member_id"], None, member["metadata"]) for member in response["members"]]
            return JoinGroupResponse(
                ErrorCode(response["error_code"]),
                response["member_id"],
                response["generation_id"],
                request.protocol_type,
                response["protocol_name"],
                response["leader"],
                members=tuple(joined),
            )
        case SyncGroup():
            return SyncGroupResponse(
                ErrorCode(response["error_code"]), "consumer", "range", bytes(response["assignment"])
            )
        case _:
            return HeartbeatResponse(ErrorCode(response["error_code"]))
