"""The coordinator's assignors of consumer groups, with Kafka's results: uniform and range.

An assignor of your own is any object that has what :class:`Assignor` names.
"""

from __future__ import annotations

from groupcoord.core.consumer.assignors.range import RangeAssignor
from groupcoord.core.consumer.assignors.uniform import UniformAssignor
from groupcoord.core.modern.assignor import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    Partitions,
    SubscriptionType,
)

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
