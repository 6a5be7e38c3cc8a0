"""The coordinator's assignors of streams groups, with Kafka's results: sticky.

An assignor of your own is any object that has what :class:`TaskAssignor` names.
"""

from __future__ import annotations

from groupcoord.core.groups.streams.assignors.base import (
    MemberTasks,
    StreamsGroupSpec,
    StreamsMemberSpec,
    SubtopologySpec,
    TaskAssignor,
    TaskAssignorError,
    Tasks,
)
from groupcoord.core.groups.streams.assignors.sticky import StickyTaskAssignor

__all__ = [
    "MemberTasks",
    "StickyTaskAssignor",
    "StreamsGroupSpec",
    "StreamsMemberSpec",
    "SubtopologySpec",
    "TaskAssignor",
    "TaskAssignorError",
    "Tasks",
]
