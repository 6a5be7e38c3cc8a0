"""When a member of a consumer group sends heartbeats, and when it must have polled.

The coordinator says how often; joining, acknowledging and leaving don't wait for that.
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
        interval_ms: the time between two, as the coordinator said; 0 before.
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
        self._not_before_ms = 0  # a pause after a failure holds up urgent ones too
        self.interval_ms = 0
        self.poll_deadline_ms = 0

    @property
    def is_wanted(self) -> bool:
        """Whether the member sends heartbeats now."""
        return self._membership.state in _BEATING

    @property
    def is_due_for_polls(self) -> bool:
        """Whether the application must poll for the member to stay in its group."""
        return self._membership.is_in_group

    def polled(self, until_ms: int) -> None:
        """The application polls until then."""
        self.poll_deadline_ms = until_ms + self._max_poll_interval_ms

    # ------------------------------------------------------------ sending

    def is_due(self, now_ms: int) -> bool:
        """Tell whether a heartbeat is due, apart from those that leave."""
        if self._in_flight is not None or not self.is_wanted:
            return False
        return now_ms >= self._next_ms or (self._is_urgent and now_ms >= self._not_before_ms)

    @property
    def _is_urgent(self) -> bool:
        return self._membership.state in _URGENT

    def send(self, current: LocalAssignment, now_ms: int) -> None:
        """Send a heartbeat; the coordinator must be known.

        Args:
            current: the partitions that the member has.
            now_ms: the time.
        """
        self._next_ms = now_ms + self.interval_ms
        self._in_flight = self._link.send(self._requests.make(current), now_ms)

    def forget(self) -> None:
        """The member is out of the group by its own will: an answer that is still to come is not about it any more."""
        self._requests.forget()
        self._in_flight = None
        self._attempts = 0
        self._not_before_ms = 0

    # ------------------------------------------------------------ answers

    def is_awaited(self, send: Send) -> bool:
        """Tell whether this is the heartbeat under way; answers to others are about what the member was before."""
        return send is self._in_flight

    def answered(self, interval_ms: int, now_ms: int) -> None:
        """The heartbeat under way was answered without an error."""
        self._in_flight = None
        self._attempts = 0
        self._not_before_ms = 0
        if interval_ms != self.interval_ms:
            self.interval_ms = interval_ms
            self._next_ms = now_ms + interval_ms

    def failed(self, now_ms: int) -> None:
        """The heartbeat under way has no answer, or a bad one: the next comes after a pause, and tells everything."""
        self._in_flight = None
        self._requests.forget()
        self._next_ms = self._not_before_ms = now_ms + self._backoff.wait_ms(self._attempts)
        self._attempts += 1

    def hurry(self, now_ms: int) -> None:
        """The reason of the failure is known and dealt with: no pause."""
        self._attempts = 0
        self._next_ms = self._not_before_ms = now_ms

    # ------------------------------------------------------------ time

    def deadline_ms(self) -> int:
        """Return when there is something to do, with the coordinator known."""
        deadline_ms = self.poll_deadline_ms if self.is_due_for_polls else NEVER_MS
        if self._in_flight is None and self.is_wanted:
            deadline_ms = min(deadline_ms, self._not_before_ms if self._is_urgent else self._next_ms)
        return deadline_ms
