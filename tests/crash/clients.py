"""Clients of the kill harness: each has one connection at a time, and remembers what it was promised.

A *committer* commits all partitions of a group without members at once, several requests ahead. A *member* joins,
syncs, commits and rejoins at random in a group of two. Both outlive the server: :meth:`Client.connected` starts them
anew.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from tests.crash.requests import (
    Answer,
    commit_errors,
    heartbeat,
    join_group,
    offset_commit,
    sync_group,
)

TOPIC = "orders"
PARTITION_COUNT = 6
AHEAD = 3

NONE, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 0, 22, 25, 27, 79


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
        assignments: member id → assignment, as it was told in ``generation_id``.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.acknowledged = -1
        self.sent = -1
        self.generation_id = 0
        self.synced: set[int] = set()
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
        self.member_id = ""
        self.generation_id = -1
        self._sent = ""
        self._offset = -1

    def connected(self) -> None:
        """Go on where it was: try the generation it knows, or join if there is none."""
        super().connected()
        if self.generation_id > 0:
            self._heartbeat()
        else:
            self._join()

    def on_answer(self, correlation_id: int, answer: Answer) -> None:
        """Take note, and go on."""
        if self._sent == "join":
            self._on_join(answer)
        elif self._sent == "sync":
            self._on_sync(answer)
        elif self._sent == "commit":
            (error,) = set(commit_errors(answer))
            if error == NONE:
                self.promises.acknowledged = max(self.promises.acknowledged, self._offset)
            self._go_on(error)
        else:
            answer.int32()
            self._go_on(answer.int16())

    def _on_join(self, answer: Answer) -> None:
        answer.int32()
        error, generation_id = answer.int16(), answer.int32()
        answer.string()
        leader, member_id = answer.string(), answer.string()
        if error == UNKNOWN_MEMBER_ID:
            self._forgotten()
            return
        if error == MEMBER_ID_REQUIRED:
            self.member_id = member_id
            self._join()
            return
        if error != NONE:
            raise BrokenPromiseError(f"{self.promises.group_id}: a join was refused with {error}")
        # A follower that joins again without a change is told the generation that there is.
        if generation_id < self.promises.generation_id + (leader == member_id):
            raise BrokenPromiseError(
                f"{self.promises.group_id}: generation {generation_id} after {self.promises.generation_id}"
            )
        self.member_id, self.generation_id = member_id, generation_id
        assignments = {}
        if leader == member_id:
            self.promises.synced.add(generation_id)
            for _ in range(answer.int32()):
                member = answer.string()
                answer.sized()
                assignments[member] = f"{generation_id}:{member}:{self.random.getrandbits(32):x}".encode()
        self._sent = "sync"
        self.outbox += sync_group(self.next_id(), self.promises.group_id, generation_id, member_id, assignments)

    def _on_sync(self, answer: Answer) -> None:
        answer.int32()
        error, assignment = answer.int16(), answer.sized()
        if error == NONE:
            if assignment and not assignment.startswith(f"{self.generation_id}:{self.member_id}:".encode()):
                raise BrokenPromiseError(f"{self.member_id} was given {assignment!r} in {self.generation_id}")
            self.promises.told(self.generation_id, self.member_id, assignment)
        self._go_on(error)

    def _go_on(self, error: int) -> None:
        if error == UNKNOWN_MEMBER_ID:
            self._forgotten()
        elif error != NONE:
            if error not in (ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS):
                raise BrokenPromiseError(f"{self.promises.group_id}: {self._sent} was refused with {error}")
            self._join()
        else:
            chance = self.random.random()
            if chance < 0.2:
                self._join()
            elif chance < 0.35 or not self._commits:
                self._heartbeat()
            else:
                self._commit()

    def _forgotten(self) -> None:
        if self.member_id in self.promises.assignments:
            raise BrokenPromiseError(f"{self.promises.group_id}: the server forgot {self.member_id}")
        self.member_id, self.generation_id = "", -1
        self._join()

    def _join(self) -> None:
        self._sent = "join"
        self.outbox += join_group(self.next_id(), self.promises.group_id, self.member_id)

    def _heartbeat(self) -> None:
        self._sent = "heartbeat"
        self.outbox += heartbeat(self.next_id(), self.promises.group_id, self.generation_id, self.member_id)

    def _commit(self) -> None:
        self._sent, self._offset = "commit", self.promises.next_offset()
        offsets = dict.fromkeys(range(PARTITION_COUNT), self._offset)
        self.outbox += offset_commit(
            self.next_id(), self.promises.group_id, self.generation_id, self.member_id, TOPIC, offsets
        )
