"""Events and counters of consumer groups, emitted when a change is durable."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from groupcoord import ErrorCode
from groupcoord.config import MigrationPolicy
from groupcoord.core.consumer_protocol import Subscription, encode_subscription
from groupcoord.events import (
    Cause,
    Event,
    GroupLoaded,
    GroupRemoved,
    MemberAdded,
    MemberAssigned,
    MemberRemoved,
    MemberReplaced,
    RebalanceCompleted,
    RebalanceStarted,
    Trigger,
)
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import ConsumerGroupHeartbeat, LeaveGroup, LeavingMember, TopicPartitions
from groupcoord.testing.topics import Topics
from tests.core.consumer.members import Members
from tests.core.driver import Driver, Group, protocols_of
from tests.tables import as_one_test

CONSUMER_SESSION_MS = 45_000
REBALANCE_MS = 30_000


def observed(topics: Topics) -> Driver:
    driver = Driver(
        topics=topics,
        group_initial_rebalance_delay_ms=0,
        group_consumer_assignment_interval_ms=0,
        group_consumer_migration_policy=MigrationPolicy.BIDIRECTIONAL,
    )
    driver.coordinator.observe()
    return driver


@pytest.fixture
def driver(topics: Topics) -> Driver:
    """A log that answers at once, and observed events."""
    return observed(topics)


def told(driver: Driver) -> list[Event]:
    """Return what has happened since the last call, but for assignments."""
    return [event for event in driver.coordinator.take_events() if not isinstance(event, MemberAssigned)]


def assigned(driver: Driver) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return who was assigned what since the last call: members, epochs, partitions of the only topic."""
    found = []
    for event in driver.coordinator.take_events():
        if isinstance(event, MemberAssigned):
            assert not isinstance(event.assignment, bytes)
            found.append(
                (event.member_id, event.generation_id, sum((part.partitions for part in event.assignment), ()))
            )
    return found


def triggers(driver: Driver) -> list[Trigger]:
    """Return why rebalances have started since the events were taken last."""
    return [event.trigger for event in told(driver) if isinstance(event, RebalanceStarted)]


def stable(driver: Driver, members: Members, *member_ids: str) -> int:
    """Add members until the group is stable; return its epoch and the events."""
    for member_id in member_ids:
        members.join(member_id, rebalance_ms=REBALANCE_MS)
    epoch = members.described.group_epoch
    for _ in range(2):
        for member in members.described.members:
            owned = tuple(TopicPartitions(p.topic_id, p.partitions) for p in member.target_assignment)
            members.heartbeat(member.member_id, member.member_epoch, owned=owned)
    assert members.described.group_state == "Stable"
    told(driver)
    return epoch


def test_a_group_from_its_first_join(driver: Driver, members: Members) -> None:
    """Events name the member, the new epoch, and the stable state in the same epoch."""
    members.join("a")
    now_ms = driver.clock.now_ms()
    assert told(driver) == [
        MemberAdded("group", now_ms, "a", None, "", ""),
        RebalanceStarted("group", now_ms, 1, Trigger(Cause.JOIN, "a")),
        RebalanceCompleted("group", now_ms, 1, 2, (Trigger(Cause.JOIN, "a"),), 0, 1),
    ]
    assert driver.coordinator.counters.consumer_group_rebalances == 1
    assert driver.coordinator.counters.group_completed_rebalances == 0


def test_a_rebalance_lasts_until_everybody_has_what_is_theirs(driver: Driver, members: Members, topics: Topics) -> None:
    """The rebalance completes when one member has revoked its half and the other has received it."""
    stable(driver, members, "a")
    members.join("b")
    driver.advance(700)
    assert triggers(driver) == [Trigger(Cause.JOIN, "b")]
    half = (TopicPartitions(topics.ids["orders"], (0, 1, 2)),)
    members.heartbeat("a", 2)
    members.heartbeat("a", 2, owned=half)
    driver.advance(300)
    assert told(driver) == []
    members.heartbeat("b", 3)
    assert told(driver) == [
        RebalanceCompleted("group", driver.clock.now_ms(), 2, 3, (Trigger(Cause.JOIN, "b"),), 1_000, 2)
    ]


def test_a_steady_heartbeat_says_nothing(driver: Driver, members: Members) -> None:
    epoch = stable(driver, members, "a")
    members.heartbeat("a", epoch)
    driver.advance(5_000)
    members.heartbeat("a", epoch)
    assert told(driver) == []


