"""Members of a consumer group with a real coordinator: joining, assignments, leaving and failures."""

from __future__ import annotations

from groupcoord.member import SubscriptionPattern

from .world import ConsumerWorld, Topics


def test_two_members_share_and_leave() -> None:
    """The first has all; the second gets half after the first gave it up; when the first leaves it gets the rest."""
    world = ConsumerWorld()
    ann = world.add("ann")
    world.wait(3_000)
    assert ann.has("orders-0", "orders-1", "orders-2", "orders-3")
    bob = world.add("bob")
    world.wait(5_000)
    assert len(ann.owned) == len(bob.owned) == 2
    assert not ann.owned & bob.owned
    ann.member.close(world.clock.now_ms())
    world.wait(5_000)
    assert bob.has("orders-0", "orders-1", "orders-2", "orders-3")
    assert "ann" not in world.hosts


def test_an_upgrade_of_a_live_group() -> None:
    """Members change from the classic protocol to the other one by one; all the time each partition has one owner."""
    world = ConsumerWorld()
    classic = {"group_protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"}
    for name in ("ann", "bob"):
        world.add(name, **classic)
    world.wait(20_000)
    for name in ("ann", "bob"):
        assert sum(len(host.owned) for host in world.hosts.values()) == 4
        world.hosts[name].member.close(world.clock.now_ms())
        world.wait(5_000)
        world.add(name)
        world.wait(20_000)
        assert [len(host.owned) for host in world.hosts.values()] == [2, 2]
    assert sorted(world.epochs()) == ["ann-3", "bob-4"]


def test_topics_that_match_an_expression() -> None:
    """The coordinator finds them, new ones too; the member learns their names from the metadata."""
    world = ConsumerWorld(Topics(orders=2, bills=1))
    ann = world.add("ann", pattern=SubscriptionPattern("or.*"))
    world.wait(5_000)
    assert ann.has("orders-0", "orders-1")
    world.topics.partition_counts["orphans"] = 1
    world.coordinator.topics_created(("orphans",))
    world.wait(20_000)
    assert ann.has("orders-0", "orders-1", "orphans-0")


def test_a_topic_that_grows() -> None:
    """The member need not watch the topics: the coordinator hands out new partitions."""
    world = ConsumerWorld(Topics(orders=2))
    ann = world.add("ann")
    world.wait(5_000)
    world.topics.partition_counts["orders"] = 3
    world.coordinator.topics_changed(("orders",))
    world.wait(5_000)
    assert ann.has("orders-0", "orders-1", "orders-2")


def test_a_static_member_that_comes_back() -> None:
    """It gets its former partitions under a new member id, and the others' are unchanged."""
    world = ConsumerWorld()
    ann = world.add("ann", group_instance_id="ann")
    bob = world.add("bob")
    world.wait(10_000)
    had, events = ann.owned.copy(), len(bob.events)
    ann.member.close(world.clock.now_ms())
    world.wait(3_000)
    ann = world.add("ann", group_instance_id="ann")
    world.wait(3_000)
    assert ann.owned == had
    assert not [event for event in bob.events[events:] if hasattr(event, "partitions")]
