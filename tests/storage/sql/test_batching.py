"""Appends that wait for each other: one transaction for all, answers in order, nothing silent."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from groupcoord import ErrorCode, GroupCoordinator, LogRecord, PartitionStatus, Ticket
from groupcoord.aio import AsyncCoordinator
from groupcoord.coordinator.threads import ThreadSafeCoordinator
from groupcoord.core.log.records import GroupTombstone, OffsetCommitRecord, Record
from groupcoord.log_store import AppendOutcomeUnknownError, LogStoreError, RecordTooLargeError
from groupcoord.storage.stores import BatchingLogStore, SqliteLogStore, sql
from groupcoord.storage.stores.sql import COMPACTED_RECORDS_MIN
from tests.aio.requests import CONFIG, commit, committed, fetch

from .batched import AnsweredStore
from .conftest import OpenLog

LONG = 60.0


class HeldStore(SqliteLogStore):
    """Writes nothing until it is let, and notes how many appends each transaction had."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may_write = threading.Event()
        self.asked = threading.Event()
        self.transactions: list[int] = []
        self.failures: list[LogStoreError] = []

    def append_all(self, appends: Sequence[tuple[int, Sequence[LogRecord]]]) -> list[int | LogStoreError]:
        """Wait, then write or fail."""
        self.asked.set()
        assert self.may_write.wait(LONG)
        self.transactions.append(len(appends))
        if self.failures:
            return [self.failures.pop(0)] * len(appends)
        return super().append_all(appends)


def records(*values: Record) -> list[LogRecord]:
    return [LogRecord(value, 1) for value in values]


