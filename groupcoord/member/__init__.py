"""Consumer side of the group protocol: a state machine without I/O, and the client-side assignors."""

from groupcoord.core.consumer_protocol import Assignment, Subscription, TopicPartition
from groupcoord.member.assignors import Assignor, Cluster, ClusterTopic, RebalanceProtocol
from groupcoord.member.closing import CloseOperation
from groupcoord.member.config import MemberConfig
from groupcoord.member.machine import Member
from groupcoord.member.membership import CONSUMER_TRANSITIONS, TRANSITIONS, IllegalCallError, MemberState
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
    RequestRefused,
    Send,
)
from groupcoord.member.reactions import CONSUMER_REACTIONS, REACTIONS, Reaction, reaction_to
from groupcoord.member.subscription import SubscriptionPattern

__all__ = [
    "CONSUMER_REACTIONS",
    "CONSUMER_TRANSITIONS",
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
    "RequestRefused",
    "Send",
    "Subscription",
    "SubscriptionPattern",
    "TopicPartition",
    "reaction_to",
]
