"""Share groups over two processes at random: either is killed at any moment, and answers between them are held back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from groupcoord import ErrorCode
from groupcoord.wire.share_messages import (
    AcknowledgementBatch,
    ShareAcknowledge,
    ShareFetch,
    ShareFetchPartition,
    ShareFetchTopic,
)
from tests.broker.sharing_processes import ACCEPT, RELEASE, Sharing

MEMBERS = st.sampled_from(("ann", "ben"))
INDEXES = st.sampled_from((0, 1))
WORKERS = INDEXES
KINDS = st.sampled_from((ACCEPT, ACCEPT, RELEASE))
RECORDS_MAX, RECORDS_AT_ONCE = 12, 3
DELIVERIES_MAX = 5
LOCK_MS = 30_000
LONGEST_RETRY_MS = 15_000


class Place(NamedTuple):
    """A record of the topic."""

    index: int
    offset: int


class Waiting(NamedTuple):
    """A request of a member, until its answer comes into the list."""

    request: Any
    answers: list[Any]


class Member:
    """A share consumer of one partition: its session with the leader, and what it has."""

    def __init__(self, world: ShareProcesses, member_id: str, index: int) -> None:
        self.world = world
        self.member_id = member_id
        self.index = index
        self.forget()

    def forget(self) -> None:
        """The leader was killed: it knows of no session, and whose request waits hears nothing."""
        self.epoch = 0
        self.waiting: Waiting | None = None
        self.has: list[Place] = []

    def ask(self, request: Any) -> None:
        self.epoch += 1
        found = self.world.sharing.ask(self.index % 2, request)
        self.waiting = Waiting(request, found if isinstance(found, list) else [found])
        self.hear()

    def fetch(self, max_wait_ms: int = 0) -> None:
        topics = (ShareFetchTopic(self.world.sharing.topic_id, (ShareFetchPartition(self.index),)),)
        topics = topics if self.epoch == 0 else ()
        group_id, limit = self.world.group_id, RECORDS_AT_ONCE
        self.ask(ShareFetch(group_id, self.member_id, self.epoch, max_wait_ms, 1, 2**20, limit, limit, topics))

    def acknowledge(self, places: list[Place], kind: int) -> None:
        self.has = [place for place in self.has if place not in places]
        batches = tuple(AcknowledgementBatch(place.offset, place.offset, (kind,)) for place in places)
        topics = (ShareFetchTopic(self.world.sharing.topic_id, (ShareFetchPartition(self.index, batches),)),)
        if kind == ACCEPT:
            self.world.perhaps_accepted.update(places)
        self.ask(ShareAcknowledge(self.world.group_id, self.member_id, self.epoch, topics))

    def hear(self) -> None:
        """Take the answer, if it has come."""
        if self.waiting is None or not self.waiting.answers:
            return
        (request, (response,)), self.waiting = self.waiting, None
        if response.error_code is not ErrorCode.NONE:
            self.forget()
        elif isinstance(request, ShareFetch):
            for topic in response.responses:
                for partition in topic.partitions:
                    for acquired in partition.acquired_records:
                        self.take(*acquired)
        else:
            (topic,) = request.topics
            (result,) = response.responses[0].partitions
            (partition,) = topic.partitions
            for batch in partition.acknowledgement_batches:
                if result.error_code is ErrorCode.NONE and batch.acknowledge_types == (ACCEPT,):
                    self.world.accepted.add(Place(self.index, batch.first_offset))

    def take(self, first: int, last: int, delivery_count: int) -> None:
        for offset in range(first, last + 1):
            place = Place(self.index, offset)
            assert place not in self.world.accepted, f"{place} was accepted, and comes again"
            self.world.deliveries[place] = max(self.world.deliveries.get(place, 0), delivery_count)
            self.has.append(place)


class ShareProcesses:
    """Two workers, and two members at each partition. The state of a partition is with the other worker, or here."""

    def __init__(self, path: Path, state_of_first: int) -> None:
        self.sharing = Sharing(path)
        self.group_id = self.sharing.group(0, {0: state_of_first})
        assert self.sharing.join(0, self.group_id) == [0, 1, 2, 3]
        self.members = {(name, index): Member(self, name, index) for name in ("ann", "ben") for index in (0, 1)}
        self.counts = {0: RECORDS_MAX // 2, 1: RECORDS_MAX // 2}
        for index, count in self.counts.items():
            self.sharing.fill(index, count)
        self.accepted: set[Place] = set()
        self.perhaps_accepted: set[Place] = set()
        self.deliveries: dict[Place, int] = {}

    def runs(self, worker: int) -> bool:
        return worker + 1 in self.sharing.brokers

    def kill(self, worker: int) -> None:
        self.sharing.kill(worker)
        for member in self.members.values():
            if member.index % 2 == worker:
                member.forget()
        self.settle()

    def start(self) -> None:
        for worker in (0, 1):
            if not self.runs(worker):
                self.sharing.start(worker)
        self.settle()

    def settle(self) -> None:
        self.sharing.settle()
        for member in self.members.values():
            member.hear()

    def pass_time(self, duration_ms: int) -> None:
        self.sharing.pass_time(duration_ms)
        self.settle()

    def work_off(self) -> None:
        """Both workers run: whatever is left is accepted, and then nothing is left."""
        self.start()
        self.sharing.let_go_on()
        self.settle()
        self.pass_time(LONGEST_RETRY_MS)
        self.pass_time(LOCK_MS)
        for member in self.members.values():
            assert member.waiting is None, "an answer never came"
        for _ in range(DELIVERIES_MAX + 1):
            for member in self.members.values():
                member.has = []
                member.fetch()
                if member.has:
                    member.acknowledge(list(member.has), ACCEPT)
            self.pass_time(LOCK_MS)
        for index, count in self.counts.items():
            for place in (Place(index, offset) for offset in range(count)):
                is_done = place in self.perhaps_accepted or self.deliveries.get(place) == DELIVERIES_MAX
                assert is_done, f"{place} never came"
            if count:
                assert self.sharing.lag(0, self.group_id, index) == 0


class ShareProcessesMachine(RuleBasedStateMachine):
    """Chance decides what happens next. What was accepted never comes again, and nothing is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.world: ShareProcesses | None = None

    def of(self, name: str, index: int) -> Member | None:
        """Return a member that can ask something: its leader runs, and it waits for no answer."""
        assert self.world is not None
        member = self.world.members[name, index]
        return member if self.world.runs(index) and member.waiting is None else None

    @precondition(lambda self: self.world is None)
    @rule(state_of_first=WORKERS)
    def begin(self, state_of_first: int) -> None:
        self.world = ShareProcesses(Path(self.folder.name), state_of_first)

    @precondition(lambda self: self.world)
    @rule(index=INDEXES, count=st.integers(1, 4))
    def produce(self, index: int, count: int) -> None:
        assert self.world is not None
        if self.world.runs(index) and self.world.counts[index] + count <= RECORDS_MAX:
            self.world.sharing.fill(index, count)
            self.world.counts[index] += count

    @precondition(lambda self: self.world)
    @rule(name=MEMBERS, index=INDEXES, most=st.integers(1, 4), kind=KINDS, max_wait_ms=st.sampled_from((0, 500)))
    def work(self, name: str, index: int, most: int, kind: int, max_wait_ms: int) -> None:
        """A member says what becomes of what it has, or takes something."""
        member = self.of(name, index)
        if member is not None and member.has:
            member.acknowledge(member.has[:most], kind)
        elif member is not None:
            member.fetch(max_wait_ms)

    @precondition(lambda self: self.world and len(self.world.sharing.brokers) == 2)
    @rule(worker=WORKERS)
    def kill(self, worker: int) -> None:
        assert self.world is not None
        self.world.kill(worker)

    @precondition(lambda self: self.world and len(self.world.sharing.brokers) < 2)
    @rule()
    def start(self) -> None:
        assert self.world is not None
        self.world.start()

    @precondition(lambda self: self.world)
    @rule(holds=st.booleans())
    def hold(self, holds: bool) -> None:
        assert self.world is not None
        self.world.sharing.holds = holds

    @precondition(lambda self: self.world)
    @rule()
    def let_go(self) -> None:
        assert self.world is not None
        self.world.sharing.let_go()
        self.world.settle()

    @precondition(lambda self: self.world)
    @rule(duration_ms=st.sampled_from((1, 1_000, 2_000, 8_000, LOCK_MS + 1)))
    def pass_time(self, duration_ms: int) -> None:
        assert self.world is not None
        self.world.pass_time(duration_ms)

    def teardown(self) -> None:
        with self.folder:
            if self.world is not None:
                with closing(self.world.sharing):
                    self.world.work_off()


ShareProcessesMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=40)
TestShareProcesses = ShareProcessesMachine.TestCase


class LongShareProcessesMachine(ShareProcessesMachine):
    """The same, for longer."""


LongShareProcessesMachine.TestCase.settings = settings(max_examples=1_000, stateful_step_count=60)
TestLongShareProcesses = pytest.mark.slow(LongShareProcessesMachine.TestCase)
