"""Clients of the kill harness: each has one connection at a time, and remembers what it was promised.

A *committer* commits all partitions of a group without members at once, several requests ahead. A *member* joins,
syncs, commits and rejoins at random in a group of two. Both outlive the server: :meth:`Client.connected` starts them
anew.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from groupcoord import ErrorCode
from groupcoord.laws import errors_in
from groupcoord.messages import (
    JoinGroup,
    JoinGroupResponse,
    OffsetCommitResponse,
    OffsetToCommit,
    Request,
    Response,
    SyncGroup,
    SyncGroupResponse,
    TopicToCommit,
)
from groupcoord.testing.consumers import ClassicConsumer
from tests.crash.requests import Answer, commit_errors, decoded, encoded, offset_commit

TOPIC = "orders"
PARTITION_COUNT = 6
AHEAD = 3

NONE, ILLEGAL_GENERATION = ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION
REFUSED_JOINS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.MEMBER_ID_REQUIRED}
REFUSALS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


class BrokenPromiseError(AssertionError):
    """Something acknowledged is gone, or something is there that nobody sent."""


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
        """Return the offset of the next commit."""
        self.sent += 1
        return self.sent

    def told(self, generation_id: int, member_id: str, assignment: bytes) -> None:
        """A member was told its assignment."""
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


class AnyClient(Protocol):
    """What a conversation needs of a client."""

    outbox: bytearray

    def connected(self) -> None:
        """There is a new connection."""

    def on_answer(self, correlation_id: int, answer: Answer) -> None:
        """Take an answer."""


class Client(ABC, Generic[PromisesT]):
    """One connection at a time; ``outbox`` is what it has to send."""

    def __init__(self, promises: PromisesT, seed: str) -> None:
        self.promises = promises
        self.random = random.Random(seed)
        self.outbox = bytearray()
        self._correlation_id = 0

    def connected(self) -> None:
        """There is a new connection: nothing on the old one is answered any more."""
        self.outbox.clear()

    @abstractmethod
    def on_answer(self, correlation_id: int, answer: Answer) -> None:
        """Take an answer."""

    def next_id(self) -> int:
        """Return a new correlation id."""
        self._correlation_id += 1
        return self._correlation_id


class Committer(Client[Promises]):
    """Commits from outside, as a group without members."""

    def __init__(self, promises: Promises, seed: str) -> None:
        super().__init__(promises, seed)
        self._sent: dict[int, int] = {}

    def connected(self) -> None:
        """Begin with several commits at once."""
        super().connected()
        self._sent.clear()
        for _ in range(self.random.randint(1, AHEAD)):
            self._commit()

    def on_answer(self, correlation_id: int, answer: Answer) -> None:
        """Take note, and commit on."""
        errors = set(commit_errors(answer))
        if errors != {NONE}:
            raise BrokenPromiseError(f"{self.promises.group_id}: a commit was refused with {errors}")
        self.promises.acknowledged = max(self.promises.acknowledged, self._sent.pop(correlation_id))
        self._commit()

    def _commit(self) -> None:
        offset, correlation_id = self.promises.next_offset(), self.next_id()
        self._sent[correlation_id] = offset
        offsets = dict.fromkeys(range(PARTITION_COUNT), offset)
        self.outbox += offset_commit(correlation_id, self.promises.group_id, -1, "", TOPIC, offsets)


class Member(Client[Promises]):
    """Joins, syncs, heartbeats and, now and then, rejoins. One of each group commits, so offsets never go back."""

    def __init__(self, promises: Promises, seed: str, *, commits: bool) -> None:
        super().__init__(promises, seed)
        self._commits = commits
        self._consumer = ClassicConsumer("crash", promises.group_id)
        self._sent: Request | None = None
        self._offset = -1

    def connected(self) -> None:
        """Go on where it was: try the generation it knows, or join if there is none."""
        super().connected()
        if self._consumer.generation_id > 0:
            self._consumer.phase = "stable"
            self._send(self._consumer.heartbeat())
        else:
            self._consumer.rejoin()
            self._send(self._consumer.next_request())

    def on_answer(self, correlation_id: int, answer: Answer) -> None:
        """Take note, and go on."""
        assert self._sent is not None
        response = decoded(self._sent, answer)
        self._check(self._sent, response)
        self._consumer.receive(response)
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
        self.outbox += encoded(self.next_id(), request)
