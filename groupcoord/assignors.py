"""For assignors of your own, which the coordinator runs for consumer groups (KIP-848): what they are and are given."""

from groupcoord.core.consumer.assignors import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    Partitions,
    RangeAssignor,
    SubscriptionType,
    UniformAssignor,
)
from groupcoord.core.consumer.topics import Topic

__all__ = [
    "Assignor",
    "GroupAssignment",
    "GroupSpec",
    "MemberSpec",
    "PartitionAssignorError",
    "Partitions",
    "RangeAssignor",
    "SubscriptionType",
    "Topic",
    "UniformAssignor",
]
