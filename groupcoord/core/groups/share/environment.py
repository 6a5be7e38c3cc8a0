"""What the rules of share groups look at besides the group."""

from __future__ import annotations

from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.groups.base.assignor import Assignor
from groupcoord.core.groups.base.environment import GroupEnvironment

ShareGroupEnvironment = GroupEnvironment[ShareGroupSettings, Assignor]
"""The surroundings of all share groups of one coordinator."""
