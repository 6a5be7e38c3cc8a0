"""Clients for random tests: they go through the protocol as a consumer does, one request at a time."""

from __future__ import annotations

from attrs import define, field

from groupcoord import ErrorCode
from groupcoord.messages import (
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    OffsetCommit,
    OffsetCommitResponse,
    Request,
    Response,
    SyncAssignment,
    SyncGroup,
    SyncGroupResponse,
    TopicToCommit,
)

PARTITIONS = 4
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 20_000
MUST_FORGET_ID = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata: the embedded protocol's version 0."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names + b"\x00\x00\x00\x00"


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
class Actor:
    """A consumer: ``next_request`` says what it would send now, ``receive`` takes the answer.

    Attributes:
        owned: the partitions it believes it owns, in generation ``generation_id``; None before an assignment.
        waiting: it has a request under way and sends nothing else (a real consumer's heartbeats aside).
    """

    name: str
    group_id: str
    instance_id: str | None
    protocols: tuple[str, ...]
    manner: Manner = field(factory=Manner)
    protocol_type: str = "consumer"
    member_id: str = ""
    generation_id: int = -1
    phase: str = "joining"
    owned: frozenset[int] | None = None
    waiting: bool = False
    members: tuple[str, ...] = ()
    is_alive: bool = True

    @property
    def identity(self) -> str:
        """Who owns what is assigned to this consumer: a restarted static member goes on with its share."""
        return self.instance_id or self.member_id

    def next_request(self) -> Request:
        """Return the request that moves this consumer on."""
        if self.phase == "joining":
            metadata = self.name.encode() if self.manner.metadata is None else self.manner.metadata
            return JoinGroup(
                self.group_id,
                self.member_id,
                self.protocol_type,
                protocols=tuple(JoinProtocol(name, metadata) for name in self.protocols),
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=self.manner.rebalance_timeout_ms,
                group_instance_id=self.instance_id,
                client_id=self.name,
                reason=f"{self.name} goes on",
                requires_known_member_id=self.manner.asks_for_id,
                supports_skip_assignment=self.manner.skips,
            )
        if self.phase == "syncing":
            return SyncGroup(
                self.group_id,
                self.generation_id,
                self.member_id,
                self.instance_id,
                assignments=self._assignments(),
            )
        return Heartbeat(self.group_id, self.generation_id, self.member_id, self.instance_id)

    def commit_request(self, topics: tuple[TopicToCommit, ...]) -> OffsetCommit:
        """Return a commit in this consumer's name."""
        return OffsetCommit(self.group_id, topics, self.generation_id, self.member_id, self.instance_id)

    def leave_request(self) -> LeaveGroup:
        """Return the request of an orderly departure."""
        return LeaveGroup(self.group_id, (LeavingMember(self.member_id, self.instance_id, "done"),))

    def _assignments(self) -> tuple[SyncAssignment, ...]:
        """Deal the partitions out to the members, as a leader does; each share names its generation."""
        return tuple(
            SyncAssignment(member_id, encode_share(self.generation_id, range(place, PARTITIONS, len(self.members))))
            for place, member_id in enumerate(self.members)
        )

    def receive(self, response: Response | None) -> None:
        """Take the answer of the last request; None: there will be none, and the consumer joins anew."""
        self.waiting = False
        match response:
            case JoinGroupResponse():
                self._joined(response)
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                generation_id, self.owned = decode_share(response.assignment)
                assert generation_id in (None, self.generation_id)
                assert response.protocol_name in self.protocols
                self.phase = "stable"
            case SyncGroupResponse() | HeartbeatResponse() | LeaveGroupResponse():
                self._react(response.error_code)
            case OffsetCommitResponse():
                for result in (result for topic in response.topics for result in topic.partitions):
                    if result.error_code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        self._react(result.error_code)
            case None:
                self.rejoin()

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            assert self.manner.asks_for_id
            assert self.instance_id is None
            self.member_id = response.member_id
        elif response.error_code is ErrorCode.NONE:
            assert response.protocol_name in self.protocols
            assert response.protocol_type == self.protocol_type
            assert self.manner.skips or not response.skip_assignment
            self.member_id, self.generation_id = response.member_id, response.generation_id
            self.members = tuple(member.member_id for member in response.members)
            assert bool(self.members) == (response.leader == self.member_id)
            assert not self.members or self.member_id in self.members
            if response.skip_assignment:
                self.members = ()
            self.phase = "syncing"
        else:
            self._react(response.error_code)

    def _react(self, error_code: ErrorCode) -> None:
        if error_code is ErrorCode.NONE:
            return
        if error_code in MUST_FORGET_ID:
            self.member_id, self.generation_id = "", -1
        if error_code is ErrorCode.FENCED_INSTANCE_ID:
            self.is_alive = False
        self.rejoin()

    def rejoin(self) -> None:
        """Give up what it owns; its next request is a join."""
        self.phase, self.owned, self.members = "joining", None, ()


def encode_share(generation_id: int, partitions: range) -> bytes:
    """Return an assignment as bytes that tell its generation and partitions."""
    return f"{generation_id}:{','.join(map(str, partitions))}".encode()


def decode_share(assignment: bytes) -> tuple[int | None, frozenset[int]]:
    """Return (generation, partitions) of an assignment; an empty one belongs to no generation."""
    if not assignment:
        return None, frozenset()
    generation_id, _, partitions = assignment.decode().partition(":")
    return int(generation_id), frozenset(int(index) for index in partitions.split(",") if index)
