"""Members of a consumer group beside a real coordinator: what a user sees of joining, sharing, leaving and mishaps."""

from __future__ import annotations

from .world import World


def test_two_members_share_and_leave() -> None:
    """The first has all; the second gets half after the first gave it up; when the first leaves it gets the rest."""
    world = World()
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