def test_what_waits_shares_a_transaction(tmp_path: Path) -> None:
    """While the first append is written ninety-nine come, of many log partitions; one transaction takes them all."""
    inner = HeldStore(tmp_path / "log.sqlite")
    store = AnsweredStore(inner)
    store.append(0, Ticket(0, 0), records(GroupTombstone("first")))
    assert inner.asked.wait(LONG)
    tickets = [Ticket(number % 5, 1 + number // 5) for number in range(99)]
    for ticket in tickets:
        store.append(ticket.partition, ticket, records(GroupTombstone("one"), GroupTombstone("two")))
    inner.may_write.set()

    answers = store.settle()

    assert inner.transactions == [1, 99]
    assert [ticket for ticket, _ in answers] == [Ticket(0, 0), *tickets]
    assert [outcome for ticket, outcome in answers if ticket.partition == 0] == [0, *range(1, 41, 2)]
    store.close()


def test_one_that_has_no_bytes_fails_alone(open_log: OpenLog) -> None:
    """Its neighbours in the transaction are written."""
    store = AnsweredStore(open_log())
    for number, group_id in enumerate(["a", "x" * 40_000, "b"]):
        store.append(0, Ticket(0, number), records(GroupTombstone(group_id)))

    outcomes = [outcome for _, outcome in store.settle()]

    assert (outcomes[0], outcomes[2]) == (0, 1)
    assert isinstance(outcomes[1], RecordTooLargeError)
    store.close()


def test_what_comes_behind_an_unknown_outcome_is_lost(tmp_path: Path) -> None:
    """The log partition has failed until it is loaded again; what waits for it is not written, others are."""
    inner = HeldStore(tmp_path / "log.sqlite")
    inner.failures.append(AppendOutcomeUnknownError("the connection is gone"))
    store = AnsweredStore(inner)
    store.append(0, Ticket(0, 0), records(GroupTombstone("perhaps")))
    assert inner.asked.wait(LONG)
    store.append(0, Ticket(0, 1), records(GroupTombstone("behind it")))
    store.append(1, Ticket(1, 0), records(GroupTombstone("elsewhere")))
    inner.may_write.set()

    assert [ticket for ticket, _ in store.settle()] == [Ticket(0, 0), Ticket(1, 0)]
    assert [record.record for record in store.read(0)] == []
    store.append(0, Ticket(0, 2), records(GroupTombstone("after the load")))
    assert store.settle() == [(Ticket(0, 2), 0)]
    store.close()


def test_a_check_of_ownership_that_fails_with_an_unknown_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = SqliteLogStore(tmp_path / "log.sqlite")
    store, errors, is_checked = AnsweredStore(inner), [], threading.Event()
    monkeypatch.setattr(store.answers, "ownership_checked", lambda error: (errors.append(error), is_checked.set()))
    monkeypatch.setattr(inner, "check_ownership", lambda: 1 // 0)
    store.check_ownership()
    assert is_checked.wait(LONG)
    assert "ZeroDivisionError" in str(errors)
    store.abandon()


def test_in_an_event_loop(open_log: OpenLog) -> None:
    """Many commit at once and are answered; a second coordinator finds all of it, and the first one is shut out."""

    async def story() -> None:
        first = BatchingLogStore(open_log(lease_ms=200))
        coordinator = AsyncCoordinator(GroupCoordinator(config=CONFIG, log_store=first))
        await coordinator.start()
        asked = [coordinator.ask(commit(number, f"group {number}")) for number in range(50)]
        for answer in await asyncio.gather(*asked):
            assert answer.topics[0].partitions[0].error_code is ErrorCode.NONE
        second = BatchingLogStore(open_log(lease_ms=200))
        async with AsyncCoordinator(GroupCoordinator(config=CONFIG, log_store=second)) as successor:
            found = [committed(await successor.ask(fetch(f"group {number}"))) for number in range(50)]
            assert found == [[number] for number in range(50)]
        refused = await coordinator.ask(commit(99))
        assert refused.topics[0].partitions[0].error_code is ErrorCode.NOT_COORDINATOR
        assert {coordinator.coordinator.status(index) for index in range(3)} == {PartitionStatus.FAILED}
        await coordinator.close()
        first.close()
        second.close()

    asyncio.run(story())


def test_among_threads(open_log: OpenLog) -> None:
    """Threads commit side by side; a log partition that is loaded again while others write has everything."""
    store = BatchingLogStore(open_log(lease_ms=1_500))
    with ThreadSafeCoordinator(GroupCoordinator(config=CONFIG, log_store=store)) as coordinator:

        def work(number: int) -> None:
            for value in range(20):
                answer = coordinator.ask(commit(value, f"group {number}"), timeout_s=LONG)
                assert answer.topics[0].partitions[0].error_code in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for partition in range(CONFIG.offsets_topic_num_partitions):
            coordinator.change(lambda inner, partition=partition: inner.unload(partition))
            coordinator.change(lambda inner, partition=partition: inner.load(partition, 1))
        for thread in threads:
            thread.join()
        for number in range(6):
            answer = coordinator.ask(commit(99, f"group {number}"), timeout_s=LONG)
            assert answer.topics[0].partitions[0].error_code is ErrorCode.NONE
    store.close()

    with ThreadSafeCoordinator(GroupCoordinator(config=CONFIG, log_store=open_log(lease_ms=1_500))) as coordinator:
        assert [committed(coordinator.ask(fetch(f"group {number}"))) for number in range(6)] == [[99]] * 6
        store = coordinator.coordinator.log_store
    store.close()  # type: ignore[attr-defined]


class CompactedStore(SqliteLogStore):
    """Reports when nothing is left to compact."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_clean = threading.Event()

    def compact_some(self, now_ms: int) -> bool:
        """Do a portion."""
        has_more = super().compact_some(now_ms)
        if not has_more and not self._dirty:
            self.is_clean.set()
        return has_more


def test_it_compacts_when_nothing_waits(tmp_path: Path) -> None:
    """Of an offset committed a thousand times the log keeps the last one, and continues behind it."""
    inner = CompactedStore(tmp_path / "log.sqlite")
    store = AnsweredStore(inner)
    commits = [OffsetCommitRecord("g", "t", 0, number) for number in range(COMPACTED_RECORDS_MIN)]
    store.append(0, Ticket(0, 0), records(*commits))
    store.settle()
    assert inner.is_clean.wait(LONG)

    assert [record.offset for record in store.read(0)] == [COMPACTED_RECORDS_MIN - 1]
    store.append(0, Ticket(0, 1), records(GroupTombstone("g")))
    assert store.settle() == [(Ticket(0, 1), COMPACTED_RECORDS_MIN)]
    store.close()


def test_portions_of_compaction(open_log: OpenLog) -> None:
    """Appends between the portions stay; a log that isn't dirty enough is left alone, until most of it is new again."""
    store = open_log()
    commits = [OffsetCommitRecord("g", "t", number % 10, number) for number in range(COMPACTED_RECORDS_MIN)]
    store.append(0, Ticket(0, 0), records(*commits))
    number = 0
    while store.compact_some(0):
        number += 1
        store.append(0, Ticket(0, number), records(OffsetCommitRecord("g", "t", 0, -number)))

    assert number > 1
    assert len(list(store.read(0))) == 10 + number
    assert not store.compact_some(0)
    store.append(0, Ticket(0, number + 1), records(*commits))
    while store.compact_some(0):
        pass
    assert [record.offset for record in store.read(0)] == list(range(2_000 + number - 10, 2_000 + number))
    store.close()


def test_new_records_are_counted_until_they_are_compacted(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction begins with enough new records, and if they are more than ``min_cleanable_ratio`` of all."""
    monkeypatch.setattr(sql, "COMPACTED_RECORDS_MIN", 4)
    store = open_log()
    tickets = (Ticket(0, number) for number in itertools.count())

    def counts_after(*partitions: int) -> list[int]:
        """Append a commit of each partition; return the numbers of records after a compaction that follows each."""
        counts = []
        for index in partitions:
            store.append(0, next(tickets), records(OffsetCommitRecord("g", "t", index, 1)))
            while store.compact_some(0):
                pass
            counts.append(len(list(store.read_from(0, 0))))
        return counts

    assert counts_after(0, 0, 0, 1) == [1, 2, 3, 2]
    assert counts_after(0, 1, 2, 3) == [3, 4, 5, 4]
    assert counts_after(4, 5, 0, 1, 2) == [5, 6, 7, 8, 6]
    assert counts_after(3, 0, 6, 7, 0, 0, 0) == [7, 8, 9, 10, 11, 12, 8]
    store.close()
    store = open_log()
    assert counts_after(0) == [9]
    list(store.read(0))  # earlier records count once they are read
    assert counts_after(0) == [8]
    store.close()


def test_compaction_that_fails_waits_for_new_records(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sql, "COMPACTED_RECORDS_MIN", 2)
    store = open_log()
    store.append(0, Ticket(0, 0), records(GroupTombstone("a"), GroupTombstone("a"), GroupTombstone("a")))
    successor = open_log()
    assert not store.compact_some(0)
    assert not store.compact_some(0)
    assert caplog.text.count("can't be compacted") == 1
    store.close()
    successor.close()
