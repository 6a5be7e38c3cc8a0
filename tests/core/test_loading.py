"""Loads and unloads of log partitions: records, logs that fail, and writes that are under way."""

from __future__ import annotations

from groupcoord import ErrorCode, GroupState, LogRecord, Ticket
from groupcoord.core.log.records import (
    GroupMetadataRecord,
    MemberRecord,
    OpaqueRecord,
    Record,
)
from groupcoord.messages import (
    DeleteGroupsResponse,
    LeaveGroupResponse,
)
from tests.core.driver import REBALANCE_MS, SESSION_MS, START_MS, Driver, Group

MEMBER = MemberRecord("a-0", "a", "client", "/127.0.0.1", REBALANCE_MS, SESSION_MS, b"metadata", b"share")


def loaded(*records: Record, **settings: int) -> tuple[Driver, Group]:
    driver = Driver(**settings)
    driver.log.append(0, Ticket(0, 0), [LogRecord(record, START_MS) for record in records])
    driver.restart()
    return driver, Group(driver)


def generation(*members: MemberRecord, number: int = 7, timestamp_ms: int = START_MS) -> GroupMetadataRecord:
    leader = members[0].member_id if members else None
    name = "range" if members else None
    return GroupMetadataRecord("group", "consumer", number, name, leader, timestamp_ms, members)


# ---------------------------------------------------------------- load


def test_a_rebalance_timeout_that_was_never_written() -> None:
    """-1, from old records, stands for the session time-out."""
    _, group = loaded(generation(MemberRecord("a-1", None, "c", "h", -1, 8_000, b"", b"")))
    assert group.inside.members["a-1"].rebalance_timeout_ms == 8_000


# ---------------------------------------------------------------- unload


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


def test_unknown_records_are_passed_over() -> None:
    """Records of unknown kinds do not stop a load (KAFKA-14869)."""
    _, group = loaded(OpaqueRecord(b"\x00\x63key", b"value"), generation(MEMBER), OpaqueRecord(b"", None))
    assert group.state is GroupState.STABLE
