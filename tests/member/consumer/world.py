"""Members of one consumer group and a real coordinator, with a network between them that a test may disturb."""

from __future__ import annotations

from collections import deque
from typing import Any
from uuid import UUID

from groupcoord import Config, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.errors import ErrorCode
from groupcoord.member import (
    AssignmentNeeded,
    Closed,
    Cluster,
    Failed,
    Member,
    MemberConfig,
    MetadataNeeded,
    OffsetsFetched,
    Output,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    Send,
    SubscriptionPattern,
    TopicPartition,
)
from groupcoord.messages import ConsumerGroupDescribe, FindCoordinator, FindCoordinatorResponse, FoundCoordinator, Node

GROUP = "group"
REPLACED = (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)
"""How a static member fails when there is, or was, another one with its instance id."""

NODE = Node(1, "broker", 9092)
FOREVER_MS = 2**40
SETTINGS = {
    "group.consumer.min.session.timeout.ms": 1,
    "group.consumer.session.timeout.ms": 10_000,
    "group.consumer.min.heartbeat.interval.ms": 1,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "offsets.topic.num.partitions": 1,
    "group.consumer.regex.refresh.interval.ms": 10_000,
}


class Topics:
    def __init__(self, **partition_counts: int) -> None:
        self.partition_counts = partition_counts

    def partition_count(self, name: str) -> int | None:
        return self.partition_counts.get(name)

    def topic_id(self, name: str) -> UUID | None:
        return UUID(bytes=name.encode().ljust(16, b"_")) if name in self.partition_counts else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name in self.partition_counts if self.topic_id(name) == topic_id), None)

    def problem(self, regex: str) -> str | None:
        return None if regex.endswith(".*") else "only prefixes"

    def matching_topics(self, regex: str, principal: Any) -> list[str]:
        return [name for name in self.partition_counts if name.startswith(regex.removesuffix(".*"))]

    @property
    def cluster(self) -> Cluster:
        ids = {name: self.topic_id(name) for name in self.partition_counts}
        return Cluster.of(self.partition_counts, {name: id_ for name, id_ in ids.items() if id_ is not None})


class Host:
    """One member, its events, and its partitions according to them."""

    def __init__(
        self, name: str, member_id: str, topics: tuple[str, ...], world: ConsumerWorld, **settings: Any
    ) -> None:
        self.name = name
        self.topics = topics
        self.member = Member(
            MemberConfig(group_id=GROUP, client_id=name, **({"group_protocol": "consumer"} | settings)),
            now_ms=world.clock.now_ms(),
            waits_for_listener=True,
            member_id=member_id,
        )
        self.events: list[Output] = []
        self.owned: set[TopicPartition] = set()
        self.is_open = True
        self.fetched: dict[TopicPartition, int | None] = {}

    def has(self, *names: str) -> bool:
        return {f"{topic}-{number}" for topic, number in self.owned} == set(names)

    def follow(self, event: Output) -> None:
        self.events.append(event)
        match event:
            case PartitionsAssigned(partitions):
                assert not self.owned & set(partitions), event
                self.owned |= set(partitions)
            case PartitionsRevoked(partitions) | PartitionsLost(partitions):
                assert self.owned >= set(partitions), event
                self.owned -= set(partitions)
            case OffsetsFetched(offsets=offsets):
                self.fetched = {partition: found and found.offset for partition, found in offsets.items()}


