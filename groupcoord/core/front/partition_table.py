"""The log partitions of one coordinator: which are served, and where a group belongs."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from groupcoord.core.java.hashing import partition_for
from groupcoord.core.partition import Partition
from groupcoord.errors import ErrorCode

MAX_CACHED_ROUTES = 100_000
"""Group ids come from clients, so the memory of where they belong is bounded."""


class PartitionStatus(Enum):
    """Whether a log partition's groups are coordinated here."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


_ERRORS = {
    PartitionStatus.UNLOADED: ErrorCode.NOT_COORDINATOR,
    PartitionStatus.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    PartitionStatus.FAILED: ErrorCode.NOT_COORDINATOR,
}


class PartitionTable:
    """A table of log partitions by number.

    Attributes:
        active: the partitions that are served; None for the others.
        status: whether and why.
        is_closed: the coordinator was closed, and nothing loaded since.
    """

    __slots__ = ("_routes", "active", "is_closed", "status")

    def __init__(self, count: int) -> None:
        self.active: list[Partition | None] = [None] * count
        self.status = [PartitionStatus.UNLOADED] * count
        self.is_closed = False
        self._routes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.active)

    def __iter__(self) -> Iterator[Partition]:
        """Walk the partitions that are served."""
        return (partition for partition in self.active if partition is not None)

    def index_of(self, group_id: str) -> int:
        """Return the log partition that holds a group."""
        index = self._routes.get(group_id)
        if index is None:
            if len(self._routes) >= MAX_CACHED_ROUTES:
                self._routes.clear()
            index = self._routes[group_id] = partition_for(group_id, len(self.active))
        return index

    def serving(self, group_id: str | None) -> Partition | None:
        """Return the log partition that serves a group; None if none does."""
        if group_id is None:
            return None
        index = self._routes.get(group_id)
        return self.active[self.index_of(group_id) if index is None else index]

    def refusal(self, index: int) -> ErrorCode:
        """Return what requests for a partition are told that isn't served."""
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if self.is_closed else _ERRORS[self.status[index]]

    def serve(self, partition: Partition) -> None:
        """Serve a partition, which is loaded."""
        self.active[partition.index] = partition
        self.status[partition.index] = PartitionStatus.ACTIVE

    def withdraw(self, index: int, status: PartitionStatus) -> None:
        """Serve a partition no longer."""
        self.active[index] = None
        self.status[index] = status
