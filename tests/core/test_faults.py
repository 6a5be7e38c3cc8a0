"""Log stores that fail or break their contract, loads, unloads and continuations of appends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from groupcoord import (
    ErrorCode,
    GroupCoordinator,
    LogRecord,
    ManualClock,
    MemoryLogStore,
    PartitionStatus,
    Ticket,
)
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.log.records import (
    ZERO_UUID,
    GroupMetadataRecord,
    MemberRecord,
)
from groupcoord.core.messages import (
    CompleteTransactionResponse,
    DeletedGroup,
    DeleteGroupsResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    LeftMember,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    PartitionResult,
    Reply,
    Response,
    TopicResult,
    TxnOffsetCommitResponse,
)
from groupcoord.core.refusals import refused
from groupcoord.log_store import AppendTimedOutError, LogStoreError
from groupcoord.messages import (
    DeleteGroups,
    Heartbeat,
    OffsetCommit,
    OffsetToCommit,
    TopicToCommit,
)
from tests.core.driver import START_MS, Driver, Group
from tests.tables import as_one_test


def test_everything_under_way_fails() -> None:
    """Requests that wait for the log get the error, those that wait for members NOT_COORDINATOR."""
    driver = Driver(late=True)
    stable, preparing, completing = Group(driver, "s"), Group(driver, "p"), Group(driver, "c")
    stable.generation_of("@x")
    driver.write()
    stable.assign()
    completing.generation_of("y", "z")
    preparing.join("w")
    driver.write()
    sent = [stable.join("x", instance="x"), completing.sync("y-1"), stable.commit(1, member_id="x-2")]
    joins = preparing.join("v")
    driver.refuse(AppendTimedOutError(), 1)
    assert [entry.error for entry in sent] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    assert joins.error is ErrorCode.NOT_COORDINATOR
    assert driver.coordinator.next_deadline_ms() is None


class ScriptedStore(MemoryLogStore):
    """Answers appends from a script of offsets, None and exceptions; then like a log in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[int | BaseException | None] = []

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        """Follow the script."""
        if not self.script:
            return super().append(partition, ticket, records)
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


@pytest.fixture
def coordinator(store: ScriptedStore) -> GroupCoordinator:
    """A coordinator of two log partitions."""
    driver = Driver(offsets_topic_num_partitions=2)
    coordinator = GroupCoordinator(config=driver.config, clock=ManualClock(), log_store=store)
    coordinator.load_all()
    return coordinator


def commit(group_id: str = "group", offset: int = 1) -> OffsetCommit:
    return OffsetCommit(group_id, (TopicToCommit("orders", (OffsetToCommit(0, offset),)),))


@pytest.mark.parametrize("error", [LogStoreError("injected"), KeyError("bug")], ids=["log store", "anything"])
def test_a_deletion_over_two_partitions_of_which_one_fails(
    coordinator: GroupCoordinator, store: ScriptedStore, error: Exception
) -> None:
    """The caller gets one response, with a result per group, whatever the store raised."""
    index = coordinator.partition_of("group")
    other = next(name for name in "abcdefgh" if coordinator.partition_of(name) != index)
    coordinator.submit(commit())
    coordinator.submit(commit(other))
    coordinator.take_replies()
    store.script, replies = [error], {}
    try:
        coordinator.submit(DeleteGroups(("group", other)), "mine")
    except KeyError:
        replies = dict(coordinator.take_replies())
        coordinator.submit(Heartbeat("group", 1, "m"), "next")
    replies |= dict(coordinator.take_replies())
    assert replies.keys() <= {"mine", "next"}
    assert dict(replies["mine"].results) == {"group": ErrorCode.UNKNOWN_SERVER_ERROR, other: ErrorCode.NONE}


