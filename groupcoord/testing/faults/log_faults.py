"""Faults of the log that groups and offsets are kept in: appends that fail, and appends that are answered late."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from groupcoord.broker.broker import Broker
from groupcoord.errors import ErrorCode, UnknownNameError
from groupcoord.host.node_servers import NoSuchNodeError
from groupcoord.host.server import Server
from groupcoord.log_store import (
    AppendTimedOutError,
    LogRecord,
    LogStore,
    LogStoreError,
    NotEnoughReplicasError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
    Ticket,
)
from groupcoord.testing.contracts.faulty_store import Answer, FaultyLogStore
from groupcoord.testing.faults.rules import error_named

_ERRORS: dict[ErrorCode, type[LogStoreError]] = {
    kind.error_code: kind
    for kind in (NotEnoughReplicasError, NotLeaderError, StorageError, RecordTooLargeError, AppendTimedOutError)
}
"""In which ways an append can fail. After a REQUEST_TIMED_OUT nobody knows whether it was written."""


def append_error(error: ErrorCode | str | int) -> LogStoreError:
    """Return what a log store raises whose append fails with this error.

    Raises:
        UnknownNameError: there is no such error, or none that an append fails with.
    """
    code = error_named(error)
    kind = _ERRORS.get(code)
    if kind is None:
        known = ", ".join(code.name for code in _ERRORS)
        raise UnknownNameError(f"no append fails with {code.name}; it may be {known}")
    return kind("a test has asked for that")


class _PassingStore(FaultyLogStore):
    """A store with faults that tells when it has no more of them."""

    def __init__(self, store: LogStore, on_idle: Callable[[], None]) -> None:
        super().__init__(store)
        self._on_idle = on_idle

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        """See :class:`FaultyLogStore`."""
        try:
            return super().append(partition, ticket, records)
        finally:
            if self.is_idle:
                self._on_idle()


class LogFaults:
    """Stands between the nodes' group coordinators and their log store as long as there are faults.

    Args:
        running: the nodes that run, whose groups and offsets it is about.
    """

    def __init__(self, running: Mapping[int, Server]) -> None:
        self._running = running
        self._store: _PassingStore | None = None

    def forget(self) -> None:
        """All nodes begin anew, with a log store that has no faults; what waited is lost."""
        self._store = None

    def stand_before(self, broker: Broker) -> None:
        """A node has begun to run: it has the faults of the others."""
        if self._store is not None:
            broker.coordinator.log_store = self._store

    def fail_next(self, *errors: LogStoreError) -> None:
        """Let the next appends fail, one with each of ``errors`` in turn, also while others are held.

        Whoever waits for one of them is told when the held ones before it are written, or refused.

        Raises:
            NoSuchNodeError: no node runs.
        """
        self._around_the_log().fail_next(*errors)

    def hold(self) -> None:
        """Let appends wait from now on.

        Raises:
            NoSuchNodeError: no node runs.
        """
        self._around_the_log().is_late = True

    def waiting(self) -> int:
        """Return how many appends wait."""
        return 0 if self._store is None else len(self._store.waiting())

    def describe(self) -> list[str]:
        """Return the faults that there are, in words."""
        if self._store is None:
            return []
        held = [f"appends are held (holds {self.waiting()})"] if self._store.is_late else []
        return [*held, *(f"the next append fails with {error.error_code.name}" for error in self._store.failures)]

    def release(self) -> None:
        """Write what waits, in order, and let appends wait no longer."""
        store = self._store
        if store is not None:
            store.is_late = False
            while store.waiting():  # what is answered now may write more
                self._settle(store.write())
            if store.is_idle:
                self._step_aside()

    def clear(self) -> None:
        """Write what waits, and forget the faults to come."""
        if self._store is not None:
            self._store.mend()
        self.release()

    def refuse(self, error: LogStoreError) -> None:
        """Refuse what waits; what comes goes on waiting."""
        if self._store is not None:
            self._settle(self._store.refuse(error))

    def fence(self, partition: int) -> None:
        """Refuse what waits for a log partition that moves: its former leader can't write any more."""
        if self._store is not None:
            tickets = [ticket for ticket in self._store.waiting() if ticket.partition == partition]
            self._settle([self._store.settle(ticket, NotLeaderError("it has moved")) for ticket in tickets])

    def _around_the_log(self) -> FaultyLogStore:
        if self._store is None:
            brokers = [server.broker for server in self._running.values()]
            if not brokers:
                raise NoSuchNodeError("no node runs: all have crashed; restart() them")
            self._store = _PassingStore(brokers[0].log_store, self._step_aside)
            for broker in brokers:
                broker.coordinator.log_store = self._store
        return self._store

    def _step_aside(self) -> None:
        """Let coordinators write to their log store as if nobody had ever asked for a fault."""
        self._store = None
        for server in self._running.values():
            server.broker.coordinator.log_store = server.broker.log_store

    def _settle(self, answers: list[Answer]) -> None:
        for ticket, outcome in answers:
            for broker in [server.broker for server in self._running.values()]:
                coordinator = broker.coordinator
                if coordinator.partition(ticket.partition) is None:
                    continue
                if isinstance(outcome, LogStoreError):
                    coordinator.append_failed(ticket, outcome)
                else:
                    coordinator.appended(ticket, outcome)
                broker.deliver_replies()
