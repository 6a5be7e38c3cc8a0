"""Clients of the kill harness that commit offsets in transactions, as a producer with ``send_offsets_to_transaction``.

Each has a transactional id and two groups, whose offsets lie in different log partitions for most of them. It goes on
after a restart where it was, repeating what was not answered, or gets a new epoch, which aborts what is open.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.crash.clients import NONE, PARTITION_COUNT, TOPIC, BrokenPromiseError, Client
from tests.crash.requests import (
    Answer,
    add_offsets_to_txn,
    commit_errors,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)

CONCURRENT_TRANSACTIONS, UNSTABLE_OFFSET_COMMIT = 51, 88
TIMEOUT_MS = 900_000
NEW_EPOCH = 0.25


class Seen(NamedTuple):
    """What a restarted server says of a group.

    Attributes:
        offsets: committed, by topic and partition.
        is_pending: for each partition of the topic, whether an open transaction has an offset for it.
    """

    offsets: dict[tuple[str, int], int]
    is_pending: dict[int, bool]


class TransactionPromises:
    """What one producer was promised.

    Attributes:
        committed: group → offset that every partition has; -1 without one.
        open: group → offset that was acknowledged in the transaction that is open.
        unanswered: groups whose last commit in that transaction was not answered.
        ending: whether the transaction is to be committed (True) or aborted (False), once that was sent and until it
            is answered.
        producer: the newest id and epoch.
    """

    def __init__(self, transactional_id: str, group_ids: tuple[str, ...]) -> None:
        self.transactional_id = transactional_id
        self.committed = dict.fromkeys(group_ids, -1)
        self.open: dict[str, int] = {}
        self.unanswered: set[str] = set()
        self.ending: bool | None = None
        self.producer = (-1, -1)
        self._last_offset = -1

    def next_offset(self) -> int:
        """Return an offset that was not used yet."""
        self._last_offset += 1
        return self._last_offset

    def ended(self, *, is_committed: bool) -> None:
        """The transaction has ended."""
        if is_committed:
            self.committed.update(self.open)
        self.open, self.unanswered, self.ending = {}, set(), None

    def initialised(self, producer: tuple[int, int]) -> None:
        """A new epoch was acknowledged, so whatever was open is aborted.

        Raises:
            BrokenPromiseError: it is not newer.
        """
        if producer <= self.producer:
            raise BrokenPromiseError(f"{self.transactional_id}: producer {producer} after {self.producer}")
        self.producer = producer
        self.ended(is_committed=False)

    def check(self, seen: dict[str, Seen]) -> None:
        """Compare with what a restarted server has, and remember which way an unanswered end went.

        Raises:
            BrokenPromiseError: an offset is visible or pending that should not be, or the other way round.
        """
        visible = {group_id: _visible(found.offsets) for group_id, found in seen.items()}
        pending = {group_id: set(found.is_pending.values()) for group_id, found in seen.items()}
        if visible == self.committed and self._is_open(pending):
            self.ending = None  # if the end was sent, it did not arrive
            return
        if any(True in states for states in pending.values()) or self.ending is None:
            raise self._broken(seen)
        expected = {**self.committed, **self.open} if self.ending else self.committed
        if visible != expected:
            raise self._broken(seen)
        self.ended(is_committed=self.ending)

    def _is_open(self, pending: dict[str, set[bool]]) -> bool:
        """Tell whether exactly the groups of the open transaction are pending, whole."""
        return all(
            len(states) == 1 if group_id in self.unanswered - self.open.keys() else states == {group_id in self.open}
            for group_id, states in pending.items()
        )

    def _broken(self, seen: dict[str, Seen]) -> BrokenPromiseError:
        ending = {None: "not ended", True: "to be committed", False: "to be aborted"}[self.ending]
        return BrokenPromiseError(
            f"{self.transactional_id}: {self.committed} were committed, and {self.open} are in a transaction that is "
            f"{ending} (unanswered: {sorted(self.unanswered)}); the server has {seen}"
        )


def _visible(offsets: dict[tuple[str, int], int]) -> int | None:
    """Return the offset that all partitions have, -1 if none has one, None if they differ."""
    if not offsets:
        return -1
    if offsets.keys() != {(TOPIC, index) for index in range(PARTITION_COUNT)} or len(set(offsets.values())) > 1:
        return None
    return next(iter(offsets.values()))


class _Step(NamedTuple):
    """One request of a transaction.

    Attributes:
        kind: ``init``, ``add``, ``commit`` or ``end``.
        group_id: of the second and third.
        offset: of a commit.
        is_committed: of an end.
    """

    kind: str
    group_id: str = ""
    offset: int = -1
    is_committed: bool = False


class Producer(Client[TransactionPromises]):
    """Commits offsets in one transaction after another; some are aborted, and some stay open over a restart."""

    def __init__(self, promises: TransactionPromises, seed: str) -> None:
        super().__init__(promises, seed)
        self._steps = [_Step("init")]

    def connected(self) -> None:
        """Repeat what was not answered, or start over with a new epoch."""
        super().connected()
        if self.random.random() < NEW_EPOCH:
            self._steps = [_Step("init")]
        self._send()

    def on_answer(self, correlation_id: int, answer: Answer) -> None:
        """Take note, and go on."""
        step, promises = self._steps[0], self.promises
        if step.kind == "commit":
            error = max(commit_errors(answer))
        else:
            answer.int32()
            error = answer.int16()
        if step.kind == "init" and error == CONCURRENT_TRANSACTIONS:
            self._send()
            return
        if error != NONE:
            raise BrokenPromiseError(f"{promises.transactional_id}: {step} was refused with {error}")
        if step.kind == "init":
            promises.initialised((answer.int64(), answer.int16()))
        elif step.kind == "commit":
            promises.open[step.group_id] = step.offset
            promises.unanswered.discard(step.group_id)
        elif step.kind == "end":
            promises.ended(is_committed=step.is_committed)
        del self._steps[0]
        if not self._steps:
            self._steps = self._transaction()
        self._send()

    def _transaction(self) -> list[_Step]:
        """Return the requests of a new transaction: each group takes part once or twice, or not at all."""
        steps: list[_Step] = []
        for group_id in self.promises.committed:
            if self.random.random() < 0.8 or not steps:
                steps.append(_Step("add", group_id))
                steps += [
                    _Step("commit", group_id, self.promises.next_offset())
                    for _ in range(self.random.choice([1, 1, 1, 2]))
                ]
        return [*steps, _Step("end", is_committed=self.random.random() < 0.6)]

    def _send(self) -> None:
        step, promises = self._steps[0], self.promises
        transactional_id, producer, correlation_id = promises.transactional_id, promises.producer, self.next_id()
        if step.kind == "init":
            promises.ending = False
            self.outbox += init_producer_id(correlation_id, transactional_id, TIMEOUT_MS)
        elif step.kind == "add":
            self.outbox += add_offsets_to_txn(correlation_id, transactional_id, producer, step.group_id)
        elif step.kind == "commit":
            promises.unanswered.add(step.group_id)
            offsets = dict.fromkeys(range(PARTITION_COUNT), step.offset)
            self.outbox += txn_offset_commit(correlation_id, transactional_id, producer, step.group_id, TOPIC, offsets)
        else:
            promises.ending = step.is_committed
            self.outbox += end_txn(correlation_id, transactional_id, producer, committed=step.is_committed)
