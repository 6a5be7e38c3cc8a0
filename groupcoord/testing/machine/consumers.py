"""Clients of a coordinator in tests: consumers of the classic protocol, and requests with their responses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from attrs import define, evolve, field

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from groupcoord.core.messages import (
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetToCommit,
    Reply,
    Request,
    Response,
    SyncAssignment,
    SyncGroup,
    SyncGroupResponse,
    TopicToCommit,
    TxnOffsetCommit,
)
from groupcoord.errors import ErrorCode
from groupcoord.laws import error_codes, errors_in, require

TOPIC = "orders"
PARTITIONS = 4
PRODUCER_EPOCH = 0
GENERATION_MARK = "generation"
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 20_000
MUST_FORGET_ID = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}
SAYS_NOTHING_OF_MEMBERSHIP = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def subscription(*topics: str) -> bytes:
    """Return the metadata of a consumer with a subscription."""
    return encode_subscription(Subscription(topics))


@define(eq=False)
class Consumer(ABC):
    """Client that follows its protocol in requests and reactions, without I/O.

    Attributes:
        member_id: its member id; empty before it has one.
        is_waiting: it has a request in flight, and sends no other.
        is_alive: it has neither died, left nor been fenced.
    """

    name: str
    group_id: str
    instance_id: str | None = None
    member_id: str = field(default="", kw_only=True)
    phase: str = field(default="joining", kw_only=True)
    is_waiting: bool = field(default=False, kw_only=True)
    is_alive: bool = field(default=True, kw_only=True)

    @abstractmethod
    def next_request(self) -> Request:
        """Return the next request: a join, a sync, a heartbeat."""

    def commit(self) -> OffsetCommit | None:
        """Return a commit of new offsets of its partitions; None if it has none."""
        topics = self.offsets()
        return self.commit_request(topics) if topics else None

    def offsets(self) -> tuple[TopicToCommit, ...]:
        return ()

    @abstractmethod
    def commit_request(self, topics: tuple[TopicToCommit, ...]) -> OffsetCommit: ...

    @abstractmethod
    def leave_request(self) -> Request: ...

    @abstractmethod
    def restarted(self, **changes: Any) -> Self:
        """Return the static member that replaces this one, with the given changes."""

    @abstractmethod
    def receive(self, response: Response | None) -> None:
        """Process the response of the last request; None if there is none."""

    @abstractmethod
    def rejoin(self) -> None:
        """Give up all partitions; the next request is a join."""

    def check(self, coordinator: GroupCoordinator) -> None:  # noqa: B027
        """Compare the consumer's knowledge with the log."""

    def behave(self) -> None:  # noqa: B027
        """Follow the protocol without delay from now on."""


