"""Log of consumer groups with known events, written by a coordinator for scripted clients. Each running client sends a
heartbeat each second. Times are milliseconds since the start.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from groupcoord import Config, GroupCoordinator, ManualClock
from groupcoord.core.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetToCommit,
    Request,
    SyncAssignment,
    SyncGroup,
    TopicPartitions,
    TopicToCommit,
)
from groupcoord.storage.stores.segments import SegmentLogStore
from groupcoord.testing.machine.modern_members import Kip848Consumer
from groupcoord.testing.topics import Topics

CREW, MOVING = "crew", "moving"
BEAT_MS, SESSION_MS, REBALANCE_MS = 1_000, 45_000, 10_000
NEVER_MS = 10**9


@define(eq=False)
class SlowConsumer(Kip848Consumer):
    """Consumer that works on for a while on partitions that it has to give up.

    Attributes:
        gives_up_ms: how long it does.
        assigned_ms: when its assignment changed last.
    """

    gives_up_ms: int = field(default=0, kw_only=True)
    assigned_ms: int = field(default=0, kw_only=True)


class Story:
    """The coordinator, its clients, and time."""

    def __init__(self, store: SegmentLogStore) -> None:
        self.topics = Topics(orders=6, payments=2)
        self.clock = ManualClock(0)
        config = Config(
            offsets_topic_num_partitions=1,
            group_consumer_assignment_interval_ms=0,
            group_initial_rebalance_delay_ms=0,
        )
        self.coordinator = GroupCoordinator(
            config=config,
            clock=self.clock,
            log_store=store,
            topics=self.topics,
            regexes=self.topics,
            new_member_id=lambda prefix: f"{prefix}-1",
        )
        self.coordinator.load_all()
        self.clients: dict[str, SlowConsumer] = {}

    def join(
        self,
        member_id: str,
        *names: str,
        instance_id: str | None = None,
        regex: str | None = None,
        rebalance_timeout_ms: int = REBALANCE_MS,
    ) -> None:
        consumer = self.clients[member_id] = SlowConsumer(
            f"client-{member_id}",
            CREW,
            instance_id,
            member_id=member_id,
            topics=names or (() if regex else ("orders",)),
            regex=regex or "",
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        self._beat(consumer)

    def tell(self, member_id: str, *names: str, assignor: str | None = None) -> None:
        """Change what a consumer subscribes to, or its assignor."""
        consumer = self.clients[member_id]
        consumer.topics, consumer.assignor = names or consumer.topics, assignor or consumer.assignor
        consumer.known = None  # its next heartbeat is a full one
        self._beat(consumer)

    def leave(self, member_id: str, epoch: int = -1) -> None:
        """Have a consumer leave; temporarily, as static members do, with epoch -2."""
        consumer = self.clients.pop(member_id)
        self.coordinator.call(consumer.leave_request(for_good=epoch == -1))

    def vanish(self, member_id: str) -> None:
        """A client is killed."""
        del self.clients[member_id]

    def live_until(self, at_ms: int) -> None:
        """Time passes."""
        while self.clock.now_ms() < at_ms:
            self.clock.advance(BEAT_MS)
            self.coordinator.tick()
            for client in list(self.clients.values()):
                self._beat(client)

    def _beat(self, consumer: SlowConsumer) -> None:
        now_ms = self.clock.now_ms()
        consumer.gives_back = None if now_ms >= consumer.assigned_ms + consumer.gives_up_ms else 0
        response = self.coordinator.call(evolve(consumer.next_request(), client_host="/127.0.0.1"))
        if response.error_code:
            self.clients.pop(consumer.member_id)
            return
        assigned, consumer.gives_back = consumer.assigned, 0 if consumer.gives_up_ms else None
        consumer.receive(response)
        if consumer.assigned != assigned:
            consumer.assigned_ms = now_ms

    def wait_for(self, request: Request) -> Any:
        """Send a request that may be answered later, and let time pass until it is."""
        self.coordinator.submit(request, token=request)
        while True:
            for reply in self.coordinator.take_replies():
                if reply.token is request:
                    return reply.response
            self.clock.advance(BEAT_MS)
            self.coordinator.tick()

    def commit(self, group_id: str, topic: str, *numbers: int, member_id: str = "", epoch: int = -1) -> None:
        offsets = tuple(OffsetToCommit(number, self.clock.now_ms()) for number in numbers)
        told = TopicToCommit(topic, offsets, topic_id=self.topics.ids[topic])
        answer = self.coordinator.call(OffsetCommit(group_id, (told,), epoch, member_id))
        assert not any(partition.error_code for one in answer.topics for partition in one.partitions)


def crew(story: Story) -> None:
    """Members come and go in every way, and what they subscribe to changes."""
    story.join("ann")
    story.live_until(5_000)
    story.join("ben")  # ann gives three partitions up at once
    story.live_until(20_000)
    story.clients["ann"].gives_up_ms = 8_000
    story.join("cid")  # ann takes 8 s to give one up
    story.live_until(40_000)
    story.clients["ann"].gives_up_ms = 0
    story.clients["ben"].gives_up_ms = NEVER_MS
    story.commit(CREW, "orders", 0, member_id="ann", epoch=story.clients["ann"].epoch)
    story.join("dan")
    story.join("eve")  # ben is fenced, since it gives nothing up in 10 s
    story.live_until(60_000)
    story.join("fay", instance_id="static")
    story.live_until(70_000)
    story.leave("fay", epoch=-2)
    story.clock.advance(500)
    story.join("fay-again", instance_id="static")
    story.live_until(80_000)
    story.leave("fay-again", epoch=-2)  # and never comes back
    story.live_until(130_000)
    story.topics.grow("orders", 3)
    story.coordinator.topics_changed(["orders"])
    story.live_until(140_000)
    story.vanish("cid")
    story.live_until(190_000)
    story.tell("ann", assignor="range")
    story.live_until(200_000)
    story.join("gus", regex="pay.*")
    story.live_until(215_000)
    story.leave("dan")
    story.live_until(220_000)
    story.tell("eve", "orders", "payments")
    story.live_until(230_000)
    story.topics.create("payroll", 1)
    story.coordinator.topics_created(["payroll"])
    story.live_until(245_000)
    story.commit(CREW, "payments", 0, 1, member_id="eve", epoch=story.clients["eve"].epoch)


def moving(story: Story) -> None:
    """A classic group becomes a consumer group, and a classic one again."""
    everything = encode_assignment(Assignment(tuple(TopicPartition("orders", number) for number in range(6))))
    protocols = (JoinProtocol("range", encode_subscription(Subscription(("orders",)))),)

    def join(member_id: str) -> tuple[str, int]:
        request = JoinGroup(
            MOVING, member_id, "consumer", protocols, 30_000, 30_000, client_id="old", requires_known_member_id=False
        )
        joined = story.wait_for(request)
        is_leader = joined.leader == joined.member_id
        assignments = (SyncAssignment(joined.member_id, everything),) if is_leader else ()
        story.wait_for(SyncGroup(MOVING, joined.generation_id, joined.member_id, assignments=assignments))
        return joined.member_id, joined.generation_id

    def beat(epoch: int, *owned: int, **news: object) -> int:
        partitions = (TopicPartitions(story.topics.ids["orders"], owned),) if owned else ()
        request = ConsumerGroupHeartbeat(MOVING, "new", epoch, topic_partitions=partitions, **news)  # type: ignore[arg-type]
        return story.coordinator.call(request).member_epoch

    old, _ = join("")
    story.clock.advance(1_000)
    epoch = beat(0, rebalance_timeout_ms=60_000, subscribed_topic_names=("orders",))
    story.clock.advance(1_000)
    _, generation = join(old)
    story.clock.advance(1_000)
    epoch = beat(epoch)
    story.commit(MOVING, "orders", 0, member_id=old, epoch=generation)
    story.clock.advance(1_000)
    beat(-1)
    story.clock.advance(1_000)
    join(old)
    story.clock.advance(1_000)
    story.coordinator.call(LeaveGroup(MOVING, (LeavingMember(old),)))


def write_story(folder: Path, *tellers: Callable[[Story], None]) -> Path:
    """Play the events, and return the folder of the log."""
    with SegmentLogStore(folder) as store:
        story = Story(store)
        for teller in tellers:
            teller(story)
        store.flush()
    return folder
