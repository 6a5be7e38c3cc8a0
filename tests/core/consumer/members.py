"""Requests of members of a consumer group, sent through a driver."""

from __future__ import annotations

from attrs import evolve

from groupcoord import GroupCoordinator
from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.laws.modern_groups import consumer_group_of
from groupcoord.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    TopicPartitions,
)
from groupcoord.testing.machine.consumers import Sent
from groupcoord.testing.machine.modern_members import Kip848Consumer
from tests.core.driver import Driver

LONG_MS = 3_600_000
"""``offsets.commit.timeout.ms`` where nothing is to be overdue."""


class Members:
    """The members of one consumer group: what they send, and how the group looks."""

    def __init__(self, driver: Driver, group_id: str = "group") -> None:
        self.driver = driver
        self.group_id = group_id

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.driver.coordinator

    @property
    def inside(self) -> ConsumerGroup | None:
        """The consumer group as the coordinator has it; None if it has none."""
        return consumer_group_of(self.coordinator, self.group_id)

    @property
    def described(self) -> DescribedConsumerGroup:
        """The group as administrators see it."""
        return self.coordinator.call(ConsumerGroupDescribe((self.group_id,))).groups[0]

    @property
    def ids(self) -> list[str]:
        """The ids of the members that administrators see."""
        return [member.member_id for member in self.described.members]

    def consumer(self, member_id: str, epoch: int = 0, **what: object) -> Kip848Consumer:
        """A consumer with this id and epoch."""
        return Kip848Consumer("", self.group_id, member_id=member_id, epoch=epoch, **what)

    def join(
        self, member_id: str, *names: str, instance: str | None = None, rebalance_ms: int = 60_000, regex: str = ""
    ) -> Sent:
        """Send the first heartbeat of a member, subscribed to these topics (``orders`` by default)."""
        topics = names or (() if regex else ("orders",))
        joiner = self.consumer(
            member_id, instance_id=instance, rebalance_timeout_ms=rebalance_ms, topics=topics, regex=regex
        )
        return self.driver.submit(joiner.join_request())

    def heartbeat(
        self, member_id: str, epoch: int, *, owned: tuple[TopicPartitions, ...] | None = None, names: tuple = ()
    ) -> Sent:
        """Send a heartbeat; fields without a value are unchanged."""
        request = self.consumer(member_id, epoch).heartbeat()
        return self.driver.submit(evolve(request, subscribed_topic_names=names or None, topic_partitions=owned))

    def leave(self, member_id: str) -> Sent:
        """A member leaves for good."""
        return self.driver.submit(self.consumer(member_id).leave_request())


def answered(sent: Sent) -> ConsumerGroupHeartbeatResponse:
    return sent.answer(ConsumerGroupHeartbeatResponse)


def waiting_appends(driver: Driver) -> int:
    return len(driver.store.waiting())
