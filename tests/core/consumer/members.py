"""Topics that come, grow and go, and what members of a consumer group send: for tests with a driver."""

from __future__ import annotations

from uuid import UUID

from groupcoord import Config, GroupCoordinator, LogStore
from groupcoord.core.consumer.group import ConsumerGroup
from groupcoord.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    TopicPartitions,
)
from groupcoord.testing.fleet import Sent
from tests.core.driver import Driver

LONG_MS = 3_600_000
"""``offsets.commit.timeout.ms`` where nothing is to be overdue."""


class Topics:
    """The topics of a cluster; a topic that comes again has another id."""

    def __init__(self, **counts: int) -> None:
        self.counts: dict[str, int] = {}
        self.ids: dict[str, UUID] = {}
        self._next_id = 1
        for name, count in counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        self.counts[name], self.ids[name] = count, UUID(int=self._next_id)
        self._next_id += 1

    def delete(self, name: str) -> UUID:
        del self.counts[name]
        return self.ids.pop(name)

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def topic_id(self, name: str) -> UUID | None:
        return self.ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, known in self.ids.items() if known == topic_id), None)


class EveryTopic:
    """Every expression matches every topic."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics

    def problem(self, regex: str) -> str | None:
        return None

    def matching_topics(self, regex: str, principal: object) -> list[str]:
        return list(self.topics.ids)


class MatchingDriver(Driver):
    """A driver whose coordinator matches regular expressions."""

    def __init__(self, topics: Topics, *, late: bool = False, **settings: int) -> None:
        self.regexes = EveryTopic(topics)
        super().__init__(late=late, topics=topics, **settings)

    def make_coordinator(self, config: Config, log_store: LogStore) -> GroupCoordinator:
        """Return a coordinator with nothing loaded."""
        return GroupCoordinator(
            config=config, clock=self.clock, log_store=log_store, topics=self.topics, regexes=self.regexes
        )


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
        partition = self.coordinator.partition(self.coordinator.partition_of(self.group_id))
        found = None if partition is None else partition.groups.get(self.group_id)
        return found if isinstance(found, ConsumerGroup) else None

    @property
    def described(self) -> DescribedConsumerGroup:
        """The group as administrators see it."""
        return self.coordinator.call(ConsumerGroupDescribe((self.group_id,))).groups[0]

    @property
    def ids(self) -> list[str]:
        """The ids of the members that administrators see."""
        return [member.member_id for member in self.described.members]

    def join(self, member_id: str, *names: str, instance: str | None = None, rebalance_ms: int = 60_000) -> Sent:
        """Somebody joins, with a subscription to these topics (``orders`` if none are named)."""
        return self.driver.submit(
            ConsumerGroupHeartbeat(
                self.group_id,
                member_id,
                instance_id=instance,
                rebalance_timeout_ms=rebalance_ms,
                subscribed_topic_names=names or ("orders",),
                topic_partitions=(),
            )
        )

    def heartbeat(
        self, member_id: str, epoch: int, *, owned: tuple[TopicPartitions, ...] | None = None, names: tuple = ()
    ) -> Sent:
        """A member says that it lives; what it doesn't name stays."""
        subscription = names or None
        return self.driver.submit(
            ConsumerGroupHeartbeat(
                self.group_id, member_id, epoch, subscribed_topic_names=subscription, topic_partitions=owned
            )
        )

    def leave(self, member_id: str) -> Sent:
        """A member leaves for good."""
        return self.heartbeat(member_id, -1)


def answered(sent: Sent) -> ConsumerGroupHeartbeatResponse:
    """Return the answer of a heartbeat."""
    return sent.answer(ConsumerGroupHeartbeatResponse)


def waiting_appends(driver: Driver) -> int:
    """Return how many appends the log has not answered."""
    return len(driver.store.waiting())
