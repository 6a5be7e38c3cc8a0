"""Fast path of heartbeats that change nothing, and the checks that it must keep."""

from __future__ import annotations

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock
from groupcoord.config.group_settings import ConsumerGroupSettings
from groupcoord.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse
from groupcoord.testing.topics import Topics

SESSION_MS = 45_000


class World:
    """Coordinator with one group member whose heartbeats change nothing."""

    def __init__(self) -> None:
        self.topics = Topics(orders=6)
        self.clock = ManualClock(1_000_000)
        self.settings = ConsumerGroupSettings.of(Config())
        self.is_allowed = True
        self.coordinator = GroupCoordinator(
            clock=self.clock,
            topics=self.topics,
            consumer_group_settings=lambda group_id: self.settings,
            authorize=lambda principal, operation, resource: self.is_allowed,
        )
        self.coordinator.load_all()
        join = ConsumerGroupHeartbeat(
            "g", "a", rebalance_timeout_ms=60_000, subscribed_topic_names=("orders",), topic_partitions=()
        )
        self.epoch = self.coordinator.call(join).member_epoch
        self.request = ConsumerGroupHeartbeat("g", "a", self.epoch)
        self.answer = self.beat()

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        return self.coordinator.call(self.request)

    def sleep(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.coordinator.tick()


def test_the_next_one_is_answered_the_same() -> None:
    """An equal heartbeat gets the very answer of the last one, and each renews the session; silence ends it."""
    world = World()
    assert world.answer.error_code is ErrorCode.NONE
    for _ in range(3):
        world.sleep(SESSION_MS - 1)
        assert world.coordinator.call(ConsumerGroupHeartbeat("g", "a", world.epoch)) is world.answer
    world.sleep(SESSION_MS)
    assert world.beat().error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_may_no_longer() -> None:
    """Each heartbeat is authorized, and a denied one does not renew the session."""
    world = World()
    world.sleep(SESSION_MS - 1)
    world.is_allowed = False
    assert world.beat().error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    world.sleep(1)
    world.is_allowed = True
    assert world.beat().error_code is ErrorCode.UNKNOWN_MEMBER_ID
