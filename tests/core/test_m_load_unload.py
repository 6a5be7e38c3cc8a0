"""Log partitions come and go: what a load brings back, whom an unload tells, how epochs order them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from groupcoord import ErrorCode, GroupCoordinator, GroupState, LoadError, LogRecord, PartitionStatus, Ticket
from groupcoord.core.log.records import (
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    GroupMetadataRecord,
    GroupTombstone,
    MemberRecord,
    OffsetCommitRecord,
    OffsetTombstone,
    OpaqueRecord,
    Record,
)
from groupcoord.log_store import LogStoreError, MemoryLogStore
from groupcoord.messages import (
    ConsumerGroupDescribe,
    DeletedGroup,
    DeleteGroupsResponse,
    DescribedConsumerGroup,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from tests.core.driver import REBALANCE_MS, SESSION_MS, START_MS, Driver, Group

MEMBER = MemberRecord("a-0", "a", "client", "/127.0.0.1", REBALANCE_MS, SESSION_MS, b"metadata", b"share")


def loaded(*records: Record, **settings: int) -> tuple[Driver, Group]:
    """Return a coordinator that loaded these records."""
    driver = Driver(**settings)
    driver.log.append(0, Ticket(0, 0), [LogRecord(record, START_MS) for record in records])
    driver.restart()
    return driver, Group(driver)


def generation(*members: MemberRecord, number: int = 7, timestamp_ms: int = START_MS) -> GroupMetadataRecord:
    """Return the record of a generation of these members."""
    leader = members[0].member_id if members else None
    name = "range" if members else None
    return GroupMetadataRecord("group", "consumer", number, name, leader, timestamp_ms, members)


# ---------------------------------------------------------------- load


def test_a_stable_group_comes_back() -> None:
    """Members, generation, protocol, leader and assignments are as they were; the session starts anew."""
    driver, group = loaded(generation(MEMBER))
    assert group.state is GroupState.STABLE
    assert group.heartbeat("a-0", generation=7) is ErrorCode.NONE
    expected = SyncGroupResponse(ErrorCode.NONE, "consumer", "range", b"share")
    assert group.sync("a-0", instance="a", generation=7).synced == expected
    driver.sleep(SESSION_MS - 1)
    assert group.members == ["a-0"]
    driver.sleep(1)
    assert (group.state, group.generation) == (GroupState.EMPTY, 8)


def test_a_member_that_died_before_the_load_expires() -> None:
    """Whoever is not heard of after a load is removed one session time-out later."""
    driver, group = loaded(generation(MEMBER))
    driver.sleep(SESSION_MS - 1)
    assert group.members == ["a-0"]
    driver.sleep(1)
    assert (group.state, group.generation) == (GroupState.EMPTY, 8)


def test_an_empty_group_comes_back() -> None:
    """An Empty group waits for company as a new one does, and counts its generations on."""
    driver, group = loaded(generation())
    assert group.state is GroupState.EMPTY
    sent = group.join("a")
    driver.sleep(2_999)
    assert sent.is_waiting
    driver.sleep(1)
    assert sent.joined.generation_id == 8


def test_a_rebalance_timeout_that_was_never_written() -> None:
    """-1, from old records, stands for the session time-out."""
    _, group = loaded(generation(MemberRecord("a-1", None, "c", "h", -1, 8_000, b"", b"")))
    assert group.inside.members["a-1"].rebalance_timeout_ms == 8_000


@pytest.mark.parametrize(("timestamp_ms", "loaded_ms"), [(-1, None), (0, 0), (START_MS, START_MS)])
def test_the_state_timestamp(timestamp_ms: int, loaded_ms: int | None) -> None:
    """-1 means that it is unknown."""
    _, group = loaded(generation(timestamp_ms=timestamp_ms))
    assert group.inside.state_timestamp_ms == loaded_ms


def test_no_protocol_type() -> None:
    """An empty protocol type is none."""
    _, group = loaded(GroupMetadataRecord("group", "", 0, None, None))
    assert group.inside.protocol_type is None


def test_a_tombstone_removes() -> None:
    """A group whose tombstone follows is absent."""
    _, group = loaded(generation(MEMBER), GroupTombstone("group"))
    assert group.state is None


def test_the_last_record_wins() -> None:
    """Of two records of a group the later one counts."""
    _, group = loaded(generation(MEMBER), generation(number=9))
    assert (group.state, group.generation) == (GroupState.EMPTY, 9)


def test_unknown_records_are_passed_over() -> None:
    """Records of unknown kinds do not stop a load (KAFKA-14869)."""
    _, group = loaded(OpaqueRecord(b"\x00\x63key", b"value"), generation(MEMBER), OpaqueRecord(b"", None))
    assert group.state is GroupState.STABLE


def test_only_the_chosen_protocol_comes_back() -> None:
    """A follower that rejoins with just that one is unchanged; one that lists more makes all rebalance, as in Kafka."""
    other = MemberRecord("b-1", None, "client", "/127.0.0.1", REBALANCE_MS, SESSION_MS, b"metadata", b"share")
    _, group = loaded(generation(MEMBER, other))
    assert group.join("b", member_id="b-1").joined.generation_id == 7
    assert group.join("b", "range", "sticky", member_id="b-1").is_waiting
    assert group.state is GroupState.PREPARING_REBALANCE


def test_the_static_index_comes_back() -> None:
    """A static member's instance id is known after a load: a return replaces it."""
    _, group = loaded(generation(MEMBER))
    joined = group.join("x", instance="a").joined
    assert (joined.error_code, joined.generation_id, joined.member_id) == (ErrorCode.NONE, 7, "a-1")
    assert group.inside.static_members == {"a": "a-1"}


