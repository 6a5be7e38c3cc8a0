"""Faults of the log of groups and offsets: failing and late appends."""

from __future__ import annotations

from collections.abc import Mapping

from groupcoord.broker.broker import Broker
from groupcoord.errors import ErrorCode, UnknownNameError
from groupcoord.host.node_servers import NoSuchNodeError
from groupcoord.host.server import Server
from groupcoord.log_store import (
    AppendTimedOutError,
    LogStoreError,
    NotEnoughReplicasError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
)
from groupcoord.testing.contracts.faulty_store import Answer, FaultyLogStore
from groupcoord.testing.faults.rules import error_named

_ERRORS: dict[ErrorCode, type[LogStoreError]] = {
    kind.error_code: kind
    for kind in (NotEnoughReplicasError, NotLeaderError, StorageError, RecordTooLargeError, AppendTimedOutError)
}
"""Errors of appends. After REQUEST_TIMED_OUT it is unknown whether the append was written."""


def append_error(error: ErrorCode | str | int) -> LogStoreError:
    code = error_named(error)
    kind = _ERRORS.get(code)
    if kind is None:
        known = ", ".join(code.name for code in _ERRORS)
        raise UnknownNameError(f"no append fails with {code.name}; it may be {known}")
    return kind("injected by a test")


class LogFaults:
    """Log store with faults, between the coordinators of the nodes and their store from a fault to :meth:`release`."""

    def __init__(self, running: Mapping[int, Server]) -> None:
        self._running = running
        self._store: FaultyLogStore | None = None

    def forget(self) -> None:
        self._store = None

    def stand_before(self, broker: Broker) -> None:
        if self._store is not None:
            broker.coordinator.log_store = self._store

    def fail_next(self, *errors: LogStoreError) -> None:
        self._around_the_log().fail_next(*errors)

    def hold(self) -> None:
        self._around_the_log().is_late = True

    def waiting(self) -> int:
        return 0 if self._store is None else len(self._store.waiting())

    def describe(self) -> list[str]:
        if self._store is None:
            return []
        held = [f"appends are held (holds {self.waiting()})"] if self._store.is_late else []
        return [*held, *(f"the next append fails with {error.error_code.name}" for error in self._store.failures)]

    def release(self) -> None:
        store = self._store
        if store is not None:
            store.is_late = False
            while store.waiting():  # what is answered now may write more
                self._settle(store.write())
            if store.is_idle:
                self._step_aside()

    def clear(self) -> None:
        if self._store is not None:
            self._store.mend()
        self.release()

    def refuse(self, error: LogStoreError) -> None:
        if self._store is not None:
            self._settle(self._store.refuse(error))

    def fence(self, partition: int) -> None:
        """Fail the waiting appends of a log partition that moves: its former leader cannot write."""
        if self._store is not None:
            tickets = [ticket for ticket in self._store.waiting() if ticket.partition == partition]
            self._settle([self._store.settle(ticket, NotLeaderError("it has moved")) for ticket in tickets])

    def _around_the_log(self) -> FaultyLogStore:
        if self._store is None:
            brokers = [server.broker for server in self._running.values()]
            if not brokers:
                raise NoSuchNodeError("no node runs: all have crashed; restart() them")
            self._store = FaultyLogStore(brokers[0].log_store)
            for broker in brokers:
                broker.coordinator.log_store = self._store
        return self._store

    def _step_aside(self) -> None:
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
