"""Heartbeats that change nothing take a short way: what they must not pass by on it."""

from __future__ import annotations

import pytest

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock
from groupcoord.config.group_settings import ConsumerGroupSettings
from groupcoord.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse
from groupcoord.testing.topics import Topics

SESSION_MS = 45_000


class World:
    """A coordinator with one member of a group, whose heartbeats change nothing."""

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


@pytest.fixture
def world() -> World:
    return World()


def test_the_next_one_is_answered_the_same(world: World) -> None:
    """An equal heartbeat gets the very answer of the last one, and each renews the session; silence ends it."""
    assert world.answer.error_code is ErrorCode.NONE
    for _ in range(3):
        world.sleep(SESSION_MS - 1)
        assert world.coordinator.call(ConsumerGroupHeartbeat("g", "a", world.epoch)) is world.answer
    world.sleep(SESSION_MS)
    assert world.beat().error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_may_no_longer(world: World) -> None:
    """Permissions are asked for each heartbeat, and one that is refused is no sign of life."""
    world.sleep(SESSION_MS - 1)
    world.is_allowed = False
    assert world.beat().error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    world.sleep(1)
    world.is_allowed = True
    assert world.beat().error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_settings_that_change(world: World) -> None:
    """The next heartbeat tells the new interval, and the session is as long as it is now."""
    world.settings = world.settings._replace(session_timeout_ms=60_000, heartbeat_interval_ms=7_000)
    assert (world.answer.heartbeat_interval_ms, world.beat().heartbeat_interval_ms) == (5_000, 7_000)
    for _ in range(2):
        world.sleep(59_999)
        assert world.beat().error_code is ErrorCode.NONE


def test_a_topic_that_grows(world: World) -> None:
    """The next heartbeat finds the new partitions."""
    world.sleep(world.settings.assignment_interval_ms)
    world.topics.grow("orders")
    world.coordinator.topics_changed(["orders"])
    (topic,) = world.beat().assignment or ()
    assert topic.partitions == (0, 1, 2, 3, 4, 5, 6)


def test_a_log_partition_that_is_served_no_longer(world: World) -> None:
    """Heartbeats for it, and for a coordinator that is closed, are refused; loaded again, it knows the member."""
    index = world.coordinator.partition_of("g")
    world.coordinator.unload(index)
    assert world.beat().error_code is ErrorCode.NOT_COORDINATOR
    world.coordinator.load(index)
    assert world.beat() == world.answer
    world.coordinator.close()
    assert world.beat().error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
