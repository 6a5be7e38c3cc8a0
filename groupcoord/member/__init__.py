"""The consumer's side of the group protocol: a state machine without I/O, and the assignors."""

from groupcoord.consumer_protocol import Assignment, Subscription, TopicPartition
from groupcoord.member.assignors import Assignor, Cluster, ClusterTopic, RebalanceProtocol
from groupcoord.member.config import MemberConfig
from groupcoord.member.dispatch import CloseOperation
from groupcoord.member.machine import Member
from groupcoord.member.membership import TRANSITIONS, IllegalCallError, MemberState
from groupcoord.member.outputs import (
    AssignmentNeeded,
    Closed,
    CommitCompleted,
    CommitFailure,
    ComputedAssignment,
    CoordinatorFound,
    CoordinatorLost,
    Event,
    Failed,
    Joined,
    LeftGroup,
    MemberRequest,
    MetadataNeeded,
    OffsetAndMetadata,
    OffsetsFetched,
    Output,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RejoinRequested,
    Send,
)
from groupcoord.member.reactions import REACTIONS, Reaction, reaction_to

__all__ = [
    "REACTIONS",
    "TRANSITIONS",
    "Assignment",
    "AssignmentNeeded",
    "Assignor",
    "CloseOperation",
    "Closed",
    "Cluster",
    "ClusterTopic",
    "CommitCompleted",
    "CommitFailure",
    "ComputedAssignment",
    "CoordinatorFound",
    "CoordinatorLost",
    "Event",
    "Failed",
    "IllegalCallError",
    "Joined",
    "LeftGroup",
    "Member",
    "MemberConfig",
    "MemberRequest",
    "MemberState",
    "MetadataNeeded",
    "OffsetAndMetadata",
    "OffsetsFetched",
    "Output",
    "PartitionsAssigned",
    "PartitionsLost",
    "PartitionsRevoked",
    "Reaction",
    "RebalanceProtocol",
    "RejoinRequested",
    "Send",
    "Subscription",
    "TopicPartition",
    "reaction_to",
]
