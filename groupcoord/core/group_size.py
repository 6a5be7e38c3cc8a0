"""How large a group may be: each kind has a limit of its own, and all are looked at in the same way."""

from __future__ import annotations

from groupcoord.errors import ErrorCode


def check_group_size(member_count: int, max_size: int) -> ErrorCode:
    """Return NONE if a group may have so many members, else GROUP_MAX_SIZE_REACHED.

    Args:
        member_count: how many there are or would be, a newcomer counted in.
        max_size: ``group.max.size`` (KIP-389) or ``group.consumer.max.size`` (KIP-848).
    """
    return ErrorCode.NONE if member_count <= max_size else ErrorCode.GROUP_MAX_SIZE_REACHED
