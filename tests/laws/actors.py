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
    OffsetToCommit,
    Request,
    Response,
    SyncAssignment,
    SyncGroup,
    SyncGroupResponse,
    TopicToCommit,
)

TOPIC = "orders"
PARTITIONS = 4
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 20_000
MUST_FORGET_ID = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}


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
    member_id: str = ""
    generation_id: int = -1
    phase: str = "joining"
    owned: frozenset[int] | None = None
    waiting: bool = False
    members: tuple[str, ...] = ()
    is_alive: bool = True
    sent: int = 0
    fenced: bool = False
    committed: dict[int, int] = field(factory=dict)

    def next_request(self, *, commits: bool = False) -> Request:
        """Return the request that moves this consumer on."""
        if self.phase == "joining":
            return JoinGroup(
                self.group_id,
                self.member_id,
                protocols=tuple(JoinProtocol(name, self.name.encode()) for name in self.protocols),
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                group_instance_id=self.instance_id,
                client_id=self.name,
            )
        if self.phase == "syncing":
            return SyncGroup(
                self.group_id,
                self.generation_id,
                self.member_id,
                self.instance_id,
                assignments=self._assignments(),
            )
        if commits and self.owned:
            self.sent += 1
            offsets = tuple(OffsetToCommit(index, self.sent) for index in sorted(self.owned))
            topics = (TopicToCommit(TOPIC, offsets),)
            return OffsetCommit(self.group_id, topics, self.generation_id, self.member_id, self.instance_id)
        return Heartbeat(self.group_id, self.generation_id, self.member_id, self.instance_id)

    def leave_request(self) -> LeaveGroup:
        """Return the request of an orderly departure."""
        return LeaveGroup(self.group_id, (LeavingMember(self.member_id, self.instance_id),))

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
                self.phase = "stable"
            case SyncGroupResponse() | HeartbeatResponse() | LeaveGroupResponse():
                self._react(response.error_code)
            case OffsetCommitResponse():
                for partition in response.topics[0].partitions:
                    self._react(partition.error_code)
            case None:
                self._rejoin()

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code is ErrorCode.NONE:
            self.member_id, self.generation_id = response.member_id, response.generation_id
            self.members = tuple(member.member_id for member in response.members)
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
            self.is_alive, self.fenced = False, True
        self._rejoin()

    def _rejoin(self) -> None:
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
