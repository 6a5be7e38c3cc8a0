"""Clients for random tests: they go through the protocol as a consumer does, one request at a time."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, evolve, field

from groupcoord import ErrorCode
from groupcoord.consumer_protocol import Subscription, encode_subscription
from groupcoord.messages import (
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetCommitResponse,
    PartitionResult,
    Response,
    SyncGroupResponse,
    TopicToCommit,
)
from groupcoord.testing.fleet import REBALANCE_TIMEOUT_MS, Consumer


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata: the embedded protocol's version 0."""
    return encode_subscription(Subscription(topics, user_data=b""), 0)


@define
class Manner:
    """How a client goes about it: the version of its requests, its patience, and what it says of itself.

    Attributes:
        asks_for_id: it is handed out a member id first (KIP-394).
        skips: it can be told to skip assigning (KIP-814).
        metadata: what it sends with each protocol; None: the name of the client, which nobody can read.
    """

    asks_for_id: bool = True
    skips: bool = True
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS
    metadata: bytes | None = subscription("orders")


@define(eq=False)
class Actor(Consumer):
    """A consumer of many manners, that looks twice at what it is told."""

    manner: Manner = field(factory=Manner)
    protocol_type: str = "consumer"

    @property
    def identity(self) -> str:
        """Who owns what is assigned to this consumer: a restarted static member goes on with its share."""
        return self.instance_id or self.member_id

    def join_request(self) -> JoinGroup:
        """Return the request for a place in the next generation."""
        metadata = self.name.encode() if self.manner.metadata is None else self.manner.metadata
        return evolve(
            super().join_request(),
            protocol_type=self.protocol_type,
            protocols=tuple(JoinProtocol(name, metadata) for name in self.protocols),
            rebalance_timeout_ms=self.manner.rebalance_timeout_ms,
            reason=f"{self.name} goes on",
            requires_known_member_id=self.manner.asks_for_id,
            supports_skip_assignment=self.manner.skips,
        )

    def commit_request(self, topics: tuple[TopicToCommit, ...]) -> OffsetCommit:
        """Return a commit in this consumer's name."""
        return OffsetCommit(self.group_id, topics, self.generation_id, self.member_id, self.instance_id)

    def leave_request(self) -> LeaveGroup:
        """Return the request of an orderly departure."""
        return LeaveGroup(self.group_id, (LeavingMember(self.member_id, self.instance_id, "done"),))

    def receive(self, response: Response | None) -> None:
        """Take the answer of the last request; None: there will be none, and the consumer joins anew."""
        match response:
            case JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED):
                assert self.manner.asks_for_id
                assert self.instance_id is None
            case JoinGroupResponse(error_code=ErrorCode.NONE):
                assert response.protocol_name in self.protocols
                assert response.protocol_type == self.protocol_type
                assert self.manner.skips or not response.skip_assignment
                members = [member.member_id for member in response.members]
                assert bool(members) == (response.leader == response.member_id)
                assert not members or response.member_id in members
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                assert response.protocol_name in self.protocols
            case OffsetCommitResponse():
                # It commits for topics that may be gone; their errors say nothing of its membership.
                known = tuple(topic._replace(partitions=_of_known(topic.partitions)) for topic in response.topics)
                response = OffsetCommitResponse(known)
        super().receive(response)


def _of_known(results: Sequence[PartitionResult]) -> tuple[PartitionResult, ...]:
    return tuple(result for result in results if result.error_code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