class ConsumerWorld:
    """A coordinator, members, and what is on its way between them.

    Attributes:
        answers: on their way to members: host, request id and response.
        keeps: answers stay on their way until they are delivered one by one.
    """

    def __init__(self, topics: Topics | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.topics = topics or Topics(orders=4)
        config = Config.from_properties(SETTINGS | settings)
        store = MemoryLogStore()
        self.coordinator = GroupCoordinator(
            clock=self.clock, log_store=store, config=config, topics=self.topics, regexes=self.topics
        )
        self.coordinator.load_all()
        self.hosts: dict[str, Host] = {}
        self.answers: deque[tuple[Host, int, Any]] = deque()
        self.sent: list[tuple[str, Any]] = []
        self.keeps = False
        self._lives = 0

    def add(self, name: str, *topics: str, pattern: SubscriptionPattern | None = None, **settings: Any) -> Host:
        """Add a member that subscribes to topics, or to an expression, and polls."""
        topics = topics or ("orders",)
        self._lives += 1
        host = self.hosts[name] = Host(name, f"{name}-{self._lives}", topics, self, **settings)
        if pattern is None:
            host.member.subscribe(topics, self.clock.now_ms())
        else:
            host.member.subscribe_pattern(pattern, self.clock.now_ms())
        host.member.poll(self.clock.now_ms(), FOREVER_MS)
        return host

    def crash(self, name: str) -> None:
        self.answers = deque(answer for answer in self.answers if answer[0].name != name)
        del self.hosts[name]

    def epochs(self) -> dict[str, int]:
        (group,) = self.coordinator.call(ConsumerGroupDescribe((GROUP,))).groups
        return {member.member_id: member.member_epoch for member in group.members}

    # ------------------------------------------------------------ carrying

    def carry(self) -> None:
        """Bring requests to the coordinator and answers back until nothing moves."""
        self.collect()
        while self.answers and not self.keeps:
            self.deliver()
            self.collect()

    def collect(self) -> None:
        is_moving = True
        while is_moving:
            is_moving = False
            for host in list(self.hosts.values()):
                for output in host.member.take_outputs():
                    is_moving = True
                    self._do(host, output)
            for (host, request_id), response in self.coordinator.take_replies():
                self.answers.append((host, request_id, response))

    def _do(self, host: Host, output: Output) -> None:
        now_ms = self.clock.now_ms()
        match output:
            case Send(request=FindCoordinator()):
                found = FoundCoordinator(GROUP, NODE, ErrorCode.NONE)
                self.answers.append((host, output.request_id, FindCoordinatorResponse((found,))))
            case Send():
                self.sent.append((host.name, output.request))
                self.coordinator.submit(output.request, token=(host, output.request_id))
            case AssignmentNeeded():
                host.member.assignment_computed(output.compute(), now_ms)
            case MetadataNeeded():
                host.member.update_metadata(self.topics.cluster, now_ms)
            case _:
                host.follow(output)
                if isinstance(output, PartitionsAssigned | PartitionsRevoked | PartitionsLost):
                    host.member.listener_returned(now_ms)
                if isinstance(output, Closed):
                    self.hosts.pop(host.name, None)
                if isinstance(output, Failed):
                    assert output.error_code in REPLACED, output
                    self.crash(host.name)

    def deliver(self, number: int = 0) -> None:
        host, request_id, response = self.answers[number]
        del self.answers[number]
        host.member.receive(request_id, response, self.clock.now_ms())

    def lose(self, name: str) -> None:
        """Break the connection of a member: its answers are lost."""
        self.answers = deque(answer for answer in self.answers if answer[0].name != name)
        self.hosts[name].member.disconnected(self.clock.now_ms())

    # ------------------------------------------------------------ time

    def wait(self, duration_ms: int) -> None:
        end_ms = self.clock.now_ms() + duration_ms
        while True:
            self.carry()
            members = [host.member for host in self.hosts.values()]
            deadlines = [self.coordinator.next_deadline_ms(), *(member.next_deadline_ms() for member in members)]
            next_ms = min(deadline for deadline in [*deadlines, end_ms] if deadline is not None)
            self.clock.advance(max(0, next_ms - self.clock.now_ms()))
            if self.clock.now_ms() >= end_ms and next_ms >= end_ms:
                return
            self.coordinator.tick()
            for member in members:
                member.tick(self.clock.now_ms())