class UnreadableStore(MemoryLogStore):
    """Raises what no log store should while it is read."""

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Fail."""
        raise OSError("not a log store's error")


def test_a_store_that_raises_something_else_while_it_is_read() -> None:
    """The partition has failed and can be loaded again; it does not look as if it were loading."""
    coordinator = GroupCoordinator(clock=ManualClock(), log_store=UnreadableStore())
    with pytest.raises(Exception, match="not a log store's error"):
        coordinator.load(0)
    assert coordinator.status(0) is PartitionStatus.FAILED


# ---------------------------------------------------------------- loads and unloads


def loaded(leader: str, *members: MemberRecord) -> GroupMetadata:
    """Return the group of a record as it is after a restart."""
    driver = Driver()
    record = GroupMetadataRecord("group", "consumer", 7, "range", leader, START_MS, members)
    driver.log.append(0, Ticket(0, 0), [LogRecord(record, START_MS)])
    driver.restart()
    return Group(driver).inside


def test_a_store_that_submits_a_request_while_it_appends() -> None:
    """Its records follow those of the append."""
    commits = [OffsetCommit("g", (TopicToCommit("t", (OffsetToCommit(0, offset),)),)) for offset in (1, 2)]

    class Store(MemoryLogStore):
        def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
            if commits:
                coordinator.submit(commits.pop())
            return super().append(partition, ticket, records)

    coordinator = GroupCoordinator(clock=ManualClock(), log_store=Store())
    coordinator.load_all()
    coordinator.submit(commits.pop(0))
    log = coordinator.log_store.read(coordinator.partition_of("g"))
    assert [entry.record.offset for entry in log] == [1, 2]  # type: ignore[union-attr]


def test_a_rebalance_timeout_that_was_never_written() -> None:
    """-1, from old records, stands for the session time-out."""
    group = loaded("a-1", MemberRecord("a-1", None, "c", "h", -1, 8_000, b"", b""))
    assert group.members["a-1"].rebalance_timeout_ms == 8_000


def test_the_leader_of_the_record_leads_and_not_the_first_member() -> None:
    group = loaded("b-1", *(MemberRecord(name, None, "c", "h", 1, 8_000, b"", b"") for name in ("a-1", "b-1")))
    assert group.leader == "b-1"


def test_an_outdated_leader_epoch_changes_nothing() -> None:
    coordinator = Driver().coordinator
    coordinator.unload(0)
    assert coordinator.continue_load(0)
    coordinator.load(0, 5)
    for leader_epoch, status in ((4, "ACTIVE"), (5, "ACTIVE"), (6, "UNLOADED")):
        coordinator.unload(0, leader_epoch)
        assert coordinator.status(0).name == status
    for leader_epoch, status in ((6, "UNLOADED"), (7, "ACTIVE")):
        coordinator.load(0, leader_epoch)
        assert coordinator.status(0).name == status


def test_unload_with_writes_under_way() -> None:
    """Waiting requests fail with NOT_COORDINATOR, once: syncs, static joins, commits, leaves, deletions."""
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
    assert waiting[2].answer(JoinGroupResponse).member_id == ""
    assert waiting[3].answer(LeaveGroupResponse).members == ()
    assert deletion.answer(DeleteGroupsResponse).results[0].error_code is ErrorCode.NOT_COORDINATOR
    assert deferred.error is ErrorCode.NOT_COORDINATOR


# ---------------------------------------------------------------- continuations


def results(*errors: ErrorCode) -> tuple[TopicResult, ...]:
    return (TopicResult("t", ZERO_UUID, tuple(PartitionResult(index, error) for index, error in enumerate(errors))),)


NONE, TOO_LARGE = ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
LOG_ERROR, SEEN = ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE


@as_one_test
@pytest.mark.parametrize(
    ("response", "refusal"),
    [
        (OffsetCommitResponse(results(NONE, UNKNOWN)), OffsetCommitResponse(results(SEEN, UNKNOWN))),
        (OffsetCommitResponse(results(NONE, TOO_LARGE)), OffsetCommitResponse(results(SEEN, SEEN))),
        (TxnOffsetCommitResponse(results(TOO_LARGE, NONE)), TxnOffsetCommitResponse(results(SEEN, SEEN))),
        (LeaveGroupResponse(NONE, (LeftMember("m", None, NONE),)), LeaveGroupResponse(SEEN)),
        (OffsetDeleteResponse(NONE, results(NONE)), OffsetDeleteResponse(SEEN)),
        (
            DeleteGroupsResponse((DeletedGroup("a", NONE), DeletedGroup("b", ErrorCode.NON_EMPTY_GROUP))),
            DeleteGroupsResponse((DeletedGroup("a", SEEN), DeletedGroup("b", SEEN))),
        ),
        # A transaction coordinator knows partitions and their leaders: the log's own error is passed on.
        (CompleteTransactionResponse(NONE), CompleteTransactionResponse(LOG_ERROR)),
    ],
    ids=lambda response: type(response).__name__,
)
def test_what_a_refused_request_is_answered(response: Response, refusal: Response) -> None:
    """All errors become those that clients see; results found before are kept."""
    assert refused(Reply("token", response), LOG_ERROR) == Reply("token", refusal)
