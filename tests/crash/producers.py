"""Clients of the kill harness that commit offsets in transactions, as a producer with ``send_offsets_to_transaction``.
Each has a transactional id and two groups, usually in different log partitions.
"""

from __future__ import annotations

from typing import NamedTuple

from groupcoord.schema.engine import Values
from tests.client import Request, commit_errors, committed_topic
from tests.crash.clients import PARTITION_COUNT, TOPIC, BrokenPromiseError
from tests.crash.transactions import TransactionalClient, TransactionPromises

UNSTABLE_OFFSET_COMMIT = 88
ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT = 25, 28


class Seen(NamedTuple):
    """State of a group on a restarted server. Attributes: offsets: committed, by topic and partition. is_pending: for
    each partition of the topic, whether an open transaction has an offset for it.
    """

    offsets: dict[tuple[str, int], int]
    is_pending: dict[int, bool]


class OffsetsInTransactions(TransactionPromises):
    """What one producer was promised.

    Attributes:
        committed: group → offset that every partition has; -1 without one.
        open: group → offset that was acknowledged in the transaction that is open.
        unanswered: groups whose last commit in that transaction was not answered.
    """

    def __init__(self, transactional_id: str, group_ids: tuple[str, ...]) -> None:
        super().__init__(transactional_id)
        self.committed = dict.fromkeys(group_ids, -1)
        self.open: dict[str, int] = {}
        self.unanswered: set[str] = set()
        self._last_offset = -1

    def next_offset(self) -> int:
        self._last_offset += 1
        return self._last_offset

    def ended(self, *, is_committed: bool) -> None:
        if is_committed:
            self.committed.update(self.open)
        self.open, self.unanswered, self.ending = {}, set(), None

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
        """Return whether exactly the groups of the open transaction are pending, as a whole."""
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
    """A request in a transaction: a group takes part, or has an offset committed."""

    group_id: str
    offset: int | None = None


class Producer(TransactionalClient[OffsetsInTransactions, _Step]):
    """Commits offsets in one transaction after another."""

    def next_steps(self) -> list[_Step]:
        """Each group takes part once or twice, or not at all."""
        steps: list[_Step] = []
        for group_id in self.promises.committed:
            if self.random.random() < 0.8 or not steps:
                steps.append(_Step(group_id))
                steps += [_Step(group_id, self.promises.next_offset()) for _ in range(self.random.choice([1, 1, 1, 2]))]
        return steps

    def request_of(self, step: _Step) -> Request:
        """Return an AddOffsetsToTxn or a TxnOffsetCommit."""
        fields = {**self.promises.sender_fields(), "group_id": step.group_id}
        if step.offset is None:
            return Request(ADD_OFFSETS_TO_TXN, 1, fields)
        self.promises.unanswered.add(step.group_id)
        topics = committed_topic(TOPIC, dict.fromkeys(range(PARTITION_COUNT), step.offset))
        return Request(TXN_OFFSET_COMMIT, 2, {**fields, "topics": topics})

    def error_of(self, step: _Step, response: Values) -> int:
        error: int = response["error_code"] if step.offset is None else max(commit_errors(response))
        return error

    def acknowledged(self, step: _Step) -> None:
        """Note that an offset is in the open transaction."""
        if step.offset is not None:
            self.promises.open[step.group_id] = step.offset
            self.promises.unanswered.discard(step.group_id)
