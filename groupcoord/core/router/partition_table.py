"""Table of log partitions: which are served, and which one holds a group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from typing import Generic, Protocol, TypeVar

from groupcoord.core.javacompat import partition_for
from groupcoord.errors import ErrorCode

MAX_CACHED_ROUTES = 100_000
"""Bound of the cache; clients choose group ids."""


class NumberedPartition(Protocol):
    """Core of a log partition with its number."""

    index: int


KeyT = TypeVar("KeyT", bound=Hashable)
PartitionT = TypeVar("PartitionT", bound=NumberedPartition)


class PartitionStatus(Enum):
    """Status of a log partition at this coordinator."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


_ERRORS = {
    PartitionStatus.UNLOADED: ErrorCode.NOT_COORDINATOR,
    PartitionStatus.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    # As for an unloaded one: clients look for another coordinator.
    PartitionStatus.FAILED: ErrorCode.NOT_COORDINATOR,
}


class PartitionTable(Generic[KeyT, PartitionT]):
    """Log partitions by number.

    Attributes:
        active: the partitions that are served; None for the others.
        status: the status of each partition.
        is_closed: the coordinator was closed, and nothing loaded since.
    """

    NOT_STATE = ("_routes",)
    NOT_COUNTED = ("is_closed", "status")

    __slots__ = ("_routes", "_text_of", "active", "is_closed", "status")

    def __init__(self, count: int, text_of: Callable[[KeyT], str] = str) -> None:
        self.active: list[PartitionT | None] = [None] * count
        self.status = [PartitionStatus.UNLOADED] * count
        self.is_closed = False
        self._text_of = text_of
        # A hash over the id for each request would cost more than a look-up.
        self._routes: dict[KeyT, int] = {}

    def __len__(self) -> int:
        return len(self.active)

    def __iter__(self) -> Iterator[PartitionT]:
        return (partition for partition in self.active if partition is not None)

    def index_of(self, key: KeyT) -> int:
        """Return the log partition that holds a group, or the state of a share-partition."""
        index = self._routes.get(key)
        if index is None:
            if len(self._routes) >= MAX_CACHED_ROUTES:
                # Cheaper than to track which ids are old; the live ones come back at once.
                self._routes.clear()
            index = self._routes[key] = partition_for(self._text_of(key), len(self.active))
        return index

    def serving(self, key: KeyT) -> PartitionT | None:
        index = self._routes.get(key)
        return self.active[self.index_of(key) if index is None else index]

    def refusal(self, index: int) -> ErrorCode:
        # Kafka checks whether the service is active before any log partition.
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if self.is_closed else _ERRORS[self.status[index]]

    def serve(self, partition: PartitionT) -> None:
        self.active[partition.index] = partition
        self.status[partition.index] = PartitionStatus.ACTIVE

    def withdraw(self, index: int, status: PartitionStatus) -> None:
        self.active[index] = None
        self.status[index] = status
