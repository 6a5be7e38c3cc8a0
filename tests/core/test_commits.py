"""OffsetCommit: who may commit, what becomes of it, what the log's refusal means."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupCoordinator, GroupState, ManualClock
from groupcoord.core.log.records import GroupMetadataRecord, OffsetCommitRecord
from groupcoord.log_store import AppendTimedOutError, LogStoreError
from groupcoord.messages import (
    ListGroups,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetToCommit,
    PartitionResult,
    TopicToCommit,
)
from tests.core.driver import START_MS, Driver, Group

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS
FENCED = ErrorCode.FENCED_INSTANCE_ID


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


# ---------------------------------------------------------------- lookup and creation


@pytest.mark.parametrize("generation", [-1, -2, -(2**31)])
def test_a_commit_from_outside_makes_a_group(driver: Driver, group: Group, generation: int) -> None:
    """Any negative generation makes a simple group, whatever ids are given; only the offset is written."""
    sent = group.commit(5, generation=generation, member_id="m", instance="i")
    assert sent.error is NONE
    assert (group.state, group.inside.protocol_type, group.generation) == (GroupState.EMPTY, None, 0)
    assert driver.written() == [OffsetCommitRecord("group", "orders", 0, 5, commit_timestamp_ms=START_MS)]
    assert group.describe().group_state == "Empty"


@pytest.mark.parametrize("generation", [0, 5])
def test_a_generation_without_a_group(driver: Driver, group: Group, generation: int) -> None:
    """A commit of a generation in a group that does not exist is GROUP_ID_NOT_FOUND, and makes none."""
    assert group.commit(generation=generation, member_id="m").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.state is None


def test_an_absent_group_in_old_versions(driver: Driver) -> None:
    """Versions without epochs are told of a wrong generation (Kafka 4.4)."""
    topics = (TopicToCommit("orders", (OffsetToCommit(0, 5),)),)
    for supports_member_epoch, expected in ((True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ILLEGAL)):
        commit = OffsetCommit("nobody", topics, 3, "m", supports_member_epoch=supports_member_epoch)
        (result,) = driver.coordinator.call(commit).topics[0].partitions
        assert result.error_code is expected


def test_a_simple_group_is_seen_when_its_offset_is_durable() -> None:
    """Before, it is there for requests alone; after a failure there is none."""
    driver = Driver(late=True)
    group = Group(driver)
    group.commit(1)
    assert (group.state, group.describe().group_state) == (GroupState.EMPTY, "Dead")
    driver.refuse(LogStoreError("injected"))
    assert group.state is None
    group.commit(1)
    driver.write()
    assert group.describe().group_state == "Empty"


# ---------------------------------------------------------------- validation


def in_state(group: Group, state: GroupState) -> None:
    """Bring the group of a (and static x) into a state; its generation is 1, or 2 in Empty."""
    if state is GroupState.COMPLETING_REBALANCE:
        group.generation_of("a", "@x")
        return
    group.stable("a", "@x")
    if state is GroupState.PREPARING_REBALANCE:
        group.rejoin("a-1")
    elif state is GroupState.EMPTY:
        group.left("a-1", "x-1")
    assert group.state is state


EMPTY, PREPARING, COMPLETING, STABLE = list(GroupState)[:4]


@pytest.mark.parametrize(
    ("state", "generation", "member_id", "instance", "error"),
    [
        (EMPTY, -1, "", None, NONE),
        (EMPTY, -1, "anybody", "i", NONE),
        (EMPTY, 0, "", None, UNKNOWN),
        (EMPTY, 2, "a-1", None, UNKNOWN),
        (EMPTY, 2, "x-1", "x", UNKNOWN),
        (STABLE, 1, "a-1", None, NONE),
        (STABLE, 1, "x-1", "x", NONE),
        (STABLE, 1, "x-1", None, NONE),
        (STABLE, -1, "", None, UNKNOWN),
        (STABLE, -1, "a-1", None, ILLEGAL),
        (STABLE, -1, "", "x", FENCED),
        (STABLE, 0, "a-1", None, ILLEGAL),
        (STABLE, 2, "a-1", None, ILLEGAL),
        (STABLE, 1, "m", None, UNKNOWN),
        (STABLE, 1, "x-1", "y", UNKNOWN),
        (STABLE, 99, "x-0", "x", FENCED),
        (PREPARING, 1, "a-1", None, NONE),
        (PREPARING, 1, "x-1", "x", NONE),
        (PREPARING, 0, "a-1", None, ILLEGAL),
        (PREPARING, -1, "", None, UNKNOWN),
        (COMPLETING, 1, "a-1", None, IN_PROGRESS),
        (COMPLETING, 0, "a-1", None, ILLEGAL),
        (COMPLETING, 1, "m", None, UNKNOWN),
        (COMPLETING, -1, "", None, UNKNOWN),
    ],
)
def test_who_may_commit(
    group: Group, state: GroupState, generation: int, member_id: str, instance: str | None, error: ErrorCode
) -> None:
    """Identity comes before the generation, the generation before the state."""
    in_state(group, state)
    assert group.commit(generation=generation, member_id=member_id, instance=instance).error is error
    assert group.committed() == ({"orders": {0: 1}} if error is NONE else {})


def test_a_newcomer_whose_join_waits_may_commit(group: Group) -> None:
    """With the current generation, a member that has just joined may commit."""
    group.stable("a")
    group.join("b")
    assert group.commit(1, member_id="b-1", generation=1).error is NONE


def test_generation_zero_of_a_simple_group(group: Group) -> None:
    """A simple group has generation 0, but nobody is a member of it."""
    group.commit(1)
    assert group.commit(1, generation=0).error is UNKNOWN


# ---------------------------------------------------------------- records and answers


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("m" * 4_096, NONE),
        ("m" * 4_097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\N{EURO SIGN}" * 4_096, NONE),
        ("\N{GRINNING FACE}" * 2_048, NONE),
        ("\N{GRINNING FACE}" * 2_048 + "m", ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\ud800" * 4_096, NONE),
        (None, NONE),
        ("", NONE),
    ],
    ids=["4096", "4097", "4096 of three bytes", "2048 pairs", "2048 pairs and one", "lone surrogates", "null", "empty"],
)
def test_the_limit_on_metadata(group: Group, metadata: str | None, error: ErrorCode) -> None:
    """It counts UTF-16 code units; no metadata is stored as empty."""
    assert group.commit(1, metadata=metadata).error is error
    if error is NONE:
        assert group.fetch().metadata == (metadata or "")


def test_one_partition_with_too_long_metadata(driver: Driver, group: Group) -> None:
    """Only that one is refused, the others are committed."""
    offsets = (OffsetToCommit(0, 1, -1, "m" * 5_000), OffsetToCommit(1, 2), OffsetToCommit(2, 3))
    answer = driver.submit(OffsetCommit("group", (TopicToCommit("orders", offsets),))).answer(OffsetCommitResponse)
    assert answer.topics[0].partitions == (
        PartitionResult(0, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        PartitionResult(1, NONE),
        PartitionResult(2, NONE),
    )
    assert group.committed() == {"orders": {1: 2, 2: 3}}


def test_only_too_long_metadata(driver: Driver, group: Group) -> None:
    """Nothing is written, but an empty group is in memory from now on."""
    assert group.commit(1, metadata="m" * 5_000).error is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert (driver.written(), group.state) == ([], GroupState.EMPTY)


def test_the_same_partition_twice(driver: Driver, group: Group) -> None:
    """Two results, two records, the last one counts; a topic named twice is answered twice."""
    topic = TopicToCommit("orders", (OffsetToCommit(0, 1), OffsetToCommit(0, 2)))
    answer = driver.submit(OffsetCommit("group", (topic, topic))).answer(OffsetCommitResponse)
    assert [len(entry.partitions) for entry in answer.topics] == [2, 2]
    assert len(driver.written()) == 4
    assert group.committed() == {"orders": {0: 2}}
    assert driver.coordinator.partition(0).offset_count() == 1


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
def test_any_offset_is_stored(group: Group, offset: int) -> None:
    """The offset itself is not checked."""
    group.commit(offset)
    assert group.committed() == {"orders": {0: offset}}


@pytest.mark.parametrize("leader_epoch", [-1, 0, 7, -5])
def test_the_leader_epoch(group: Group, leader_epoch: int) -> None:
    """It is stored as it is, and fetched again."""
    group.commit(1, leader_epoch=leader_epoch)
    assert group.fetch().committed_leader_epoch == leader_epoch


def test_a_retention_of_its_own(driver: Driver, group: Group) -> None:
    """It becomes an expiry time; the record's old version has no room for the leader epoch."""
    group.commit(1, retention_ms=1_000, leader_epoch=7)
    record = driver.written()[0]
    assert isinstance(record, OffsetCommitRecord)
    assert (record.expire_timestamp_ms, record.leader_epoch) == (START_MS + 1_000, -1)


