"""Clients of a coordinator in tests: consumers of the classic protocol, and requests that wait for a response."""

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
    Request,
    Response,
    SyncAssignment,
    SyncGroup,
    SyncGroupResponse,
    TopicToCommit,
)
from groupcoord.core.replies import Reply
from groupcoord.errors import ErrorCode
from groupcoord.laws import error_codes, errors_in, require

TOPIC = "orders"
PARTITIONS = 4
GENERATION_MARK = "generation"
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 20_000
MUST_FORGET_ID = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}
SAYS_NOTHING_OF_MEMBERSHIP = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""A commit can be refused with these, and the consumer goes on as it is."""


def subscription(*topics: str) -> bytes:
    """Return the metadata of a consumer that subscribes to topics."""
    return encode_subscription(Subscription(topics))


@define(eq=False)
class Consumer(ABC):
    """A consumer: :meth:`next_request` says what it would send now, :meth:`receive` takes the answer.

    Attributes:
        name: its client id.
        group_id: its group.
        instance_id: of a static member (KIP-345); None for a dynamic one.
        member_id: under which the coordinator knows it; empty before it does.
        phase: where it stands.
        is_waiting: it has a request under way, and sends nothing else.
        is_alive: it has neither died, left, nor been fenced by another one in its place.
    """

    name: str
    group_id: str
    instance_id: str | None = None
    member_id: str = field(default="", kw_only=True)
    phase: str = field(default="joining", kw_only=True)
    is_waiting: bool = field(default=False, kw_only=True)
    is_alive: bool = field(default=True, kw_only=True)

    @abstractmethod
    def next_request(self, *, commits: bool = False) -> Request:
        """Return the request that moves this consumer on; where it could send a heartbeat, it can commit instead."""

    @abstractmethod
    def commit_request(self, topics: tuple[TopicToCommit, ...]) -> OffsetCommit:
        """Return a commit in this consumer's name."""

    @abstractmethod
    def leave_request(self) -> Request:
        """Return the request of an orderly departure."""

    @abstractmethod
    def restarted(self, **changes: Any) -> Self:
        """Return the static consumer that takes this one's place; ``changes``: what is new about it."""

    @abstractmethod
    def receive(self, response: Response | None) -> None:
        """Take the answer of the last request; None: there will be none.

        Raises:
            LawBrokenError: it can't be the answer.
        """

    @abstractmethod
    def rejoin(self) -> None:
        """Give up what it owns; its next request is a join."""

    @abstractmethod
    def check(self, coordinator: GroupCoordinator) -> None:
        """Hold what it was told against what is durable.

        Raises:
            LawBrokenError: it was told something else, or others can be given what it has.
        """

    @abstractmethod
    def behave(self) -> None:
        """From now on it does what its protocol asks for, as soon as it can."""


