"""What the rules of streams groups look at besides the group."""

from __future__ import annotations

from attrs import define, field

from groupcoord.config.group_settings import StreamsGroupSettings
from groupcoord.core.groups.base.environment import GroupEnvironment
from groupcoord.core.groups.streams.assignors import TaskAssignor
from groupcoord.core.groups.streams.internal_topics import InternalTopics


@define(eq=False)
class StreamsGroupEnvironment(GroupEnvironment[StreamsGroupSettings, TaskAssignor]):
    """The surroundings of all streams groups of one coordinator.

    Attributes:
        internal_topics: which topics were asked for, and which could not be created.
    """

    internal_topics: InternalTopics = field(factory=InternalTopics)
