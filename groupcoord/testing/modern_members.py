"""Members of streams groups (KIP-1071) and of share groups (KIP-932) for tests: heartbeats, and what they hold."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Self
from uuid import UUID

from attrs import define, evolve, field

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.messages import (
    LEAVE_GROUP_MEMBER_EPOCH,
    OffsetCommit,
    OffsetToCommit,
    Request,
    Response,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicToCommit,
    Topology,
)
from groupcoord.errors import ErrorCode
from groupcoord.laws import errors_in, require
from groupcoord.laws.modern_groups import check_holds_what_is_durable
from groupcoord.testing.consumers import REBALANCE_TIMEOUT_MS, TOPIC, Consumer
from groupcoord.testing.kip848_consumers import MUST_JOIN_AGAIN, SAYS_NOTHING_OF_MEMBERSHIP

SUBTOPOLOGY_ID = "0"
TOPICS = (TOPIC, "audit")


@define(eq=False)
class ModernMember(Consumer):
    """A member whose coordinator says what it has: it sends heartbeats under an id of its own.

    Attributes:
        topics: what it reads.
        epoch: the one last told; 0: it (re)joins.
    """

    topics: tuple[str, ...] = field(default=TOPICS, kw_only=True)
    epoch: int = field(default=0, kw_only=True)

    def __attrs_post_init__(self) -> None:
        self.member_id = self.member_id or f"{self.name}-own-id"

    @property
    def generation_id(self) -> int:
        """Its epoch, which stands in commits where members of classic groups have their generation."""
        return self.epoch

    def commit_request(self, topics: tuple[TopicToCommit, ...]) -> OffsetCommit:
        """Return a commit in this member's name and epoch."""
        return OffsetCommit(self.group_id, topics, self.epoch, self.member_id, self.instance_id)

    def receive(self, response: Response | None) -> None:
        """Take the answer of the last request; None: there will be none.

        Raises:
            LawBrokenError: its epoch goes back.
        """
        self.is_waiting = False
        answer: Any = response
        if isinstance(answer, StreamsGroupHeartbeatResponse | ShareGroupHeartbeatResponse) and not errors_in(answer):
            if answer.member_epoch >= 0:
                goes_back = answer.member_epoch < self.epoch
                require(not goes_back, "{} in epoch {} is told {!r}", self.name, self.epoch, answer)
                self.epoch, self.phase = answer.member_epoch, "stable"
                self.follow(answer)
            return
        errors = set() if answer is None else set(errors_in(answer))
        if errors & MUST_JOIN_AGAIN:
            self.rejoin()
        elif ErrorCode.FENCED_INSTANCE_ID in errors:
            self.is_alive = False
        elif answer is None or errors - SAYS_NOTHING_OF_MEMBERSHIP:
            self.lose_answer()

    @abstractmethod
    def follow(self, answer: Any) -> None:
        """Do as the coordinator says."""

    def lose_answer(self) -> None:
        """An answer was lost: nobody knows what the coordinator has heard."""

    def restarted(self, **changes: Any) -> Self:
        """Return the static member that takes this one's place, under another member id."""
        name = f"{self.name}+"
        restarted = evolve(self, name=name, member_id=f"{name}-own-id", is_alive=True, is_waiting=False, **changes)
        restarted.rejoin()
        return restarted

    def behave(self) -> None:
        """It does what it is told anyway."""


