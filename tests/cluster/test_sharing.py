"""Replicas that share a log: who serves what when, and that at most one answers for a log partition at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest
from attrs import define, evolve, field
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from groupcoord import ErrorCode, PartitionStatus
from groupcoord.clock import ManualClock
from groupcoord.cluster.membership import BEAT_MS, DEAD_MS, LEASE_MS
from groupcoord.cluster.slot_log import Beat, MemorySlotLog
from groupcoord.cluster.slot_store import SNAPSHOT_BYTES_MIN
from groupcoord.events import GroupRemoved, RebalanceCompleted
from groupcoord.laws import OwnerLaws
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    GroupToFetch,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    SyncGroup,
)

from .nodes import PARTITIONS, Node, commit

SESSION_MS = 10_000


def cluster(*names: str, snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN) -> list[Node]:
    """Return replicas that have shared the log partitions out among them."""
    clock, slot_log = ManualClock(), MemorySlotLog()
    nodes = [Node(name, slot_log, clock, snapshot_bytes_min) for name in names]
    settle(nodes)
    return nodes


def settle(nodes: list[Node]) -> None:
    """Send heartbeats of the replicas until each owns its share."""
    for _ in range(8):
        nodes[0].clock.advance(BEAT_MS)
        for node in nodes:
            node.beat()
            node.work()


def owners(nodes: list[Node]) -> dict[int, str]:
    """Return who serves which log partition."""
    return {
        partition: node.name
        for node in nodes
        for partition in range(PARTITIONS)
        if node.core.status(partition) is PartitionStatus.ACTIVE
    }


def owner_and_other(nodes: list[Node]) -> tuple[int, Node, Node]:
    """Return a log partition, which of two replicas serves it, and the other one."""
    partition, name = next(iter(owners(nodes).items()))
    owner, other = sorted(nodes, key=lambda node: node.name != name)
    return partition, owner, other


def groups_in(node: Node, partition: int) -> Iterator[str]:
    """Yield groups of a log partition."""
    return (name for name in map(str, range(100)) if node.core.partition_of(name) == partition)


def group_in(node: Node, partition: int) -> str:
    return next(groups_in(node, partition))


def fetched(node: Node, group_id: str) -> int:
    """Return what is committed for a group."""
    (group,) = node.core.call(OffsetFetch((GroupToFetch(group_id),))).groups
    assert group.error_code is ErrorCode.NONE
    return group.topics[0].partitions[0].committed_offset


def test_each_log_partition_is_served_by_one_and_all_know_by_whom() -> None:
    """A replica refuses requests for groups that it does not own, and names the owner."""
    nodes = cluster("a", "b", "c")
    served = owners(nodes)
    assert sorted(served) == list(range(PARTITIONS))
    for node in nodes:
        for partition, name in served.items():
            group_id = group_in(node, partition)
            owner = node.sharing.owner_of(node.core.partition_of(group_id))
            assert owner is not None
            assert (owner.node_id, owner.address) == (name, f"host-{name}")
            (group,) = node.core.call(OffsetFetch((GroupToFetch(group_id),))).groups
            assert group.error_code is (ErrorCode.NONE if name == node.name else ErrorCode.NOT_COORDINATOR)


def test_who_dies_is_replaced_and_what_it_has_acknowledged_is_there() -> None:
    """Its log partitions are taken over only after it counts as dead."""
    nodes = cluster("a", "b", "c")
    partition, name = next(iter(owners(nodes).items()))
    (dead,) = [node for node in nodes if node.name == name]
    others = [node for node in nodes if node is not dead]
    group_id = group_in(dead, partition)
    dead.core.submit(commit(group_id, 7))
    dead.work()
    assert dead.core.take_replies()
    others[0].clock.advance(DEAD_MS - 1)
    for node in others:
        node.beat()
        node.work()
    assert partition not in owners(others)
    settle(others)
    (heir,) = [node for node in others if node.name == owners(others)[partition]]
    assert fetched(heir, group_id) == 7


def test_who_leaves_is_replaced_at_once() -> None:
    """Its announcement makes the others take over at once."""
    nodes = cluster("a", "b")
    other, leaver = nodes
    lost = [partition for partition, name in owners(nodes).items() if name == leaver.name]
    assert lost
    leaver.leave()
    other.run()
    assert owners([other]) == dict.fromkeys(range(PARTITIONS), other.name)
    assert leaver.sharing.owner_of(lost[0]) is None, "as far as it has heard"


def test_nothing_is_loaded_before_it_was_announced() -> None:
    """Another one may be about to take it over, who has not heard of it."""
    node = Node("a", MemorySlotLog(), ManualClock())
    assert node.beat() == []
    began_ms, beats = node.begin_beat()
    node.work()
    assert len(node.store.owned) == PARTITIONS
    assert node.end_beat(beats, began_ms) == [], "when the beat began, it had nothing to announce"
    assert len(node.beat()) == PARTITIONS
    assert node.beat() == []


def test_a_load_is_no_look() -> None:
    """A replica that was suspended before a load has read an old log: the next heartbeat decides on ownership."""
    node = Node("a", MemorySlotLog(), ManualClock())
    node.beat()
    node.work()
    began_ms, beats = node.begin_beat()
    to_load = node.sharing.heard(beats, began_ms)
    node.clock.advance(LEASE_MS)
    for partition, epoch in to_load:
        node.core.load(partition, epoch)
    assert sorted(owners([node])) == list(range(PARTITIONS))
    assert not node.core.may_answer()
    node.beat()
    assert node.core.may_answer()


def test_what_was_heard_before_a_pause_is_no_reason_to_take_over() -> None:
    """Others may own by now what had no owner then."""
    node = Node("a", MemorySlotLog(), ManualClock())
    began_ms, beats = node.begin_beat()
    node.clock.advance(LEASE_MS)
    node.end_beat(beats, began_ms)
    assert node.store.next_operations() == []
    node.beat()
    assert len(node.store.next_operations()) == PARTITIONS


def test_who_was_stopped_answers_nothing_from_before() -> None:
    """Requests in the meantime wait for a check, which finds the new owner."""
    nodes = cluster("a", "b")
    partition, stopped, other = owner_and_other(nodes)
    group_id = group_in(stopped, partition)
    stopped.core.submit(commit(group_id, 7))
    stopped.work()
    stopped.core.take_replies()
    other.clock.advance(DEAD_MS)
    other.run()
    assert owners([other])[partition] == other.name
    stopped.core.submit(OffsetFetch((GroupToFetch(group_id),)), "late")
    assert stopped.core.take_replies() == [], "the lease is over"
    stopped.beat()
    ((token, answer),) = stopped.core.take_replies()
    assert (token, answer.groups[0].error_code) == ("late", ErrorCode.NOT_COORDINATOR)
    assert fetched(other, group_id) == 7


@pytest.mark.parametrize("finds_out", ["by its beat", "by its next put", "by its next put, whose slot is purged"])
def test_who_was_stopped_tells_of_no_session_that_ended_meanwhile(finds_out: str) -> None:
    """Sessions that expired during the pause emit nothing: the group has another owner, and the member lives."""
    nodes = cluster("a", "b", snapshot_bytes_min=0 if "purged" in finds_out else SNAPSHOT_BYTES_MIN)
    partition, stopped, other = owner_and_other(nodes)
    stopped.core.observe()
    group_id = group_in(stopped, partition)
    protocols = (JoinProtocol("range", b""),)
    stopped.core.submit(
        JoinGroup(group_id, "", "consumer", protocols, SESSION_MS, SESSION_MS, requires_known_member_id=False)
    )
    for _ in range(3):
        settle(nodes)
    ((_, joined),) = stopped.core.take_replies()
    assert isinstance(joined, JoinGroupResponse)
    stopped.core.submit(SyncGroup(group_id, joined.generation_id, joined.member_id))
    stopped.work()
    assert RebalanceCompleted in map(type, stopped.core.take_events())
    for _ in range(2):
        other.clock.advance(SESSION_MS)
        other.run()
    assert owners([other])[partition] == other.name
    for offset in range(3):
        other.core.submit(commit(group_id, offset))
        other.work()
    stopped.core.tick()
    assert stopped.core.has_events
    assert stopped.core.take_events() == []
    if "put" in finds_out:
        stopped.work()
    stopped.run()
    assert [type(event) for event in stopped.core.take_events() if event.group_id == group_id] == [GroupRemoved]


def test_who_loses_a_log_partition_writes_nothing_more_there_while_its_appends_fail() -> None:
    nodes = cluster("a", "b")
    partition, stopped, other = owner_and_other(nodes)
    groups = groups_in(stopped, partition)
    group_id = next(groups)
    first = ConsumerGroupHeartbeat(
        group_id, "first", 0, rebalance_timeout_ms=SESSION_MS, subscribed_topic_names=("t",), topic_partitions=()
    )
    stopped.core.submit(first)
    stopped.work()
    other.clock.advance(DEAD_MS)
    other.run()
    stopped.core.submit(evolve(first, member_id="second"))
    stopped.core.submit(evolve(first, member_id="waits for the answer to the second"))
    stopped.core.submit(commit(next(groups), 1))
    stopped.work()
    assert partition not in stopped.store.owned
    assert owners(nodes)[partition] == other.name


def test_what_is_too_large_fails_alone() -> None:
    """The log refuses it at once, while others are on their way: these are written, and the log partition is served."""
    nodes = cluster("a", "b")
    partition, owner, other = owner_and_other(nodes)
    large, group_id = islice(groups_in(owner, partition), 2)
    protocols = (JoinProtocol("range", b"x" * 1_200_000),)
    owner.core.submit(
        JoinGroup(large, "", "consumer", protocols, SESSION_MS, SESSION_MS, requires_known_member_id=False)
    )
    for _ in range(3):
        settle(nodes)
    ((_, joined),) = owner.core.take_replies()
    assert isinstance(joined, JoinGroupResponse)
    lengths = (length for length in count(40_000) if owner.core.partition_of("x" * length) == partition)
    endless = "x" * next(lengths)
    owner.core.submit(commit(group_id, 7), "before")
    owner.core.submit(SyncGroup(large, joined.generation_id, joined.member_id), "too large")
    owner.core.submit(commit(endless, 8), "no bytes")
    owner.core.submit(commit(group_id, 9), "behind")
    assert owner.core.take_replies() == []
    owner.work()
    owner.core.check()
    replies = dict(owner.core.take_replies())
    assert list(replies) == ["before", "too large", "no bytes", "behind"]
    assert replies["too large"].error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    codes = [replies[token].topics[0].partitions[0].error_code for token in ("before", "no bytes", "behind")]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    assert owners([owner])[partition] == owner.name
    other.clock.advance(DEAD_MS)
    other.run()
    assert fetched(other, group_id) == 9


def test_who_was_stopped_tells_nothing_of_a_group_that_was_being_made() -> None:
    """Another owner knows whether the group exists: here it is unloaded, and its creation has not failed."""
    nodes = cluster("a", "b")
    partition, stopped, other = owner_and_other(nodes)
    stopped.core.observe()
    group_id = group_in(stopped, partition)
    stopped.core.submit(commit(group_id, 7))
    other.clock.advance(DEAD_MS)
    other.run()
    stopped.run()
    assert partition not in stopped.store.owned
    assert [event for event in stopped.core.take_events() if event.group_id == group_id] == []


def test_a_long_log_becomes_a_snapshot() -> None:
    """Replaced commits are purged from the slots, and a new owner finds the current ones."""
    nodes = cluster("a", "b", snapshot_bytes_min=5_000)
    partition, owner, other = owner_and_other(nodes)
    group_id = group_in(owner, partition)
    for offset in range(100):
        owner.core.submit(commit(group_id, offset))
        owner.work()
    assert len(owner.slot_log._slots[partition]) < 20
    other.clock.advance(DEAD_MS)
    other.run()
    assert fetched(other, group_id) == 99


# ---------------------------------------------------------------- chance


@define(eq=False)
class Process:
    """A life of a replica.

    Attributes:
        node: what it is.
        beats: answers to beats that are on their way back, and when the beats began.
        epochs: of each log partition that it ever owned the last.
    """

    node: Node
    beats: list[tuple[int, list[Beat]]] = field(factory=list)
    epochs: dict[int, int] = field(factory=dict)


class SharingMachine(RuleBasedStateMachine):
    """Replicas that stand still, beat late and are killed: one answers at a time, and knows all that was acknowledged.

    A rule moves one replica, and that is all that happens: the others stand still, for as long as chance wants."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.slot_log = ManualClock(), MemorySlotLog()
        self.laws = [OwnerLaws(LEASE_MS) for _ in range(PARTITIONS)]
        self.count = 0
        self.acknowledged: dict[str, int] = {}
        self.processes: list[Process] = []

    @initialize()
    def begin(self) -> None:
        self.processes = [self.start(), self.start(), self.start()]
        self.groups = [group_in(self.processes[0].node, partition) for partition in range(PARTITIONS)]
        self.go_well(0)

    def start(self) -> Process:
        self.count += 1
        return Process(Node(str(self.count), self.slot_log, self.clock))

    @rule(number=st.integers(0, 2))
    def kill(self, number: int) -> None:
        self.processes[number] = self.start()

    @rule(duration_ms=st.sampled_from([1, BEAT_MS, LEASE_MS - 1, LEASE_MS, DEAD_MS]))
    def advance(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)

    @rule(number=st.integers(0, 2))
    def begin_beat(self, number: int) -> None:
        process = self.processes[number]
        if not process.beats:
            process.beats.append(process.node.begin_beat())

    @rule(number=st.integers(0, 2))
    def end_beat(self, number: int) -> None:
        process = self.processes[number]
        if process.beats:
            began_ms, beats = process.beats.pop()
            process.node.end_beat(beats, began_ms)
            for partition, epoch in process.node.store.owned.items():
                self.laws[partition].looked(epoch, began_ms)
            self.hear(process)

    @rule(number=st.integers(0, 2), partition=st.integers(0, PARTITIONS - 1))
    def take_over(self, number: int, partition: int) -> None:
        self.processes[number].node.store.take_over(partition)

    @rule(number=st.integers(0, 2))
    def work(self, number: int) -> None:
        process = self.processes[number]
        process.node.work()
        self.hear(process)

    @rule(number=st.integers(0, 2))
    def ask(self, number: int) -> None:
        """Commit and fetch, in each group."""
        process = self.processes[number]
        for group_id in self.groups:
            self.count += 1
            process.node.core.submit(commit(group_id, self.count), (group_id, self.count))
            at_least = self.acknowledged.get(group_id, -1)
            process.node.core.submit(OffsetFetch((GroupToFetch(group_id),)), (group_id, at_least))
        self.hear(process)

    @precondition(lambda self: self.processes)
    @rule(number=st.integers(0, 2))
    def go_well(self, number: int) -> None:
        """Nothing goes wrong with this replica for a while."""
        for _ in range(3):
            self.begin_beat(number)
            self.end_beat(number)
            self.work(number)

    def hear(self, process: Process) -> None:
        """Record a replica's output."""
        now_ms = self.clock.now_ms()
        process.epochs.update(process.node.store.owned)
        for token, answer in process.node.core.take_replies():
            group_id, number = token
            partition = process.node.core.partition_of(group_id)
            self.laws[partition].told(process.epochs.get(partition, -1), answer, now_ms)
            if isinstance(answer, OffsetCommitResponse):
                if answer.topics[0].partitions[0].error_code is ErrorCode.NONE:
                    self.acknowledged[group_id] = max(number, self.acknowledged.get(group_id, -1))
            else:
                assert isinstance(answer, OffsetFetchResponse)
                (group,) = answer.groups
                if group.error_code is ErrorCode.NONE and number >= 0:
                    found = group.topics[0].partitions[0].committed_offset
                    assert found >= number, f"{number} was acknowledged to {group_id}, and {found} is told"

    def teardown(self) -> None:
        """When all goes well again, each log partition has one owner, who knows what was acknowledged."""
        if not self.processes:
            return
        for _ in range(8):
            self.clock.advance(BEAT_MS)
            for number in range(3):
                self.end_beat(number)
                self.begin_beat(number)
                self.end_beat(number)
                self.work(number)
        nodes = [process.node for process in self.processes]
        served = owners(nodes)
        assert sorted(served) == list(range(PARTITIONS))
        for group_id, offset in self.acknowledged.items():
            (node,) = [one for one in nodes if one.name == served[one.core.partition_of(group_id)]]
            assert fetched(node, group_id) >= offset


TestSharing = SharingMachine.TestCase
TestSharing.settings = settings(max_examples=50, stateful_step_count=40)
