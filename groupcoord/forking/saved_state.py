"""Saved state of a coordinator, and its restoration: the methods ``fork``, ``save``, ``hand_over`` and ``restore``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen
from sortedcontainers import SortedDict

from groupcoord.core.partition import Partition
from groupcoord.core.router.partition_table import PartitionStatus
from groupcoord.forking.copies import PARTS, Memo, copied, places_of
from groupcoord.forking.fingerprints import Names, counted, fingerprint_of

# A plain dict is enough for a SortedDict, which is filled from it in place.
LARGE: Mapping[type, Callable[[Any], Any]] = MappingProxyType(
    {dict: dict.copy, list: list.copy, deque: deque.copy, SortedDict: dict.copy}
)
"""Shallow copies of containers that are restored in place, because other objects refer to them."""

SMALL = frozenset({int, bool, str, type(None)})
"""Types with values that are stored as they are."""

FOUND_MAX = 16
"""Maximum number of cached results of the walk over all parts, by the served log partitions."""


@frozen(eq=False)
class SavedState:
    """State of a coordinator, from :meth:`.GroupCoordinator.save`.

    Attributes:
        values: the value of each place.
        parts: the parts of the coordinator that the values refer to.
    """

    values: tuple[Any, ...]
    parts: tuple[Any, ...]


class Forking:
    """Saves and restores the state of a coordinator, by the methods of ``GroupCoordinator`` with the same names."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._filled: tuple[Partition | None, ...] = ()  # the served partitions that the places belong to
        self._places: tuple[tuple[Any, str], ...] = ()
        self._parts: tuple[Any, ...] = ()
        self._counted: list[tuple[Any, str]] = []
        self._found: dict[tuple[Partition | None, ...], tuple[Any, Any, Any]] = {}  # by the partitions that are served

    def fork(self, changes: dict[str, Any]) -> Any:
        this = self._coordinator
        other = type(this)(**{**this._arguments, **changes})
        # Both can change after construction, so the arguments may be outdated.
        other.node = this.node
        other.serve(this._router.served_protocols)
        other.restore(self.save())
        return other

    def save(self) -> SavedState:
        memo: Memo = {}
        # One memo, so that objects that two places share stay shared.
        return self._saved(lambda value: copied(value, memo))

    def hand_over(self) -> SavedState:
        # Shallow: the state must be restored before any other use of the coordinator.
        return self._saved(lambda value: LARGE[type(value)](value) if type(value) in LARGE else value)

    def _saved(self, kept: Callable[[Any], Any]) -> SavedState:
        coordinator = self._coordinator
        # An open iterator of the log, or a lease, can't be copied.
        if coordinator._loads or coordinator._ownership is not None:
            raise RuntimeError("a coordinator that is loading, or may lose its log, can't be copied")
        self._look_for_places()
        found = [getattr(part, name) for part, name in self._places]
        return SavedState(tuple([each if type(each) in SMALL else kept(each) for each in found]), self._parts)

    def _look_for_places(self) -> None:
        """Find the places of state, with the log partitions that are served now."""
        active = tuple(self._coordinator._partitions.active)
        if self._filled != active:
            self._filled = active
            # Partitions come and go; a walk over all parts takes long.
            if active not in self._found:
                table = self._coordinator._partitions
                places, parts = places_of(self._coordinator)
                # First, because a restore creates the log partitions by their status.
                places.remove((table, "status"))
                self._found = {} if len(self._found) > FOUND_MAX else self._found
                self._found[active] = ((table, "status"), *places), tuple(parts), counted(places)
            self._places, self._parts, self._counted = self._found[active]

    def restore(self, saved: SavedState) -> None:
        active = self._coordinator._partitions.active
        for index, status in enumerate(saved.values[0]):
            # First the log partitions: the saved values belong to their places.
            if status is not PartitionStatus.ACTIVE:
                active[index] = None
            elif active[index] is None:
                active[index] = self._partition_to_fill(index)
        self._look_for_places()
        # Own parts stay as they are; another coordinator's become ours.
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
        # The last one served can be used again, since all of its state is replaced.
        known = self._filled[index] if self._filled else None
        return known or self._coordinator._make_partition(index, 0)

    def fingerprint(self, names: Names | None) -> bytes:
        self._look_for_places()
        partitions, now_ms = list(self._coordinator._partitions), self._coordinator.clock.now_ms()
        return fingerprint_of(partitions, self._counted, now_ms, names or Names())


def _fill(there: Any, value: Any, memo: Memo) -> None:
    if there:
        # The object stays the same, because other objects refer to it.
        there.clear()
    if value:
        found = copied(value, memo)
        if isinstance(there, dict):
            there.update(found)
        else:
            there.extend(found)
