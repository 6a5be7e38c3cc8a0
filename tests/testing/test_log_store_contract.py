"""``check_log_store`` accepts stores that keep the contract, and reports what others break."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from groupcoord import LogRecord, MemoryLogStore
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.log_store import LogStoreError, RecordTooLargeError
from groupcoord.storage.stores.segments import CompactionSettings, SegmentLogStore
from groupcoord.testing.contracts.faulty_store import Answer
from groupcoord.testing.contracts.logs_and_clocks import check_log_store
from tests.samples import portion, sampled, seeds
from tests.tables import as_one_test


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in itertools.count())


def test_the_store_in_memory() -> None:
    check_log_store(MemoryLogStore)


@sampled
@pytest.mark.parametrize("segment_bytes", [120_000, pytest.param(104_857_600, marks=pytest.mark.ci)])
def test_the_segment_store(paths: Iterator[Path], segment_bytes: int) -> None:
    def open_store(path: Path) -> SegmentLogStore:
        return SegmentLogStore(path, segment_bytes=segment_bytes)

    def reopen(store: SegmentLogStore) -> SegmentLogStore:
        store.close()
        return open_store(store.directory)

    for seed in portion(seeds(3)):
        check_log_store(lambda: open_store(next(paths)), reopen=reopen, seed=seed)


def test_the_segment_store_while_it_compacts(paths: Iterator[Path]) -> None:
    settings = CompactionSettings(min_cleanable_ratio=0.0, delete_retention_ms=0)

    def open_store(path: Path) -> SegmentLogStore:
        store = SegmentLogStore(path, compaction=settings)
        store._settings = evolve(store._settings, segment_bytes=1)
        return store

    def reopen(store: SegmentLogStore) -> SegmentLogStore:
        store.close()
        return open_store(store.directory)

    dropped = 0

    def compact(store: SegmentLogStore) -> None:
        nonlocal dropped
        before = sum(1 for _ in store.read(0))
        while store.compact_some(2_000_000_000_000):
            pass
        dropped += before - sum(1 for _ in store.read(0))

    check_log_store(lambda: open_store(next(paths)), reopen=reopen, compact=compact)
    assert dropped > 100


def test_the_example_with_sqlite(paths: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    from sqlite_log_store import SqliteLogStore

    files: dict[Any, Path] = {}

    def open_store(path: Path) -> Any:
        store = SqliteLogStore(path)
        files[store] = path
        return store

    def reopen(store: Any) -> Any:
        store.close()
        return open_store(files[store])

    check_log_store(lambda: open_store(next(paths)), reopen=reopen)
    sys.modules.pop("sqlite_log_store", None)


# ---------------------------------------------------------------- stores with a bug each


class Faulty(MemoryLogStore):
    """A store in memory that keeps bytes, as one on a disk does."""

    def __init__(self, kept: dict[int, list[LogRecord]] | None = None) -> None:
        super().__init__()
        self._logs.update({partition: list(log) for partition, log in (kept or {}).items()})
        self._end_offsets.update({partition: log[-1].offset + 1 for partition, log in self._logs.items() if log})

    def append(self, partition: int, ticket: Any, records: Sequence[LogRecord]) -> int | None:
        try:
            for record in records:
                record.encoded()
        except ValueError as error:
            raise LogStoreError("too large") from error
        return super().append(partition, ticket, records)

    def reopened(self) -> Any:
        return type(self)(self._logs)


class OverwritesOffsets(Faulty):
    def append(self, partition: int, ticket: Any, records: Sequence[LogRecord]) -> int | None:
        base_offset = super().append(partition, ticket, records)
        self._end_offsets[partition] -= 1 if len(records) > 5 else 0
        return base_offset


class WritesHalf(Faulty):
    def append(self, partition: int, ticket: Any, records: Sequence[LogRecord]) -> int | None:
        for record in records:
            base_offset = super().append(partition, ticket, [record])
        return self.end_offset(partition) - len(records) if base_offset is not None else None


class RaisesSomethingElse(Faulty):
    def append(self, partition: int, ticket: Any, records: Sequence[LogRecord]) -> int | None:
        for record in records:
            record.encoded()
        return super().append(partition, ticket, records)


def reads(records: Callable[[Faulty, int], Iterable[LogRecord]]) -> type[Faulty]:
    return type("Buggy", (Faulty,), {"read": lambda store, partition: iter(records(store, partition))})


def kept(store: Faulty, partition: int) -> Iterator[LogRecord]:
    return Faulty.read(store, partition)


def with_value(record: LogRecord, value: bytes) -> LogRecord:
    return LogRecord(record.record, record.timestamp_ms, record.offset, (record.key, value))


def without_producer(record: LogRecord) -> LogRecord:
    if not isinstance(record.record, OffsetCommitRecord):
        return record
    return LogRecord.from_bytes(record.key, record.value, offset=record.offset, timestamp_ms=record.timestamp_ms)


class IsDisturbed(Faulty):
    def read(self, partition: int) -> Iterator[LogRecord]:
        log = self._logs.get(partition, [])
        size, number = len(log), 0
        while number < len(log):
            yield log[number]
            number += 1 if len(log) == size else 2


class LosesTheLast(Faulty):
    def reopened(self) -> Any:
        return type(self)({partition: log[:-1] for partition, log in self._logs.items()})


class StartsAnew(Faulty):
    def reopened(self) -> Any:
        store = super().reopened()
        store._end_offsets.clear()
        return store


class AnswersLater(Faulty):
    def append(self, partition: int, ticket: Any, records: Sequence[LogRecord]) -> int | None:
        super().append(partition, ticket, records)
        return None


@as_one_test
@pytest.mark.parametrize(
    ("make_store", "said"),
    [
        (OverwritesOffsets, "offsets must grow"),
        (WritesHalf, "as a whole or not at all"),
        (RaisesSomethingElse, "is no LogStoreError"),
        (reads(lambda store, partition: kept(store, min(partition, 1))), "log partition 7: 0 records are read, 1 were"),
        (reads(lambda *log: (record for record in kept(*log) if record.value is not None)), "instead of"),
        (reads(lambda *log: (with_value(each, each.value or b"") for each in kept(*log))), "b'' instead of None"),
        (reads(lambda *log: map(without_producer, kept(*log))), "has producer_id -1 instead of"),
        (reads(lambda *log: (each for each in kept(*log) if not each.is_control)), "instead of"),
        (reads(lambda *log: (LogRecord(each.record, 0, each.offset) for each in kept(*log))), "timestamp_ms 0"),
        (reads(lambda store, partition: store._logs.pop(partition, [])), "a second time: log partition 0: 0 records"),
        (reads(lambda store, partition: store._logs.get(partition, [])[::-1]), "has offset"),
        (reads(lambda *log: [LogRecord(OffsetCommitRecord("g", "t", 0, 0), 1, 0), *kept(*log)]), "is not empty"),
        (IsDisturbed, "disturbed by an append"),
        (LosesTheLast, "after it was reopened"),
        (StartsAnew, "offsets must grow"),
        (AnswersLater, "answers later"),
    ],
)
def test_bugs_are_found(make_store: Callable[[], Any], said: str) -> None:
    """Each planted bug is found, and the message names the broken clause."""
    with pytest.raises(AssertionError, match=said):
        check_log_store(make_store, reopen=lambda store: store.reopened())


class Late(Faulty):
    """A store that writes on demand."""

    def __init__(self, kept: dict[int, list[LogRecord]] | None = None) -> None:
        super().__init__(kept)
        self.acknowledge_late = True

    def settle(self) -> list[Answer]:
        return [*self.write_waiting()]


class AnswersNewestFirst(Late):
    def settle(self) -> list[Answer]:
        return super().settle()[::-1]


class WritesNewestFirst(Late):
    def settle(self) -> list[Answer]:
        self._waiting.reverse()
        return sorted(super().settle())


class ForgetsTheLast(Late):
    def settle(self) -> list[Answer]:
        self._waiting = self._waiting[:1] if len(self._waiting) < 3 else self._waiting[:-1]
        return super().settle()


class GuessesOffsets(Late):
    def settle(self) -> list[Answer]:
        answers = super().settle()
        return answers if len(answers) == 1 else [(ticket, 0) for ticket, _ in answers]


class ForgetsToAnswer(Late):
    def settle(self) -> list[Answer]:
        super().settle()
        return []


class AnswersOnceForAll(Late):
    """An answer stands for all appends of its log partition before it."""

    def settle(self) -> list[Answer]:
        return [*{ticket.partition: (ticket, offset) for ticket, offset in super().settle()}.values()]


class WritesWhatItHasRefused(Late):
    def append(self, partition: int, ticket: Any, records: Sequence[LogRecord]) -> int | None:
        try:
            return super().append(partition, ticket, records)
        except LogStoreError:
            self._waiting += [(ticket, list(records))] if self._waiting else []
            raise


class AnswersWhatItHasRefused(Late):
    refused: tuple[Answer, ...] = ()

    def append(self, partition: int, ticket: Any, records: Sequence[LogRecord]) -> int | None:
        try:
            return super().append(partition, ticket, records)
        except LogStoreError:
            self.refused = ((ticket, 0),) if self._waiting else ()
            raise

    def settle(self) -> list[Answer]:
        return sorted([*super().settle(), *self.refused], key=lambda answer: answer[0])


class RefusesWhatIsSound(Late):
    def append(self, partition: int, ticket: Any, records: Sequence[LogRecord]) -> int | None:
        if len(self._waiting) == 7:
            raise RecordTooLargeError("it is not")
        return super().append(partition, ticket, records)


@pytest.mark.parametrize("make_store", [Late, AnswersOnceForAll])
def test_a_store_that_answers_later(make_store: type[Late]) -> None:
    check_log_store(make_store, reopen=lambda store: store.reopened(), settle=lambda store: store.settle())


@pytest.mark.parametrize(
    ("make_store", "said"),
    [
        (AnswersNewestFirst, "in the order of the appends"),
        (WritesNewestFirst, "records instead of"),
        (ForgetsTheLast, r"up to the last one"),
        (GuessesOffsets, "was reported at 0"),
        (ForgetsToAnswer, "to settle"),
        (WritesWhatItHasRefused, "records instead of"),
        (AnswersWhatItHasRefused, "append 5 was reported at 0"),
        (RefusesWhatIsSound, "refused sound records"),
    ],
)
def test_bugs_of_late_answers_are_found(make_store: type[Late], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_log_store(make_store, settle=lambda store: store.settle())


def test_the_faulty_stores_are_faulty_by_their_bug_alone() -> None:
    check_log_store(Faulty, reopen=lambda store: store.reopened())


class CompactsBlindly(Faulty):
    """Keeps the last record of each key, but doesn't know of transactions."""

    def compact(self) -> None:
        for partition, log in self._logs.items():
            last = {record.key: record for record in log if not record.is_control}
            self._logs[partition] = [record for record in log if record.is_control or last[record.key] is record]


class LoadsTooLittle(Faulty):
    """Omits later records of the same group from a load, whatever their type."""

    def read_last(self, partition: int) -> Iterator[LogRecord]:
        records = list(self.read(partition))
        last = {record.key[:8]: record for record in records}
        return (record for record in records if last[record.key[:8]] is record)


@pytest.mark.parametrize(
    ("store", "compact", "message"),
    [
        (CompactsBlindly, CompactsBlindly.compact, "and compaction, read.*the (committed|transactions) are"),
        (LoadsTooLittle, None, "read_last.*the (committed|groups|transactions) are"),
    ],
)
def test_histories_find_what_is_lost(
    store: type[Faulty], compact: Callable[[Faulty], None] | None, message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        check_log_store(store, compact=compact)
