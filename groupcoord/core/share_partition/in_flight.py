"""Records in flight: those at and behind the start offset of a share-partition that somebody has had already.

They are kept in the batches in which they were given out. A batch has one state for all of its records, or several
where they differ. In ``InFlightBatch`` of Apache Kafka 4.4 each record has its own then; here those that follow each
other share one, since a batch may say of itself that it has billions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from groupcoord.core.share_state.records import DeliveryState, StateBatch

NOBODY = ""
FINISHED = frozenset((DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED))
"""What is finished is never given out again, and the start offset moves over it."""


DELIVERIES_COUNTED = 2**15 - 1
"""What is told has 16 bits."""


class RecordState:
    """The state of a record, or of several.

    Attributes:
        state: where they are.
        count: how often they were given out.
        member_id: whose they are, if they are acquired.
        locked_until_ms: until when, then.
        pending: what they become when the log has it; None: nothing is being written.
        is_rejected: somebody said that nobody should try again.
    """

    __slots__ = ("count", "is_rejected", "locked_until_ms", "member_id", "pending", "state")

    def __init__(self, state: DeliveryState, count: int, member_id: str = NOBODY, locked_until_ms: int = 0) -> None:
        self.state = state
        self.count = count
        self.member_id = member_id
        self.locked_until_ms = locked_until_ms
        self.pending: DeliveryState | None = None
        self.is_rejected = False

    @property
    def is_available(self) -> bool:
        """True if somebody may have them."""
        return self.state is DeliveryState.AVAILABLE and self.pending is None

    @property
    def outcome(self) -> DeliveryState:
        """What they are when the log has what is being written."""
        return self.state if self.pending is None else self.pending

    def acquire(self, member_id: str, locked_until_ms: int) -> None:
        """Give them to a member, once more."""
        self.state = DeliveryState.ACQUIRED
        self.count = min(self.count + 1, DELIVERIES_COUNTED)
        self.member_id = member_id
        self.locked_until_ms = locked_until_ms

    def become(self, state: DeliveryState) -> None:
        """Be in another state, and nobody's."""
        self.state = state
        self.member_id = NOBODY
        self.pending = None

    def copy(self) -> RecordState:
        """Return the same state, for records that are to have their own. Nothing is being written of them then."""
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
        """How many offsets there are."""
        return self.last - self.first + 1

    def batch(self, state: DeliveryState) -> StateBatch:
        """Return what is written when they come into a state."""
        return StateBatch(self.first, self.last, state, self.state.count)


class InFlightBatch:
    """Records that were given out together.

    Attributes:
        first, last: from which offset to which.
    """

    __slots__ = ("_firsts", "_states", "_whole", "first", "last")

    def __init__(self, first: int, last: int, whole: RecordState) -> None:
        self.first = first
        self.last = last
        self._whole: RecordState | None = whole  # mostly, and there may be hundreds of such batches
        self._firsts = [first]
        self._states = [whole]

    @property
    def whole(self) -> RecordState | None:
        """The state of all; None: there are several."""
        return self._whole

    @property
    def size(self) -> int:
        """How many offsets there are."""
        return self.last - self.first + 1

    def cut(self, first: int, last: int) -> Run:
        """Let records that have one state, of which nothing is being written, have it apart from those around them."""
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
            self._whole = None

    def runs(self, first: int, last: int) -> Iterator[Run]:
        """Walk the states of the records between two offsets. What was told of may be cut meanwhile."""
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return
        if self._whole is not None:
            yield Run(first, last, self._whole)
            return
        firsts = self._firsts
        begin, end = bisect_right(firsts, first) - 1, bisect_right(firsts, last)
        if end - begin == 1:
            yield Run(first, last, self._states[begin])
            return
        for behind, state in zip([*firsts[begin + 1 : end], last + 1], self._states[begin:end], strict=True):
            yield Run(first, behind - 1, state)
            first = behind

    def outcome_count(self, outcomes: frozenset[DeliveryState], first: int) -> int:
        """Return how many records at and behind an offset come into one of some states, or are in it."""
        if self._whole is not None:
            return max(0, self.last + 1 - max(first, self.first)) if self._whole.outcome in outcomes else 0
        firsts, states, count, behind = self._firsts, self._states, 0, self.last + 1
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
