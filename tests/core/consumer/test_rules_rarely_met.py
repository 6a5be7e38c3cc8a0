"""Rules of consumer groups that members rarely meet: each takes a second member, a restart or some time to show."""

from __future__ import annotations

import pytest

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.assignors import GroupAssignment, GroupSpec, SubscriptionType
from groupcoord.core.consumer_protocol import Subscription, encode_subscription
from groupcoord.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    GroupToFetch,
    JoinGroup,
    JoinProtocol,
    OffsetFetch,
)
from groupcoord.testing.topics import Topics
from tests.core.own_assignors import Deal
from tests.tables import as_one_test


class Watching(Deal):
    """Notes what it is told of the subscriptions."""

    def __init__(self) -> None:
        self.told: list[SubscriptionType] = []

    def assign(self, group: GroupSpec) -> GroupAssignment:
        self.told.append(group.subscription_type)
        return super().assign(group)


class World:
    """A coordinator of consumer groups, with topics and a log that outlives it."""

    def __init__(self, *assignors: Deal, interval_ms: int = 0) -> None:
        self.topics = Topics(orders=2, other=2)
        self.clock = ManualClock(1_000_000)
        self.store = MemoryLogStore()
        self.coordinator = GroupCoordinator(
            config=Config(
                offsets_topic_num_partitions=1,
                group_consumer_assignment_interval_ms=interval_ms,
                group_consumer_assignors=tuple(assignor.name for assignor in assignors) or ("uniform", "range"),
            ),
            clock=self.clock,
            log_store=self.store,
            topics=self.topics,
            assignors=assignors,
            regexes=self.topics,
        )
        self.coordinator.load_all()

    def beat(
        self, member_id: str, epoch: int = 0, *names: str, regex: str | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        """Join, or send a heartbeat; without any topic what was subscribed to stays."""
        answer = self.coordinator.call(
            ConsumerGroupHeartbeat(
                "g",
                member_id,
                epoch,
                rebalance_timeout_ms=60_000 if epoch == 0 else -1,
                subscribed_topic_names=names or (() if regex else None),
                subscribed_topic_regex=regex,
                topic_partitions=() if epoch == 0 else None,
            )
        )
        self.coordinator.tick()  # answers questions about expressions
        return answer


def test_an_expression_that_is_in_use_is_not_checked_again() -> None:
    """Where expressions are no longer understood, others may use one that a loaded group uses, and no new one."""
    before = World()
    assert before.beat("a", regex="or.*").error_code is ErrorCode.NONE
    after = World()
    after.coordinator = GroupCoordinator(
        config=Config(offsets_topic_num_partitions=1), clock=before.clock, log_store=before.store, topics=before.topics
    )
    after.coordinator.load_all()
    assert after.beat("b", regex="or.*").error_code is ErrorCode.NONE
    assert after.beat("c", regex="ot.*").error_code is ErrorCode.INVALID_REGULAR_EXPRESSION


@as_one_test
@pytest.mark.parametrize(
    ("member_id", "epoch", "error_code"),
    [
        (None, -1, ErrorCode.NONE),
        (None, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (None, 2, ErrorCode.UNKNOWN_SERVER_ERROR),
        ("", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, ErrorCode.NONE),
    ],
)
def test_who_may_fetch(member_id: str | None, epoch: int, error_code: ErrorCode) -> None:
    """Nobody in particular, or a member with its epoch; an epoch of nobody's is an error of Kafka's own making."""
    world = World()
    assert world.beat("a", 0, "orders").member_epoch == 2
    wanted = GroupToFetch("g", None, member_id, epoch)
    assert world.coordinator.call(OffsetFetch((wanted,))).groups[0].error_code is error_code


def test_a_classic_member_keeps_its_rack() -> None:
    """Who joins again and does not say where it is, is where it was (``classicGroupJoinToConsumerGroup``)."""
    world = World()
    world.beat("a", 0, "orders")
    member_id = ""
    for subscription in (Subscription(("orders",), rack_id="r1"), Subscription(("other",))):
        protocols = (JoinProtocol("range", encode_subscription(subscription)),)
        join = JoinGroup("g", member_id, "consumer", protocols, requires_known_member_id=False)
        joined = world.coordinator.call(join)
        assert joined.error_code is ErrorCode.NONE
        member_id = joined.member_id
    (group,) = world.coordinator.call(ConsumerGroupDescribe(("g",))).groups
    (member,) = (member for member in group.members if member.member_id == member_id)
    assert (member.rack_id, member.subscribed_topic_names) == ("r1", ("other",))


def test_an_assignor_is_told_of_the_subscriptions_that_were_seen_last() -> None:
    """A target made later than its epoch is made for what was seen with the last expression that was forgotten.

    Kafka looks at the subscriptions before it forgets the expression, and again when a member changes
    (``ConsumerGroup.subscriptionType``). Here all members name the same topic by then.
    """
    watching = Watching()
    world = World(watching, interval_ms=1_000)
    epoch = world.beat("a", 0, "other").member_epoch
    world.clock.advance(500)
    later = world.beat("b", regex="or.*").member_epoch
    world.clock.advance(10)
    world.beat("b", later, "other", regex="")
    watching.told.clear()
    world.clock.advance(1_000)
    world.beat("a", epoch)
    assert watching.told == [SubscriptionType.HETEROGENEOUS]
