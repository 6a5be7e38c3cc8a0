"""What follows an append of a classic group."""

from __future__ import annotations

from attrs import define, frozen

from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.group import Group
from groupcoord.core.messages import JoinProtocol
from groupcoord.core.outputs import Continuation


@define(eq=False)
class OfGroup(Continuation):
    """A record of this classic group is on its way."""

    group: GroupMetadata

    def concerns(self, group: Group) -> bool:
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


@frozen
class FormerMember:
    """What a static member was before it was replaced, and who led then."""

    member_id: str
    leader: str
    protocols: tuple[JoinProtocol, ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int


@define(eq=False)
class WhenReplaced(OfGroup):
    """A restarted static member's new id is durable: answer its join; or make it what it was (KIP-345)."""

    former: FormerMember
    new_member_id: str
