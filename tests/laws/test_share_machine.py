"""Share groups at random: members that take, accept, release, forget and die, and brokers that are killed."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from .share_world import BATCH_MAX, ShareWorld

MEMBERS = st.sampled_from(("ann", "ben", "eve"))
TYPES = st.sampled_from((0, 1, 1, 1, 2, 2, 3, 4))


class ShareMachine(RuleBasedStateMachine):
    """Chance decides who does what next; the laws hold after each step, and nothing is lost in the end."""

    @initialize(count_limit=st.integers(2, 6), locks_max=st.integers(5, 30))
    def begin(self, count_limit: int, locks_max: int) -> None:
        self.world = ShareWorld(count_limit, locks_max)

    @rule(count=st.integers(1, BATCH_MAX))
    def produce(self, count: int) -> None:
        if self.world.end_offset < 60:
            self.world.produce(count)

    @rule(member=MEMBERS, most=st.integers(1, 12), is_limit=st.booleans(), read_max=st.integers(1, 8))
    def fetch(self, member: str, most: int, is_limit: bool, read_max: int) -> None:
        taken = self.world.fetch(member, most, is_limit=is_limit, read_max=read_max)
        assert not is_limit or len(taken) <= most

    @rule(member=MEMBERS, kind=TYPES, data=st.data())
    def acknowledge(self, member: str, kind: int, data: st.DataObject) -> None:
        held = self.world.ledger.held_by(member)
        if held:
            first = data.draw(st.sampled_from(held))
            last = data.draw(st.integers(first, first + 4))
            self.world.acknowledge(member, (first, last, (kind,)))

    @rule(member=MEMBERS, first=st.integers(0, 60), kinds=st.lists(TYPES, min_size=1, max_size=5))
    def acknowledge_anything(self, member: str, first: int, kinds: list[int]) -> None:
        self.world.acknowledge(member, (first, first + len(kinds) - 1, tuple(kinds)))

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.world.leave(member)

    @rule(duration_ms=st.sampled_from((1, 10_000, 29_999, 30_001, 301_000)))
    def pass_time(self, duration_ms: int) -> None:
        self.world.pass_time(duration_ms)

    @rule(is_late=st.booleans())
    def be_late(self, is_late: bool) -> None:
        self.world.store.acknowledge_late = is_late

    @rule()
    def settle(self) -> None:
        self.world.settle()

    @rule()
    def kill_leader(self) -> None:
        self.world.kill_leader()

    @rule()
    def kill_coordinator(self) -> None:
        self.world.kill_coordinator()

    @rule(part=st.integers(1, 5))
    def delete_records(self, part: int) -> None:
        offset = min(self.world.partition.start_offset + part, self.world.end_offset)
        self.world.settle()
        self.world.delete_before(offset)

    @invariant()
    def laws_hold(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.work_off()
            self.world.check()


ShareMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=40)
TestShareMachine = ShareMachine.TestCase


class LongShareMachine(ShareMachine):
    """The same, for longer."""


LongShareMachine.TestCase.settings = settings(max_examples=2_000, stateful_step_count=60)
TestLongShareMachine = pytest.mark.slow(LongShareMachine.TestCase)
