"""The way to the coordinator: find it, send to it, lose it, and keep track of the requests that have no answer yet."""

from __future__ import annotations

from groupcoord.core.messages import (
    CoordinatorType,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    Node,
    Response,
)
from groupcoord.errors import ErrorCode
from groupcoord.member.config import MemberConfig
from groupcoord.member.outputs import CoordinatorFound, CoordinatorLost, MemberRequest, Output, Send
from groupcoord.member.reactions import Reaction, reaction_to
from groupcoord.member.timing import NEVER_MS, ExponentialBackoff


class CoordinatorLink:
    """Requests on their way, and where they go.

    Attributes:
        node: the coordinator, None while it is unknown.
        in_flight: requests without an answer, by id, in the order in which they were sent.
        broken: requests that will have none since the connection is gone; whoever sent them is to be told.
    """

    __slots__ = (
        "_attempts",
        "_backoff",
        "_group_id",
        "_is_wanted",
        "_lookup_id",
        "_next_request_id",
        "_outputs",
        "_request_timeout_ms",
        "_retry_ms",
        "broken",
        "in_flight",
        "node",
    )

    def __init__(self, config: MemberConfig, backoff: ExponentialBackoff, outputs: list[Output]) -> None:
        self._group_id = config.group_id or ""
        self._request_timeout_ms = config.request_timeout_ms
        self._backoff = backoff
        self._outputs = outputs
        self._next_request_id = 1
        self._lookup_id: int | None = None
        self._attempts = 0
        self._retry_ms = 0
        self._is_wanted = False
        self.node: Node | None = None
        self.in_flight: dict[int, Send] = {}
        self.broken: list[Send] = []

    # ------------------------------------------------------------ requests

    def send(self, request: MemberRequest, now_ms: int, purpose: object = None, timeout_ms: int | None = None) -> Send:
        """Send a request to the coordinator, which must be known."""
        return self._send(request, self.node, now_ms + (timeout_ms or self._request_timeout_ms), purpose)

    def _send(self, request: MemberRequest, to: Node | None, deadline_ms: int, purpose: object) -> Send:
        request_id = self._next_request_id
        self._next_request_id = request_id + 1
        send = Send(request_id, request, to, deadline_ms, purpose)
        self.in_flight[request_id] = send
        self._outputs.append(send)
        return send

    def expire(self, now_ms: int) -> list[Send]:
        """Give up the requests whose time is over. One to the coordinator costs the connection.

        Returns:
            lookups that were given up.
        """
        late = [send for send in self.in_flight.values() if send.deadline_ms <= now_ms]
        if not late:
            return late
        if any(send.to is not None for send in late):
            self.lose("a request timed out")
        lookups = [send for send in late if send.to is None]
        for send in lookups:
            del self.in_flight[send.request_id]
        return lookups

    @property
    def awaits_coordinator(self) -> bool:
        """Whether requests to the coordinator have no answer yet."""
        return any(send.to is not None for send in self.in_flight.values())

    def forget(self, *kinds: type[MemberRequest]) -> None:
        """Wait no more for the answers to requests of these kinds."""
        for request_id in [number for number, send in self.in_flight.items() if isinstance(send.request, kinds)]:
            del self.in_flight[request_id]

    def rest(self) -> None:
        """Don't look for the coordinator again."""
        self._is_wanted = False

    def abandon(self) -> None:
        """Forget all requests and the coordinator."""
        self.in_flight.clear()
        self.broken.clear()
        self.node = None
        self._lookup_id = None
        self._is_wanted = False

    # ------------------------------------------------------------ finding and losing

    def find(self, now_ms: int, *, at_once: bool = False) -> None:
        """Look for the coordinator unless it is known or looked for already.

        Args:
            now_ms: the time.
            at_once: don't wait for the pause after a lookup that failed.
        """
        if self.node is not None or self._lookup_id is not None:
            return
        if now_ms < self._retry_ms and not at_once:
            self._is_wanted = True
            return
        self._is_wanted = False
        request = FindCoordinator(CoordinatorType.GROUP, (self._group_id,))
        self._lookup_id = self._send(request, None, now_ms + self._request_timeout_ms, None).request_id

    def found(self, response: Response) -> FoundCoordinator | None:
        """Take the answer to a lookup; None if it can't be one."""
        self._lookup_id = None
        if not isinstance(response, FindCoordinatorResponse) or len(response.coordinators) != 1:
            return None
        entry = response.coordinators[0]
        if entry.error_code is ErrorCode.NONE:
            self.node = entry.node
            self._attempts = 0
            self._retry_ms = 0
            self._outputs.append(CoordinatorFound(entry.node))
        return entry

    def lookup_failed(self, error_code: ErrorCode, now_ms: int) -> bool:
        """Take note that a lookup failed; return whether another one may do better, after a pause."""
        self._lookup_id = None
        if reaction_to(FindCoordinator, error_code) is not Reaction.RETRY:
            return False
        self.back_off(now_ms)
        return True

    def back_off(self, now_ms: int) -> None:
        """Let the next lookup wait, each time longer."""
        self._retry_ms = now_ms + self._backoff.wait_ms(self._attempts)
        self._attempts += 1

    def pause(self, now_ms: int) -> None:
        """Let the next lookup wait for a moment, though this one was answered."""
        self._retry_ms = now_ms + self._backoff.wait_ms(0)

    def lose(self, reason: str) -> None:
        """The coordinator is not where it was: close the connection, and count what was sent there as failed."""
        if self.node is None:
            return
        self._outputs.append(CoordinatorLost(self.node, reason))
        self.node = None
        gone = [send for send in self.in_flight.values() if send.to is not None]
        for send in gone:
            del self.in_flight[send.request_id]
        self.broken += gone

    # ------------------------------------------------------------ time

    def tick(self, now_ms: int) -> None:
        """Look again once the pause after a failed lookup is over."""
        if self._is_wanted and now_ms >= self._retry_ms:
            self.find(now_ms)

    def deadline_ms(self) -> int:
        """Return when an answer is overdue, or the next lookup due."""
        deadline_ms = self._retry_ms if self._is_wanted else NEVER_MS
        if not self.in_flight:
            return deadline_ms
        for send in self.in_flight.values():
            if send.deadline_ms < deadline_ms:
                deadline_ms = send.deadline_ms
        return deadline_ms
