"""Loads and unloads of log partitions: records, logs that fail, and writes that are under way."""

from __future__ import annotations

from groupcoord import ErrorCode, LogRecord, Ticket
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.log.records import (
    GroupMetadataRecord,
    MemberRecord,
)
from groupcoord.messages import (
    DeleteGroupsResponse,
    LeaveGroupResponse,
)
from tests.core.driver import START_MS, Driver, Group


def loaded(leader: str, *members: MemberRecord) -> GroupMetadata:
    """Return the group of a record as it is after a restart."""
    driver = Driver()
    record = GroupMetadataRecord("group", "consumer", 7, "range", leader, START_MS, members)
    driver.log.append(0, Ticket(0, 0), [LogRecord(record, START_MS)])
    driver.restart()
    return Group(driver).inside


def test_a_rebalance_timeout_that_was_never_written() -> None:
    """-1, from old records, stands for the session time-out."""
    group = loaded("a-1", MemberRecord("a-1", None, "c", "h", -1, 8_000, b"", b""))
    assert group.members["a-1"].rebalance_timeout_ms == 8_000


def test_the_leader_of_the_record_leads_and_not_the_first_member() -> None:
    group = loaded("b-1", *(MemberRecord(name, None, "c", "h", 1, 8_000, b"", b"") for name in ("a-1", "b-1")))
    assert group.leader == "b-1"


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
    assert waiting[2].joined.member_id == ""
    assert waiting[3].answer(LeaveGroupResponse).members == ()
    assert deletion.answer(DeleteGroupsResponse).results[0].error_code is ErrorCode.NOT_COORDINATOR
    assert deferred.error is ErrorCode.NOT_COORDINATOR
