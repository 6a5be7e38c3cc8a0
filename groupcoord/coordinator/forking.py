"""Copies of a whole coordinator, and what stands for the state that it is in.

What can change in a coordinator is in few places: :func:`places` names them, once. The rest of it (handlers, tables) is
made by its constructor, and a copy has its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen
from sortedcontainers import SortedDict

from groupcoord.core.copies import Memo, copied
from groupcoord.core.fingerprints import AS_THEY_ARE, Names, fingerprint_of
from groupcoord.core.host_queries import LoneShareHost
from groupcoord.core.partition import Partition
from groupcoord.core.router.partition_table import PartitionStatus

LARGE: Mapping[type, Callable[[Any], Any]] = MappingProxyType(
    {dict: dict.copy, list: list.copy, deque: deque.copy, SortedDict: dict.copy}
)
"""What others refer to, of all that can change at a place, and how to keep what is in it."""

SMALL = frozenset({int, bool, type(None)})
"""What is put in its place as it stands."""

Place = tuple[Any, tuple[str, ...]]
"""A part of a coordinator, and which attributes of it can change."""


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
            self._places = tuple((part, name) for part, names in places(self._coordinator) for name in names)
            self._parts = tuple(parts(self._coordinator))

    def restore(self, saved: SavedState) -> None:
        """Go to a state that this coordinator, or one with the same settings, was in."""
        active = self._coordinator._partitions.active
        for index, status in enumerate(saved.values[0]):
            if status is not PartitionStatus.ACTIVE:
                active[index] = None
            elif active[index] is None:
                active[index] = self._partition_to_fill(index)
        self._look_for_places()
        memo: Memo = {id(theirs): ours for theirs, ours in zip(saved.parts, self._parts, strict=True)}
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
        coordinator = self._coordinator
        return fingerprint_of(list(coordinator._partitions), coordinator.clock.now_ms(), names or AS_THEY_ARE)


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


def parts(coordinator: Any) -> Iterator[Any]:
    """Walk the parts of a coordinator to which its state refers, in the same order for each."""
    environments = coordinator._environments
    yield from environments
    for partition in coordinator._partitions:
        yield partition.administration


def places(coordinator: Any) -> Iterator[Place]:
    """Walk all places where something can change, in the same order for each coordinator."""
    yield coordinator._partitions, ("status", "is_closed")
    for partition in coordinator._partitions:
        yield from _places_of(partition)
    yield coordinator._timers, ("_entries", "_sequence", "_next_ms", "advances")
    yield coordinator._effects, ("appends", "questions", "replies")
    yield coordinator._split_requests, ("awaited",)
    yield coordinator._observer, ("counters", "events", "append_failures", "_open_rebalances")
    yield coordinator._loader, ("_leader_epochs", "_next_appends")
    yield coordinator._environments.topics, ("version",)
    yield coordinator._environments.streams.internal_topics, ("_asked",)
    if isinstance(coordinator._host.share, LoneShareHost):
        yield coordinator._host.share, ("_states",)


def _places_of(partition: Partition) -> Iterator[Place]:
    context, writer = partition._context, partition.writer
    hard, offsets = writer.hard, writer.hard.offsets
    yield context, ("groups", "writings", "has_modern_groups")
    yield writer, ("in_flight", "next_log_offset", "next_number", "refusals", "_first_number", "last_durable", "unseen")
    yield hard, ("groups",)
    yield offsets, ("committed", "transactions", "pending", "_open")
    yield offsets.producers, ("_epochs",)
    yield partition.retention, ("timer", "_swept_ms")
    yield partition.append_timeouts, ("timer", "_deadlines")
    for kind in partition._kinds.rows:
        yield from kind.places
