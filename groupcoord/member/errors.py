"""The exceptions for hosts that break the member's contract."""

from __future__ import annotations

from groupcoord.errors import GroupcoordError


class IllegalCallError(GroupcoordError):
    """A member was told to do what it can't in its present condition, such as to subscribe after it was closed."""
