"""A sequence whose items are made when somebody looks: requests and records of many partitions stay columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """Has everything of an immutable sequence but its length and ``__iter__``; equal to a tuple of the same items."""

    __slots__ = ()

    @abstractmethod
    def __iter__(self) -> Iterator[T]:
        """Make the items, one after the other."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """Return the item at ``index``, or the tuple of a slice."""
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, LazySequence | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