@define(eq=False)
class ClassicConsumer(Consumer):
    """Consumer of the classic protocol: joins, syncs, sends heartbeats, and as leader assigns the topic ``orders``.

    Attributes:
        asks_for_id: it joins with a member id from the coordinator (KIP-394).
        skips_assignment: as a returning static leader it may skip the assignment (KIP-814).
        tag: marks the assignments that it makes.
        owned: partitions owned in generation ``generation_id``; None before an assignment.
    """

    protocols: tuple[str, ...] = ("range",)
    protocol_type: str = "consumer"
    metadata: bytes = subscription(TOPIC)
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS
    asks_for_id: bool = True
    skips_assignment: bool = True
    tag: str = ""
    generation_id: int = -1
    owned: frozenset[int] | None = None
    members: tuple[str, ...] = ()
    last_offset: int = 0

    @property
    def identity(self) -> str:
        """Owner of its partitions: a restarted static member keeps them."""
        return self.instance_id or self.member_id

    # ------------------------------------------------------------ requests

    def next_request(self) -> Request:
        if self.phase == "joining":
            return self.join_request()
        return self.sync_request() if self.phase == "syncing" else self.heartbeat()

    def offsets(self) -> tuple[TopicToCommit, ...]:
        if not self.owned:
            return ()
        self.last_offset += 1
        return (TopicToCommit(TOPIC, tuple(OffsetToCommit(index, self.last_offset) for index in sorted(self.owned))),)

    def join_request(self) -> JoinGroup:
        return JoinGroup(
            self.group_id,
            self.member_id,
            self.protocol_type,
            tuple(JoinProtocol(name, self.metadata) for name in self.protocols),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            group_instance_id=self.instance_id,
            client_id=self.name,
            reason=f"{self.name} goes on",
            requires_known_member_id=self.asks_for_id,
            supports_skip_assignment=self.skips_assignment,
        )

    def sync_request(self) -> SyncGroup:
        count = len(self.members)
        assignments = tuple(
            SyncAssignment(member_id, encode_share(self.generation_id, range(place, PARTITIONS, count), self.tag))
            for place, member_id in enumerate(self.members)
        )
        return SyncGroup(self.group_id, self.generation_id, self.member_id, self.instance_id, assignments=assignments)

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(self.group_id, self.generation_id, self.member_id, self.instance_id)

    def commit_request(self, topics: tuple[TopicToCommit, ...]) -> OffsetCommit:
        return OffsetCommit(self.group_id, topics, self.generation_id, self.member_id, self.instance_id)

    def leave_request(self) -> LeaveGroup:
        return LeaveGroup(self.group_id, (LeavingMember(self.member_id, self.instance_id, "done"),))

    def restarted(self, **changes: Any) -> Self:
        restarted = evolve(self, name=f"{self.name}+", member_id="", generation_id=-1, is_alive=True, **changes)
        restarted.rejoin()
        restarted.is_waiting = False
        return restarted

    # ------------------------------------------------------------ answers

    def receive(self, response: Response | None) -> None:
        self.is_waiting = False
        match response:
            case JoinGroupResponse():
                self._joined(response)
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                self._synced(response)
            case None:
                self.rejoin()
            case _:
                for error_code in errors_in(response):
                    self._react(error_code)

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            require(self.asks_for_id and self.instance_id is None, f"{self.name} need not request a member id first")
            self.member_id = response.member_id
        elif response.error_code is ErrorCode.NONE:
            members = tuple(member.member_id for member in response.members)
            is_leader = response.leader == response.member_id
            require(
                bool(members) == is_leader and (not members or response.member_id in members),
                "{} received other members than expected: {!r}",
                *(self.name, response),
            )
            require(
                response.protocol_name in self.protocols
                and response.protocol_type == self.protocol_type
                and (self.skips_assignment or not response.skip_assignment),
                "{} has joined with {!r}",
                *(self.name, response),
            )
            self.member_id, self.generation_id = response.member_id, response.generation_id
            self.members = () if response.skip_assignment else members
            self.phase = "syncing"
        else:
            self._react(response.error_code)

    def _synced(self, response: SyncGroupResponse) -> None:
        generation_id, self.owned = decode_share(response.assignment)
        require(
            generation_id in (None, self.generation_id),
            "{} of generation {} got an assignment of generation {}",
            *(self.name, self.generation_id, generation_id),
        )
        require(response.protocol_name in self.protocols, "{} has synced with {!r}", self.name, response)
        self.phase = "stable"

    def _react(self, error_code: ErrorCode) -> None:
        if error_code in SAYS_NOTHING_OF_MEMBERSHIP:
            return
        if error_code in MUST_FORGET_ID:
            self.member_id, self.generation_id = "", -1
        if error_code is ErrorCode.FENCED_INSTANCE_ID:
            self.is_alive = False
        self.rejoin()

    def rejoin(self) -> None:
        self.phase, self.owned, self.members = "joining", None, ()


def encode_share(generation_id: int, partitions: Iterable[int], tag: str = "") -> bytes:
    """Return an assignment of partitions of ``orders``, with generation and tag as topics that do not exist."""
    marks = [TopicPartition(GENERATION_MARK, generation_id), *([TopicPartition(tag, 0)] if tag else [])]
    return encode_assignment(Assignment((*(TopicPartition(TOPIC, index) for index in partitions), *marks)))


def decode_share(assignment: bytes) -> tuple[int | None, frozenset[int]]:
    """Return generation and partitions of an assignment of ``orders``; the generation is None if no member made it."""
    if not assignment:
        return None, frozenset()
    shares = decode_assignment(assignment).partitions
    generation_id = next((number for topic, number in shares if topic == GENERATION_MARK), None)
    return generation_id, frozenset(index for topic, index in shares if topic == TOPIC)


