"""Members of groups with server-side assignment in tests: consumer groups (KIP-848), streams and share groups."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self
from uuid import UUID

from attrs import define, evolve, field

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.messages import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    GroupToFetch,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Request,
    Response,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicPartitions,
    TopicToCommit,
    Topology,
)
from groupcoord.errors import ErrorCode
from groupcoord.laws import errors_in, require
from groupcoord.laws.modern_groups import check_member_sees_what_is_durable
from groupcoord.testing.machine.consumers import REBALANCE_TIMEOUT_MS, TOPIC, ClassicConsumer, Consumer

SUBTOPOLOGY_ID = "0"
TOPICS = (TOPIC, "audit")
MUST_JOIN_AGAIN = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}
SAYS_NOTHING_OF_MEMBERSHIP = {
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
HEARTBEAT_RESPONSES = (ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse, StreamsGroupHeartbeatResponse)

Partitions = Mapping[UUID, tuple[int, ...]]


@define(eq=False)
class AssignedMember(Consumer):
    """Member that gets its assignment from the coordinator by heartbeats.

    Attributes:
        brings_id: it generates its member id (KIP-1082).
        epoch: its member epoch; 0 to join.
    """

    brings_id: bool = field(default=True, kw_only=True)
    epoch: int = field(default=0, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.brings_id and not self.member_id:
            self.member_id = f"{self.name}-own-id"

    @property
    def generation_id(self) -> int:
        return self.epoch

    def commit_request(self, topics: tuple[TopicToCommit, ...]) -> OffsetCommit:
        return OffsetCommit(self.group_id, topics, self.epoch, self.member_id, self.instance_id)

    def restarted(self, **changes: Any) -> Self:
        name = f"{self.name}+"
        member_id = f"{name}-own-id" if self.brings_id else ""
        restarted = evolve(self, name=name, member_id=member_id, is_alive=True, is_waiting=False, **changes)
        restarted.rejoin()
        return restarted

    def receive(self, response: Response | None) -> None:
        self.is_waiting = False
        errors = set() if response is None else set(errors_in(response))
        if isinstance(response, HEARTBEAT_RESPONSES) and not errors:
            if response.member_epoch >= 0:
                self.follow(response)
        elif errors & MUST_JOIN_AGAIN:
            self.rejoin()
        elif ErrorCode.FENCED_INSTANCE_ID in errors:
            self.is_alive = False
        elif response is None or errors - SAYS_NOTHING_OF_MEMBERSHIP:
            self.lose_answer()

    @abstractmethod
    def follow(self, response: Any) -> None: ...

    def held(self) -> Iterable[tuple[UUID | str, int]]:
        """Return what no other member may have: its partitions, or active tasks."""
        return ()

    def check(self, coordinator: GroupCoordinator) -> None:
        check_member_sees_what_is_durable(coordinator, self.group_id, self.member_id, self.epoch, self.held())

    def lose_answer(self) -> None:
        """Reset what the coordinator is known to have, so that the next heartbeat has all fields."""


@define(eq=False)
class Kip848Consumer(AssignedMember):
    """Consumer of a consumer group (KIP-848), which sends changed fields only.

    Attributes:
        gives_back: most partitions revoked per heartbeat; None for all at once.
        assigned: assigned partitions; it still has to revoke the other owned ones.
        known: owned partitions that the coordinator knows; None requires a full heartbeat.
        subscribed: topics and expression sent last.
    """

    topics: tuple[str, ...] = (TOPIC,)
    regex: str = ""
    rack_id: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS
    gives_back: int | None = None
    owned: Partitions = field(factory=dict, kw_only=True)
    assigned: Partitions = field(factory=dict, kw_only=True)
    known: Partitions | None = field(default=None, kw_only=True)
    subscribed: tuple[tuple[str, ...], str] | None = field(default=None, kw_only=True)
    last_offset: int = field(default=0, kw_only=True)

    # ------------------------------------------------------------ requests

    def next_request(self) -> Request:
        self._give_back()
        if self.epoch == 0:
            return self.join_request()
        if self.known is None or self.subscribed != (self.topics, self.regex):
            return self.full_heartbeat()
        return self.heartbeat()

    def join_request(self) -> ConsumerGroupHeartbeat:
        return evolve(self.full_heartbeat(), member_epoch=0, topic_partitions=())

    def full_heartbeat(self) -> ConsumerGroupHeartbeat:
        self.subscribed = self.topics, self.regex
        return evolve(
            self.heartbeat(),
            rack_id=self.rack_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=self.regex,
            server_assignor=self.assignor,
            topic_partitions=listed(self.owned),
        )

    def heartbeat(self, epoch: int | None = None) -> ConsumerGroupHeartbeat:
        return ConsumerGroupHeartbeat(
            self.group_id,
            self.member_id,
            self.epoch if epoch is None else epoch,
            instance_id=self.instance_id,
            topic_partitions=None if self.owned == self.known else listed(self.owned),
            client_id=self.name,
            requires_member_id=self.brings_id,
        )

    def leave_request(self, *, for_good: bool = True) -> ConsumerGroupHeartbeat:
        epoch = LEAVE_GROUP_MEMBER_EPOCH if for_good else LEAVE_GROUP_STATIC_MEMBER_EPOCH
        return ConsumerGroupHeartbeat(self.group_id, self.member_id, epoch, instance_id=self.instance_id)

    def offsets(self) -> tuple[TopicToCommit, ...]:
        self.last_offset += bool(self.owned)
        return tuple(
            TopicToCommit(None, tuple(OffsetToCommit(index, self.last_offset) for index in indexes), topic_id)
            for topic_id, indexes in self.owned.items()
            if indexes
        )

    def fetch_request(self, epoch: int | None = None) -> OffsetFetch:
        wanted = GroupToFetch(self.group_id, None, self.member_id, self.epoch if epoch is None else epoch)
        return OffsetFetch((wanted,), uses_topic_ids=True)

    def restarted(self, **changes: Any) -> Self:
        return super().restarted(subscribed=None, **changes)

    # ------------------------------------------------------------ responses

    def receive(self, response: Response | None) -> None:
        if response is not None and ErrorCode.INVALID_REGULAR_EXPRESSION in errors_in(response):
            self.regex = ""
        super().receive(response)

    def lose_answer(self) -> None:
        self.known = None

    def follow(self, response: ConsumerGroupHeartbeatResponse) -> None:
        is_in = self.epoch > 0
        require(
            response.member_epoch >= max(self.epoch, 1) and bool(response.member_id),
            "{} in epoch {} received {!r}",
            *(self.name, self.epoch, response),
        )
        require(
            (not self.member_id or response.member_id == self.member_id) and (is_in or response.assignment is not None),
            "{} sent a full heartbeat and received {!r}",
            *(self.name, response),
        )
        self.member_id, self.epoch, self.phase = response.member_id or "", response.member_epoch, "stable"
        self.known = self.owned
        if response.assignment is not None:
            self.assigned = {topic.topic_id: tuple(topic.partitions) for topic in response.assignment}
            self._take_over()

    def _take_over(self) -> None:
        owned: dict[UUID, tuple[int, ...]] = dict(self.assigned)
        for topic_id, indexes in self.owned.items() if self.gives_back is not None else ():
            kept = owned.get(topic_id, ())
            owned[topic_id] = (*kept, *(index for index in indexes if index not in kept))
        self.owned = owned

    def _give_back(self) -> None:
        left = sum(map(len, self.owned.values())) if self.gives_back is None else self.gives_back
        kept: dict[UUID, tuple[int, ...]] = {}
        for topic_id, indexes in self.owned.items():
            surplus = [index for index in indexes if index not in self.assigned.get(topic_id, ())]
            gone, left = surplus[:left], left - len(surplus[:left])
            kept[topic_id] = tuple(index for index in indexes if index not in gone)
        self.owned = self.owned if kept == self.owned else {t: indexes for t, indexes in kept.items() if indexes}

    def held(self) -> Iterable[tuple[UUID | str, int]]:
        return [(topic_id, index) for topic_id, indexes in self.owned.items() for index in indexes]

    def rejoin(self) -> None:
        self.phase, self.epoch, self.owned, self.assigned, self.known = "joining", 0, {}, {}, None

    def behave(self) -> None:
        self.gives_back = None


def listed(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(topic_id, indexes) for topic_id, indexes in partitions.items() if indexes)


@define(eq=False)
class ModernMember(AssignedMember):
    """Member of a streams or share group."""

    topics: tuple[str, ...] = field(default=TOPICS, kw_only=True)

    def follow(self, response: Any) -> None:
        goes_back = response.member_epoch < self.epoch
        require(not goes_back, "{} in epoch {} received {!r}", self.name, self.epoch, response)
        self.epoch, self.phase = response.member_epoch, "stable"
        self.take(response)

    @abstractmethod
    def take(self, answer: Any) -> None: ...


@define(eq=False)
class StreamsMember(ModernMember):
    """Thread of a Kafka Streams application.

    Attributes:
        lags: number of heartbeats before it acknowledges an assignment.
        owned: partitions of its active tasks, including those still to be revoked.
        known: assigned active, standby and warm-up tasks.
    """

    process_id: str = "p1"
    lags: int = 0
    owned: frozenset[int] = field(default=frozenset(), kw_only=True)
    known: tuple[frozenset[int], ...] = field(default=(frozenset(),) * 3, kw_only=True)
    news: int | None = field(default=0, kw_only=True)

    def next_request(self) -> Request:
        request = StreamsGroupHeartbeat(
            self.group_id, self.member_id, self.epoch, instance_id=self.instance_id, client_id=self.name
        )
        if self.epoch == 0:
            request.topology = Topology(0, (Subtopology(SUBTOPOLOGY_ID, self.topics),))
            request.rebalance_timeout_ms, request.process_id = REBALANCE_TIMEOUT_MS, self.process_id
            request.active_tasks = request.standby_tasks = request.warmup_tasks = ()
        elif self.news == 0:
            self.owned, self.news = self.known[0], None
            request.active_tasks, request.standby_tasks, request.warmup_tasks = map(_task_ids, self.known)
        elif self.news is not None:
            self.news -= 1
        return request

    def offsets(self) -> tuple[TopicToCommit, ...]:
        offsets = tuple(OffsetToCommit(index, 1) for index in sorted(self.owned))
        return (TopicToCommit(TOPIC, offsets),) if offsets else ()

    def leave_request(self) -> StreamsGroupHeartbeat:
        return StreamsGroupHeartbeat(
            self.group_id, self.member_id, LEAVE_GROUP_MEMBER_EPOCH, instance_id=self.instance_id
        )

    def take(self, answer: StreamsGroupHeartbeatResponse) -> None:
        if answer.active_tasks is not None:
            kinds = answer.active_tasks, answer.standby_tasks or (), answer.warmup_tasks or ()
            self.known = tuple(frozenset(n for each in kind for n in each.partitions) for kind in kinds)
            self.owned |= self.known[0]
            self.news = self.lags

    def lose_answer(self) -> None:
        self.news = 0

    def rejoin(self) -> None:
        self.phase, self.epoch, self.news = "joining", 0, None
        self.owned, self.known = frozenset(), (frozenset(),) * 3

    def behave(self) -> None:
        self.lags = 0
        self.news = None if self.news is None else 0

    def held(self) -> Iterable[tuple[UUID | str, int]]:
        return [(SUBTOPOLOGY_ID, number) for number in self.owned]


def _task_ids(numbers: Iterable[int]) -> tuple[TaskIds, ...]:
    partitions = tuple(sorted(numbers))
    return (TaskIds(SUBTOPOLOGY_ID, partitions),) if partitions else ()


@define(eq=False)
class ShareMember(ModernMember):
    """Member of a share group."""

    partitions: Mapping[UUID, tuple[int, ...]] = field(factory=dict, kw_only=True)
    subscribed: tuple[str, ...] | None = field(default=None, kw_only=True)
    owned: None = field(default=None, init=False)

    def next_request(self) -> Request:
        news = None if self.subscribed == self.topics and self.epoch else self.topics
        self.subscribed = self.topics
        return ShareGroupHeartbeat(
            self.group_id, self.member_id, self.epoch, subscribed_topic_names=news, client_id=self.name
        )

    def commit_request(self, topics: tuple[TopicToCommit, ...]) -> OffsetCommit:
        return OffsetCommit(self.group_id, topics, self.epoch, self.member_id)

    def leave_request(self) -> ShareGroupHeartbeat:
        return ShareGroupHeartbeat(self.group_id, self.member_id, LEAVE_GROUP_MEMBER_EPOCH)

    def take(self, answer: ShareGroupHeartbeatResponse) -> None:
        if answer.assignment is not None:
            self.partitions = {topic.topic_id: tuple(topic.partitions) for topic in answer.assignment}

    def lose_answer(self) -> None:
        self.subscribed = None

    def rejoin(self) -> None:
        self.phase, self.epoch, self.partitions, self.subscribed = "joining", 0, {}, None


CONSUMERS: dict[str, Callable[[str, str, str | None], Consumer]] = {
    "classic": ClassicConsumer,
    "consumer": Kip848Consumer,
    "share": ShareMember,
    "streams": StreamsMember,
}
"""Consumers by ``group.protocol``, created from name, group and instance id."""
