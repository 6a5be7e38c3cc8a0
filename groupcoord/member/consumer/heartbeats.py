"""Heartbeat timing of a member of a consumer group, and its poll deadline.

The coordinator sends the interval; joining, acknowledging and leaving do not wait for it.
"""

from __future__ import annotations

from groupcoord.member.consumer.assignment import LocalAssignment
from groupcoord.member.consumer.membership import ConsumerMembership
from groupcoord.member.consumer.requests import HeartbeatRequests
from groupcoord.member.membership import MemberState
from groupcoord.member.outputs import Send
from groupcoord.member.protocol import Parts
from groupcoord.member.timing import NEVER_MS

_URGENT = (MemberState.JOINING, MemberState.ACKNOWLEDGING)
_BEATING = (*_URGENT, MemberState.RECONCILING, MemberState.STABLE, MemberState.PREPARE_LEAVING)


class ConsumerHeartbeats:
    """Sends heartbeats, one at a time.

    Attributes:
        interval_ms: the interval that the coordinator has sent, or 0.
        poll_deadline_ms: without a poll until then, the member leaves.
    """

    __slots__ = (
        "_attempts",
        "_backoff",
        "_in_flight",
        "_link",
        "_max_poll_interval_ms",
        "_membership",
        "_next_ms",
        "_not_before_ms",
        "_requests",
        "interval_ms",
        "poll_deadline_ms",
    )

    def __init__(self, parts: Parts, membership: ConsumerMembership) -> None:
        self._link = parts.link
        self._backoff = parts.backoff
        self._max_poll_interval_ms = parts.config.max_poll_interval_ms
        self._membership = membership
        self._requests = HeartbeatRequests(parts.config, membership, parts.subscription)
        self._in_flight: Send | None = None
        self._attempts = 0
        self._next_ms = 0
        self._not_before_ms = 0  # a pause after a failure delays urgent heartbeats, too
        self.interval_ms = 0
        self.poll_deadline_ms = 0

    @property
    def is_wanted(self) -> bool:
        """Whether the member sends heartbeats now."""
        return self._membership.state in _BEATING

    @property
    def is_due_for_polls(self) -> bool:
        """Whether the application must poll so that the member stays in its group."""
        return self._membership.is_in_group

    def polled(self, until_ms: int) -> None:
        """Set the end of the application's current poll."""
        self.poll_deadline_ms = until_ms + self._max_poll_interval_ms

    # ------------------------------------------------------------ sending

    def is_due(self, now_ms: int) -> bool:
        """Return whether a heartbeat is due, except those for leaving."""
        if self._in_flight is not None or not self.is_wanted:
            return False
        return now_ms >= self._next_ms or (self._is_urgent and now_ms >= self._not_before_ms)

    @property
    def _is_urgent(self) -> bool:
        return self._membership.state in _URGENT

    def send(self, current: LocalAssignment, now_ms: int) -> None:
        """Send a heartbeat; the coordinator must be known.

        Args:
            current: the partitions that the member owns.
            now_ms: the time.
        """
        self._next_ms = now_ms + self.interval_ms
        self._in_flight = self._link.send(self._requests.make(current), now_ms)

    def forget(self) -> None:
        """Ignore the response in flight, because the member has left."""
        self._requests.forget()
        self._in_flight = None
        self._attempts = 0
        self._not_before_ms = 0

    # ------------------------------------------------------------ answers

    def is_awaited(self, send: Send) -> bool:
        """Return whether this is the heartbeat in flight; responses to others concern an earlier membership."""
        return send is self._in_flight

    def answered(self, interval_ms: int, now_ms: int) -> None:
        """Handle a response without an error."""
        self._in_flight = None
        self._attempts = 0
        self._not_before_ms = 0
        if interval_ms != self.interval_ms:
            self.interval_ms = interval_ms
            self._next_ms = now_ms + interval_ms

    def failed(self, now_ms: int) -> None:
        """Retry after a pause with a full heartbeat."""
        self._in_flight = None
        self._requests.forget()
        self._next_ms = self._not_before_ms = now_ms + self._backoff.wait_ms(self._attempts)
        self._attempts += 1

    def hurry(self, now_ms: int) -> None:
        """Cancel the pause, because the cause of the failure is handled."""
        self._attempts = 0
        self._next_ms = self._not_before_ms = now_ms

    # ------------------------------------------------------------ time

    def deadline_ms(self) -> int:
        """Return when a heartbeat or the poll deadline is due, with a known coordinator."""
        deadline_ms = self.poll_deadline_ms if self.is_due_for_polls else NEVER_MS
        if self._in_flight is None and self.is_wanted:
            deadline_ms = min(deadline_ms, self._not_before_ms if self._is_urgent else self._next_ms)
        return deadline_ms
