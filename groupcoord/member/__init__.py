"""Consumer side of the group protocol: a state machine without I/O, and the client-side assignors."""

from groupcoord.core.consumer_protocol import (
    Assignment as Assignment,
    ConsumerProtocolError as ConsumerProtocolError,
    Subscription as Subscription,
    TopicPartition as TopicPartition,
    decode_assignment as decode_assignment,
    decode_subscription as decode_subscription,
    encode_assignment as encode_assignment,
    encode_subscription as encode_subscription,
)
from groupcoord.member.assignors import (
    Assignor as Assignor,
    Cluster as Cluster,
    ClusterTopic as ClusterTopic,
    RebalanceProtocol as RebalanceProtocol,
)
from groupcoord.member.config import MemberConfig as MemberConfig
from groupcoord.member.error_handling import (
    CONSUMER_REACTIONS as CONSUMER_REACTIONS,
    REACTIONS as REACTIONS,
    Reaction as Reaction,
    reaction_to as reaction_to,
)
from groupcoord.member.machine import Member as Member
from groupcoord.member.membership import (
    CONSUMER_TRANSITIONS as CONSUMER_TRANSITIONS,
    TRANSITIONS as TRANSITIONS,
    IllegalCallError as IllegalCallError,
    MemberState as MemberState,
)
from groupcoord.member.outputs import (
    AssignmentNeeded as AssignmentNeeded,
    Closed as Closed,
    CommitCompleted as CommitCompleted,
    CommitFailure as CommitFailure,
    ComputedAssignment as ComputedAssignment,
    CoordinatorFound as CoordinatorFound,
    CoordinatorLost as CoordinatorLost,
    Event as Event,
    Failed as Failed,
    Joined as Joined,
    LeftGroup as LeftGroup,
    MemberRequest as MemberRequest,
    MetadataNeeded as MetadataNeeded,
    OffsetAndMetadata as OffsetAndMetadata,
    OffsetsFetched as OffsetsFetched,
    Output as Output,
    PartitionsAssigned as PartitionsAssigned,
    PartitionsLost as PartitionsLost,
    PartitionsRevoked as PartitionsRevoked,
    RejoinRequested as RejoinRequested,
    RequestRefused as RequestRefused,
    Send as Send,
)
from groupcoord.member.parts import CloseOperation as CloseOperation
from groupcoord.member.subscription import SubscriptionPattern as SubscriptionPattern
