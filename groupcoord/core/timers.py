"""Timer queue with lazy rearming.

A heartbeat that postpones a session only assigns two numbers: the entry stays in the queue under its old deadline and
moves when it comes first. Earlier deadlines, arming and cancelling move the entry, so no entry is without a timer.
Equal deadlines fire in the order of arming, wherever their entries are.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sortedcontainers import SortedDict

from groupcoord.core.events import Cause
from groupcoord.core.fast_construct import plain_members
from groupcoord.errors import InvariantError

NEVER_MS = 2**63 - 1


@plain_members
class TimerKind(Enum):
    """Types of timers; :class:`~groupcoord.core.partition.Partition` has the table of handlers.

    Attributes:
        cause: the cause of the member's removal when it expires; None if it removes none.
    """

    def __init__(self, label: str, cause: Cause | None = None) -> None:
        self._value_ = label
        self.cause = cause

    SESSION = "session", Cause.SESSION_EXPIRY
    """Session of a member of a classic group, or of a pending id."""
    JOIN = "join", Cause.REBALANCE_TIMEOUT
    """Time to join a classic group's next generation."""
    SYNC = "sync", Cause.SYNC_TIMEOUT
    """Time to sync in a classic group's generation."""
    MEMBER_SESSION = "member session", Cause.SESSION_EXPIRY
    """Session of a member of any other group."""
    REVOCATION = "revocation", Cause.REBALANCE_TIMEOUT
    """Time of a member to revoke partitions or tasks."""
    MEMBER_JOIN = "member join", Cause.REBALANCE_TIMEOUT
    """Time of a classic member of a consumer group to join again."""
    MEMBER_SYNC = "member sync", Cause.SYNC_TIMEOUT
    """Time of a classic member of a consumer group to sync."""
    ASSIGNMENT_DELAY = "assignment delay"
    """Time that the first members of a streams group wait for others."""
    APPEND = "append"
    """An append may be overdue."""
    EXPIRY = "expiry"
    """Sweep for expired offsets and groups."""


class TimerKey(NamedTuple):
    """Owner of a timer: type, log partition, group and (for sessions) member."""

    kind: TimerKind
    partition: int
    group_id: str = ""
    member_id: str = ""


class Timer:
    """Deadline of one owner, created unarmed; :class:`TimerQueue` arms and cancels it.

    Attributes:
        deadline_ms: when it fires; None while it is not armed.
    """

    IS_STATE = True

    __slots__ = ("_entry", "_sequence", "deadline_ms", "key")

    def __init__(self, key: TimerKey) -> None:
        self.key = key
        self.deadline_ms: int | None = None
        self._sequence = 0
        self._entry: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"Timer({self.key!r}, deadline_ms={self.deadline_ms})"


class TimerQueue:
    """Armed timers in the order (deadline, arming).

    All operations are O(log n); postponing an armed timer is O(1).

    Attributes:
        advances: count of earlier next deadlines; while it is unchanged, the next deadline is no earlier.
    """

    NOT_COUNTED = ("_entries", "_next_ms", "_sequence", "advances")  # the armed timers of a group count

    def __init__(self) -> None:
        self._entries: SortedDict[tuple[int, int], Timer] = SortedDict()
        self._sequence = 0
        self._next_ms = NEVER_MS  # no entry lies before it
        self.advances = 0

    def arm(self, timer: Timer, deadline_ms: int) -> None:
        # Equal deadlines fire in the order of arming, so each arming has a number.
        self._sequence = timer._sequence = self._sequence + 1
        timer.deadline_ms = deadline_ms
        entry = timer._entry
        if entry is not None:
            # Measured: a heartbeat that postpones its session costs two assignments instead of a sorted insert.
            if deadline_ms >= entry[0]:
                return
            # An entry behind its deadline would be found too late.
            del self._entries[entry]
        if deadline_ms < self._next_ms:
            self._next_ms = deadline_ms
            self.advances += 1
        entry = timer._entry = (deadline_ms, timer._sequence)
        self._entries[entry] = timer

    def cancel(self, timer: Timer) -> None:
        timer.deadline_ms = None
        if timer._entry is not None:
            del self._entries[timer._entry]
            timer._entry = None

    def next_deadline_ms(self) -> int | None:
        # Entries of postponed timers lie before their deadlines.
        self._settle()
        if not self._entries:
            self._next_ms = NEVER_MS
            return None
        next_ms: int = self._entries.peekitem(0)[0][0]
        self._next_ms = next_ms
        return next_ms

    def pop_due(self, now_ms: int) -> Timer | None:
        """Disarm and return the first timer that is due at ``now_ms``, or None."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        timer: Timer = self._entries.peekitem(0)[1]
        self.cancel(timer)
        return timer

    def armed(self) -> list[Timer]:
        # Not in order, which would sort the entries.
        return list(dict.values(self._entries))

    def check(self) -> None:
        """Raise InvariantError unless entries and timers mirror each other."""
        for entry, timer in self._entries.items():
            if timer._entry != entry or timer.deadline_ms is None or timer.deadline_ms < entry[0]:
                raise InvariantError(f"timer queue entry {entry} does not belong to {timer!r}")
        if self._entries and self._entries.peekitem(0)[0][0] < self._next_ms:
            raise InvariantError(f"timer queue entry {self._entries.peekitem(0)[0]} lies before {self._next_ms}")

    def _settle(self) -> None:
        """Move entries of postponed timers until the first entry is current."""
        while self._entries:
            entry, timer = self._entries.peekitem(0)
            if entry == (timer.deadline_ms, timer._sequence):
                return
            del self._entries[entry]
            entry = timer._entry = (timer.deadline_ms, timer._sequence)
            self._entries[entry] = timer
