"""Offsets of many partitions as columns: an item is made only when somebody looks at one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TypeVar

from groupcoord.core.lazy_sequence import LazySequence
from groupcoord.core.messages.commits import OffsetToCommit, PartitionResult
from groupcoord.core.messages.fetches import FetchedOffset
from groupcoord.errors import ErrorCode

T = TypeVar("T")


class _OffsetColumns(LazySequence[T]):
    """Offsets without metadata, kept as columns, whatever one of them is when somebody looks.

    Attributes:
        partition_indexes: the partitions, in the request's order.
        offsets: of each.
        leader_epochs: of each offset; -1 where it is unknown.
    """

    __slots__ = ("leader_epochs", "offsets", "partition_indexes")

    def __init__(
        self, partition_indexes: tuple[int, ...], offsets: tuple[int, ...], leader_epochs: tuple[int, ...]
    ) -> None:
        self.partition_indexes = partition_indexes
        self.offsets = offsets
        self.leader_epochs = leader_epochs

    def __len__(self) -> int:
        return len(self.partition_indexes)


class OffsetColumns(_OffsetColumns[OffsetToCommit]):
    """Offsets to commit without metadata: what nearly every commit of a consumer is."""

    __slots__ = ()

    def __iter__(self) -> Iterator[OffsetToCommit]:
        return map(OffsetToCommit, self.partition_indexes, self.offsets, self.leader_epochs)


class AllAccepted(LazySequence[PartitionResult]):
    """The results of partitions that were all accepted: one is made only when it is looked at.

    Attributes:
        partition_indexes: the partitions, in the request's order.
    """

    __slots__ = ("partition_indexes",)

    def __init__(self, partition_indexes: tuple[int, ...]) -> None:
        self.partition_indexes = partition_indexes

    def __len__(self) -> int:
        return len(self.partition_indexes)

    def __iter__(self) -> Iterator[PartitionResult]:
        return map(PartitionResult, self.partition_indexes, repeat(ErrorCode.NONE))


class FetchedColumns(_OffsetColumns[FetchedOffset]):
    """Committed offsets without metadata, and -1 for those that there are not: what consumers mostly fetch."""

    __slots__ = ()

    def __iter__(self) -> Iterator[FetchedOffset]:
        return map(
            FetchedOffset,
            self.partition_indexes,
            self.offsets,
            self.leader_epochs,
            repeat(""),
            repeat(ErrorCode.NONE),
        )
