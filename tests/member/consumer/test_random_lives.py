"""Random lives of several members beside a real coordinator, over a network that delays, loses and reorders.

Nothing is raised; no partition is owned by two that both still may: whoever is not out of the group has it alone; and
once all is well, the group comes to rest with each partition at one member.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from groupcoord.member import CommitCompleted, CommitFailure, MemberState, TopicPartition

from .world import FOREVER_MS, ConsumerWorld, Host, Topics

NAMES = ("ann", "bob", "cid")
WAITS_MS = (1, 100, 900, 1_000, 3_000, 9_999, 12_000)
STEPS = 40


class Life:
    def __init__(self, draw: Callable[..., object], is_static: bool) -> None:
        self.world = ConsumerWorld(Topics(orders=4, bills=3))
        self.world.keeps = True
        self._draw = draw
        self._is_static = is_static

    def pick(self, *options: object) -> object:
        return self._draw(st.sampled_from(options))

    def step(self) -> None:
        world = self.world
        action = self._draw(st.sampled_from(ACTIONS))
        host = world.hosts.get(str(self.pick(*NAMES)))
        assert callable(action)
        action(self, host)
        world.collect()
        self.check()
        world.coordinator.check()

    # ------------------------------------------------------------ what may happen

    def deliver(self, host: Host | None) -> None:
        """Answers come, those of one member in order."""
        if self.world.answers:
            number = self._draw(st.integers(0, len(self.world.answers) - 1))
            chosen = self.world.answers[int(str(number))][0]
            first = next(i for i, answer in enumerate(self.world.answers) if answer[0] is chosen)
            self.world.deliver(first)

    def deliver_all(self, host: Host | None) -> None:
        self.world.keeps = False
        self.world.carry()
        self.world.keeps = True

    def wait(self, host: Host | None) -> None:
        self.world.wait(int(str(self.pick(*WAITS_MS))))

    def come(self, host: Host | None) -> None:
        missing = [name for name in NAMES if name not in self.world.hosts]
        if missing:
            name = str(self.pick(*missing))
            settings = {"group_instance_id": name} if self._is_static else {}
            topics = self.pick(("orders",), ("orders", "bills"), ("bills",))
            assert isinstance(topics, tuple)
            self.world.add(name, *topics, max_poll_interval_ms=8_000, auto_commit_interval_ms=500, **settings)

    def lose(self, host: Host | None) -> None:
        if host is not None:
            self.world.lose(host.name)

    def crash(self, host: Host | None) -> None:
        if host is not None:
            self.world.crash(host.name)

    def close(self, host: Host | None) -> None:
        if host is not None:
            host.is_open = False
            host.member.close(self.world.clock.now_ms(), timeout_ms=2_000)

    def subscribe(self, host: Host | None) -> None:
        if host is not None and host.is_open:
            topics = self.pick(("orders",), ("orders", "bills"))
            assert isinstance(topics, tuple)
            host.topics = topics
            host.member.subscribe(topics, self.world.clock.now_ms())

    def consume(self, host: Host | None) -> None:
        if host is not None:
            host.member.consumed({p: self.world.clock.now_ms() for p in host.member.fetchable})

    def be_busy(self, host: Host | None) -> None:
        if host is not None and host.is_open:
            host.member.poll(self.world.clock.now_ms(), 0)

    def poll(self, host: Host | None) -> None:
        if host is not None and host.is_open:
            host.member.poll(self.world.clock.now_ms(), FOREVER_MS)

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        """By events, and by the coordinator's state, no partition has two owners."""
        owners: dict[TopicPartition, str] = {}
        counted = self.world.epochs()
        for host in self.world.hosts.values():
            assert host.owned == set(host.member.assignment), host.name
            if host.member.member_id not in counted or host.member.generation_id < 0:
                continue  # it is out of the group, and will hear of it
            for partition in host.owned:
                assert partition not in owners, (partition, owners[partition], host.name)
                owners[partition] = host.name


ACTIONS = (
    *(Life.deliver,) * 6,
    *(Life.wait,) * 4,
    *(Life.deliver_all, Life.come, Life.come, Life.lose, Life.crash, Life.close),
    *(Life.subscribe, Life.consume, Life.be_busy, Life.poll),
)


def live(data: st.DataObject, is_static: bool) -> None:
    life = Life(data.draw, is_static)
    world = life.world
    for name in NAMES[:2]:
        world.add(name, "orders", group_instance_id=name if is_static else None)
    for _ in range(STEPS):
        life.step()
    world.keeps = False
    for host in list(world.hosts.values()):
        life.poll(host)
    world.wait(30_000)
    if not world.hosts:
        world.add("dan", "orders")
    world.wait(30_000)
    life.check()
    owned = [partition for host in world.hosts.values() for partition in host.owned]
    wanted = {topic for host in world.hosts.values() for topic in host.topics}
    assert sorted(owned) == sorted(
        TopicPartition(topic, number) for topic in wanted for number in range(world.topics.partition_counts[topic])
    )
    assert {host.member.state for host in world.hosts.values()} == {MemberState.STABLE}


@settings(max_examples=40, deadline=None)
@given(st.data(), st.booleans())
def test_random_lives(data: st.DataObject, is_static: bool) -> None:
    """Whatever happens, partitions have one owner; then the group becomes stable, with all
    subscribed partitions owned.
    """
    live(data, is_static)


@pytest.mark.slow
@settings(max_examples=1_000, deadline=None)
@given(st.data(), st.booleans())
def test_many_random_lives(data: st.DataObject, is_static: bool) -> None:
    live(data, is_static)


def test_a_commit_with_the_epoch_of_now_is_taken() -> None:
    """Through rebalances that change epochs, positions are committed, and the next owner continues there."""
    world = ConsumerWorld()
    ann = world.add("ann", auto_commit_interval_ms=500)
    world.wait(2_000)
    ann.member.consumed(dict.fromkeys(ann.owned, 7))
    bob = world.add("bob")
    world.wait(6_000)
    bob.member.fetch_offsets(bob.owned, world.clock.now_ms())
    world.wait(1_000)
    assert bob.fetched == dict.fromkeys(bob.owned, 7)
    failures = [event.failure for event in ann.events if isinstance(event, CommitCompleted)]
    assert set(failures) <= {None, CommitFailure.RETRIABLE}
