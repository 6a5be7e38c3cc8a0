"""Connection of a member to its coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from groupcoord.core.messages import (
    CoordinatorType,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    Node,
    Response,
)
from groupcoord.errors import ErrorCode
from groupcoord.member.error_handling import Reaction, reaction_to
from groupcoord.member.outputs import CoordinatorFound, CoordinatorLost, MemberRequest, Send

if TYPE_CHECKING:
    from groupcoord.member.parts import Parts

NEVER_MS = 2**63

JITTER = 0.2
"""Largest relative deviation of a wait, so that clients do not return at the same time."""

_DOUBLINGS_MAX = 63
"""Bounds the shift; no maximum is that long."""


def no_jitter() -> float:
    """Return the value that gives every wait its exact length."""
    return 0.5


@define(eq=False, repr=False)
class ExponentialBackoff:
    """Doubles the wait with each attempt, with jitter, up to a maximum.

    Args:
        initial_ms: the first wait (``retry.backoff.ms``).
        longest_ms: the maximum (``retry.backoff.max.ms``); if not above ``initial_ms``, all waits are this long.
        random: returns numbers in [0, 1).
    """

    _initial_ms: int
    _longest_ms: int
    _random: Callable[[], float]

    def wait_ms(self, attempts: int) -> int:
        """Return the wait after a failed attempt; ``attempts`` failed before it."""
        if self._initial_ms >= self._longest_ms:
            return self._longest_ms
        wait_ms = min(self._initial_ms << min(attempts, _DOUBLINGS_MAX), self._longest_ms)
        return min(int(wait_ms * (1 - JITTER + 2 * JITTER * self._random())), self._longest_ms)


@define(eq=False, repr=False)
class CoordinatorLink:
    """Requests in flight and the coordinator.

    Attributes:
        node: the coordinator, or None while it is unknown.
        in_flight: requests without a response, by id, in the order of sending.
        broken: requests with a broken connection, to be reported to their senders.
    """

    _parts: Parts
    _next_request_id: int = field(default=1, init=False)
    _lookup_id: int | None = field(default=None, init=False)
    _attempts: int = field(default=0, init=False)
    _retry_ms: int = field(default=0, init=False)
    _is_wanted: bool = field(default=False, init=False)
    node: Node | None = field(default=None, init=False)
    in_flight: dict[int, Send] = field(factory=dict, init=False)
    broken: list[Send] = field(factory=list, init=False)

    # ------------------------------------------------------------ requests

    def send(self, request: MemberRequest, now_ms: int, purpose: object = None, timeout_ms: int | None = None) -> Send:
        """Send a request to the coordinator, which must be known."""
        return self._send(request, self.node, now_ms + (timeout_ms or self._parts.config.request_timeout_ms), purpose)

    def _send(self, request: MemberRequest, to: Node | None, deadline_ms: int, purpose: object) -> Send:
        request_id = self._next_request_id
        self._next_request_id = request_id + 1
        send = Send(request_id, request, to, deadline_ms, purpose)
        self.in_flight[request_id] = send
        self._parts.outputs.append(send)
        return send

    def expire(self, now_ms: int) -> list[Send]:
        """Give up timed-out requests, and the coordinator if it had one of them; return the lookups among them."""
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
        return any(send.to is not None for send in self.in_flight.values())

    def forget(self, *kinds: type[MemberRequest]) -> None:
        """Ignore the responses to requests of these types."""
        for request_id in [number for number, send in self.in_flight.items() if isinstance(send.request, kinds)]:
            del self.in_flight[request_id]

    def rest(self) -> None:
        self._is_wanted = False

    def abandon(self) -> None:
        self.in_flight.clear()
        self.broken.clear()
        self.node = None
        self._lookup_id = None
        self._is_wanted = False

    # ------------------------------------------------------------ finding and losing

    def find(self, now_ms: int, *, at_once: bool = False) -> None:
        """Look for the coordinator, after any pause unless ``at_once``, unless it is known or a lookup is in flight."""
        if self.node is not None or self._lookup_id is not None:
            return
        if now_ms < self._retry_ms and not at_once:
            self._is_wanted = True
            return
        self._is_wanted = False
        request = FindCoordinator(CoordinatorType.GROUP, (self._parts.config.group_id or "",))
        self._lookup_id = self._send(request, None, now_ms + self._parts.config.request_timeout_ms, None).request_id

    def found(self, response: Response) -> FoundCoordinator | None:
        """Handle a FindCoordinator response; return its entry, maybe with an error, or None if it is malformed."""
        self._lookup_id = None
        if not isinstance(response, FindCoordinatorResponse) or len(response.coordinators) != 1:
            return None
        entry = response.coordinators[0]
        if entry.error_code is ErrorCode.NONE:
            self.node = entry.node
            self._attempts = 0
            self._retry_ms = 0
            self._parts.outputs.append(CoordinatorFound(entry.node))
        return entry

    def lookup_failed(self, error_code: ErrorCode, now_ms: int) -> bool:
        """Handle a failed lookup; return whether to retry after a pause."""
        self._lookup_id = None
        if reaction_to(FindCoordinator, error_code) is not Reaction.RETRY:
            return False
        self.back_off(now_ms)
        return True

    def back_off(self, now_ms: int) -> None:
        self._retry_ms = now_ms + self._parts.backoff.wait_ms(self._attempts)
        self._attempts += 1

    def pause(self, now_ms: int) -> None:
        """Delay the next lookup after a success."""
        self._retry_ms = now_ms + self._parts.backoff.wait_ms(0)

    def lose(self, reason: str) -> None:
        """Close the connection to the coordinator, if it is known, and fail its requests."""
        if self.node is None:
            return
        self._parts.outputs.append(CoordinatorLost(self.node, reason))
        self.node = None
        gone = [send for send in self.in_flight.values() if send.to is not None]
        for send in gone:
            del self.in_flight[send.request_id]
        self.broken += gone

    # ------------------------------------------------------------ time

    def tick(self, now_ms: int) -> None:
        if self._is_wanted and now_ms >= self._retry_ms:
            self.find(now_ms)

    def deadline_ms(self) -> int:
        """Return when a response is overdue or the next lookup is due."""
        deadline_ms = self._retry_ms if self._is_wanted else NEVER_MS
        if not self.in_flight:
            return deadline_ms
        for send in self.in_flight.values():
            if send.deadline_ms < deadline_ms:
                deadline_ms = send.deadline_ms
        return deadline_ms
