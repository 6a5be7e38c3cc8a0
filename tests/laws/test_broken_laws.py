"""Faults that break exactly one law each: of logs, responses, hard state and classic groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from groupcoord import ErrorCode, MemoryLogStore, Ticket
from groupcoord.core.events import Cause
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.consumer.group import ConsumerDraft
from groupcoord.core.groups.consumer.reconciliation import MemberState
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.log.log_partition import HardState
from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    GroupMetadataRecord,
    GroupTombstone,
    MemberRecord,
    OffsetCommitRecord,
    OffsetTombstone,
    TransactionMarker,
)
from groupcoord.core.offsets.commits import WhenDeleted
from groupcoord.core.partition import Partition
from groupcoord.core.timers import Timer, TimerKey, TimerKind
from groupcoord.laws import (
    LawBrokenError,
    OffsetLedger,
    OwnerLaws,
    check_acknowledged_commits,
    check_answer,
    check_append,
    check_bytes,
    check_compaction_rebuilds,
    check_epochs_grow,
    check_every_wait_ends,
    check_expiry,
    check_fenced,
    check_fetch_is_the_log,
    check_forgets_topic,
    check_generations_grow,
    check_hard_state_is_the_log,
    check_members_are_durable,
    check_nobody_waits_for_nobody,
    check_places,
    check_reaction,
    check_replay,
    check_snapshot_rebuilds,
    check_timers,
    check_tokens,
    compacted,
    offsets_in_log,
)
from groupcoord.log_store import LogRecords
from groupcoord.messages import (
    CompleteTransaction,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetToCommit,
    PartitionResult,
    TopicResult,
    TopicToCommit,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.records import codec
from groupcoord.testing.topics import Topics
from tests.core.consumer.members import Members
from tests.core.driver import Driver, Group

TOPIC_ID = UUID(int=7)
MINUTE_MS = 60_000
LONG = {
    "group_consumer_assignment_interval_ms": 0,
    "offsets_commit_timeout_ms": 10**7,
    "offsets_retention_check_interval_ms": 10**12,
}
"""Assignments are made at once, no append is overdue, and nothing expires by itself."""


def breaks(message: str, check: Callable[..., object], *arguments: Any, **more: Any) -> None:
    with pytest.raises(LawBrokenError, match=message):
        check(*arguments, **more)


def partition_of(driver: Driver) -> Partition:
    partition = driver.coordinator.partition(0)
    assert partition is not None
    return partition


# ---------------------------------------------------------------- logs


def log_of(*records: Any) -> MemoryLogStore:
    store = MemoryLogStore()
    for number, record in enumerate(records):
        store.append(0, Ticket(0, number), LogRecords([record], 0))
    return store


def classic(generation_id: int) -> GroupMetadataRecord:
    return GroupMetadataRecord("g", "consumer", generation_id, None, None)


def epoch(number: int) -> ConsumerGroupMetadataRecord:
    return ConsumerGroupMetadataRecord("g", number)


def target(number: int) -> ConsumerGroupTargetAssignmentMetadataRecord:
    return ConsumerGroupTargetAssignmentMetadataRecord("g", number)


END_OF_EPOCHS = GroupTombstone("g", ConsumerGroupMetadataRecord.key)
END_OF_TARGETS = GroupTombstone("g", ConsumerGroupTargetAssignmentMetadataRecord.key)
COMMIT = OffsetCommitRecord("g", "t", 0, 1)


@pytest.mark.parametrize(
    ("sound", "next_record"),
    [
        ([epoch(2)], epoch(2)),
        ([epoch(0)], epoch(0)),
        ([COMMIT, epoch(3), END_OF_TARGETS], epoch(2)),
        ([epoch(2), target(2)], target(1)),
        ([epoch(1), target(1)], target(2)),
        ([epoch(2), target(2), END_OF_EPOCHS, epoch(1)], target(1)),
        ([epoch(2), END_OF_EPOCHS, classic(1), epoch(2)], classic(3)),
        ([epoch(5), target(5), END_OF_TARGETS, END_OF_EPOCHS, epoch(1), target(0), target(1)], target(0)),
    ],
)
def test_epochs_that_do_not_grow(sound: list[Any], next_record: Any) -> None:
    check_epochs_grow(log_of(*sound), 0)
    breaks("has a smaller or skipped epoch", check_epochs_grow, log_of(*sound, next_record), 0)


def test_generations_that_do_not_grow() -> None:
    sound = [classic(3), GroupTombstone("g", (5, "m")), classic(3), GroupTombstone("g"), classic(1)]
    check_generations_grow(log_of(*sound), 0)
    breaks("generation 0 of .* comes after generation 1", check_generations_grow, log_of(*sound, classic(0)), 0)
    breaks("generation 2 of .* comes after generation 3", check_generations_grow, log_of(*sound[:2], classic(2)), 0)


@pytest.mark.parametrize(
    ("conversion", "other"),
    [
        ([GroupTombstone("g"), epoch(1), target(1)], COMMIT),
        ([GroupTombstone("g"), epoch(1)], OffsetTombstone("g", "t", 0)),
        ([END_OF_EPOCHS, classic(1)], COMMIT),
        ([GroupTombstone("g"), epoch(1)], GroupTombstone("other")),
    ],
)
def test_a_conversion_with_something_else(conversion: list[Any], other: Any) -> None:
    check_append(conversion)
    check_append([conversion[0], other])
    check_append([conversion[1], other])
    breaks("one append makes another kind of group of 'g'", check_append, [*conversion, other])


@pytest.mark.parametrize(
    ("group_id", "partition"), [("my-group", 12), ("a" * 40, 22), ("polygenelubricants", 0), ("größe\U0001f600", 14)]
)
def test_a_group_in_another_log_partition(group_id: str, partition: int) -> None:
    record = Ticket(partition, 0), LogRecords([evolve(classic(1), group_id=group_id)], 0)
    store = MemoryLogStore()
    store.append(partition, *record)
    check_places(store, partition, 50)
    store.append(1, *record)
    breaks(f"lies in log partition 1, not {partition}", check_places, store, 1, 50)


def test_a_record_that_changes_in_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    store = log_of(COMMIT)
    check_bytes(store, 0)
    monkeypatch.setattr(codec, "decode_record", lambda *_: evolve(COMMIT, offset=2))
    breaks("is read back as", check_bytes, store, 0)


def test_a_member_that_is_fenced_although_the_log_has_it() -> None:
    members = MemberRecord("m", "i", "", "", 1, 1, b"", b""), MemberRecord("o", "i", "", "", 1, 1, b"", b"")
    of_classic = evolve(classic(1), members=members[:1])
    of_consumer = ConsumerGroupMemberMetadataRecord("g", "m", "i", None, "", "")
    for record in (of_classic, of_consumer):
        for group_id, member_id in (("g", "n"), ("g", "l"), ("h", "m")):
            check_fenced(log_of(COMMIT, record), 0, group_id, member_id)
        breaks("is fenced without a successor", check_fenced, log_of(COMMIT, record), 0, "g", "m")


def pending(producer_id: int, offset: int) -> OffsetCommitRecord:
    return evolve(COMMIT, offset=offset, producer_id=producer_id, producer_epoch=0)


def marker(producer_id: int, *, committed: bool = True) -> TransactionMarker:
    return TransactionMarker(producer_id, 0, committed)


@pytest.mark.parametrize(
    ("place", "left"),
    [(0.0, [0, 1, 2, 3, 4, 5, 6]), (0.5, [1, 3, 4, 5, 6]), (1.0, [1, 3, 4, 5, 6])],
)
def test_what_compaction_leaves(place: float, left: list[int]) -> None:
    """The last record of each key, markers, and all from an open transaction on."""
    log = log_of(COMMIT, COMMIT, OffsetTombstone("g", "u", 0), marker(9), pending(7, 4), COMMIT, marker(8))
    entries = list(log.read(0))
    assert [entry.offset for entry in compacted(entries, place)] == left
    ended = list(log_of(pending(7, 0), COMMIT, marker(7), pending(7, 3), marker(7, committed=False)).read(0))
    assert [entry.offset for entry in compacted(ended, 1.0)] == [1, 2, 4]
    assert [entry.offset for entry in compacted(ended, 0.3)] == [0, 1, 2, 3, 4]
    assert [entry.offset for entry in compacted(entries[:4], 1.0, keeps_tombstones=True)] == [1, 2, 3]
    assert compacted([], 1.0) == []


@pytest.mark.parametrize(
    ("records", "offset", "is_open"),
    [
        ([pending(7, 4)], None, True),
        ([pending(7, 4), marker(7)], 4, False),
        ([pending(7, 4), marker(8), marker(7, committed=False)], None, False),
        ([pending(7, 4), COMMIT, marker(7)], 1, False),
        ([COMMIT, pending(7, 4), marker(7)], 4, False),
        ([COMMIT, pending(7, 4), evolve(COMMIT, partition=1), OffsetTombstone("g", "t", 0), marker(7)], None, False),
    ],
)
def test_the_committed_offset_of_a_log(records: list[Any], offset: int | None, is_open: bool) -> None:
    ledger = OffsetLedger()
    for log_offset, record in enumerate(records):
        ledger.take(record, log_offset)
    assert ledger.is_open(("g", "t", 0)) is is_open
    assert offsets_in_log(log_of(*records), 0).get(("g", "t", 0)) == offset


def test_an_acknowledged_commit_that_is_not_in_the_log() -> None:
    store, acknowledged = log_of(epoch(1), COMMIT), ("g", "t", 0, 1)
    check_acknowledged_commits(store, [1, 0], [acknowledged, acknowledged])
    for lost in (("h", "t", 0, 1), ("g", "u", 0, 1), ("g", "t", 1, 1), ("g", "t", 0, 2)):
        breaks("which is not in the log", check_acknowledged_commits, store, [0], [acknowledged, lost])
    breaks("which is not in the log", check_acknowledged_commits, store, [1], [acknowledged])


# ---------------------------------------------------------------- responses


@pytest.fixture
def driver() -> Driver:
    return Driver(topics=Topics(orders=4), **LONG)


def test_a_leader_that_is_no_member(driver: Driver) -> None:
    group = Group(driver)
    sent = group.join("a", instance="i")
    driver.sleep(3_000)
    request, response = sent.request, sent.answer(JoinGroupResponse)
    check_answer(driver.coordinator, request, response)
    check_answer(driver.coordinator, request, evolve(response, leader=""))
    check_answer(driver.coordinator, request, evolve(response, leader="x", generation_id=7))
    breaks("the leader of .* is 'x'", check_answer, driver.coordinator, request, evolve(response, leader="x"))
    check_answer(driver.coordinator, evolve(request, member_id=sent.member_id, session_timeout_ms=1), response)
    for name in ("session_timeout_ms", "rebalance_timeout_ms"):
        breaks("has the timeouts", check_answer, driver.coordinator, evolve(request, **{name: 1}), response)


@pytest.mark.parametrize("error_code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_commit_without_a_member_that_fails_with_an_error_of_members(driver: Driver, error_code: ErrorCode) -> None:
    response = TxnOffsetCommitResponse((TopicResult("t", UUID(int=0), (PartitionResult(0, error_code),)),))
    request = TxnOffsetCommit("g", (), 7, 0)
    for of_member in ({"member_id": "m"}, {"generation_id": 1}, {"group_instance_id": "i"}):
        check_answer(driver.coordinator, evolve(request, **of_member), response)
    breaks("names no member", check_answer, driver.coordinator, request, response)


def test_a_join_that_is_fenced_for_its_epoch(driver: Driver) -> None:
    fenced = ConsumerGroupHeartbeatResponse(ErrorCode.FENCED_MEMBER_EPOCH)
    check_answer(driver.coordinator, ConsumerGroupHeartbeat("g", "m", 1), fenced)
    breaks("joins, and is fenced", check_answer, driver.coordinator, ConsumerGroupHeartbeat("g", "m", 0), fenced)


def test_a_member_that_waits_for_its_own_partitions(driver: Driver) -> None:
    members = Members(driver)
    members.join("a")
    members.join("b")
    beat = members.heartbeat("b", 3)
    group = members.inside
    assert group is not None
    waiting = group.state.members["b"]
    assert waiting.assignment.state is MemberState.UNRELEASED_PARTITIONS
    response = beat.answer(ConsumerGroupHeartbeatResponse)
    check_answer(driver.coordinator, beat.request, response)
    group.state.members["a"] = evolve(
        group.state.members["a"],
        assignment=evolve(group.state.members["a"].assignment, assigned={}, pending_revocation={}),
    )
    check_answer(driver.coordinator, beat.request, evolve(response, member_epoch=-1))
    check_answer(driver.coordinator, evolve(beat.request, group_id="gone"), response)
    group.writing = ConsumerDraft(group.state)
    check_answer(driver.coordinator, beat.request, response)
    group.writing = None
    records = partition_of(driver).hard.groups["group"]
    # A later change of another member explains the difference.
    records[END_OF_TARGETS.key] = (10**9, target(3))
    check_answer(driver.coordinator, beat.request, response)
    records[END_OF_TARGETS.key] = (0, target(3))
    breaks("waits for partitions without another owner", check_answer, driver.coordinator, beat.request, response)


BEFORE = (3, "m")
OUT = HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID)
OWN = Heartbeat("g", 3, "m")
OLD_GENERATION = (TopicResult("t", TOPIC_ID, (PartitionResult(0, ErrorCode.ILLEGAL_GENERATION),)),)
LOST = (-1, "m")


@pytest.mark.parametrize(
    ("request_", "response", "before", "after", "message"),
    [
        (OWN, OUT, BEFORE, BEFORE, "continues"),
        (OWN, HeartbeatResponse(ErrorCode.ILLEGAL_GENERATION), BEFORE, BEFORE, "continues"),
        (OWN, HeartbeatResponse(ErrorCode.REBALANCE_IN_PROGRESS), BEFORE, LOST, "gives all up"),
        (Heartbeat("g", 2, "m"), OUT, BEFORE, LOST, "gives all up"),
        (JoinGroup("g", "l"), JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID), BEFORE, LOST, "gives all up"),
        (JoinGroup("g", "n"), JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID), BEFORE, LOST, "gives all up"),
        (JoinGroup("g"), JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, "new"), (-1, ""), (-1, "x"), "is given 'new'"),
        (OWN, OUT, BEFORE, None, None),
        (OWN, OUT, BEFORE, LOST, None),
        (OWN, HeartbeatResponse(ErrorCode.FENCED_INSTANCE_ID), BEFORE, LOST, None),
        (Heartbeat("g", 2, "m"), OUT, BEFORE, BEFORE, None),
        (JoinGroup("g", "m"), JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID), BEFORE, LOST, None),
        (JoinGroup("g", "m"), JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, "new"), BEFORE, BEFORE, None),
        (OffsetCommit("g", (), 2, "m"), OffsetCommitResponse(OLD_GENERATION), BEFORE, LOST, None),
    ],
)
def test_a_reaction_to_a_response(
    request_: Any, response: Any, before: tuple[int, str], after: tuple[int, str] | None, message: str | None
) -> None:
    if message is None:
        check_reaction(request_, response, before, after)
    else:
        breaks(message, check_reaction, request_, response, before, after)


def test_a_former_owner_that_responds() -> None:
    laws = OwnerLaws(lease_ms=100)
    laws.looked(1, 0)
    laws.looked(2, 50)
    laws.looked(2, 20)
    laws.told(1, HeartbeatResponse(ErrorCode.NONE), 99)
    breaks("its lease has expired", laws.told, 1, HeartbeatResponse(ErrorCode.NONE), 100)
    breaks("owner 3 .* its lease has expired", laws.told, 3, HeartbeatResponse(ErrorCode.NONE), 0)
    laws.told(2, HeartbeatResponse(ErrorCode.NONE), 149)
    laws.told(1, HeartbeatResponse(ErrorCode.NOT_COORDINATOR), 200)
    laws.looked(1, 100)
    breaks("after owner 2 had responded", laws.told, 1, HeartbeatResponse(ErrorCode.NONE), 101)


# ---------------------------------------------------------------- hard state and offsets


def test_a_fetch_that_differs_from_the_log() -> None:
    """Groups of a log partition that is not served are passed over."""
    driver = Driver(offsets_topic_num_partitions=2)
    Group(driver, "other").commit(5)
    driver.coordinator.unload(1)
    check_fetch_is_the_log(driver.coordinator, ["group", "other", "b"])
    del partition_of(driver).hard.offsets.committed["other"]
    breaks("a consumer fetches nothing", check_fetch_is_the_log, driver.coordinator, ["group", "other"])


def test_a_snapshot_and_a_compacted_log_that_lack_a_record(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    Group(driver).commit(5)
    for check in (check_snapshot_rebuilds, lambda coordinator: check_compaction_rebuilds(coordinator, 1.0)):
        check(driver.coordinator)
    hard = partition_of(driver).hard
    monkeypatch.setattr(Partition, "snapshot", lambda self: iter(()))
    breaks("its snapshot makes", check_snapshot_rebuilds, driver.coordinator)
    hard.groups["other"] = {}
    check_compaction_rebuilds(driver.coordinator, 1.0)
    hard.groups["other"] = {CLASSIC_GROUP_KEY: (0, classic(1))}
    breaks("its compacted log makes", check_compaction_rebuilds, driver.coordinator, 1.0)


@pytest.mark.parametrize(
    "plant",
    [
        lambda hard: hard.groups.update(other={CLASSIC_GROUP_KEY: (0, classic(1))}),
        lambda hard: hard.offsets.transactions.clear(),
        lambda hard: hard.offsets.committed.clear(),
        lambda hard: hard.offsets.committed["group"].clear(),
        lambda hard: hard.offsets.committed["group"].update(more={}),
        lambda hard: hard.offsets.committed["group"]["orders"].pop(1),
        lambda hard: setattr(hard.offsets.committed["group"]["orders"][1], "log_offset", 9),
    ],
)
def test_memory_that_differs_from_the_log(driver: Driver, plant: Callable[[HardState], object]) -> None:
    Group(driver).commit({0: 5, 1: 6})
    transact(driver)
    partition = partition_of(driver)
    check_hard_state_is_the_log(driver.coordinator)
    log = HardState()
    for entry in driver.store.read(0):
        log.apply(entry.record, entry.offset)
    log.groups["gone"] = {}
    log.groups["kept"] = partition.hard.groups["kept"] = {}
    check_replay(partition, log, was_compacted=True)
    breaks("a restart would change", check_replay, partition, log)
    plant(partition.hard)
    breaks("a restart would change", check_hard_state_is_the_log, driver.coordinator)
    breaks("a restart would change", check_replay, partition, log, was_compacted=True)


def test_requests_that_are_lost_or_answered_twice(driver: Driver) -> None:
    token = Group(driver).join("a").token
    check_tokens(driver.coordinator, [token])
    for tokens in ([], [token, token], [token + 1], [token, token + 1]):
        breaks("requests without a response", check_tokens, driver.coordinator, tokens)


def test_a_timer_without_a_log_partition() -> None:
    driver = Driver(offsets_topic_num_partitions=2)
    for partition in (1, 0):
        driver.coordinator._timers.arm(Timer(TimerKey(TimerKind.SESSION, partition)), 1)
    check_timers(driver.coordinator)
    driver.coordinator._partitions.active[0] = None
    breaks("belongs to no member", check_timers, driver.coordinator)


def expire(driver: Driver, *records: Any, cause: Cause = Cause.EXPIRY, writes: list[Any] | None = None) -> None:
    """Begin an append of an expiry, and check it before the log gets it."""
    writer = partition_of(driver).writer
    writer.begin(list(records), WhenDeleted((), cause, len(records)))
    try:
        check_expiry(driver.coordinator, list(records) if writes is None else writes)
    finally:
        writer.in_flight.clear()
        driver.coordinator._effects.appends.clear()


ORDERS = OffsetTombstone("group", "orders", 0)


def transact(driver: Driver) -> None:
    driver.submit(TxnOffsetCommit("group", (TopicToCommit("orders", (OffsetToCommit(0, 1),)),), 7, 0))


def test_an_offset_that_expires_too_early(driver: Driver) -> None:
    Group(driver).commit(5)
    driver.sleep(driver.config.offsets_retention_minutes * MINUTE_MS - 1)
    breaks("before the offset's time", expire, driver, ORDERS)
    expire(driver, ORDERS, cause=Cause.DELETION)
    expire(driver, ORDERS, OffsetTombstone("group", "orders", 1), writes=[ORDERS, ORDERS])
    driver.sleep(1)
    expire(driver, ORDERS, OffsetTombstone("gone", "orders", 0), OffsetTombstone("group", "gone", 0))


def test_an_offset_with_a_retention_of_its_own(driver: Driver) -> None:
    Group(driver).commit(5, retention_ms=100)
    driver.sleep(99)
    breaks("before the offset's time", expire, driver, ORDERS)
    driver.sleep(1)
    expire(driver, ORDERS)


def test_an_offset_of_an_open_transaction_that_expires(driver: Driver) -> None:
    transact(driver)
    breaks("OffsetTombstone.* of which a transaction is open", expire, driver, ORDERS)
    breaks("GroupTombstone.* of which a transaction is open", expire, driver, GroupTombstone("group"))
    driver.submit(CompleteTransaction(0, 7, 0, committed=False))
    expire(driver, GroupTombstone("group"), ORDERS)


@pytest.mark.parametrize("is_rebalancing", [False, True])
def test_an_offset_that_expires_while_members_use_its_topic(driver: Driver, is_rebalancing: bool) -> None:
    group = Group(driver)
    group.commit(5, retention_ms=0)
    expire(driver, ORDERS)
    if is_rebalancing:
        group.join("a")
    else:
        Members(driver).join("a")
    breaks("a topic that members use", expire, driver, ORDERS)


def test_an_offset_of_a_deleted_topic_that_stays() -> None:
    check_forgets_topic([("g", "t", 0)], [OffsetTombstone("g", "t", 0), COMMIT])
    for key in (("g", "t", 1), ("g", "u", 0), ("h", "t", 0)):
        breaks("and its offsets .* stay", check_forgets_topic, [key], [OffsetTombstone("g", "t", 0), COMMIT])


# ---------------------------------------------------------------- classic groups


def test_a_member_that_the_log_does_not_have(driver: Driver) -> None:
    group = Group(driver)
    group.stable("a", "@b")
    check_members_are_durable(driver.coordinator)
    static = group.inside.static_members["b"]
    group.inside.members["x"] = group.inside.members.pop(static)
    group.inside.static_members["b"] = "x"
    check_members_are_durable(driver.coordinator, {static})
    breaks("a restart would make", check_members_are_durable, driver.coordinator)


def test_a_rebalance_that_all_have_joined(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(driver)
    group.join("a")
    check_nobody_waits_for_nobody(driver.coordinator)
    driver.sleep(3_000)
    group.assign()
    group.join("b")
    check_nobody_waits_for_nobody(driver.coordinator)
    monkeypatch.setattr(GroupMetadata, "all_joined", True)
    breaks("all of .* have joined", check_nobody_waits_for_nobody, driver.coordinator)
    driver.coordinator.config = evolve(driver.config, group_max_size=1)
    check_nobody_waits_for_nobody(driver.coordinator)


@pytest.mark.parametrize(
    ("begin", "timer_of", "message"),
    [
        (lambda group: group.join("a"), lambda inside: inside.join_timer, "waits without end for its members"),
        (
            lambda group: group.ask_for_id("d"),
            lambda inside: inside.pending_members["d-1"],
            "waits without end for 'd-1' to return",
        ),
        (lambda group: group.generation_of("a"), lambda inside: inside.sync_timer, "without end for its assignment"),
        (
            lambda group: group.stable("a"),
            lambda inside: inside.members["a-1"].session_timer,
            "the session of .* never ends",
        ),
    ],
)
def test_a_wait_without_a_deadline(
    driver: Driver, begin: Callable[[Group], object], timer_of: Callable[[GroupMetadata], Timer], message: str
) -> None:
    written, group = Group(driver, "written"), Group(driver)
    written.stable("b")
    begin(group)
    check_every_wait_ends(driver.coordinator)
    driver.coordinator._timers.cancel(timer_of(group.inside))
    writings = partition_of(driver)._context.writings
    writings["written"] = written.inside
    breaks(message, check_every_wait_ends, driver.coordinator)
    writings["group"] = group.inside
    check_every_wait_ends(driver.coordinator)


def test_a_member_that_stays_new(driver: Driver) -> None:
    group = Group(driver)
    group.stable("a")
    (member,) = group.inside.members.values()
    member.is_new = True
    breaks("is new in", check_every_wait_ends, driver.coordinator)
