"""The coordinator's assignors of consumer groups, with Kafka's results: uniform and range.

An assignor of your own is any object that has what :class:`Assignor` names.
"""

from __future__ import annotations

from groupcoord.core.groups.base.assignor import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    Partitions,
    SubscriptionType,
)
from groupcoord.core.groups.consumer.assignors.range import RangeAssignor
from groupcoord.core.groups.consumer.assignors.uniform import UniformAssignor

__all__ = [
    "Assignor",
    "GroupAssignment",
    "GroupSpec",
    "MemberSpec",
    "PartitionAssignorError",
    "Partitions",
    "RangeAssignor",
    "SubscriptionType",
    "UniformAssignor",
]