def test_offsets_alone_make_a_group() -> None:
    """Offsets of an unknown group make a simple group, also when all of them were deleted again."""
    commit = OffsetCommitRecord("group", "orders", 0, 5)
    _, group = loaded(commit)
    assert (group.describe().group_state, group.committed()) == ("Empty", {"orders": {0: 5}})
    driver, group = loaded(commit, OffsetTombstone("group", "orders", 0))
    assert group.describe().group_state == "Empty"
    driver.sleep(600_000)
    assert group.describe().group_state == "Dead"


def test_offsets_after_a_group_tombstone() -> None:
    """A group's id may be used for offsets alone after it was removed (KAFKA-4704)."""
    _, group = loaded(generation(), GroupTombstone("group"), OffsetCommitRecord("group", "orders", 0, 5))
    assert (group.describe().group_state, group.inside.protocol_type) == ("Empty", None)


CONSUMER_GROUP = (
    ConsumerGroupMemberMetadataRecord("group", "m", None, None, "client", "/127.0.0.1", ("orders",)),
    ConsumerGroupMetadataRecord("group", 7),
)


def described_consumer_group(driver: Driver) -> DescribedConsumerGroup:
    """Describe the group as a consumer group."""
    return driver.coordinator.call(ConsumerGroupDescribe(("group",))).groups[0]


def test_a_consumer_group_comes_to_life() -> None:
    """Its members are back, with a full session each; then it is empty, and a restart brings it back as that."""
    driver, group = loaded(*CONSUMER_GROUP)
    assert group.describe().group_state == "Dead"
    found = described_consumer_group(driver)
    assert (found.group_state, found.group_epoch) == ("Assigning", 7)
    assert [(member.member_id, member.subscribed_topic_names) for member in found.members] == [("m", ("orders",))]
    driver.sleep(driver.config.group_consumer_session_timeout_ms - 1)
    assert described_consumer_group(driver) == found
    driver.sleep(1)
    driver.restart()
    assert described_consumer_group(driver) == found._replace(
        group_state="Empty", group_epoch=8, assignment_epoch=8, members=()
    )


def test_a_classic_group_in_place_of_a_consumer_group() -> None:
    """An empty consumer group ends when somebody joins with the classic protocol; deleted, nothing is left of both."""
    driver, group = loaded(ConsumerGroupMetadataRecord("group", 7))
    group.stable("a")
    assert described_consumer_group(driver).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    driver.restart()
    assert (group.state, group.members) == (GroupState.STABLE, ["a-1"])
    group.leave("a-1")
    assert driver.delete("group").answer(DeleteGroupsResponse).results == (DeletedGroup("group", ErrorCode.NONE),)
    driver.restart()
    assert (group.describe().group_state, driver.coordinator.partition(0).hard.groups) == ("Dead", {})


def test_offsets_of_a_consumer_group_are_there() -> None:
    """They can be fetched; from outside nobody commits while there are members."""
    driver, group = loaded(*CONSUMER_GROUP, OffsetCommitRecord("group", "orders", 0, 5))
    assert (described_consumer_group(driver).group_state, group.committed()) == ("Assigning", {"orders": {0: 5}})
    assert group.commit(6).error is ErrorCode.UNKNOWN_MEMBER_ID
    driver.sleep(driver.config.group_consumer_session_timeout_ms)
    assert group.commit(7).error is ErrorCode.NONE
    driver.restart()
    assert (described_consumer_group(driver).group_state, group.committed()) == ("Empty", {"orders": {0: 7}})