@define(eq=False)
class ClassicConsumer(Consumer):
    """A consumer of the classic protocol, whose group agrees among itself: it joins, syncs and sends heartbeats.

    It deals out the four partitions of the topic ``orders`` in turn when it leads. Its group may become a consumer
    group, or be one.

    Attributes:
        protocols: the assignors that it knows, the best first.
        protocol_type: ``consumer``, or what else its group is of.
        metadata: what it sends with each protocol.
        rebalance_timeout_ms: how long others wait for it.
        asks_for_id: it is handed out a member id first (KIP-394).
        skips_assignment: as a returning static leader it can be told to skip assigning (KIP-814).
        tag: stands in the shares that it deals out, so that they can be told apart.
        owned: the partitions that it believes to own, in generation ``generation_id``; None before an assignment.
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
        """Who owns what is assigned to this consumer: a restarted static member goes on with its share."""
        return self.instance_id or self.member_id

    # ------------------------------------------------------------ requests

    def next_request(self, *, commits: bool = False) -> Request:
        """Return the request that moves this consumer on; where it could send a heartbeat, it can commit instead."""
        if self.phase == "joining":
            return self.join_request()
        if self.phase == "syncing":
            return self.sync_request()
        if commits and self.owned:
            self.last_offset += 1
            offsets = tuple(OffsetToCommit(index, self.last_offset) for index in sorted(self.owned))
            return self.commit_request((TopicToCommit(TOPIC, offsets),))
        return self.heartbeat()

    def join_request(self) -> JoinGroup:
        """Return the request for a place in the next generation."""
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
        """Return the request for its share; a leader's brings the shares of all, each of which names its generation."""
        count = len(self.members)
        assignments = tuple(
            SyncAssignment(member_id, encode_share(self.generation_id, range(place, PARTITIONS, count), self.tag))
            for place, member_id in enumerate(self.members)
        )
        return SyncGroup(self.group_id, self.generation_id, self.member_id, self.instance_id, assignments=assignments)

    def heartbeat(self) -> Heartbeat:
        """Return a heartbeat under the ids that this consumer has."""
        return Heartbeat(self.group_id, self.generation_id, self.member_id, self.instance_id)

    def commit_request(self, topics: tuple[TopicToCommit, ...]) -> OffsetCommit:
        """Return a commit in this consumer's name."""
        return OffsetCommit(self.group_id, topics, self.generation_id, self.member_id, self.instance_id)

    def leave_request(self) -> LeaveGroup:
        """Return the request of an orderly departure."""
        return LeaveGroup(self.group_id, (LeavingMember(self.member_id, self.instance_id, "done"),))

    def check(self, coordinator: GroupCoordinator) -> None:
        """Where members assign partitions the coordinator knows nothing of these."""

    def behave(self) -> None:
        """It never did anything else."""

    def restarted(self, **changes: Any) -> Self:
        """Return the static consumer that takes this one's place, without its member id."""
        restarted = evolve(self, name=f"{self.name}+", member_id="", generation_id=-1, is_alive=True, **changes)
        restarted.rejoin()
        restarted.is_waiting = False
        return restarted

    # ------------------------------------------------------------ answers

    def receive(self, response: Response | None) -> None:
        """Take the answer of the last request; None: there will be none, and the consumer joins anew.

        Raises:
            LawBrokenError: it can't be the answer, such as an assignment of another generation.
        """
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
            require(self.asks_for_id and self.instance_id is None, f"{self.name} need not ask for a member id first")
            self.member_id = response.member_id
        elif response.error_code is ErrorCode.NONE:
            members = tuple(member.member_id for member in response.members)
            is_leader = response.leader == response.member_id
            require(
                bool(members) == is_leader and (not members or response.member_id in members),
                "{} is told of members that don't fit: {!r}",
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
        """Give up what it owns; its next request is a join."""
        self.phase, self.owned, self.members = "joining", None, ()


def encode_share(generation_id: int, partitions: Iterable[int], tag: str = "") -> bytes:
    """Return partitions of ``orders`` as consumers tell each other, with the generation and a tag.

    These stand in the place of topics that don't exist, so that a coordinator can read the share as well.
    """
    marks = [TopicPartition(GENERATION_MARK, generation_id), *([TopicPartition(tag, 0)] if tag else [])]
    return encode_assignment(Assignment((*(TopicPartition(TOPIC, index) for index in partitions), *marks)))


def decode_share(assignment: bytes) -> tuple[int | None, frozenset[int]]:
    """Return (generation, partitions of ``orders``) of an assignment; one that no member made has no generation."""
    if not assignment:
        return None, frozenset()
    shares = decode_assignment(assignment).partitions
    generation_id = next((number for topic, number in shares if topic == GENERATION_MARK), None)
    return generation_id, frozenset(index for topic, index in shares if topic == TOPIC)


R = TypeVar("R", bound=Response)


class Sent:
    """A request that was sent, and what became of it.

    Attributes:
        token: what its answer comes with.
        request: what was asked.
        consumer: whose it is; None: nobody's in particular.
        member_id: the member id that was made for this request, if one was; else the request's own.
        answers: one, once there is one; None in it: the token came back without an answer, as where Kafka never gives
            one.
    """

    def __init__(self, token: int, request: Request, consumer: Consumer | None) -> None:
        self.token = token
        self.request = request
        self.consumer = consumer
        self.member_id: str = getattr(request, "member_id", "")
        self.answers: list[Response | None] = []

    @property
    def is_waiting(self) -> bool:
        """True as long as there is no answer."""
        return not self.answers

    @property
    def is_dropped(self) -> bool:
        """True if the token came back without an answer."""
        return self.answers == [None]

    def answer(self, kind: type[R]) -> R:
        """Return the answer, which must be there and of this kind."""
        assert len(self.answers) == 1, f"{self.request} has the answers {self.answers}"
        (answer,) = self.answers
        assert isinstance(answer, kind), answer
        return answer

    @property
    def joined(self) -> JoinGroupResponse:
        """The answer of a join."""
        return self.answer(JoinGroupResponse)

    @property
    def synced(self) -> SyncGroupResponse:
        """The answer of a sync."""
        return self.answer(SyncGroupResponse)

    @property
    def error(self) -> ErrorCode:
        """The only error code of the answer, NONE if there is no error."""
        (response,) = self.answers
        assert response is not None, self
        (error_code,) = set(error_codes(response))
        return error_code

    def __repr__(self) -> str:
        return f"Sent({self.token}, {self.request!r}, {self.answers!r})"


class Fleet:
    """Consumers and other clients: their requests go to a coordinator, its answers to who asked.

    Args:
        send: takes a request and a token.
        receive: returns the answers since the last call.
        on_answer: called with each answer before it is given to who asked.

    Attributes:
        consumers: all that ever were.
        outstanding: token → the request that has no answer yet.
    """

    def __init__(
        self,
        send: Callable[[Request, int], None],
        receive: Callable[[], Iterable[Reply]],
        on_answer: Callable[[Sent, Response | None], None],
    ) -> None:
        self._send = send
        self._receive = receive
        self._on_answer = on_answer
        self._last_token = 0
        self._owners: dict[tuple[str, int, int], str] = {}
        self.consumers: list[Consumer] = []
        self.outstanding: dict[int, Sent] = {}

    def send(self, request: Request, consumer: Consumer | None = None) -> Sent:
        """Send a request; the answer will be the consumer's, or nobody's in particular."""
        self._last_token += 1
        sent = self.outstanding[self._last_token] = Sent(self._last_token, request, consumer)
        if consumer is not None:
            consumer.is_waiting = True
        self._send(request, sent.token)
        return sent

    def deliver(self) -> None:
        """Give every answer to who asked.

        Raises:
            LawBrokenError: nobody waits for an answer, or it breaks a law.
        """
        for token, response in self._receive():
            is_awaited = token in self.outstanding
            require(is_awaited, "token {!r} is answered, but nobody waits for it: {!r}", token, response)
            sent = self.outstanding.pop(token)
            sent.answers.append(response)
            self._on_answer(sent, response)
            if sent.consumer is not None:
                sent.consumer.receive(response)
                if isinstance(sent.consumer, ClassicConsumer):
                    self._note_owned(sent.consumer)

    def lose_requests(self) -> None:
        """The coordinator has died: nobody is answered any more, and generations that it had not written count anew."""
        for sent in self.outstanding.values():
            if sent.consumer is not None:
                sent.consumer.receive(None)
        self.outstanding.clear()
        self._owners.clear()

    def forget_group(self, group_id: str) -> None:
        """A group is gone, or its last generation with it: generations of the next one count anew."""
        self._owners = {key: owner for key, owner in self._owners.items() if key[0] != group_id}

    def living(self, group_id: str) -> list[Consumer]:
        """Return the consumers of a group that are alive."""
        return [consumer for consumer in self.consumers if consumer.is_alive and consumer.group_id == group_id]

    def successors(self, consumer: Consumer) -> list[Consumer]:
        """Return the consumers that were started later under a static consumer's instance id, alive or not."""
        later = self.consumers[self.consumers.index(consumer) + 1 :]
        return [c for c in later if (c.group_id, c.instance_id) == (consumer.group_id, consumer.instance_id)]

    def ready(self, *phases: str) -> list[Consumer]:
        """Return the live consumers that wait for nothing, in these phases (any, if none are named)."""
        return [
            consumer
            for consumer in self.consumers
            if consumer.is_alive and not consumer.is_waiting and (not phases or consumer.phase in phases)
        ]

    def _note_owned(self, consumer: ClassicConsumer) -> None:
        """Within one generation, as members see it, a partition has one owner."""
        for index in consumer.owned or ():
            key = (consumer.group_id, consumer.generation_id, index)
            owner = self._owners.setdefault(key, consumer.identity)
            require(
                owner == consumer.identity,
                "in generation {} of group {!r} both {!r} and {!r} own {}-{}",
                *(consumer.generation_id, consumer.group_id, owner, consumer.identity, TOPIC, index),
            )