def in_transaction(commit: OffsetCommit, producer_id: int, transactional_id: str) -> TxnOffsetCommit:
    membership = commit.generation_id, commit.member_id, commit.group_instance_id
    return TxnOffsetCommit(
        commit.group_id or "", commit.topics, producer_id, PRODUCER_EPOCH, transactional_id, *membership
    )


R = TypeVar("R", bound=Response)


class Sent:
    """Sent request with its response.

    Attributes:
        member_id: member id created for this request, otherwise that of the request.
        answers: the response, once there is one, or None if Kafka never responds.
    """

    def __init__(self, token: int, request: Request, consumer: Consumer | None) -> None:
        self.token = token
        self.request = request
        self.consumer = consumer
        self.member_id: str = getattr(request, "member_id", "")
        self.answers: list[Response | None] = []

    @property
    def is_waiting(self) -> bool:
        return not self.answers

    def answer(self, kind: type[R]) -> R:
        assert len(self.answers) == 1, f"{self.request} has the answers {self.answers}"
        (answer,) = self.answers
        assert isinstance(answer, kind), answer
        return answer

    @property
    def error(self) -> ErrorCode:
        """The only error code of the response; NONE without an error."""
        (response,) = self.answers
        assert response is not None, self
        (error_code,) = set(error_codes(response))
        return error_code

    def __repr__(self) -> str:
        return f"Sent({self.token}, {self.request!r}, {self.answers!r})"


@define(eq=False)
class Fleet:
    """Clients of a coordinator: delivers requests and responses."""

    _send: Callable[[Request, int], None]
    _receive: Callable[[], Iterable[Reply]]
    _on_answer: Callable[[Sent, Response | None], None]
    _last_token: int = 0
    _owners: dict[tuple[str, int, int], str] = field(factory=dict)
    consumers: list[Consumer] = field(factory=list)
    outstanding: dict[int, Sent] = field(factory=dict)

    def send(self, request: Request, consumer: Consumer | None = None) -> Sent:
        self._last_token += 1
        sent = self.outstanding[self._last_token] = Sent(self._last_token, request, consumer)
        if consumer is not None:
            consumer.is_waiting = True
        self._send(request, sent.token)
        return sent

    def deliver(self) -> None:
        for token, response in self._receive():
            is_awaited = token in self.outstanding
            require(is_awaited, "token {!r} has a response without a request: {!r}", token, response)
            sent = self.outstanding.pop(token)
            sent.answers.append(response)
            self._on_answer(sent, response)
            if sent.consumer is not None:
                sent.consumer.receive(response)
                if isinstance(sent.consumer, ClassicConsumer):
                    self._note_owned(sent.consumer)

    def lose_requests(self) -> None:
        """Drop all requests: the coordinator crashed, and unwritten generations may be used again."""
        for sent in self.outstanding.values():
            if sent.consumer is not None:
                sent.consumer.receive(None)
        self.outstanding.clear()
        self._owners.clear()

    def forget_group(self, group_id: str) -> None:
        self._owners = {key: owner for key, owner in self._owners.items() if key[0] != group_id}

    def living(self, group_id: str) -> list[Consumer]:
        return [consumer for consumer in self.consumers if consumer.is_alive and consumer.group_id == group_id]

    def successors(self, consumer: Consumer) -> list[Consumer]:
        """Return the consumers started later with the instance id of a static consumer."""
        later = self.consumers[self.consumers.index(consumer) + 1 :]
        return [c for c in later if (c.group_id, c.instance_id) == (consumer.group_id, consumer.instance_id)]

    def ready(self, *phases: str) -> list[Consumer]:
        return [
            consumer
            for consumer in self.consumers
            if consumer.is_alive and not consumer.is_waiting and (not phases or consumer.phase in phases)
        ]

    def _note_owned(self, consumer: ClassicConsumer) -> None:
        for index in consumer.owned or ():
            key = (consumer.group_id, consumer.generation_id, index)
            owner = self._owners.setdefault(key, consumer.identity)
            require(
                owner == consumer.identity,
                "in generation {} of group {!r} both {!r} and {!r} own {}-{}",
                *(consumer.generation_id, consumer.group_id, owner, consumer.identity, TOPIC, index),
            )