def test_a_group_that_is_classic_again() -> None:
    """After a downgrade (KIP-848) the members of the classic group come back."""
    gone = [GroupTombstone("group", record.key) for record in CONSUMER_GROUP]
    _, group = loaded(GroupTombstone("group"), *CONSUMER_GROUP, *gone, generation(MEMBER))
    assert (group.state, group.members) == (GroupState.STABLE, ["a-0"])


def test_what_is_lost() -> None:
    """A restart in the middle of a rebalance brings the last written generation back."""
    driver = Driver()
    group = Group(driver)
    a, b = group.stable("a", "b")
    group.rejoin(a)
    group.rejoin(b)
    assert (group.state, group.generation) == (GroupState.COMPLETING_REBALANCE, 2)
    driver.restart()
    assert (group.state, group.generation, group.members) == (GroupState.STABLE, 1, [a, b])
    assert group.heartbeat(a, generation=2) is ErrorCode.ILLEGAL_GENERATION


def test_a_group_that_is_too_large_now() -> None:
    """It rebalances at once; if nobody comes back in time, it is Empty."""
    second = MemberRecord("b-1", None, "client", "/127.0.0.1", REBALANCE_MS, 100_000, b"metadata", b"share")
    driver, group = loaded(generation(second, evolve(second, member_id="c-1")))
    driver.restart(group_max_size=1)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.heartbeat("b-1") is ErrorCode.REBALANCE_IN_PROGRESS
    driver.sleep(REBALANCE_MS)
    assert (group.state, group.generation) == (GroupState.EMPTY, 8)


def test_loading_in_steps() -> None:
    """A load may be done in portions; the partition is served when the last record was read, not before."""
    driver = Driver()
    group = Group(driver)
    for offset in range(5):
        group.commit(offset)
    coordinator = driver.new_coordinator()
    assert coordinator.begin_load(0)
    assert not coordinator.continue_load(0, 2)
    assert coordinator.status(0) is PartitionStatus.LOADING
    assert not coordinator.continue_load(0, 2)
    assert coordinator.continue_load(0, 2)
    assert coordinator.status(0) is PartitionStatus.ACTIVE
    assert coordinator.continue_load(0)
    assert coordinator.partition(0).hard.facts() == driver.coordinator.partition(0).hard.facts()


class BrokenStore(MemoryLogStore):
    """A log that cannot be read at first: it raises ``error`` after its first record."""

    error: Exception | None = None

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Return the first record, then fail."""
        for entry in super().read(partition):
            yield entry
            if self.error is not None:
                raise self.error


def broken(error: Exception) -> tuple[GroupCoordinator, BrokenStore]:
    """Return a coordinator with two log partitions, of which the one of ``group`` has a record but cannot be read."""
    driver = Driver(offsets_topic_num_partitions=2)
    store = BrokenStore()
    index = driver.coordinator.partition_of("group")
    store.append(index, Ticket(index, 0), [LogRecord(generation(MEMBER), START_MS)])
    store.error = error
    coordinator = GroupCoordinator(config=driver.config, clock=driver.clock, log_store=store)
    with pytest.raises(LoadError, match=str(error)) as raised:
        coordinator.load_all()
    assert list(raised.value.causes) == [index]
    return coordinator, store


def test_a_log_that_cannot_be_read() -> None:
    """Its partition is NOT_COORDINATOR, the others are served, and a later load brings it back."""
    coordinator, store = broken(LogStoreError("disk on fire"))
    index = coordinator.partition_of("group")
    assert coordinator.status(index) is PartitionStatus.FAILED
    assert coordinator.status(1 - index) is PartitionStatus.ACTIVE
    store.error = None
    coordinator.load(index)
    assert coordinator.status(index) is PartitionStatus.ACTIVE
    coordinator.check()


def test_offsets_that_go_back() -> None:
    """A log whose offsets do not grow fails the load."""
    driver = Driver()
    entries = [LogRecord(generation(MEMBER), START_MS, offset) for offset in (5, 5)]
    driver.log._logs[0] = entries
    driver.store.forget_reads()
    with pytest.raises(LoadError, match="record at offset 5 after 5"):
        driver.new_coordinator().load_all()


# ---------------------------------------------------------------- unload


def test_unload_while_preparing() -> None:
    """Waiting joins are NOT_COORDINATOR with the member's own id; nothing fires any more."""
    driver = Driver()
    group = Group(driver)
    group.ask_for_id("b")
    sent = group.join("a")
    driver.coordinator.unload(0)
    driver.deliver()
    assert sent.joined == JoinGroupResponse(ErrorCode.NOT_COORDINATOR, "a-1")
    assert driver.coordinator.next_deadline_ms() is None


