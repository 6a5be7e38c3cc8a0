"""The kinds of what follows an append: see :class:`~groupcoord.core.effects.Continuation`."""

from __future__ import annotations

from attrs import define

from groupcoord.core.effects import Continuation
from groupcoord.core.events import Cause
from groupcoord.core.group import GroupMetadata
from groupcoord.core.messages import JoinProtocol


@define(eq=False)
class OfGroup(Continuation):
    """A record of this group is on its way."""

    group: GroupMetadata

    def concerns(self, group: GroupMetadata) -> bool:
        """Tell whether it is this group's."""
        return self.group is group


@define(eq=False)
class WhenCreated(OfGroup):
    """A join made the group."""


@define(eq=False)
class WhenEmptied(OfGroup):
    """A generation without members ends in Empty."""


@define(eq=False)
class WhenAssigned(OfGroup):
    """The leader's assignments are durable: hand them out, if the generation still waits for them."""

    generation_id: int
    assignments: dict[str, bytes]


@define(eq=False)
class WhenReplaced(OfGroup):
    """A restarted static member's new id is durable: answer its join; or put the old id back (KIP-345)."""

    old_member_id: str
    new_member_id: str
    old_leader: str
    old_protocols: tuple[JoinProtocol, ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int


@define(eq=False)
class WhenCommitted(Continuation):
    """Offsets are committed."""

    group_id: str
    offset_count: int

    def concerns(self, group: GroupMetadata) -> bool:
        """Tell whether the offsets are this group's."""
        return self.group_id == group.group_id


@define(eq=False)
class WhenDeleted(Continuation):
    """Groups and offsets are gone for good, or come back."""

    groups: tuple[GroupMetadata, ...]
    cause: Cause
    offset_count: int

    def concerns(self, group: GroupMetadata) -> bool:
        """Tell whether this group is to be deleted."""
        return any(deleted is group for deleted in self.groups)


@define(eq=False)
class WhenWritten(Continuation):
    """A transaction marker, or tombstones of so many offsets, are durable: nobody but those who wait goes on."""

    deleted_offset_count: int = 0
