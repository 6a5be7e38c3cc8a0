"""Views of all announcements: who lives, who should own what, and outdated owners."""

from __future__ import annotations

import pytest

from groupcoord.cluster.membership import DEAD_MS, Announcement, Membership
from groupcoord.cluster.slot_log import Beat

PARTITIONS = 12
NAMES = ("a", "b", "c")


def beats(*nodes: tuple[str, int, dict[int, int]]) -> list[Beat]:
    return [Beat(name, age_ms, Announcement(f"host-{name}", owned, owned).encoded()) for name, age_ms, owned in nodes]


def heard(me: str, *nodes: tuple[str, int, dict[int, int]], partitions: int = PARTITIONS) -> Membership:
    membership = Membership(me, partitions)
    membership.heard(beats(*nodes))
    return membership


def test_partitions_are_spread_and_few_move() -> None:
    """Each live node has its share; one that dies leaves its own to the others, and nothing else moves."""
    all_three = heard("a", ("a", 0, {}), ("b", 10, {}), ("c", 20, {}), partitions=300)
    before = [all_three.chosen(partition) for partition in range(300)]
    assert all(70 < before.count(name) < 130 for name in NAMES)
    two = heard("a", ("a", 0, {}), ("b", 10, {}), ("c", DEAD_MS, {}), partitions=300)
    after = [two.chosen(partition) for partition in range(300)]
    assert [now for was, now in zip(before, after, strict=True) if was != "c"] == [was for was in before if was != "c"]
    assert "c" not in after


def test_a_live_owner_is_left_alone() -> None:
    """It releases partitions meant for others; only then, or when it is dead, another node takes over."""
    membership = heard("a", ("a", 0, {}), ("b", 10, dict.fromkeys(range(PARTITIONS), 7)))
    mine = [partition for partition in range(PARTITIONS) if membership.chosen(partition) == "a"]
    assert mine
    assert membership.to_take({}) == []
    of_b = heard("b", ("a", 0, {}), ("b", 10, {}))
    assert of_b.to_release(dict.fromkeys(range(PARTITIONS), 7)) == mine
    assert heard("a", ("a", 0, {}), ("b", 10, {})).to_take({}) == mine
    assert heard("a", ("a", 0, {}), ("b", DEAD_MS, {0: 7})).to_take({}) == list(range(PARTITIONS))


def test_the_newest_owner_counts() -> None:
    """Of two owners the one with the higher epoch counts; the other learns of its loss."""
    membership = heard("a", ("a", 0, {0: 3}), ("b", 10, {0: 9}))
    owner = membership.owner(0)
    assert owner is not None
    assert (owner.node_id, owner.address, owner.epoch) == ("b", "host-b", 9)
    assert membership.superseded({0: 3, 1: 3}) == [0]
    assert membership.owner(1) is None


def test_who_was_taken_over_from_learns_it_from_anybody() -> None:
    """Also when the new owner is dead, or has released it: other nodes report it."""
    membership = Membership("a", PARTITIONS)
    said = {"a": Announcement("", {0: 3}, {0: 3}), "c": Announcement("", {}, {0: 9})}
    membership.heard([Beat(name, DEAD_MS, one.encoded()) for name, one in said.items()])
    assert membership.superseded({0: 3}) == [0]
    assert membership.announcement("", {}).known == {0: 9}


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"address": "x", "owned": 3, "known": []}'])
def test_what_is_no_announcement_is_an_error(content: bytes) -> None:
    """The place is used by another program."""
    with pytest.raises(ValueError, match=r"."):
        Announcement.decoded(content)
