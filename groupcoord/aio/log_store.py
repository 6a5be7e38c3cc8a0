"""Asynchronous log stores: coroutines and threads behind the contract of :mod:`groupcoord.log_store`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

from groupcoord.errors import StoreContractError
from groupcoord.log_store import (
    AppendOutcomeUnknownError,
    LogRecord,
    LogStore,
    LogStoreError,
    OwnedStore,
    StorageError,
    TakesAnswers,
    Ticket,
)


class AsyncLogStore(Protocol):
    """Log store with coroutines.

    It gets one append of a log partition at a time; those of different partitions may overlap.
    """

    async def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        """Append ``records`` together to a log partition; see :meth:`groupcoord.log_store.LogStore.append`.

        Returns:
            The offset of the first record, once they are written.

        Raises:
            LogStoreError: nothing was written, or the outcome is unknown (``outcome_unknown``). Any other exception
                counts as an unknown outcome.
        """

    def read(self, partition: int) -> AsyncIterable[LogRecord]:
        """Yield every record of a log partition in order, with offsets; nothing for one that was never written.

        Raises:
            LogStoreError: the log can't be read. Any other exception counts as this.
        """


@runtime_checkable
class AsyncOwnedStore(Protocol):
    """Log store with coroutines that another process can take over: see :class:`~groupcoord.log_store.OwnedStore`."""

    @property
    def lease_ms(self) -> int | None:
        """Milliseconds for which an owner may answer after a check, or None if no other node can take over."""

    async def check_ownership(self) -> None:
        """Check whether the log is still owned.

        Raises:
            OwnershipLostError: another process owns it.
            LogStoreError: the owner is unknown; the next check may succeed. Any other exception counts as this.
        """


class TaskLogStore:
    """Log store for a coordinator over one with coroutines: ``GroupCoordinator(log_store=TaskLogStore(…))``.

    Appends of a log partition are written one after the other, those of different partitions concurrently. A load waits
    for earlier appends and holds the records of its partition in memory meanwhile. Pass the coordinator to an
    :class:`~groupcoord.aio.AsyncCoordinator`, which loads it.

    Args:
        store: the store of the records.
    """

    def __init__(self, store: AsyncLogStore) -> None:
        self._store = store
        self._waiting: dict[int, deque[tuple[Ticket, Sequence[LogRecord]]]] = {}
        self._writers: dict[int, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._prepared: dict[int, list[LogRecord] | Exception] = {}
        self._coordinator: TakesAnswers | None = None

    def answer_to(self, coordinator: TakesAnswers) -> None:
        """Set the receiver of the answers."""
        self._coordinator = coordinator

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> None:
        """Queue records for writing; the answer comes later."""
        self._waiting.setdefault(partition, deque()).append((ticket, records))
        if partition not in self._writers:
            self._writers[partition] = asyncio.get_running_loop().create_task(self._write(partition))

    @property
    def lease_ms(self) -> int | None:
        """Milliseconds for which an owner may answer after it checked its ownership, or None."""
        return self._store.lease_ms if isinstance(self._store, AsyncOwnedStore) else None

    def check_ownership(self) -> bool:
        """Request a check of the ownership; the answer comes later."""
        self._looking = asyncio.get_running_loop().create_task(self._look())
        return False

    def read(self, partition: int) -> Iterable[LogRecord]:
        """Return what :meth:`prepare` has read."""
        prepared = self._prepared.pop(partition, None)
        if prepared is None:
            raise StoreContractError("a TaskLogStore is loaded by AsyncCoordinator, not by GroupCoordinator.load()")
        if isinstance(prepared, Exception):
            raise prepared
        return prepared

    async def prepare(self, partition: int) -> None:
        """Read a log partition for the following load, after all appends to it have ended."""
        writer = self._writers.get(partition)
        if writer is not None:
            await asyncio.wait((writer,))
        try:
            self._prepared[partition] = [record async for record in self._store.read(partition)]
        except Exception as error:  # a store may raise any error, and the other log partitions are served
            self._prepared[partition] = error

    def forget_prepared(self, partition: int) -> None:
        """Drop what a load has not used."""
        self._prepared.pop(partition, None)

    async def finish(self) -> None:
        """Wait until all writes and checks have ended."""
        busy = [*self._writers.values(), *([self._looking] if self._looking else [])]
        if busy:
            await asyncio.wait(busy)

    async def _look(self) -> None:
        assert isinstance(self._store, AsyncOwnedStore)
        assert self._coordinator is not None, "an AsyncCoordinator takes the answers"
        error: LogStoreError | None = None
        try:
            await self._store.check_ownership()
        except Exception as problem:
            error = problem if isinstance(problem, LogStoreError) else StorageError(repr(problem))
        self._coordinator.ownership_checked(error)

    async def _write(self, partition: int) -> None:
        assert self._coordinator is not None, "an AsyncCoordinator takes the answers"
        waiting = self._waiting[partition]
        try:
            while waiting:
                ticket, records = waiting.popleft()
                try:
                    base_offset = await self._store.append(partition, ticket, records)
                except Exception as error:
                    known = error if isinstance(error, LogStoreError) else AppendOutcomeUnknownError(repr(error))
                    if known.outcome_unknown:
                        waiting.clear()  # the coordinator must load the partition again before it appends more
                    self._coordinator.append_failed(ticket, known)
                else:
                    self._coordinator.appended(ticket, base_offset)
        finally:
            del self._writers[partition]


@asynccontextmanager
async def prepared(store: object, partition: int) -> AsyncIterator[None]:
    """Read a log partition of a :class:`TaskLogStore`, for a load within the context; nothing to do for others."""
    if not isinstance(store, TaskLogStore):
        yield
        return
    await store.prepare(partition)
    try:
        yield
    finally:
        store.forget_prepared(partition)


class ThreadLogStore:
    """Log store with coroutines over a blocking one: ``TaskLogStore(ThreadLogStore(store))``.

    Each call runs in a thread of the event loop's executor, so the store must be thread-safe. Calls for one log
    partition do not overlap.

    Args:
        store: a synchronous log store.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store

    async def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        """Append in a thread."""
        base_offset = await asyncio.to_thread(self._store.append, partition, ticket, records)
        if base_offset is None:
            raise StoreContractError("a store that answers later needs no threads")
        return base_offset

    async def read(self, partition: int) -> AsyncIterator[LogRecord]:
        """Read in a thread."""
        for record in await asyncio.to_thread(lambda: list(self._store.read(partition))):
            yield record

    @property
    def lease_ms(self) -> int | None:
        """Milliseconds for which an owner may answer after it checked its ownership, or None."""
        return self._store.lease_ms if isinstance(self._store, OwnedStore) else None

    async def check_ownership(self) -> None:
        """Look at the owner in a thread."""
        assert isinstance(self._store, OwnedStore)
        await asyncio.to_thread(self._store.check_ownership)
