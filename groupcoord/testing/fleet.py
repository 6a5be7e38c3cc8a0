"""Consumers for random tests: they go through the protocol as real ones do, one request at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define

from groupcoord.consumer_protocol import Subscription, encode_subscription
from groupcoord.core.messages import (
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
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.core.replies import Reply
from groupcoord.errors import ErrorCode
from groupcoord.testing.laws import require

TOPIC = "orders"
PARTITIONS = 4
METADATA = encode_subscription(Subscription((TOPIC,)))
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 20_000
MUST_FORGET_ID = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}


@define(eq=False)
class Consumer:
    """A consumer: :meth:`next_request` says what it would send now, :meth:`receive` takes the answer.

    It subscribes to the four partitions of the topic ``orders``; as a leader it deals them out in turn.

    Attributes:
        name: its client id.
        group_id: its group.
        instance_id: of a static member (KIP-345); None for a dynamic one.
        protocols: the assignors that it knows, the best first.
        owned: the partitions that it believes to own, in generation ``generation_id``; None before an assignment.
        is_waiting: it has a request under way, and sends nothing else.
        is_alive: it has neither died, left, nor been fenced by another one in its place.
    """

    name: str
    group_id: str
    instance_id: str | None = None
    protocols: tuple[str, ...] = ("range",)
    member_id: str = ""
    generation_id: int = -1
    phase: str = "joining"
    owned: frozenset[int] | None = None
    is_waiting: bool = False
    is_alive: bool = True
    members: tuple[str, ...] = ()
    last_offset: int = 0

    def next_request(self, *, commits: bool = False) -> Request:
        """Return the request that moves this consumer on; where it could send a heartbeat, it can commit instead."""
        if self.phase == "joining":
            return self.join_request()
        if self.phase == "syncing":
            return SyncGroup(
                self.group_id,
                self.generation_id,
                self.member_id,
                self.instance_id,
                assignments=self._assignments(),
            )
        if commits and self.owned:
            self.last_offset += 1
            offsets = tuple(OffsetToCommit(index, self.last_offset) for index in sorted(self.owned))
            topics = (TopicToCommit(TOPIC, offsets),)
            return OffsetCommit(self.group_id, topics, self.generation_id, self.member_id, self.instance_id)
        return self.heartbeat()

    def join_request(self) -> JoinGroup:
        """Return the request for a place in the next generation."""
        return JoinGroup(
            self.group_id,
            self.member_id,
            protocols=tuple(JoinProtocol(name, METADATA) for name in self.protocols),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            group_instance_id=self.instance_id,
            client_id=self.name,
        )

    def heartbeat(self) -> Heartbeat:
        """Return a heartbeat under the ids that this consumer has."""
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
        """Take the answer of the last request; None: there will be none, and the consumer joins anew.

        Raises:
            AssertionError: the assignment is one of another generation.
        """
        self.is_waiting = False
        match response:
            case JoinGroupResponse():
                self._joined(response)
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                generation_id, self.owned = decode_share(response.assignment)
                require(
                    generation_id in (None, self.generation_id),
                    f"{self.name} of generation {self.generation_id} got an assignment of generation {generation_id}",
                )
                self.phase = "stable"
            case SyncGroupResponse() | HeartbeatResponse() | LeaveGroupResponse():
                self._react(response.error_code)
            case OffsetCommitResponse():
                for result in (result for topic in response.topics for result in topic.partitions):
                    self._react(result.error_code)
            case None:
                self.rejoin()

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
            self.is_alive = False
        self.rejoin()

    def rejoin(self) -> None:
        """Give up what it owns; its next request is a join."""
        self.phase, self.owned, self.members = "joining", None, ()


def encode_share(generation_id: int, partitions: Iterable[int]) -> bytes:
    """Return an assignment as bytes that tell its generation and partitions."""
    return f"{generation_id}:{','.join(map(str, partitions))}".encode()


def decode_share(assignment: bytes) -> tuple[int | None, frozenset[int]]:
    """Return (generation, partitions) of an assignment; an empty one belongs to no generation."""
    if not assignment:
        return None, frozenset()
    generation_id, _, partitions = assignment.decode().partition(":")
    return int(generation_id), frozenset(int(index) for index in partitions.split(",") if index)


class Fleet:
    """Consumers, who waits for what, and what they were told.

    Args:
        send: takes a request and a token.
        receive: returns the answers since the last call.

    Attributes:
        consumers: all that ever were.
        outstanding: token → the request that has no answer yet, and whose it is (None: nobody's in particular).
        acknowledged: (group, topic, partition, offset) of every commit that was answered with NONE.
    """

    def __init__(self, send: Callable[[Request, int], None], receive: Callable[[], Iterable[Reply]]) -> None:
        self._send = send
        self._receive = receive
        self._last_token = 0
        self._owners: dict[tuple[str, int, int], str] = {}
        self.consumers: list[Consumer] = []
        self.outstanding: dict[int, tuple[Request, Consumer | None]] = {}
        self.acknowledged: set[tuple[str, str, int, int]] = set()

    def submit(self, request: Request, consumer: Consumer | None = None) -> None:
        """Send a request, and deliver what there is to deliver."""
        self._last_token += 1
        self.outstanding[self._last_token] = (request, consumer)
        if consumer is not None:
            consumer.is_waiting = True
        self._send(request, self._last_token)
        self.deliver()

    def go_on(self, *, commits: bool = False) -> None:
        """Let every living consumer that waits for nothing send its next request."""
        for consumer in list(self.consumers):
            if consumer.is_alive and not consumer.is_waiting:
                self.submit(consumer.next_request(commits=commits), consumer)

    def deliver(self) -> None:
        """Give every answer to who asked.

        Raises:
            AssertionError: nobody waits for an answer, or it breaks a law.
        """
        for token, response in self._receive():
            require(token in self.outstanding, f"token {token!r} is answered, but nobody waits for it: {response!r}")
            request, consumer = self.outstanding.pop(token)
            if isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse):
                assert isinstance(request, OffsetCommit | TxnOffsetCommit)
                self._note_commit(request, response)
            if consumer is not None:
                consumer.receive(response)
                self._note_owned(consumer)

    def lose_requests(self) -> None:
        """The coordinator has died: nobody is answered any more, and generations that it had not written count anew."""
        for _, consumer in self.outstanding.values():
            if consumer is not None:
                consumer.receive(None)
        self.outstanding.clear()
        self._owners.clear()

    def forget_group(self, group_id: str) -> None:
        """A group is gone, or its last generation with it: generations of the next one count anew."""
        self._owners = {key: owner for key, owner in self._owners.items() if key[0] != group_id}

    def living(self, group_id: str) -> list[Consumer]:
        """Return the consumers of a group that are alive."""
        return [consumer for consumer in self.consumers if consumer.is_alive and consumer.group_id == group_id]

    def _note_commit(
        self, request: OffsetCommit | TxnOffsetCommit, response: OffsetCommitResponse | TxnOffsetCommitResponse
    ) -> None:
        for sent_topic, topic in zip(request.topics, response.topics, strict=True):
            for sent, answered in zip(sent_topic.partitions, topic.partitions, strict=True):
                require(sent.partition_index == answered.partition_index, f"{response!r} does not answer {request!r}")
                if answered.error_code is ErrorCode.NONE:
                    assert request.group_id is not None
                    assert topic.name is not None
                    key = (request.group_id, topic.name, sent.partition_index, sent.committed_offset)
                    self.acknowledged.add(key)

    def _note_owned(self, consumer: Consumer) -> None:
        """Within one generation, as members see it, a partition has one owner."""
        for index in consumer.owned or ():
            key = (consumer.group_id, consumer.generation_id, index)
            identity = consumer.instance_id or consumer.member_id
            owner = self._owners.setdefault(key, identity)
            require(
                owner == identity,
                f"in generation {consumer.generation_id} of group {consumer.group_id!r} both {owner!r} and "
                f"{identity!r} own {TOPIC}-{index}",
            )