def test_what_is_not_durable_did_not_happen(topics: Topics) -> None:
    """Events wait for the log with their answers; a refused write leaves none, and the time is that of the log."""
    driver = Driver(late=True, topics=topics, group_consumer_assignment_interval_ms=0)
    driver.coordinator.observe()
    members = Members(driver)
    members.join("a")
    assert told(driver) == []
    driver.refuse(NotEnoughReplicasError())
    assert told(driver) == [GroupRemoved("group", driver.clock.now_ms(), Cause.CREATION_FAILED)]
    assert driver.coordinator.counters.consumer_group_rebalances == 0
    members.join("a")
    driver.advance(250)
    driver.write()
    assert {event.at_ms for event in told(driver)} == {driver.clock.now_ms()}


def test_a_leave(driver: Driver, members: Members) -> None:
    """The member is removed for that, and the last one leaves an empty group behind."""
    stable(driver, members, "a")
    members.leave("a")
    now_ms = driver.clock.now_ms()
    assert told(driver) == [
        MemberRemoved("group", now_ms, "a", None, Cause.LEAVE),
        RebalanceStarted("group", now_ms, 2, Trigger(Cause.LEAVE, "a")),
        RebalanceCompleted("group", now_ms, 2, 3, (Trigger(Cause.LEAVE, "a"),), 0, 0),
    ]
    assert driver.coordinator.counters.consumer_group_rebalances == 1