@define(eq=False)
class StreamsMember(ModernMember):
    """A thread of an application of Kafka Streams.

    Attributes:
        process_id: of the process that it is a thread of.
        lags: so many heartbeats later it says that it has done as it was told.
        owned: the partitions of its active tasks, those that it still has to give up included.
        told: what it was told to have: active, standby and warm-up tasks.
    """

    process_id: str = "p1"
    lags: int = 0
    owned: frozenset[int] = field(default=frozenset(), kw_only=True)
    told: tuple[frozenset[int], ...] = field(default=(frozenset(),) * 3, kw_only=True)
    news: int | None = field(default=0, kw_only=True)

    def next_request(self, *, commits: bool = False) -> Request:
        """Return its next heartbeat, with its tasks if it has to say them; or a commit."""
        if commits and self.epoch > 0 and self.owned:
            return self.commit_request(self.offsets())
        request = StreamsGroupHeartbeat(
            self.group_id, self.member_id, self.epoch, instance_id=self.instance_id, client_id=self.name
        )
        if self.epoch == 0:
            request.topology = Topology(0, (Subtopology(SUBTOPOLOGY_ID, self.topics),))
            request.rebalance_timeout_ms, request.process_id = REBALANCE_TIMEOUT_MS, self.process_id
            request.active_tasks = request.standby_tasks = request.warmup_tasks = ()
        elif self.news == 0:
            self.owned, self.news = self.told[0], None
            request.active_tasks, request.standby_tasks, request.warmup_tasks = map(_task_ids, self.told)
        elif self.news is not None:
            self.news -= 1
        return request

    def offsets(self) -> tuple[TopicToCommit, ...]:
        """Return offsets of ``orders`` for its tasks."""
        return (TopicToCommit(TOPIC, tuple(OffsetToCommit(index, 1) for index in sorted(self.owned))),)

    def leave_request(self) -> StreamsGroupHeartbeat:
        """Return the request of an orderly departure."""
        return StreamsGroupHeartbeat(
            self.group_id, self.member_id, LEAVE_GROUP_MEMBER_EPOCH, instance_id=self.instance_id
        )

    def follow(self, answer: StreamsGroupHeartbeatResponse) -> None:
        """Begin what is new to it at once, and say later that it has ended what it is not to have any more."""
        if answer.active_tasks is not None:
            kinds = answer.active_tasks, answer.standby_tasks or (), answer.warmup_tasks or ()
            self.told = tuple(frozenset(n for each in kind for n in each.partitions) for kind in kinds)
            self.owned |= self.told[0]
            self.news = self.lags

    def lose_answer(self) -> None:
        """What it has said may not have arrived."""
        self.news = 0

    def rejoin(self) -> None:
        """Give up what it has; its next request is a join."""
        self.phase, self.epoch, self.news = "joining", 0, None
        self.owned, self.told = frozenset(), (frozenset(),) * 3

    def behave(self) -> None:
        """From now on it does at once what it is told."""
        self.lags = 0
        self.news = None if self.news is None else 0

    def check(self, coordinator: GroupCoordinator) -> None:
        """Nobody else can be given a task that it has, and it was told no epoch that isn't durable."""
        held = [(SUBTOPOLOGY_ID, number) for number in self.owned]
        check_holds_what_is_durable(coordinator, self.group_id, self.member_id, self.epoch, held)


def _task_ids(numbers: Iterable[int]) -> tuple[TaskIds, ...]:
    partitions = tuple(sorted(numbers))
    return (TaskIds(SUBTOPOLOGY_ID, partitions),) if partitions else ()


@define(eq=False)
class ShareMember(ModernMember):
    """A member of a share group.

    Attributes:
        partitions: which partitions it may read, by topic id.
    """

    partitions: Mapping[UUID, tuple[int, ...]] = field(factory=dict, kw_only=True)
    asked: tuple[str, ...] | None = field(default=None, kw_only=True)
    owned: None = field(default=None, init=False)

    def next_request(self, *, commits: bool = False) -> Request:
        """Return its next heartbeat; it has nothing to commit."""
        news = None if self.asked == self.topics and self.epoch else self.topics
        self.asked = self.topics
        return ShareGroupHeartbeat(
            self.group_id, self.member_id, self.epoch, subscribed_topic_names=news, client_id=self.name
        )

    def commit_request(self, topics: tuple[TopicToCommit, ...]) -> OffsetCommit:
        """Return a commit in this member's name, which is refused."""
        return OffsetCommit(self.group_id, topics, self.epoch, self.member_id)

    def leave_request(self) -> ShareGroupHeartbeat:
        """Return the request of an orderly departure."""
        return ShareGroupHeartbeat(self.group_id, self.member_id, LEAVE_GROUP_MEMBER_EPOCH)

    def follow(self, answer: ShareGroupHeartbeatResponse) -> None:
        """Have what it is told."""
        if answer.assignment is not None:
            self.partitions = {topic.topic_id: tuple(topic.partitions) for topic in answer.assignment}

    def lose_answer(self) -> None:
        """What it has said may not have arrived."""
        self.asked = None

    def rejoin(self) -> None:
        """Give up what it has; its next request is a join."""
        self.phase, self.epoch, self.partitions, self.asked = "joining", 0, {}, None

    def check(self, coordinator: GroupCoordinator) -> None:
        """It was told no epoch that isn't durable."""
        check_holds_what_is_durable(coordinator, self.group_id, self.member_id, self.epoch, ())
