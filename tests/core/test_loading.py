"""Loads and unloads of log partitions: records, logs that fail, and writes that are under way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from groupcoord import ErrorCode, GroupCoordinator, LoadError, LogRecord, PartitionStatus, Ticket
from groupcoord.core.log.records import (
    GroupMetadataRecord,
    MemberRecord,
    Record,
)
from groupcoord.log_store import LogStoreError, MemoryLogStore
from groupcoord.messages import (
    DeleteGroupsResponse,
    LeaveGroupResponse,
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


def test_a_rebalance_timeout_that_was_never_written() -> None:
    """-1, from old records, stands for the session time-out."""
    _, group = loaded(generation(MemberRecord("a-1", None, "c", "h", -1, 8_000, b"", b"")))
    assert group.inside.members["a-1"].rebalance_timeout_ms == 8_000


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