def test_a_member_that_does_not_give_back(driver: Driver, members: Members) -> None:
    """A member that keeps revoked partitions longer than its rebalance timeout is removed, though
    it sends heartbeats.
    """
    stable(driver, members, "a")
    members.join("b", rebalance_ms=REBALANCE_MS)
    for _ in range(4):
        members.heartbeat("a", 2)
        members.heartbeat("b", 3)
        driver.sleep(REBALANCE_MS // 3)
    removed = [event for event in told(driver) if isinstance(event, MemberRemoved)]
    assert [(event.member_id, event.cause) for event in removed] == [("a", Cause.REBALANCE_TIMEOUT)]
    assert driver.coordinator.counters.session_expirations == 0


def test_a_static_member_that_comes_back(driver: Driver, members: Members) -> None:
    """Its new id stands for the old one; that it was away for a while is no event, and neither starts a rebalance."""
    members.join("a", instance="i")
    told(driver)
    driver.submit(ConsumerGroupHeartbeat("group", "a", -2, instance_id="i"))
    assert told(driver) == []
    members.join("a-again", instance="i")
    assert told(driver) == [MemberReplaced("group", driver.clock.now_ms(), "a", "a-again", "i")]


def test_a_static_member_that_comes_back_with_other_topics(driver: Driver, members: Members, topics: Topics) -> None:
    """The rebalance that this takes is laid to its return."""
    topics.create("payments", 1)
    members.join("a", instance="i")
    driver.submit(ConsumerGroupHeartbeat("group", "a", -2, instance_id="i"))
    told(driver)
    members.join("a-again", "payments", instance="i")
    assert triggers(driver) == [Trigger(Cause.STATIC_REPLACE, "a-again")]


CAUSES: dict[str, tuple[Callable[[Driver, Members, Topics], object], Cause | None, Trigger]] = {
    "an administrator": (
        lambda driver, members, topics: driver.submit(LeaveGroup("group", (LeavingMember("a"),))),
        Cause.LEAVE,
        Trigger(Cause.LEAVE, "a"),
    ),
    "silence": (
        lambda driver, members, topics: driver.sleep(CONSUMER_SESSION_MS),
        Cause.SESSION_EXPIRY,
        Trigger(Cause.SESSION_EXPIRY, "a"),
    ),
    "another subscription": (
        lambda driver, members, topics: members.heartbeat("a", 2, names=("payments",)),
        None,
        Trigger(Cause.METADATA_CHANGE, "a"),
    ),
    "a topic that grows": (
        lambda driver, members, topics: (
            (topics.grow("orders"), driver.coordinator.topics_changed(["orders"])) and members.heartbeat("a", 2)
        ),
        None,
        Trigger(Cause.TOPIC_CHANGE),
    ),
}


@as_one_test
@pytest.mark.parametrize(("act", "cause", "trigger"), CAUSES.values(), ids=list(CAUSES))
def test_causes(act: Callable[[Driver, Members, Topics], object], cause: Cause | None, trigger: Trigger) -> None:
    """A removal and a rebalance name their cause; expired sessions are counted."""
    topics = Topics(orders=6, payments=1)
    driver = observed(topics)
    stable(driver, members := Members(driver), "a")
    act(driver, members, topics)
    events = told(driver)
    assert [event.cause for event in events if isinstance(event, MemberRemoved)] == [cause] * (cause is not None)
    assert [event.trigger for event in events if isinstance(event, RebalanceStarted)] == [trigger]
    assert driver.coordinator.counters.session_expirations == (cause is Cause.SESSION_EXPIRY)
    assert driver.coordinator.counters.consumer_group_rebalances == 2 - (cause is not None)


def test_a_regular_expression_that_is_matched(topics: Topics) -> None:
    """Joining with the expression changes nothing yet; its resolved topics start the rebalance."""
    driver = Driver(topics=topics)
    driver.coordinator.observe()
    driver.submit(
        ConsumerGroupHeartbeat(
            "group", "a", rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_regex=".*", topic_partitions=()
        )
    )
    now_ms = driver.clock.now_ms()
    assert told(driver) == [
        MemberAdded("group", now_ms, "a", None, "", ""),
        RebalanceStarted("group", now_ms, 1, Trigger(Cause.REGEX_CHANGE)),
    ]


def test_a_load_and_an_unload(driver: Driver, members: Members) -> None:
    """Groups come with a load, epoch and size included, and go with an unload."""
    epoch = stable(driver, members, "a", "b")
    driver.kill()
    driver.coordinator.observe()
    driver.coordinator.load_all()
    assert told(driver) == [GroupLoaded("group", driver.clock.now_ms(), epoch, 2)]
    driver.coordinator.unload(0)
    assert told(driver) == [GroupRemoved("group", driver.clock.now_ms(), Cause.UNLOAD)]


def test_a_group_that_changes_its_kind_and_back(driver: Driver, members: Members) -> None:
    """The group ends as one type and begins as the other with its members; joins and leaves emit events as usual."""
    group = Group(driver)
    join = group.join("old", protocols=protocols_of("range", metadata=encode_subscription(Subscription(("orders",)))))
    driver.sleep(1)
    group.sync(join.member_id, {join.member_id: b""})
    told(driver)
    members.join("new")
    now_ms = driver.clock.now_ms()
    assert told(driver) == [
        GroupRemoved("group", now_ms, Cause.CONVERSION),
        GroupLoaded("group", now_ms, 1, 1),
        MemberAdded("group", now_ms, "new", None, "", ""),
        RebalanceStarted("group", now_ms, 1, Trigger(Cause.JOIN, "new")),
    ]
    driver.sleep(1_000)
    members.leave("new")
    now_ms = driver.clock.now_ms()
    assert told(driver) == [
        MemberRemoved("group", now_ms, "new", None, Cause.LEAVE),
        GroupRemoved("group", now_ms, Cause.CONVERSION),
        GroupLoaded("group", now_ms, 2, 1),
        RebalanceStarted("group", now_ms, 2, Trigger(Cause.LEAVE, "new")),
    ]


def test_an_empty_classic_group_makes_room(driver: Driver, members: Members) -> None:
    """The classic group emits only its removal; the consumer group begins, and is stable at once."""
    Group(driver).commit({0: 5})
    told(driver)
    assert members.join("a").error is ErrorCode.NONE
    kinds = [type(event) for event in told(driver)]
    assert kinds == [GroupRemoved, MemberAdded, RebalanceStarted, RebalanceCompleted]


def test_assignments_are_told_when_they_change(driver: Driver, members: Members) -> None:
    """The second member receives partitions when the first has revoked them; heartbeats emit nothing."""
    members.join("a", rebalance_ms=REBALANCE_MS)
    ((_, epoch, everything),) = assigned(driver)
    members.join("b", rebalance_ms=REBALANCE_MS)
    news = {member_id: (at, partitions) for member_id, at, partitions in assigned(driver)}
    assert news["b"] == (epoch + 1, ())
    stable(driver, members)
    now = {member.member_id: member.assignment for member in members.described.members}
    shares = {member_id: set(sum((part.partitions for part in parts), ())) for member_id, parts in now.items()}
    assert set(everything) == shares["a"] | shares["b"]
    assert not shares["a"] & shares["b"]
    driver.coordinator.take_events()
    members.heartbeat("a", epoch + 1)
    assert assigned(driver) == []
