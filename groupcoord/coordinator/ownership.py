"""Whether a coordinator may still speak for its log: it looks on a timer, and what it found holds for a lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from groupcoord.clock import Clock
from groupcoord.config import Config
from groupcoord.errors import ConfigError, LogStoreError, OwnershipLostError
from groupcoord.log_store import LogStore, OwnedStore, SharedStore

if TYPE_CHECKING:
    from groupcoord.core.replies import Reply

LOOKS_PER_LEASE = 3
"""So a lease outlasts two looks that come late or to nothing."""

_NEVER_MS = -1


class Ownership:
    """The claim of one coordinator to its log.

    A look that finds the log its own gives a lease, from the moment on in which the look began: who takes the log over
    after that waits until it is over. So a process that was stopped for a while says nothing that was only true before.
    While the lease is over and a look is on its way, answers are withheld; when nothing is known for another lease,
    they become NOT_COORDINATOR. That is not final: only a log that is lost stays so, until it is loaded again.

    Args:
        store: is asked.
        lease_ms: how long an owner may answer after a look.
        clock: a monotonic one, as is whatever a coordinator is given.
        on_lost: is called when the log is lost, once.

    Attributes:
        lost: why nothing is served any more; None while the log is owned, as far as is known.
        lease_end_ms: until then answers may leave.
        withheld: answers that wait for a look.
        next_look_ms: when :meth:`tick` is wanted, in milliseconds since the Unix epoch; None: nothing is served.
    """

    def __init__(
        self, store: OwnedStore, lease_ms: int, clock: Clock, on_lost: Callable[[OwnershipLostError], None]
    ) -> None:
        self.lost: OwnershipLostError | None = None
        self._store = store
        self._lease_ms = lease_ms
        self._interval_ms = max(lease_ms // LOOKS_PER_LEASE, 1)
        self._clock = clock
        self._on_lost = on_lost
        self.lease_end_ms = _NEVER_MS
        self.next_look_ms: int | None = None
        self._asked_ms: int | None = None  # when the look began that is on its way
        self.withheld: list[Reply] = []

    # ------------------------------------------------------------ looks

    def claim(self) -> None:
        """Something is to be loaded: look at once, unless the log is looked at already."""
        if self.next_look_ms is None and self.lost is None:
            self.next_look_ms = self._clock.now_ms()
            self.tick()

    def tick(self) -> None:
        """Time has passed: look, if it is time for that and no other look is on its way."""
        now_ms = self._clock.now_ms()
        if self.next_look_ms is None or now_ms < self.next_look_ms:
            return
        self.next_look_ms = now_ms + self._interval_ms
        if self._asked_ms is not None:
            return
        self._asked_ms = now_ms
        try:
            is_answered = self._store.check_ownership()
        except LogStoreError as error:
            self.checked(error)
        else:
            if is_answered:
                self.checked(None)

    def loaded(self, since_ms: int) -> None:
        """Something was loaded that was read since then: so the log was owned, unless it was read before."""
        self.lost = None
        if not isinstance(self._store, SharedStore):
            self._proven(since_ms)

    def _proven(self, since_ms: int) -> None:
        """The log was owned at some moment since then."""
        self.lease_end_ms = max(self.lease_end_ms, since_ms + self._lease_ms)
        if self.next_look_ms is None:
            self.next_look_ms = since_ms + self._interval_ms

    def checked(self, error: LogStoreError | None) -> None:
        """The look that was on its way has ended; see :meth:`~groupcoord.log_store.TakesAnswers.ownership_checked`."""
        asked_ms, self._asked_ms = self._asked_ms, None
        if isinstance(error, OwnershipLostError):
            self.lose(error)
        elif error is None and asked_ms is not None and self.next_look_ms is not None:
            self._proven(asked_ms)
            if not self.may_answer():  # the answer took so long that it says nothing any more
                self.next_look_ms = self._clock.now_ms()

    def lose(self, error: OwnershipLostError) -> None:
        """The log is somebody else's: nothing is answered any more."""
        if self.lost is None:
            self.lost = error
            self.rest()
            self._on_lost(error)

    def rest(self) -> None:
        """Nothing is served: there is nothing to look for, and what is withheld comes to nothing."""
        self.lease_end_ms, self.next_look_ms = _NEVER_MS, None
        self.disown_withheld()

    def disown_withheld(self) -> None:
        """Some of the log is served no longer: what is withheld may be about that, and comes to nothing."""
        self.withheld = _disowned(self.withheld)

    # ------------------------------------------------------------ what is said

    def may_answer(self) -> bool:
        """Tell whether the lease lasts, or nothing is served and so nothing claimed."""
        if self._clock.now_ms() < self.lease_end_ms:
            return True
        return self.next_look_ms is None and self.lost is None

    @property
    def is_over(self) -> bool:
        """True if there was a lease, and it has ended."""
        return _NEVER_MS < self.lease_end_ms <= self._clock.now_ms()

    def let_out(self, replies: list[Reply]) -> list[Reply]:
        """Return the answers that may leave, or what takes their place; one that is withheld comes out later."""
        if self.withheld:
            replies, self.withheld = self.withheld + replies, []
        if not replies or self.may_answer():
            return replies
        self.tick()
        if self.may_answer():
            return replies
        if self._asked_ms is not None and self._clock.now_ms() < self._asked_ms + self._lease_ms:
            self.withheld = replies
            return []
        return _disowned(replies)


def ownership_of(
    log_store: LogStore, config: Config, clock: Clock, on_lost: Callable[[OwnershipLostError], None]
) -> Ownership | None:
    """Return the claim to a log, or None if nobody else can take it over.

    Raises:
        ConfigError: its lease is longer than sessions of consumer groups: those would end before it.
    """
    if not isinstance(log_store, OwnedStore) or log_store.lease_ms is None:
        return None
    lease_ms, session_ms = log_store.lease_ms, config.group_consumer_session_timeout_ms
    if lease_ms > session_ms:
        raise ConfigError(
            f"the log store's lease of {lease_ms} ms is longer than group.consumer.session.timeout.ms={session_ms}"
        )
    return Ownership(log_store, lease_ms, clock, on_lost)


def _disowned(replies: list[Reply]) -> list[Reply]:
    from groupcoord.core.router.refusals import disowned  # most programs have a log store of their own

    return [disowned(reply) for reply in replies]
