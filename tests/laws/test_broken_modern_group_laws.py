"""Faults in consumer, share and streams groups, each of which breaks exactly one law."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from groupcoord.core.groups.consumer.group import ConsumerGroup, ConsumerState
from groupcoord.core.groups.consumer.records import (
    AssignedTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.groups.share.records import ShareGroupMetadataRecord
from groupcoord.core.groups.streams.group import StreamsState
from groupcoord.core.groups.streams.reconciliation import HeldTasks, TaskAssignment, TaskState
from groupcoord.core.groups.streams.records import StreamsGroupMemberMetadataRecord, StreamsGroupMetadataRecord
from groupcoord.core.log.records import GroupMetadataRecord
from groupcoord.core.share_partition.in_flight import Acquired
from groupcoord.core.share_partition.partition import SharePartition
from groupcoord.core.share_state.records import DeliveryState, SharePartitionKey, ShareSnapshot, ShareStates, StateBatch
from groupcoord.laws import (
    ShareLedger,
    check_consumer_group_is_served,
    check_member_sees_what_is_durable,
    check_restart_writes_the_same,
    check_share_partition,
    check_sound_streams_group,
    check_states_are_the_log,
    check_writes_in_flight,
    stranger,
)
from groupcoord.laws.modern_groups import (
    check_is_not_ahead_when_empty,
    check_members_are_served,
    check_sound_consumer_group,
)
from groupcoord.log_store import LogRecord
from groupcoord.testing.topics import Topics
from tests.core.consumer.members import Members
from tests.core.driver import Driver
from tests.core.share.conftest import ShareDriver
from tests.core.share.members import Members as ShareMembers
from tests.core.streams.members import LINES, SETTINGS, Threads
from tests.laws.test_broken_laws import LONG, breaks, epoch, partition_of, target

TOPIC_ID = UUID(int=7)


@pytest.fixture
def driver() -> Driver:
    return Driver(topics=Topics(orders=4), **LONG)


# ---------------------------------------------------------------- consumer groups


def consumer_state(*members: tuple[str, int, tuple[int, ...]]) -> ConsumerState:
    """Return a group of epoch 5 of members, each with its epoch and its partitions."""
    records: list[Any] = [epoch(5), target(4)]
    for member_id, member_epoch, indexes in members:
        assigned = (AssignedTopicPartitions(TOPIC_ID, indexes, (1,) * len(indexes)),) if indexes else ()
        records += [
            ConsumerGroupMemberMetadataRecord("g", member_id, None, None, "", ""),
            ConsumerGroupCurrentMemberAssignmentRecord("g", member_id, member_epoch, 1, 0, assigned),
        ]
    return ConsumerState.of("g", records)


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lambda state: state.apply(ConsumerGroupCurrentMemberAssignmentRecord("g", "a", 5, 1, 0)), "epochs of group"),
        (lambda state: state.apply(target(6)), "epochs of group"),
        (lambda state: state.apply(ConsumerGroupTargetAssignmentMemberRecord("g", "x")), "remembers .'x'."),
        (lambda state: state.static_members.update(i="a"), "static members of 'g'"),
        (lambda state: state.resolved.update({"o.*": None}), "remembers .'o"),
        (lambda state: state.members.update(b=state.members["a"]), "is of 'a' and 'b'"),
    ],
)
def test_an_unsound_consumer_group(plant: Callable[[ConsumerState], object], message: str) -> None:
    state = consumer_state(("a", 4, (0,)), ("b", 3, (1,)))
    check_sound_consumer_group(state)
    plant(state)
    breaks(message, check_sound_consumer_group, state)


def test_an_empty_group_without_a_target() -> None:
    check_is_not_ahead_when_empty(consumer_state(("a", 4, ())))
    breaks("is empty, of epoch 5", check_is_not_ahead_when_empty, consumer_state())


@pytest.fixture
def pair(driver: Driver) -> Members:
    """A Stable consumer group of two members."""
    members = Members(driver)
    members.join("a")
    members.join("b")
    members.heartbeat("a", 2)
    members.heartbeat("a", 2, owned=())
    members.heartbeat("b", 3)
    check_consumer_group_is_served(driver.coordinator, "group", ["a", "b"])
    return members


def inside(members: Members) -> ConsumerGroup:
    group = members.inside
    assert group is not None
    return group


def test_a_member_with_an_epoch_that_is_not_durable(driver: Driver, pair: Members) -> None:
    owned = inside(pair).state.members["a"].partitions()
    other = inside(pair).state.members["b"].partitions()
    check_member_sees_what_is_durable(driver.coordinator, "group", "a", 3, owned)
    check_member_sees_what_is_durable(driver.coordinator, "group", "gone", 9, other)
    check_member_sees_what_is_durable(driver.coordinator, "gone", "a", 9, other)
    breaks("received epoch 4", check_member_sees_what_is_durable, driver.coordinator, "group", "a", 4, owned)
    breaks("which others can be given", check_member_sees_what_is_durable, driver.coordinator, "group", "a", 3, other)


def test_a_load_that_makes_another_group(driver: Driver, pair: Members) -> None:
    requests = [stranger("group", ["orders"]), stranger("gone", ["orders"]), pair.consumer("a", 9).heartbeat()]
    check_restart_writes_the_same(driver.coordinator, requests)
    inside(pair).state.epoch += 1
    breaks("after a load", check_restart_writes_the_same, driver.coordinator, requests)


def test_a_consumer_group_of_members_of_the_classic_protocol(driver: Driver, pair: Members) -> None:
    check_writes_in_flight(driver.coordinator)
    state = inside(pair).state
    state.classic_member_count = 1
    check_writes_in_flight(driver.coordinator)
    state.classic_member_count = 2
    breaks("all members of .* use the classic protocol", check_writes_in_flight, driver.coordinator)
    driver.coordinator.config = evolve(driver.config, group_max_size=1)
    check_writes_in_flight(driver.coordinator)


def swap_partitions(state: ConsumerState, *sizes: int) -> None:
    """Give members this many of all partitions."""
    indexes = [index for _, index in sorted(state.owner_epochs)]
    (topic_id,) = {topic_id for topic_id, _ in state.owner_epochs}
    for member_id in state.members:
        state.apply(ConsumerGroupCurrentMemberAssignmentRecord("group", member_id, state.epoch, 1, 0))
    for member_id, size in zip(list(state.members), sizes, strict=True):
        mine, indexes = indexes[:size], indexes[size:]
        assigned = AssignedTopicPartitions(topic_id, tuple(mine), (state.epoch,) * size)
        state.apply(ConsumerGroupCurrentMemberAssignmentRecord("group", member_id, state.epoch, 1, 0, (assigned,)))
        state.targets[member_id] = state.members[member_id].assignment.assigned and {topic_id: tuple(mine)}


@pytest.mark.parametrize(
    ("plant", "member_ids", "message"),
    [
        (lambda state: None, ["a"], "the members of"),
        (lambda state: None, ["a", "b", "c"], "the members of"),
        (lambda state: None, ["a", "c"], "the members of"),
        (lambda state: state.apply(ConsumerGroupMetadataRecord("group", 9)), ["a", "b"], "does not become stable"),
        (lambda state: swap_partitions(state, 2, 1), ["a", "b"], "have no owner"),
        (lambda state: swap_partitions(state, 3, 1), ["a", "b"], "has shares of .3, 1."),
    ],
)
def test_a_consumer_group_that_is_not_served(
    driver: Driver, pair: Members, plant: Callable[[ConsumerState], object], member_ids: list[str], message: str
) -> None:
    plant(inside(pair).state)
    breaks(message, check_consumer_group_is_served, driver.coordinator, "group", member_ids)


# ---------------------------------------------------------------- writes in flight


@pytest.fixture
def late_driver() -> Driver:
    """A late log, and a consumer group with its second write in flight."""
    driver = Driver(late=True, topics=Topics(orders=4), **LONG)
    members = Members(driver)
    members.join("a")
    driver.write_all()
    members.join("b")
    check_writes_in_flight(driver.coordinator)
    return driver


def add_record(record: Any) -> Callable[[Driver], None]:
    def plant(driver: Driver) -> None:
        in_flight = partition_of(driver).writer.in_flight
        in_flight[0] = in_flight[0]._replace(records=[*in_flight[0].records, record])

    return plant


def write_twice(driver: Driver) -> None:
    in_flight = partition_of(driver).writer.in_flight
    in_flight.append(in_flight[0])


def forget_draft(driver: Driver) -> None:
    inside(Members(driver)).writing = None


def change_base(driver: Driver) -> None:
    group = inside(Members(driver))
    group.state = group.state.copy()


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (write_twice, "has two writes in flight"),
        (forget_draft, "does not write its draft"),
        (change_base, "based on state that is not durable"),
        (add_record(GroupMetadataRecord("group", "consumer", 1, None, None)), "records of two types"),
        (add_record(ShareGroupMetadataRecord("group", 1)), "records of two types"),
        (add_record(ConsumerGroupTargetAssignmentMetadataRecord("group", 9)), "epochs of group"),
        (add_record(ConsumerGroupTargetAssignmentMemberRecord("group", "x")), "remembers .*'x'"),
    ],
)
def test_a_write_in_flight_that_is_not_sound(
    late_driver: Driver, plant: Callable[[Driver], None], message: str
) -> None:
    plant(late_driver)
    breaks(message, check_writes_in_flight, late_driver.coordinator)


def test_a_write_that_leaves_an_empty_group_behind_its_epoch() -> None:
    driver = Driver(late=True, **LONG)
    members = Members(driver)
    members.join("a")
    driver.write_all()
    members.leave("a")
    check_writes_in_flight(driver.coordinator)
    in_flight = partition_of(driver).writer.in_flight
    *tombstones, epoch_record, target_record = in_flight[0].records
    in_flight[0] = in_flight[0]._replace(records=[*tombstones, evolve(target_record, assignment_epoch=1)])
    check_writes_in_flight(driver.coordinator)
    in_flight[0] = in_flight[0]._replace(records=[*tombstones, epoch_record])
    breaks("is empty, of epoch", check_writes_in_flight, driver.coordinator)


# ---------------------------------------------------------------- share groups


def test_a_share_group_that_is_not_served() -> None:
    driver = ShareDriver(topics=Topics(orders=2), group_share_assignment_interval_ms=0)
    members = ShareMembers(driver)
    check_members_are_served(driver.coordinator, "group", [])
    members.join("a")
    members.heartbeat("a", 2)
    check_members_are_served(driver.coordinator, "group", ["a"])
    for member_ids in (["b"], ["a", "b"]):
        breaks("the members of 'group'", check_members_are_served, driver.coordinator, "group", member_ids)
    breaks("no member is alive", check_members_are_served, driver.coordinator, "group", [])
    driver.topics.grow("orders", 3)
    breaks("have no reader", check_members_are_served, driver.coordinator, "group", ["a"])
    group = members.inside
    assert group is not None
    group.state.epoch += 1
    breaks("does not become stable", check_members_are_served, driver.coordinator, "group", ["a"])


def test_a_streams_group_that_is_not_served() -> None:
    driver = Driver(topics=Topics(lines=2), **SETTINGS)
    threads = Threads(driver)
    threads.join("a", topology=LINES)
    check_members_are_served(driver.coordinator, "group", ["a"])
    check = check_member_sees_what_is_durable
    for member_id, epoch_, active in (("a", 2, [("0", 0), ("0", 1)]), ("gone", 9, [("0", 5)])):
        check(driver.coordinator, "group", member_id, epoch_, active)
    breaks("received epoch 3", check, driver.coordinator, "group", "a", 3, [])
    breaks("which others can be given", check, driver.coordinator, "group", "a", 2, [("0", 5)])
    group = partition_of(driver).groups["group"]
    group.state.active["0", 2] = {}
    breaks("of 2 tasks", check_members_are_served, driver.coordinator, "group", ["a"])
    group.state.active.clear()
    breaks("of 2 tasks", check_members_are_served, driver.coordinator, "group", ["a"])


def test_records_of_a_share_group() -> None:
    ledger = ShareLedger(count_limit=2)
    ledger.acquired("a", [Acquired(0, 3, 2)], 0, 100)
    for count in (0, 3):
        breaks(f"4-4 is delivered {count} times", ledger.acquired, "a", [Acquired(4, 4, count)], 0, 100)
    breaks("0 is given to b while a has it until 100", ledger.acquired, "b", [Acquired(0, 0, 1)], 99, 200)
    ledger.renewed([0, 9], 150)
    breaks("0 is given to b while a has it until 150", ledger.acquired, "b", [Acquired(0, 0, 1)], 149, 200)
    ledger.acquired("b", [Acquired(0, 0, 1)], 150, 200)
    ledger.let_go([1])
    ledger.acquired("b", [Acquired(1, 1, 1)], 0, 100)
    assert (ledger.held_by("a"), ledger.held_by("b")) == ([2, 3], [0, 1])
    ledger.accepted |= {0, 2}
    ledger.archived |= {1, 3}
    ledger.forget_holders()
    for offset, done in ((0, "accepted"), (1, "archived")):
        breaks(f"{offset} is given to c, and was {done}", ledger.acquired, "c", [Acquired(offset, offset, 1)], 300, 400)
    ledger.check_done(4)
    ledger.accepted.add(4)
    breaks("4 was never delivered", ledger.check_done, 5)
    ledger.acquired("c", [Acquired(5, 5, 1)], 0, 100)
    ledger.delivered.add(4)
    breaks("5 is lost", ledger.check_done, 6)


def test_a_share_partition_that_is_not_its_ledger() -> None:
    done, free = DeliveryState.ACKNOWLEDGED, DeliveryState.AVAILABLE
    partition = SharePartition(0, [StateBatch(0, 1, free, 1), StateBatch(2, 3, done, 1)])
    ledger = ShareLedger(2)
    ledger.accepted |= {2, 3, 9}
    check_share_partition(partition, ledger, 4)
    breaks("4 records are in flight", check_share_partition, partition, ledger, 3)
    for offset in (0, 1):
        ledger.accepted = {offset}
        breaks(f"{offset} was accepted, and is", check_share_partition, partition, ledger, 4)


def test_states_of_share_partitions_that_are_not_the_log() -> None:
    record: Any = ShareSnapshot(SharePartitionKey("g", TOPIC_ID, 0), 0, 1, 0, 5, 0, 0, 0, ())
    states = ShareStates()
    states.apply(record, 0)
    check_states_are_the_log(states, [LogRecord(record, 0, 0)])
    breaks("in memory .*, in the log", check_states_are_the_log, states, [])


# ---------------------------------------------------------------- streams groups

TASK = ("0", 3)
RUNS = HeldTasks({TASK: 1})
COPIES = HeldTasks(standby=frozenset({TASK}))
WARMS = HeldTasks(warmup=frozenset({TASK}))
NONE_HELD = HeldTasks()


def streams_state(*members: tuple[str, HeldTasks, HeldTasks], epoch: int = 0) -> StreamsState:
    """Return a group of members, each with its process, its tasks, and those that it must revoke."""
    state = StreamsState("counts")
    state.apply(StreamsGroupMetadataRecord("counts", 5, 0))
    for number, (process_id, assigned, pending) in enumerate(members):
        member_id = f"m{number}"
        state.apply(StreamsGroupMemberMetadataRecord("counts", member_id, None, None, "", "", process_id=process_id))
        has_to = TaskState.UNREVOKED_TASKS if pending else TaskState.STABLE
        state.apply(state.assignment_record(member_id, TaskAssignment(epoch, epoch, has_to, assigned, pending)))
    return state


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("p", RUNS, NONE_HELD), ("q", RUNS, NONE_HELD)], "is active at"),
        ([("p", NONE_HELD, RUNS), ("q", RUNS, NONE_HELD)], "is active at"),
        ([("p", RUNS, NONE_HELD), ("p", COPIES, NONE_HELD)], "of its process are standby"),
        ([("p", RUNS, NONE_HELD), ("p", WARMS, NONE_HELD)], "of its process are standby"),
        ([("p", RUNS, NONE_HELD), ("p", NONE_HELD, COPIES)], "of its process are standby"),
        ([("p", RUNS, NONE_HELD), ("p", NONE_HELD, WARMS)], "of its process are standby"),
        ([("p", HeldTasks({TASK: 1}, frozenset({TASK})), NONE_HELD)], "has a task twice"),
        ([("p", HeldTasks({TASK: 1}, frozenset(), frozenset({TASK})), NONE_HELD)], "has a task twice"),
        ([("p", HeldTasks({}, frozenset({TASK}), frozenset({TASK})), NONE_HELD)], "has a task twice"),
    ],
)
def test_a_task_twice(members: list[tuple[str, HeldTasks, HeldTasks]], message: str) -> None:
    breaks(message, check_sound_streams_group, streams_state(*members))


def test_a_copy_in_another_process() -> None:
    check_sound_streams_group(streams_state(("p", RUNS, NONE_HELD), ("q", COPIES, NONE_HELD)))
    check_sound_streams_group(streams_state(("p", COPIES, RUNS)))


def test_an_unsound_streams_group() -> None:
    breaks("epochs", check_sound_streams_group, streams_state(("p", RUNS, NONE_HELD), epoch=5))
    state = streams_state(("p", RUNS, NONE_HELD))
    state.static_members["i"] = "m0"
    breaks("static members of 'counts'", check_sound_streams_group, state)
