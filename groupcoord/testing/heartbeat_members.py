"""Members of share groups (KIP-932) and of streams groups (KIP-1071) for tests: heartbeats are all that they send."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from attrs import define, evolve, field

from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.messages import (
    LEAVE_GROUP_MEMBER_EPOCH,
    OffsetToCommit,
    Request,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicToCommit,
    Topology,
)
from groupcoord.core.streams.records import Subtopology
from groupcoord.laws import require
from groupcoord.laws.modern_groups import check_holds_what_is_durable
from groupcoord.testing.consumers import REBALANCE_TIMEOUT_MS, TOPIC
from groupcoord.testing.modern_members import ModernMember

__all__ = ["ShareMember", "StreamsMember"]

SUBTOPOLOGY = "0"
READS_ORDERS = Topology(0, (Subtopology(SUBTOPOLOGY, (TOPIC,)),))
"""A topology that reads the topic ``orders``, and keeps nothing."""

Owned = Mapping[Any, tuple[int, ...]]


@define(eq=False)
class HeartbeatMember(ModernMember):
    """A member whose coordinator assigns, and that is told all of it.

    Attributes:
        owned: what it has: partitions by topic id, or active tasks by subtopology.
        told: what the coordinator knows it to have; None: it has to say everything.
    """

    owned: Owned = field(factory=dict, kw_only=True)
    told: Owned | None = field(default=None, kw_only=True)

    def check(self, coordinator: GroupCoordinator) -> None:
        """It was told no epoch that isn't durable."""
        check_holds_what_is_durable(coordinator, self.group_id, self.member_id, self.epoch, ())

    @abstractmethod
    def heartbeat(self) -> Request:
        """Return its next heartbeat."""

    def next_request(self, *, commits: bool = False) -> Request:
        """Return its next heartbeat, or a commit if it has anything."""
        if commits and self.epoch > 0 and self.owned:
            indexes = sorted({index for indexes in self.owned.values() for index in indexes})
            return self.commit_request((TopicToCommit(TOPIC, tuple(OffsetToCommit(index, 1) for index in indexes)),))
        return self.heartbeat()

    def leave_request(self) -> Request:
        """Return the request of an orderly departure."""
        request: Any = self.heartbeat()
        return evolve(request, member_epoch=LEAVE_GROUP_MEMBER_EPOCH)

    def follow(self, answer: Any) -> None:
        """Have what it is told, under its own id."""
        require(
            answer.member_epoch >= 1 and answer.member_id == self.member_id,
            "{} in epoch {} is told {!r}",
            *(self.name, self.epoch, answer),
        )
        self.told = self.owned
        given = _given_by(answer)
        if given is not None:
            self.owned = given

    def lose_answer(self) -> None:
        """It has to say everything."""
        self.told = None

    def rejoin(self) -> None:
        """Give up what it owns; its next request is a join."""
        self.phase, self.epoch, self.owned, self.told = "joining", 0, {}, None


@define(eq=False)
class ShareMember(HeartbeatMember):
    """A consumer of a share group, which reads the topic ``orders``."""

    def heartbeat(self) -> ShareGroupHeartbeat:
        """Return its next heartbeat, with its topics where it joins or has to say everything."""
        topics = None if self.told is not None else (TOPIC,)
        return ShareGroupHeartbeat(
            self.group_id, self.member_id, self.epoch, subscribed_topic_names=topics, client_id=self.name
        )


@define(eq=False)
class StreamsMember(HeartbeatMember):
    """A thread of an application of Kafka Streams, in a process of its own."""

    def heartbeat(self) -> StreamsGroupHeartbeat:
        """Return its next heartbeat; it names its tasks if they are others than last time, its topology as it joins."""
        tasks: tuple[TaskIds, ...] | None = None
        if self.epoch == 0:
            tasks = ()
        elif self.owned != self.told:
            tasks = tuple(TaskIds(name, partitions) for name, partitions in self.owned.items() if partitions)
        others = None if tasks is None else ()
        return StreamsGroupHeartbeat(
            *(self.group_id, self.member_id, self.epoch),
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if self.epoch == 0 else -1,
            topology=READS_ORDERS if self.epoch == 0 else None,
            active_tasks=tasks,
            standby_tasks=others,
            warmup_tasks=others,
            process_id=f"process-{self.name}" if self.epoch == 0 else None,
            client_id=self.name,
        )


def _given_by(response: ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse) -> Owned | None:
    """Return what a member is told to have; None: as before."""
    if isinstance(response, ShareGroupHeartbeatResponse):
        given = response.assignment
        return None if given is None else {topic_id: tuple(partitions) for topic_id, partitions in given}
    tasks = response.active_tasks
    return None if tasks is None else {name: tuple(partitions) for name, partitions in tasks}
