"""What to do when an append is durable or has failed: small data, so that a core can be copied and printed.

Where there is a ``response``, None means that nobody waits for it, or that it took too long and was refused already.
"""

from __future__ import annotations

from attrs import define

from groupcoord.core.effects import Token
from groupcoord.core.events import Cause
from groupcoord.core.group import GroupMetadata
from groupcoord.core.messages import (
    CompleteTransactionResponse,
    DeleteGroupsResponse,
    JoinProtocol,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    TxnOffsetCommitResponse,
)


@define(eq=False)
class WhenCreated:
    """A join made the group: it becomes visible, or was never there."""

    group: GroupMetadata


@define(eq=False)
class WhenEmptied:
    """A generation without members ends in Empty; a leave that caused it is answered now."""

    group: GroupMetadata
    token: Token = None
    response: LeaveGroupResponse | None = None


@define(eq=False)
class WhenAssigned:
    """The leader's assignments are durable: hand them out, if the generation still waits for them."""

    group: GroupMetadata
    generation_id: int
    assignments: dict[str, bytes]


@define(eq=False)
class WhenReplaced:
    """A restarted static member's new id is durable: answer its join; or put the old id back (KIP-345)."""

    group: GroupMetadata
    old_member_id: str
    new_member_id: str
    old_leader: str
    old_protocols: tuple[JoinProtocol, ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int


@define(eq=False)
class WhenCommitted:
    """Offsets are committed: answer; on failure every partition that was written gets the error."""

    group_id: str
    token: Token
    response: OffsetCommitResponse | TxnOffsetCommitResponse | None
    offset_count: int


@define(eq=False)
class WhenDeleted:
    """Groups and offsets are gone for good, or come back; ``token`` is answered if there is a ``response``."""

    groups: tuple[GroupMetadata, ...]
    cause: Cause
    offset_count: int
    token: Token = None
    response: DeleteGroupsResponse | None = None


@define(eq=False)
class WhenWritten:
    """Tombstones or a transaction marker are durable: answer; on failure the answer is the error alone."""

    token: Token
    response: OffsetDeleteResponse | CompleteTransactionResponse | None
    deleted_offset_count: int = 0


Continuation = WhenCreated | WhenEmptied | WhenAssigned | WhenReplaced | WhenCommitted | WhenDeleted | WhenWritten


def concerns(continuation: Continuation, group: GroupMetadata) -> bool:
    """Tell whether a continuation is about a group: what it waits for says that the group is there."""
    match continuation:
        case WhenCreated() | WhenEmptied() | WhenAssigned() | WhenReplaced():
            return continuation.group is group
        case WhenCommitted(group_id=group_id):
            return group_id == group.group_id
        case WhenDeleted(groups=groups):
            return any(deleted is group for deleted in groups)
        case WhenWritten():
            return False
