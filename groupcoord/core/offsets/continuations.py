"""What follows an append of offsets, or of their tombstones and those of their groups."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define

from groupcoord.core.events import Cause
from groupcoord.core.groups.group import Group
from groupcoord.core.log.records import OffsetTombstone, Record
from groupcoord.core.outputs import Continuation


@define(eq=False)
class WhenCommitted(Continuation):
    """Offsets are committed."""

    group_id: str
    offset_count: int

    def concerns(self, group: Group) -> bool:
        """Tell whether the offsets are this group's."""
        return self.group_id == group.group_id


def count_offsets(records: Iterable[Record]) -> int:
    """Return how many of these records are tombstones of offsets."""
    return sum(type(record) is OffsetTombstone for record in records)


@define(eq=False)
class WhenDeleted(Continuation):
    """Groups and offsets are gone for good, or come back."""

    groups: tuple[Group, ...]
    cause: Cause
    offset_count: int

    @property
    def suspended(self) -> tuple[Group, ...]:
        """The groups: whether they are there is the log's to say."""
        return self.groups

    def concerns(self, group: Group) -> bool:
        """Tell whether this group is to be deleted."""
        return any(deleted is group for deleted in self.groups)


@define(eq=False)
class WhenWritten(Continuation):
    """A transaction marker, or tombstones of so many offsets, are durable: nobody but those who wait goes on."""

    deleted_offset_count: int = 0
