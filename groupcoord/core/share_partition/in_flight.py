"""Records in flight: those at and behind the start offset of a share-partition that somebody has had already.

They are kept in the batches in which they were given out. A batch has one state for all of its records, or one for each
where they differ, as in ``InFlightBatch`` and ``InFlightState`` of Apache Kafka 4.4.
"""

from __future__ import annotations

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

    __slots__ = ("_each", "_whole", "first", "last")

    def __init__(self, first: int, last: int, whole: RecordState) -> None:
        self.first = first
        self.last = last
        self._whole: RecordState | None = whole
        self._each: list[RecordState] = []

    @property
    def whole(self) -> RecordState | None:
        """The state of all; None: each has its own."""
        return self._whole

    @property
    def size(self) -> int:
        """How many offsets there are."""
        return self.last - self.first + 1

    def split(self) -> None:
        """Let each record have its own state."""
        whole = self._whole
        if whole is not None:
            self._each = [whole.copy() for _ in range(self.size)]
            self._whole = None

    def runs(self, first: int, last: int) -> Iterator[Run]:
        """Walk the states of the records between two offsets: one for all, or one for each."""
        first, last = max(first, self.first), min(last, self.last)
        if self._whole is not None:
            if first <= last:
                yield Run(first, last, self._whole)
            return
        for offset in range(first, last + 1):
            yield Run(offset, offset, self._each[offset - self.first])

    def outcome_count(self, outcomes: frozenset[DeliveryState], first: int) -> int:
        """Return how many records at and behind an offset come into one of some states, or are in it."""
        first = max(first, self.first)
        if self._whole is not None:
            return max(0, self.last + 1 - first) if self._whole.outcome in outcomes else 0
        return sum([state.outcome in outcomes for state in self._each[first - self.first :]])

    def __repr__(self) -> str:
        states = self._whole if self._whole is not None else self._each
        return f"{self.first}-{self.last}: {states!r}"
