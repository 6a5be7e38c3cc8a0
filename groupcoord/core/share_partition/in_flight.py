"""Records in flight of a share-partition: acquired batches, and the next records to acquire.

Rules are those of ``SharePartition.acquire`` of Kafka 4.4, with KIP-1206 (modes) and KIP-1240 (smaller portions after
failures).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from groupcoord.core.fast_construct import define, frozen, plain_members
from groupcoord.core.share_state.records import DeliveryState, StateBatch
from groupcoord.errors import ErrorCode

NOBODY = ""
FINISHED = frozenset((DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED))
"""States that are final; the start offset moves over them."""


DELIVERIES_COUNTED = 2**15 - 1
"""Maximum delivery count in responses, which have 16 bits."""


@define(eq=False, repr=False)
class RecordState:
    """State of one or more records.

    Attributes:
        count: the delivery count.
        member_id: the member that acquired them.
        locked_until_ms: end of the acquisition lock.
        pending: the state that is being written, or None.
        is_rejected: a member rejected them.
    """

    state: DeliveryState
    count: int
    member_id: str = NOBODY
    locked_until_ms: int = 0
    pending: DeliveryState | None = None
    is_rejected: bool = False

    @property
    def is_available(self) -> bool:
        return self.state is DeliveryState.AVAILABLE and self.pending is None

    @property
    def outcome(self) -> DeliveryState:
        return self.state if self.pending is None else self.pending

    def acquire(self, member_id: str, locked_until_ms: int) -> None:
        self.state = DeliveryState.ACQUIRED
        self.count = min(self.count + 1, DELIVERIES_COUNTED)
        self.member_id = member_id
        self.locked_until_ms = locked_until_ms

    def become(self, state: DeliveryState) -> None:
        self.state = state
        self.member_id = NOBODY
        self.pending = None

    def copy(self) -> RecordState:
        # Records with a pending write are not split, so pending and is_rejected have their defaults.
        return RecordState(self.state, self.count, self.member_id, self.locked_until_ms)

    def __repr__(self) -> str:
        pending = "" if self.pending is None else f" -> {self.pending.name}"
        return f"{self.state.name}{pending} {self.count} {self.member_id}".rstrip()


class Run(NamedTuple):
    """Records that follow each other and have one state."""

    first: int
    last: int
    state: RecordState

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last - self.first + 1

    def batch(self, state: DeliveryState) -> StateBatch:
        """Return the batch to write for a new state."""
        return StateBatch(self.first, self.last, state, self.state.count)


# Kafka has a state for each record, but a batch of the log may span billions of offsets.
class InFlightBatch:
    """Neighbouring records in flight, with one state or a state for each run of records.

    Attributes:
        first, last: offsets of the first and last record.
        whole: their common state, or None if a record differs.
    """

    __slots__ = ("_firsts", "_states", "first", "last", "whole")

    def __init__(self, first: int, last: int, whole: RecordState) -> None:
        self.first = first
        self.last = last
        self.whole: RecordState | None = whole  # the usual case, which the methods handle first
        # First offset and state of each run: one of each until a record differs.
        self._firsts = [first]
        self._states = [whole]

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def cut(self, first: int, last: int) -> Run:
        """Return these records as a run, split from one without a pending write."""
        if first > self.first:
            self._begin_at(first)
        if last < self.last:
            self._begin_at(last + 1)
        return Run(first, last, self._states[bisect_right(self._firsts, first) - 1])

    def _begin_at(self, offset: int) -> None:
        behind = bisect_right(self._firsts, offset)
        if self._firsts[behind - 1] < offset:
            self._firsts.insert(behind, offset)
            self._states.insert(behind, self._states[behind - 1].copy())
            # Runs with equal states are not joined again.
            self.whole = None

    def runs(self, first: int, last: int) -> Iterator[Run]:
        """Yield the runs between two offsets, which may be split after they are yielded."""
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return
        if self.whole is not None:
            yield Run(first, last, self.whole)
            return
        firsts = self._firsts
        begin, end = bisect_right(firsts, first) - 1, bisect_right(firsts, last)
        if end - begin == 1:
            yield Run(first, last, self._states[begin])
            return
        # Copies, because the caller may split these runs meanwhile.
        for behind, state in zip([*firsts[begin + 1 : end], last + 1], self._states[begin:end], strict=True):
            yield Run(first, behind - 1, state)
            first = behind

    def outcome_count(self, outcomes: frozenset[DeliveryState], first: int) -> int:
        """Return the number of records from an offset on that have or will have one of these states."""
        if self.whole is not None:
            return max(0, self.last + 1 - max(first, self.first)) if self.whole.outcome in outcomes else 0
        firsts, states, count, behind = self._firsts, self._states, 0, self.last + 1
        # Backwards, so that runs before the offset are not visited.
        for position in range(len(states) - 1, -1, -1):
            if behind <= first:
                break
            begin = firsts[position]
            if states[position].outcome in outcomes:
                count += behind - max(begin, first)
            behind = begin
        return count

    def __repr__(self) -> str:
        return f"{self.first}-{self.last}: {[*zip(self._firsts, self._states, strict=True)]!r}"


class LogBatch(NamedTuple):
    """A batch of the log: the offsets of its first and its last record."""

    first: int
    last: int


class Acquired(NamedTuple):
    """Acquired records with their delivery count."""

    first: int
    last: int
    delivery_count: int


@frozen
class Wanted:
    """Records that a member requests.

    Attributes:
        max_records: maximum number; unless ``is_limit``, extended to the end of the log's batch.
        batch_size: size above which records are divided at borders of the log's batches.
        is_limit: ``max_records`` is strict (KIP-1206).
    """

    member_id: str
    max_records: int
    batch_size: int = 500
    is_limit: bool = False


def divide(first: int, last: int, batches: Sequence[LogBatch], batch_size: int) -> list[tuple[int, int]]:
    """Return the ranges in which new records are acquired."""
    ranges = []
    begin = first
    if last - first + 1 > batch_size:
        for batch in batches:
            # A range ends at a border of the log's batches, at batch_size or more from its start.
            if begin < batch.first <= last and batch.first - begin >= batch_size:
                ranges.append((begin, batch.first - 1))
                begin = batch.first
    return [*ranges, (begin, last)]


def end_of_portion(first: int, last: int, batches: Sequence[LogBatch], count: int, *, is_limit: bool) -> int:
    """Return the last of ``count`` new records to acquire; unless ``is_limit``, the batch's end."""
    if count > last - first:
        return last
    end = first + count - 1
    if is_limit:
        return end
    return min(last, next((batch.last for batch in batches if batch.last >= end), last))


