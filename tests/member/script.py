"""Member in a scripted world: the test answers each request, on a manual clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

from groupcoord.core.consumer_protocol import encode_assignment, encode_subscription
from groupcoord.errors import ErrorCode
from groupcoord.member import (
    Assignment,
    AssignmentNeeded,
    Assignor,
    Cluster,
    Member,
    MemberConfig,
    MemberRequest,
    MetadataNeeded,
    Output,
    Send,
    Subscription,
    TopicPartition,
)
from groupcoord.messages import (
    NO_NODE,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    FetchedGroup,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    Heartbeat,
    HeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    Node,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionResult,
    SyncGroup,
    SyncGroupResponse,
    TopicPartitions,
    TopicResult,
)

R = TypeVar("R")
INTERVAL_MS = 5_000
NODE = Node(1, "broker", 9092)
START_MS = 1_000_000
FOREVER_MS = 2**40
GROUP, TOPIC, MEMBER_ID = "group", "topic", "member-1"
TOPIC_ID = UUID(int=7)
CLUSTER = Cluster.of({TOPIC: 4}, {TOPIC: TOPIC_ID})


def partitions(*numbers: int, topic: str = TOPIC) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


OWNED = partitions(0, 1)
"""Partitions of a member in :meth:`Script.come_to`."""


class Script:
    """A member, its clock, its unanswered requests, and its events."""

    def __init__(
        self,
        assignors: Sequence[Assignor] | None = None,
        *,
        waits_for_listener: bool = False,
        random: float = 0.5,
        member_id: str | None = None,
        **settings: Any,
    ) -> None:
        settings = {"group_id": GROUP, "enable_auto_commit": False} | settings
        if settings.get("group_protocol") != "consumer":
            settings = {"partition_assignment_strategy": "range"} | settings
        self.config = MemberConfig(**settings)
        self.now_ms = START_MS
        self.member = Member(
            self.config,
            assignors,
            now_ms=START_MS,
            random=lambda: random,
            waits_for_listener=waits_for_listener,
            member_id=member_id,
        )
        self.sent: list[Send] = []
        self.events: list[Output] = []
        self.cluster: Cluster | None = CLUSTER
        self.computes = True

    # ------------------------------------------------------------ looking

    def look(self) -> None:
        while outputs := self.member.take_outputs():
            for output in outputs:
                if isinstance(output, Send):
                    self.sent.append(output)
                elif isinstance(output, MetadataNeeded) and self.cluster is not None:
                    self.member.update_metadata(self.cluster, self.now_ms)
                elif isinstance(output, AssignmentNeeded) and self.computes:
                    self.member.assignment_computed(output.compute(), self.now_ms)
                else:
                    self.events.append(output)

    def kinds(self) -> list[str]:
        self.look()
        return [type(send.request).__name__ for send in self.sent]

    def told(self, kind: type[R]) -> list[R]:
        self.look()
        return [event for event in self.events if isinstance(event, kind)]

    def names(self) -> list[str]:
        self.look()
        return [type(event).__name__ for event in self.events]

    def forget(self) -> None:
        self.look()
        self.events.clear()

    def request(self, kind: type[R]) -> R:
        self.look()
        (found,) = [send.request for send in self.sent if isinstance(send.request, kind)]
        return found

    # ------------------------------------------------------------ acting

    def wait(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while True:
            self.look()
            deadline_ms = self.member.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.member.tick(self.now_ms)
        self.now_ms = end_ms
        self.look()

    def poll(self, timeout_ms: int = 0) -> None:
        self.member.poll(self.now_ms, timeout_ms)
        self.look()

    def answer(self, kind: type[MemberRequest], response: Any) -> None:
        self.look()
        send = next(send for send in self.sent if isinstance(send.request, kind))
        self.sent.remove(send)
        self.member.receive(send.request_id, response, self.now_ms)
        self.look()

    def lose(self, kind: type[MemberRequest], error_code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> None:
        """The oldest request of this kind has no answer."""
        self.look()
        send = next(send for send in self.sent if isinstance(send.request, kind))
        self.sent.remove(send)
        self.member.request_failed(send.request_id, error_code, self.now_ms)
        self.look()

    def find(self, error_code: ErrorCode = ErrorCode.NONE, node: Node = NODE) -> None:
        found = FoundCoordinator(GROUP, node if error_code is ErrorCode.NONE else NO_NODE, error_code)
        self.answer(FindCoordinator, FindCoordinatorResponse((found,)))

    def join(self, generation_id: int = 1, *, leads: bool = False, protocol: str | None = None, **fields: Any) -> None:
        """Let a join succeed, as follower or as the only member and leader."""
        request = self.request(JoinGroup)
        member_id = request.member_id or MEMBER_ID
        name = protocol or request.protocols[0].name
        metadata = dict(request.protocols).get(name, b"")
        values = {
            "member_id": member_id,
            "generation_id": generation_id,
            "protocol_type": "consumer",
            "protocol_name": name,
            "leader": member_id if leads else "leader",
            "members": (JoinedMember(member_id, self.config.group_instance_id, metadata),) if leads else (),
        }
        self.answer(JoinGroup, JoinGroupResponse(ErrorCode.NONE, **(values | fields)))

    def sync(self, *numbers: int, topic: str = TOPIC) -> None:
        request = self.request(SyncGroup)
        data = encode_assignment(Assignment(partitions(*numbers, topic=topic)))
        self.answer(SyncGroup, SyncGroupResponse(ErrorCode.NONE, "consumer", request.protocol_name, data))

    def beat(self, epoch: int, *numbers: int, error_code: ErrorCode = ErrorCode.NONE, **fields: Any) -> None:
        """Answer a heartbeat of a consumer group: these partitions are assigned; none: as last time."""
        request = self.request(ConsumerGroupHeartbeat)
        assignment = (TopicPartitions(TOPIC_ID, numbers),) if numbers else None
        values = {
            "member_id": request.member_id,
            "member_epoch": epoch,
            "heartbeat_interval_ms": INTERVAL_MS,
            "assignment": assignment,
        }
        response = ConsumerGroupHeartbeatResponse(error_code, **(values | fields))
        self.answer(ConsumerGroupHeartbeat, response)

    def committed(self, error_code: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the oldest commit: the same for each of its partitions."""
        self.look()
        commit = next(send.request for send in self.sent if isinstance(send.request, OffsetCommit))
        topics = [
            TopicResult(
                topic.name,
                topic.topic_id,
                tuple(PartitionResult(partition.partition_index, error_code) for partition in topic.partitions),
            )
            for topic in commit.topics
        ]
        self.answer(OffsetCommit, OffsetCommitResponse(tuple(topics)))

    def refuse(self, api: type, code: ErrorCode) -> None:
        if api is FindCoordinator:
            self.find(code)
        elif api is OffsetCommit:
            self.committed(code)
        elif api is ConsumerGroupHeartbeat:
            self.beat(0, error_code=code)
        elif api is JoinGroup:
            member_id = "given" if code is ErrorCode.MEMBER_ID_REQUIRED else MEMBER_ID
            self.answer(JoinGroup, JoinGroupResponse(code, member_id))
        elif api is OffsetFetch:
            self.answer(OffsetFetch, OffsetFetchResponse((FetchedGroup(GROUP, code, ()),)))
        else:
            responses = {SyncGroup: SyncGroupResponse, Heartbeat: HeartbeatResponse, LeaveGroup: LeaveGroupResponse}
            self.answer(api, responses[api](code))

    def refuse_heartbeat(self, code: ErrorCode) -> None:
        """Wait for the next heartbeat and answer it with an error."""
        self.wait(self.config.heartbeat_interval_ms)
        self.refuse(Heartbeat, code)

    # ------------------------------------------------------------ getting somewhere

    def subscribed(self, poll_ms: int = FOREVER_MS, topics: Sequence[str] = (TOPIC,)) -> Script:
        self.member.subscribe(topics, self.now_ms)
        self.poll(poll_ms)
        return self

    def joining(self, poll_ms: int = FOREVER_MS) -> Script:
        self.subscribed(poll_ms)
        self.find()
        self.poll(poll_ms)
        return self

    def stable(self, *numbers: int, poll_ms: int = FOREVER_MS, leads: bool = False) -> Script:
        """Be in generation 1 with these partitions."""
        self.joining(poll_ms)
        self.join(leads=leads)
        self.sync(*numbers)
        self.poll(poll_ms)
        self.member.listener_returned(self.now_ms)
        assert self.member.assignment == partitions(*numbers)
        self.forget()
        return self

    def working(self) -> Script:
        """Be in the group with the partitions :data:`OWNED`."""
        return self.stable(0, 1)

    def come_to(self, api: type) -> Script:
        """Come to where a request of an API is in flight."""
        if api is FindCoordinator:
            return self.subscribed()
        self.working()
        if api is OffsetCommit:
            self.member.commit_sync({OWNED[0]: 7, OWNED[1]: 8}, self.now_ms)
        elif api is OffsetFetch:
            self.member.fetch_offsets(OWNED, self.now_ms)
        elif api is LeaveGroup:
            self.member.close(self.now_ms)
        elif api in (JoinGroup, SyncGroup):
            self.member.enforce_rebalance(self.now_ms)
            self.forget()
            if api is SyncGroup:
                self.join(2)
        else:
            self.wait(self.member.heartbeat_interval_ms)
        return self


def subscription(*topics: str, owned: Sequence[TopicPartition] = (), generation_id: int = -1) -> bytes:
    return encode_subscription(Subscription(tuple(topics), None, tuple(owned), generation_id))
