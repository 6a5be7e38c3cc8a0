"""A mapping that is changed without a copy of it being made: what is large and changes by an entry or two at a time."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from typing import Any, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Overlay(MutableMapping[KeyT, ValueT]):
    """A mapping with some changes made, which are kept apart: the mapping below stays as it is.

    It is walked in the order in which a ``dict`` would be that was changed like this. What is made of all entries shows
    the moment at which it was asked for. As long as this is used, nobody may change the mapping below.

    Attributes:
        below: the mapping without the changes.
    """

    __slots__ = ("_changes", "_gone", "_length", "below")

    def __init__(self, below: MutableMapping[KeyT, ValueT]) -> None:
        self.below = below
        self._changes: dict[KeyT, ValueT] = {}
        self._gone: set[KeyT] = set()  # keys below that were removed, also those that have come again since
        self._length = len(below)

    def merge(self) -> MutableMapping[KeyT, ValueT]:
        """Make the changes to the mapping below, and return it. This overlay must not be used any more."""
        for key in self._gone:
            del self.below[key]
        self.below.update(self._changes)
        return self.below

    def __getitem__(self, key: KeyT) -> ValueT:
        if key in self._changes:
            return self._changes[key]
        if key in self._gone:
            raise KeyError(key)
        return self.below[key]

    def get(self, key: KeyT, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        if key in self._changes:
            return self._changes[key]
        return default if key in self._gone else self.below.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._changes or (key not in self._gone and key in self.below)

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        if key not in self._changes and (key in self._gone or key not in self.below):
            self._length += 1
        self._changes[key] = value

    def __delitem__(self, key: KeyT) -> None:
        if key not in self:
            raise KeyError(key)
        self._changes.pop(key, None)
        if key in self.below:
            self._gone.add(key)
        self._length -= 1

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self._whole())

    def items(self) -> ItemsView[KeyT, ValueT]:
        """Return all entries."""
        return self._whole().items()

    def values(self) -> ValuesView[ValueT]:
        """Return all values."""
        return self._whole().values()

    def __repr__(self) -> str:
        return f"Overlay({self._whole()!r})"

    def _whole(self) -> dict[KeyT, ValueT]:
        whole = dict(self.below.items())
        for key in self._gone:
            del whole[key]
        whole.update(self._changes)
        return whole
