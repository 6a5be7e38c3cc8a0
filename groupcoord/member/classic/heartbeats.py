"""Heartbeats of the classic protocol, with three deadlines: next heartbeat, session, and the application's next poll.

The Java consumer has a thread for them. It sends heartbeats independently of polls, looks for a lost coordinator, and
leaves the group when the application has not polled for too long.
"""

from __future__ import annotations

from groupcoord.core.messages import Heartbeat, HeartbeatResponse, Response
from groupcoord.errors import ErrorCode
from groupcoord.member.classic.membership import Generation, MembershipManager
from groupcoord.member.config import MemberConfig
from groupcoord.member.link import CoordinatorLink
from groupcoord.member.membership import MemberState
from groupcoord.member.outputs import Send
from groupcoord.member.reactions import Reaction, reaction_to
from groupcoord.member.timing import NEVER_MS, ExponentialBackoff


class Heartbeats:
    """Sends heartbeats while the member is joined.

    Attributes:
        next_ms: when the next heartbeat is due.
        session_deadline_ms: without a response to a heartbeat until then, the coordinator counts as lost.
        poll_deadline_ms: without a poll until then, the member leaves.
        is_enabled: True from the JoinGroup response until the member is not joined any more.
    """

    __slots__ = (
        "_attempts",
        "_backoff",
        "_config",
        "_link",
        "_membership",
        "_request",
        "_request_generation",
        "is_enabled",
        "next_ms",
        "poll_deadline_ms",
        "session_deadline_ms",
    )

    def __init__(
        self, config: MemberConfig, link: CoordinatorLink, membership: MembershipManager, backoff: ExponentialBackoff
    ) -> None:
        self._config = config
        self._link = link
        self._membership = membership
        self._backoff = backoff
        self._attempts = 0
        self._request: Heartbeat | None = None
        self._request_generation: Generation | None = None
        self.is_enabled = False
        self.next_ms = 0
        self.session_deadline_ms = 0
        self.poll_deadline_ms = 0

    def enable(self, now_ms: int) -> None:
        """Start heartbeats and restart all deadlines after a join."""
        self.is_enabled = True
        self.next_ms = now_ms + self._config.heartbeat_interval_ms
        self.restart_session(now_ms)
        self.poll_deadline_ms = max(self.poll_deadline_ms, now_ms + self._config.max_poll_interval_ms)

    def restart_session(self, now_ms: int) -> None:
        """Restart the session after a response of the coordinator."""
        self.session_deadline_ms = now_ms + self._config.session_timeout_ms

    def polled(self, until_ms: int) -> None:
        """Set the end of the application's current poll."""
        self.poll_deadline_ms = until_ms + self._config.max_poll_interval_ms

    def tick(self, now_ms: int) -> bool:
        """Send a due heartbeat; return whether the poll deadline has passed."""
        if not self.is_enabled:
            return False
        if not self._membership.is_joined:
            self.is_enabled = False
            return False
        if self._link.node is not None and now_ms >= self.session_deadline_ms:
            self._link.lose("session timed out without receiving a heartbeat response")
        if self._link.node is None:
            self._link.find(now_ms)
            return False
        return not self.beat_on(now_ms)

    def _make_request(self) -> Heartbeat:
        generation = self._membership.generation
        if self._request is None or self._request_generation is not generation:
            config = self._config
            self._request = Heartbeat(
                config.group_id or "", generation.generation_id, generation.member_id, config.group_instance_id
            )
            self._request_generation = generation
        return self._request

    def receive(self, send: Send, response: Response, now_ms: int) -> None:
        """Handle a Heartbeat response."""
        if not isinstance(response, HeartbeatResponse):
            self._membership.fail(
                "Heartbeat", ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(response).__name__} is no answer to it"
            )
        elif response.error_code is ErrorCode.NONE:
            self.answered(now_ms)
        else:
            self._react(send, response.error_code, now_ms)

    def _react(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        membership = self._membership
        reaction = reaction_to(Heartbeat, error_code)
        reason = f"encountered {error_code.name} from HEARTBEAT response"
        if reaction is Reaction.REJOIN:
            # The member still counts as alive: the coordinator keeps it for as long as the rebalance may take.
            if membership.state is MemberState.STABLE:
                membership.request_rejoin("group is already rebalancing")
            self._attempts = 0
            self.restart_session(now_ms)
        elif reaction is Reaction.FIND_COORDINATOR:
            self._link.lose(f"error response {error_code.name}")
            self.failed(now_ms)
        elif reaction is Reaction.RETRY:
            self.failed(now_ms)
        elif send.purpose != membership.generation:
            self.restart_session(now_ms)  # a response for an earlier generation says nothing about this one
        elif reaction is Reaction.FAIL:
            membership.reset(reason, forget_member_id=True)
            membership.fail("Heartbeat", error_code, f"the instance id {self._config.group_instance_id!r} is fenced")
        else:
            membership.reset(reason, forget_member_id=reaction is Reaction.RESET_MEMBER_ID)
            self.failed(now_ms)

    def failed(self, now_ms: int) -> None:
        """Retry after a pause, because a heartbeat failed."""
        self.next_ms = now_ms + self._backoff.wait_ms(self._attempts)
        self._attempts += 1

    def beat_on(self, now_ms: int) -> bool:
        """Send a heartbeat if nothing else is due; return whether that is so. This is the most frequent path."""
        if now_ms >= self.session_deadline_ms or now_ms >= self.poll_deadline_ms:
            return False
        if now_ms >= self.next_ms:
            self.next_ms = now_ms + self._config.heartbeat_interval_ms
            self._link.send(self._make_request(), now_ms, self._request_generation)
        return True

    def answered(self, now_ms: int) -> None:
        """Handle a response without an error."""
        self._attempts = 0
        self.session_deadline_ms = now_ms + self._config.session_timeout_ms

    def deadline_ms(self) -> int:
        """Return when :meth:`tick` is due, except for the lookup of the coordinator."""
        if not self.is_enabled or self._link.node is None or not self._membership.is_joined:
            return NEVER_MS
        return min(self.next_ms, self.session_deadline_ms, self.poll_deadline_ms)
