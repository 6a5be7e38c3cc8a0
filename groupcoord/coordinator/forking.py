"""Copies of a whole coordinator, and what stands for the state that it is in.

What can change in a coordinator is in few places, which are found by walking its parts: see
:mod:`groupcoord.core.copies`. The rest of it (handlers, tables) is made by its constructor, and a copy has its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen
from sortedcontainers import SortedDict

from groupcoord.core.copies import PARTS, Memo, copied, places_of
from groupcoord.core.fingerprints import Names, counted, fingerprint_of
from groupcoord.core.partition import Partition
from groupcoord.core.router.partition_table import PartitionStatus

LARGE: Mapping[type, Callable[[Any], Any]] = MappingProxyType(
    {dict: dict.copy, list: list.copy, deque: deque.copy, SortedDict: dict.copy}
)
"""What others refer to, of all that can change at a place, and how to keep what is in it."""

SMALL = frozenset({int, bool, str, type(None)})
"""What is put in its place as it stands."""

FOUND_MAX = 16
"""Partitions come and go, and come back as they were: the places of so many sets of them are remembered."""


@frozen(eq=False)
class SavedState:
    """The state of a coordinator at a moment: see :meth:`.GroupCoordinator.save`.

    Attributes:
        values: what stood at each place.
        parts: of the coordinator to which the values refer.
    """

    values: tuple[Any, ...]
    parts: tuple[Any, ...]


class Forking:
    """Keeps and restores the state of a coordinator; its methods are those of ``GroupCoordinator`` with their names.

    Args:
        coordinator: a :class:`~groupcoord.GroupCoordinator`.
    """

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._filled: tuple[Partition | None, ...] = ()
        self._places: tuple[tuple[Any, str], ...] = ()
        self._parts: tuple[Any, ...] = ()
        self._counted: list[tuple[Any, str]] = []
        self._found: dict[tuple[Partition | None, ...], tuple[Any, Any, Any]] = {}  # by the partitions that are served

    def fork(self, changes: dict[str, Any]) -> Any:
        """Return another coordinator in the same state."""
        this = self._coordinator
        other = type(this)(**{**this._arguments, **changes})
        other.node = this.node
        other.serve(this._router.served_protocols)
        other.restore(self.save())
        return other

    def save(self) -> SavedState:
        """Return a copy of what can change."""
        memo: Memo = {}
        return self._saved(lambda value: copied(value, memo))

    def hand_over(self) -> SavedState:
        """Return what can change as it is."""
        return self._saved(lambda value: LARGE[type(value)](value) if type(value) in LARGE else value)

    def _saved(self, kept: Callable[[Any], Any]) -> SavedState:
        coordinator = self._coordinator
        if coordinator._loader._loads or coordinator._ownership is not None:
            raise RuntimeError("a coordinator that is loading, or may lose its log, can't be copied")
        self._look_for_places()
        found = [getattr(part, name) for part, name in self._places]
        return SavedState(tuple([each if type(each) in SMALL else kept(each) for each in found]), self._parts)

    def _look_for_places(self) -> None:
        """Find the places where something can change, with the log partitions that are served now."""
        active = tuple(self._coordinator._partitions.active)
        if self._filled != active:
            self._filled = active
            if active not in self._found:
                table = self._coordinator._partitions
                places, parts = places_of(self._coordinator)
                places.remove((table, "status"))
                self._found = {} if len(self._found) > FOUND_MAX else self._found
                self._found[active] = ((table, "status"), *places), tuple(parts), counted(places)
            self._places, self._parts, self._counted = self._found[active]

    def restore(self, saved: SavedState) -> None:
        """Go to a state that this coordinator, or one with the same settings, was in."""
        active = self._coordinator._partitions.active
        for index, status in enumerate(saved.values[0]):
            if status is not PartitionStatus.ACTIVE:
                active[index] = None
            elif active[index] is None:
                active[index] = self._partition_to_fill(index)
        self._look_for_places()
        memo: Memo = {} if saved.parts is self._parts else {PARTS: (saved.parts, self._parts)}
        for (part, name), value in zip(self._places, saved.values, strict=True):
            if type(value) in SMALL:
                setattr(part, name, value)
                continue
            there = getattr(part, name)
            if type(value) not in LARGE or type(there) not in LARGE:
                setattr(part, name, copied(value, memo))
            elif value or there:
                _fill(there, value, memo)

    def _partition_to_fill(self, index: int) -> Partition:
        """Return a log partition to be filled: the one that was filled last, as all that can change in it is put in."""
        known = self._filled[index] if self._filled else None
        return known or self._coordinator._make_partition(index, 0)

    def fingerprint(self, names: Names | None) -> bytes:
        """Return what stands for the state of the log partitions."""
        self._look_for_places()
        partitions, now_ms = list(self._coordinator._partitions), self._coordinator.clock.now_ms()
        return fingerprint_of(partitions, self._counted, now_ms, names or Names())


def _fill(there: Any, value: Any, memo: Memo) -> None:
    """Let what is large have in it what a copy of another one has: it stays the object that it is."""
    if there:
        there.clear()
    if value:
        found = copied(value, memo)
        if isinstance(there, dict):
            there.update(found)
        else:
            there.extend(found)
