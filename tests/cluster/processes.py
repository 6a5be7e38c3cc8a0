"""Processes that have a slot store, and nothing else of a replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from groupcoord.cluster.replica import carry_out
from groupcoord.cluster.slot_log import SlotLog
from groupcoord.cluster.slot_store import SlotStore, Taken
from groupcoord.core.log.log_partition import HardState
from groupcoord.log_store import LogRecord, LogStoreError, Ticket

from .nodes import at_once, new_tag

Finish = Callable[[Any], Any]


class Process:
    """A process with a slot store.

    Args:
        slot_log: the engine.
        body_bytes_max: see :class:`~groupcoord.cluster.slot_store.SlotStore`.
        finish: returns what a coroutine comes to.
    """

    def __init__(self, slot_log: SlotLog, body_bytes_max: int = 1_000_000, finish: Finish = at_once) -> None:
        self.slot_log = slot_log
        self.store = SlotStore(new_tag, body_bytes_max)
        self._finish = finish

    def work(self) -> None:
        """Do all that is wanted."""
        while operations := self.store.next_operations():
            for partition, operation in operations:
                self.store.done(partition, operation, self._finish(carry_out(self.slot_log, partition, operation)))

    def take_over(self, partition: int) -> list[LogRecord]:
        self.store.take_over(partition)
        self.work()
        assert [type(change) for change in self.store.take_changes()] == [Taken]
        return list(self.store.read(partition))


class TakenOverAtEachLook:
    """Log store in which each reader has just taken over, as a next owner would."""

    def __init__(self, slot_log: SlotLog, body_bytes_max: int, finish: Finish = at_once) -> None:
        self.slot_log = slot_log
        self._body_bytes_max = body_bytes_max
        self._finish = finish
        self.process = self._new_process()

    def _new_process(self) -> Process:
        return Process(self.slot_log, self._body_bytes_max, self._finish)

    def reopened(self) -> TakenOverAtEachLook:
        """Return what is there when the process has died."""
        return TakenOverAtEachLook(self.slot_log, self._body_bytes_max, self._finish)

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> None:
        if partition not in self.process.store.owned:
            self.process.take_over(partition)
        self.process.store.append(partition, ticket, records)

    def read(self, partition: int) -> Iterable[LogRecord]:
        self.process.work()
        self.process = self._new_process()
        return self.process.take_over(partition)

    def settle(self) -> list[tuple[Ticket, int | LogStoreError]]:
        self.process.work()
        return self.process.store.take_answers()

    def compact(self) -> None:
        """Write a snapshot of what is there."""
        hard = HardState()
        for record in self.read(0):
            hard.apply(record.record, record.offset)
        self.process.store.snapshot(0, hard.snapshot(), 1)
        self.process.work()