@plain_members
class AcknowledgeType(IntEnum):
    """Acknowledgement of a record, by Kafka's numbers."""

    GAP = 0
    """There is no such record."""
    ACCEPT = 1
    RELEASE = 2
    """Make the record available again."""
    REJECT = 3
    """Archive the record."""
    RENEW = 4
    """Extend the lock (KIP-1222)."""


class Acknowledgement(NamedTuple):
    """Records that follow each other, and a type for all or one for each."""

    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]

    def said(self, first: int, last: int) -> list[tuple[int, int, AcknowledgeType]]:
        """Return the ranges of equal type between two offsets: first and last offset, and the type."""
        types = self.acknowledge_types
        if len(types) == 1:
            return [(first, last, AcknowledgeType(types[0]))]
        said = []
        for kind, same in groupby(types[first - self.first_offset : last + 1 - self.first_offset]):
            end = first + len(list(same)) - 1
            said.append((first, end, AcknowledgeType(kind)))
            first = end + 1
        return said


ACKNOWLEDGEMENTS_MAX = 20_000
"""Maximum number for one partition in a request; at most 10,000 records can be locked."""


class RefusedAcknowledgementError(Exception):
    """Acknowledgements are refused, and nothing has changed."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(error_code.name)
        self.error_code = error_code


def check_acknowledgements(acknowledgements: Sequence[Acknowledgement], *, may_renew: bool) -> None:
    """Check the form of a member's acknowledgements.

    Raises:
        RefusedAcknowledgementError: INVALID_REQUEST for too many, a wrong order, or wrong types.
    """
    # Requests may renew from version 2 on, if they announce it (KIP-1222).
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    # Checked first, because a peer decides how many there are.
    if len(acknowledgements) > ACKNOWLEDGEMENTS_MAX:
        raise RefusedAcknowledgementError(ErrorCode.INVALID_REQUEST)
    behind = -1
    for first, last, types in acknowledgements:
        # Kafka accepts a batch that begins where the last one ended.
        is_sound = behind <= first <= last and len(types) in (1, last - first + 1)
        if not is_sound or not all(AcknowledgeType.GAP <= kind <= highest for kind in types):
            raise RefusedAcknowledgementError(ErrorCode.INVALID_REQUEST)
        behind = last
