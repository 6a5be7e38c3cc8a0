"""What the rules of share groups look at besides the group."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.modern.assignor import Assignor
from groupcoord.core.modern.environment import GroupEnvironment


@define(eq=False)
class ShareGroupEnvironment(GroupEnvironment[ShareGroupSettings, Assignor]):
    """The surroundings of all share groups of one coordinator.

    Attributes:
        latest_offset: returns the offset behind the last record of a partition; None if nobody knows.
    """

    latest_offset: Callable[[str, int], int | None]
