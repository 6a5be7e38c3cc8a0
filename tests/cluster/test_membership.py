"""Membership and ownership: late heartbeats, suspended nodes, and outdated owners."""

from __future__ import annotations

import pytest
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from groupcoord.cluster.membership import DEAD_MS, LEASE_MS, Announcement, Membership
from groupcoord.cluster.slot_log import Beat

PARTITIONS = 12
NAMES = ("a", "b", "c")


def beats(*nodes: tuple[str, int, dict[int, int]]) -> list[Beat]:
    return [Beat(name, age_ms, Announcement(f"host-{name}", owned, owned).encoded()) for name, age_ms, owned in nodes]


def heard(me: str, *nodes: tuple[str, int, dict[int, int]], partitions: int = PARTITIONS) -> Membership:
    membership = Membership(me, partitions)
    membership.heard(beats(*nodes), 0)
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
    assert membership.to_take({}, 0) == []
    of_b = heard("b", ("a", 0, {}), ("b", 10, {}))
    assert of_b.to_release(dict.fromkeys(range(PARTITIONS), 7)) == mine
    assert heard("a", ("a", 0, {}), ("b", 10, {})).to_take({}, 0) == mine
    assert heard("a", ("a", 0, {}), ("b", DEAD_MS, {0: 7})).to_take({}, 0) == list(range(PARTITIONS))


def test_who_does_not_hear_itself_takes_nothing() -> None:
    """It can't know which nodes live."""
    assert Membership("a", PARTITIONS).to_take({}, 0) == []
    assert heard("a", ("a", 0, {})).to_take({}, LEASE_MS) == []


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
    membership.heard([Beat(name, DEAD_MS, one.encoded()) for name, one in said.items()], 0)
    assert membership.superseded({0: 3}) == [0]
    assert membership.announcement("", {}).known == {0: 9}


@pytest.mark.parametrize("lease_ms", [0, DEAD_MS])
def test_a_lease_ends_before_a_node_counts_as_dead(lease_ms: int) -> None:
    """Else it would answer when others own already what it owned."""
    with pytest.raises(ValueError, match="must be shorter"):
        Membership("a", PARTITIONS, lease_ms)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"address": "x", "owned": 3, "known": []}'])
def test_what_is_no_announcement_is_an_error(content: bytes) -> None:
    """The place is used by another program."""
    with pytest.raises(ValueError, match=r"."):
        Announcement.decoded(content)


@define(eq=False)
class Node:
    """A node, and its beat on its way.

    Attributes:
        owned: what it believes to own.
        began_ms: when the beat began that isn't answered yet; None: there is none.
        answer: what that was answered, on its way back.
    """

    membership: Membership
    owned: dict[int, int] = field(factory=dict)
    began_ms: int | None = None
    answer: list[Beat] | None = None


class LeaseMachine(RuleBasedStateMachine):
    """The law: no node answers for a partition that another one has announced for longer than a lease."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.epochs = [0] * PARTITIONS
        self.said: dict[str, tuple[int, bytes]] = {}
        self.owners: dict[int, list[tuple[int, str, int]]] = {}  # when which node has said so first, and its epoch

    @initialize()
    def begin(self) -> None:
        self.nodes = {name: Node(Membership(name, PARTITIONS)) for name in NAMES}

    @rule(duration_ms=st.integers(1, 800))
    def pass_time(self, duration_ms: int) -> None:
        self.now_ms += duration_ms

    @rule(name=st.sampled_from(NAMES))
    def begin_beat(self, name: str) -> None:
        node = self.nodes[name]
        if node.began_ms is None:
            node.began_ms = self.now_ms

    @rule(name=st.sampled_from(NAMES))
    def beat_arrives(self, name: str) -> None:
        node = self.nodes[name]
        if node.began_ms is None or node.answer is not None:
            return
        self.said[name] = self.now_ms, node.membership.announcement(name, node.owned).encoded()
        for partition, epoch in node.owned.items():
            claims = self.owners.setdefault(partition, [])
            if (name, epoch) not in [claim[1:] for claim in claims]:
                claims.append((self.now_ms, name, epoch))
        node.answer = [Beat(other, self.now_ms - at_ms, content) for other, (at_ms, content) in self.said.items()]

    @rule(name=st.sampled_from(NAMES))
    def answer_arrives(self, name: str) -> None:
        node = self.nodes[name]
        if node.answer is None or node.began_ms is None:
            return
        node.membership.heard(node.answer, node.began_ms)
        node.answer = node.began_ms = None
        for partition in {*node.membership.superseded(node.owned), *node.membership.to_release(node.owned)}:
            del node.owned[partition]
        for partition in node.membership.to_take(node.owned, self.now_ms):
            self.epochs[partition] += 1  # the fence stands at once: what comes between is no matter of leases
            node.owned[partition] = self.epochs[partition]

    @rule(name=st.sampled_from(NAMES))
    def go_well(self, name: str) -> None:
        self.begin_beat(name)
        self.beat_arrives(name)
        self.answer_arrives(name)

    @precondition(lambda self: len(self.said) == len(NAMES))
    @invariant()
    def no_answer_from_a_zombie_after_its_lease(self) -> None:
        for name, node in self.nodes.items():
            if not node.membership.may_answer(self.now_ms):
                continue
            for partition, epoch in node.owned.items():
                for since_ms, other, newer in self.owners.get(partition, ()):
                    is_zombie = other != name and newer > epoch and self.now_ms - since_ms >= LEASE_MS
                    assert not is_zombie, f"{name} answers for {partition}, which {other} owns since {since_ms}"


TestLeases = LeaseMachine.TestCase
TestLeases.settings = settings(max_examples=60, stateful_step_count=40)