def test_the_empty_group_id(driver: Driver) -> None:
    """Commits and fetches work in the group without a name."""
    group = Group(driver, "")
    assert group.commit(5).error is NONE
    assert group.committed() == {"orders": {0: 5}}


def test_no_group_id(driver: Driver) -> None:
    """A null group id is INVALID_GROUP_ID on every partition."""
    topics = (TopicToCommit("orders", (OffsetToCommit(0, 1), OffsetToCommit(1, 1))),)
    assert driver.submit(OffsetCommit(None, topics)).error is ErrorCode.INVALID_GROUP_ID


def test_nothing_to_commit(driver: Driver, group: Group) -> None:
    """Without topics the answer is empty and the group is not asked."""
    assert driver.submit(OffsetCommit("group", (), 99, "m")).answer(OffsetCommitResponse).topics == ()


# ---------------------------------------------------------------- the log


@pytest.mark.parametrize(
    ("reason", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_the_append_fails(driver: Driver, group: Group, reason: ErrorCode, answer: ErrorCode) -> None:
    """Clients see the log's trouble as the coordinator's (KAFKA-3590); the old value stays."""
    group.commit(1)
    error = LogStoreError("injected")
    error.error_code = reason
    driver.store.fail_next(error)
    assert group.commit(2).error is answer
    assert group.committed() == {"orders": {0: 1}}


def test_a_failure_is_that_of_all_partitions(driver: Driver, group: Group) -> None:
    """Also of one that was refused for its metadata: Kafka's coordinator has one answer for a write that failed."""
    offsets = (OffsetToCommit(0, 1, -1, "m" * 5_000), OffsetToCommit(1, 2))
    driver.store.fail_next(LogStoreError("injected"))
    answer = driver.submit(OffsetCommit("group", (TopicToCommit("orders", offsets),))).answer(OffsetCommitResponse)
    results = [result.error_code for result in answer.topics[0].partitions]
    assert results == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_failed_commit_has_kept_the_session_alive(driver: Driver, group: Group) -> None:
    """A commit that passed validation counts as a heartbeat, whatever the log or its metadata."""
    (a,) = group.stable("a")
    driver.sleep(9_000)
    driver.store.fail_next(LogStoreError("injected"))
    group.commit(1, member_id=a)
    driver.sleep(9_000)
    group.commit(1, member_id=a, metadata="m" * 5_000)
    driver.sleep(9_999)
    assert group.state is GroupState.STABLE


def test_commits_under_way() -> None:
    """Until the log has answered, everybody reads the old value; commits are answered in the order of the log."""
    driver = Driver(late=True)
    group = Group(driver)
    sent = [group.commit(10), group.commit(11)]
    assert group.fetch().committed_offset == group.fetch(require_stable=True).committed_offset == -1
    driver.write(1)
    assert [entry.is_waiting for entry in sent] == [False, True]
    assert group.fetch().committed_offset == 10
    driver.refuse(LogStoreError("injected"))
    assert sent[1].error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert group.fetch().committed_offset == 10


def test_one_answer_for_several_appends() -> None:
    """An acknowledgement stands for all appends up to it: each commit is answered, in order."""
    driver = Driver(late=True)
    group = Group(driver)
    sent = [group.commit({0: offset, 1: offset}) for offset in (1, 2, 3)]
    driver.write_together()
    assert [entry.error for entry in sent] == [NONE] * 3
    assert group.committed() == {"orders": {0: 3, 1: 3}}


def test_an_append_of_unknown_outcome(driver: Driver, group: Group) -> None:
    """The commit is COORDINATOR_NOT_AVAILABLE; the partition must be loaded again before it is served."""
    group.commit(1)
    driver.store.fail_next(AppendTimedOutError())
    assert group.commit(2).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.commit(3).error is ErrorCode.NOT_COORDINATOR
    driver.coordinator.load(0)
    assert group.commit(4).error is NONE


def test_commits_do_not_write_the_group(driver: Driver, group: Group) -> None:
    """A member's commit writes its offset and nothing else."""
    (a,) = group.stable("a")
    before = len(driver.written())
    group.commit(1, member_id=a)
    assert [type(record) for record in driver.written()[before:]] == [OffsetCommitRecord]
    assert isinstance(driver.written()[before - 1], GroupMetadataRecord)


def test_a_commit_that_no_log_takes() -> None:
    """More records than a batch takes (``message.max.bytes``) are refused before they are made, and no group is."""
    coordinator = GroupCoordinator(clock=ManualClock(START_MS))
    coordinator.load_all()
    partitions = [OffsetToCommit(index, 5, -1, "x" * 5_000 * (index == 0)) for index in range(30_000)]
    (topic,) = coordinator.call(OffsetCommit("group", (TopicToCommit("orders", partitions),))).topics
    assert {result.error_code for result in topic.partitions} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert coordinator.call(ListGroups()).groups == ()
