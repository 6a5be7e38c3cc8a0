"""Ownership of a log under a lease: a timer checks the owner, and each check (a *look*) extends the lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from groupcoord.clock import Clock
from groupcoord.config import Config
from groupcoord.errors import ConfigError, LogStoreError, OwnershipLostError
from groupcoord.log_store import LogStore, OwnedStore, SharedStore

if TYPE_CHECKING:
    from groupcoord.core.messages import Reply

LOOKS_PER_LEASE = 3
"""Number of looks in the time of a lease, which survives two that are late or fail."""

_NEVER_MS = -1


class Ownership:
    """Claim of a coordinator to its log.

    A look that finds the log its own gives a lease from its beginning: a process that takes over afterwards waits until
    the lease is over. So a process that was paused sends nothing outdated.

    Responses are withheld while the lease is over and a look is in flight. If the owner stays unknown for another
    lease, they become NOT_COORDINATOR. Only a lost log stays lost until it is loaded again.

    Args:
        lease_ms: time for which an owner may answer after a look.
        clock: a monotonic clock.
        on_lost: called once when the log is lost.

    Attributes:
        lost: the error of a lost log, or None.
        withheld: responses that wait for a look.
        next_look_ms: when :meth:`tick` is due, or None if nothing is served.
    """

    def __init__(
        self, store: OwnedStore, lease_ms: int, clock: Clock, on_lost: Callable[[OwnershipLostError], None]
    ) -> None:
        self.lost: OwnershipLostError | None = None
        self._store = store
        self._lease_ms = lease_ms
        # With an interval of 0 a tiny lease would look at each tick.
        self._interval_ms = max(lease_ms // LOOKS_PER_LEASE, 1)
        self._clock = clock
        self._on_lost = on_lost
        self.lease_end_ms = _NEVER_MS
        self.next_look_ms: int | None = None
        self._asked_ms: int | None = None  # when the look in flight began
        self.withheld: list[Reply] = []

    # ------------------------------------------------------------ looks

    def claim(self) -> None:
        """Look at once because something is to be loaded, unless looks are running already."""
        if self.next_look_ms is None and self.lost is None:
            self.next_look_ms = self._clock.now_ms()
            self.tick()

    def tick(self) -> None:
        """Look if it is time and no look is in flight."""
        now_ms = self._clock.now_ms()
        if self.next_look_ms is None or now_ms < self.next_look_ms:
            return
        # From now, not from the last look, so that a pause does not cause many.
        self.next_look_ms = now_ms + self._interval_ms
        # One at a time, because an answer does not name its look.
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
        """Handle a load, which proves the ownership at ``since_ms``, when its read began."""
        self.lost = None
        # A shared log is read when it is taken over, before the load.
        if not isinstance(self._store, SharedStore):
            self._proven(since_ms)

    def _proven(self, since_ms: int) -> None:
        # A slow look may have begun before a load that proved more.
        self.lease_end_ms = max(self.lease_end_ms, since_ms + self._lease_ms)
        if self.next_look_ms is None:
            self.next_look_ms = since_ms + self._interval_ms

    def checked(self, error: LogStoreError | None) -> None:
        """Handle the result of the look in flight."""
        # The lease begins when the look began: later the log may have changed hands.
        asked_ms, self._asked_ms = self._asked_ms, None
        if isinstance(error, OwnershipLostError):
            self.lose(error)
        # After rest() a late answer gives no lease; an unknown owner ends none.
        elif error is None and asked_ms is not None and self.next_look_ms is not None:
            self._proven(asked_ms)
            if not self.may_answer():  # the look took so long that its lease is over
                self.next_look_ms = self._clock.now_ms()

    def lose(self, error: OwnershipLostError) -> None:
        if self.lost is None:
            self.lost = error
            self.rest()
            self._on_lost(error)

    def rest(self) -> None:
        """Stop looking, because nothing is served, and refuse withheld responses."""
        self.lease_end_ms, self.next_look_ms = _NEVER_MS, None
        self.disown_withheld()

    def disown_withheld(self) -> None:
        # They may concern a log partition that is not served any more.
        self.withheld = _disowned(self.withheld)

    # ------------------------------------------------------------ what is said

    def may_answer(self) -> bool:
        """Return whether the lease lasts, or nothing is served."""
        if self._clock.now_ms() < self.lease_end_ms:
            return True
        # While nothing is served no response depends on the log.
        return self.next_look_ms is None and self.lost is None

    @property
    def is_over(self) -> bool:
        """True if there was a lease and it has ended."""
        return _NEVER_MS < self.lease_end_ms <= self._clock.now_ms()

    def let_out(self, replies: list[Reply]) -> list[Reply]:
        """Return the responses that may be sent, or their refusals; withheld ones come later."""
        if self.withheld:
            replies, self.withheld = self.withheld + replies, []
        if not replies or self.may_answer():
            return replies
        self.tick()
        # A store may answer at once.
        if self.may_answer():
            return replies
        if self._asked_ms is not None and self._clock.now_ms() < self._asked_ms + self._lease_ms:
            self.withheld = replies
            return []
        return _disowned(replies)


def ownership_of(
    log_store: LogStore, config: Config, clock: Clock, on_lost: Callable[[OwnershipLostError], None]
) -> Ownership | None:
    """Return the claim to a log, or None if it can't be taken over.

    Raises:
        ConfigError: its lease is longer than sessions of consumer groups.
    """
    if not isinstance(log_store, OwnedStore) or log_store.lease_ms is None:
        return None
    lease_ms, session_ms = log_store.lease_ms, config.group_consumer_session_timeout_ms
    # Sessions would expire before another process may answer.
    if lease_ms > session_ms:
        raise ConfigError(
            f"the log store's lease of {lease_ms} ms is longer than group.consumer.session.timeout.ms={session_ms}"
        )
    return Ownership(log_store, lease_ms, clock, on_lost)


def _disowned(replies: list[Reply]) -> list[Reply]:
    from groupcoord.core.refusals import disowned  # only needed with a store that has an owner

    return [disowned(reply) for reply in replies]