def test_unload_while_completing() -> None:
    """Waiting syncs are NOT_COORDINATOR."""
    driver = Driver()
    group = Group(driver)
    _, b = group.generation_of("a", "b")
    sent = group.sync(b)
    driver.coordinator.unload(0)
    driver.deliver()
    assert sent.synced == SyncGroupResponse(ErrorCode.NOT_COORDINATOR)


def test_unload_with_writes_under_way() -> None:
    """What waits for the log is NOT_COORDINATOR, once: syncs, static returns, commits, leaves, deletions."""
    driver = Driver(late=True)
    names = ("sync", "static", "leave", "simple", "doomed")
    sync, static, leave, simple, doomed = (Group(driver, name) for name in names)
    static.stable("x", "@y")
    leave.stable("z")
    sync.generation_of("a", "b")
    doomed.commit(1)
    driver.write()
    waiting = [sync.sync("b-1"), sync.sync("a-1"), static.join("y", instance="y"), leave.leave("z-1"), simple.commit(1)]
    deletion = driver.delete("doomed")
    deferred = doomed.commit(2)
    driver.coordinator.unload(0)
    driver.deliver()
    assert [sent.error for sent in waiting] == [ErrorCode.NOT_COORDINATOR] * 5
    assert waiting[2].joined.member_id == ""
    assert waiting[3].answer(LeaveGroupResponse).members == ()
    assert deletion.answer(DeleteGroupsResponse).results[0].error_code is ErrorCode.NOT_COORDINATOR
    assert deferred.error is ErrorCode.NOT_COORDINATOR


def test_late_answers_after_unload_and_reload() -> None:
    """Answers of the log to appends from before are ignored, also when the partition is served again."""
    driver = Driver(late=True)
    group = Group(driver)
    sent = [group.commit(1), group.commit(2)]
    answers = driver.store.write(1)
    driver.coordinator.unload(0)
    driver.deliver()
    assert [entry.error for entry in sent] == [ErrorCode.NOT_COORDINATOR] * 2
    for ticket, base_offset in answers:
        driver.coordinator.appended(ticket, base_offset)
    driver.coordinator.load(0, 1)
    for ticket, base_offset in answers:
        driver.coordinator.appended(ticket, base_offset)
    driver.coordinator.append_failed(driver.store.lose()[0], LogStoreError("late"))
    driver.deliver()
    assert group.committed() == {"orders": {0: 1}}
    group.commit(3)
    driver.write()
    assert group.committed() == {"orders": {0: 3}}


def test_close() -> None:
    """After ``close`` every request is COORDINATOR_NOT_AVAILABLE, and who waited was told NOT_COORDINATOR."""
    driver = Driver()
    group = Group(driver)
    sent = group.join("a")
    driver.coordinator.close()
    driver.deliver()
    assert sent.error is ErrorCode.NOT_COORDINATOR
    assert group.join("b").error is ErrorCode.COORDINATOR_NOT_AVAILABLE


# ---------------------------------------------------------------- epochs


def test_epochs_order_loads_and_unloads() -> None:
    """What comes too late is ignored; a newer load of a served partition keeps its state (KAFKA-10614)."""
    driver = Driver()
    coordinator = driver.new_coordinator()
    coordinator.unload(0, 3)
    assert coordinator.status(0) is PartitionStatus.UNLOADED
    coordinator.load(0, 5)
    group = Group(driver)
    driver.coordinator = coordinator
    waiting = group.join("a")
    coordinator.load(0, 4)
    coordinator.load(0, 6)
    assert waiting.is_waiting
    coordinator.unload(0, 5)
    coordinator.unload(0, 6)
    assert coordinator.status(0) is PartitionStatus.ACTIVE
    coordinator.unload(0, 7)
    assert coordinator.status(0) is PartitionStatus.UNLOADED
    driver.deliver()
    assert waiting.error is ErrorCode.NOT_COORDINATOR


def test_unload_while_loading() -> None:
    """An unload ends a load under way."""
    coordinator = Driver().new_coordinator()
    coordinator.begin_load(0, 1)
    assert not coordinator.begin_load(0, 2)
    coordinator.unload(0, 3)
    assert coordinator.continue_load(0)
    assert coordinator.status(0) is PartitionStatus.UNLOADED
