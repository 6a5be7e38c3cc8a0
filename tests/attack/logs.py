"""Mutated logs, given to all that reads logs: the store, in any order of its calls, a coordinator, and ``dump``.

Each log is loaded or refused in one line. What is loaded is all that a reader finds which looks for every sound batch;
only a torn tail may be cut, and that is logged. The order of calls makes no difference.
"""

from __future__ import annotations

import contextlib
import logging
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from groupcoord import Config, GroupCoordinator, ManualClock
from groupcoord.cli.dump_records import find_segments, read_segment
from groupcoord.coordinator import LoadError
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.errors import GroupcoordError
from groupcoord.log_store import LogRecord, LogStoreError, Ticket
from groupcoord.records.batches import BatchRecord
from groupcoord.records.salvage import Damage
from groupcoord.storage.stores.segments import SegmentLogStore
from tests.attack.mutated_logs import TIME_MS, LogMutator, MutableLog, plausible_records
from tests.attack.rig import Result
from tests.command import run_command

TIMEOUT_S = 30
LINE_MAX = 1_000
FOLDER = "__consumer_offsets-0"
CONFIG = Config(offsets_topic_num_partitions=1)


class LogFaultError(AssertionError):
    """A log was read as it must not be."""


class _HangError(BaseException):
    """Reading takes too long. Nothing that reads logs may catch this."""


class Outcome(NamedTuple):
    """Result of reading: records, or the error."""

    records: list[BatchRecord] | None
    refusal: str
    warnings: list[str]


class Truth(NamedTuple):
    """All intact batches in the files of a log."""

    records: list[BatchRecord]
    damage: list[tuple[Path, Damage, int]]


def attack_logs(result: Result, count: int, seed: int, only: int | None = None) -> None:
    """Make a number of mutated logs, or the one with a number, and read each in every way."""
    pool = plausible_records()
    for number in range(count) if only is None else [only]:
        folder = Path(tempfile.mkdtemp(prefix="groupcoord-logs-"))
        changes: list[str] = []
        try:
            with _time_limit():
                log = LogMutator(random.Random(seed << 32 | number), pool).mutated()
                changes = log.changes
                result.count(check_log(log, folder))
        except (LogFaultError, _HangError) as error:
            result.fault(f"log {number}: {error or 'it takes too long'} ({'; '.join(changes)})")
            result.again = f"--seed {seed} --only {number}"
        finally:
            shutil.rmtree(folder)
        result.count("logs")


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(TIMEOUT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_log(log: MutableLog, folder: Path) -> str:
    written = write_log(log, folder / "written")
    truth = find_truth(written)
    outcomes = {name: read_copy(written, folder / name, read) for name, read in READINGS.items()}
    kinds = {name: outcome.records is not None for name, outcome in outcomes.items()}
    if len(set(kinds.values())) > 1:
        loaded = ", ".join(name for name, is_loaded in kinds.items() if is_loaded)
        refusal = next(outcome.refusal for outcome in outcomes.values() if outcome.records is None)
        raise LogFaultError(f"loaded by {loaded}, and refused otherwise: {refusal}")
    outcome = outcomes["read"]
    _check_dump(written)
    if outcome.records is None:
        return "refused"
    compare(outcome, truth)
    if outcomes["opened, then read"].records != outcome.records:
        raise LogFaultError("what is read depends on whether the log was open")
    _check_going_on(folder / "read", len(outcome.records))
    if outcome.warnings:
        return "loaded, a torn tail cut"
    return "loaded"


def write_log(log: MutableLog, directory: Path) -> Path:
    partition = directory / FOLDER
    partition.mkdir(parents=True)
    for name, data in log.files().items():
        (partition / name).write_bytes(data)
    return directory


def find_truth(directory: Path) -> Truth:
    records: list[BatchRecord] = []
    damage: list[tuple[Path, Damage, int]] = []
    for segment in find_segments([directory]):
        if not segment.path.stem.isdigit():
            continue
        for found in read_segment(segment):
            if isinstance(found, Damage):
                damage.append((segment.path, found, segment.size_bytes))
            else:
                records += found.records
    return Truth(records, damage)


def compare(outcome: Outcome, truth: Truth) -> None:
    """Check that everything was loaded, except a torn tail that was reported."""
    assert outcome.records is not None
    if outcome.records != truth.records:
        raise LogFaultError(
            f"{len(outcome.records)} of {len(truth.records)} records are loaded, and nothing is refused"
        )
    for path, found, size_bytes in truth.damage:
        if found.position + found.size_bytes != size_bytes:
            raise LogFaultError(f"{found.size_bytes} bytes in the middle of {path.name} are passed over")
        if not any(str(path.name) in warning for warning in outcome.warnings):
            raise LogFaultError(f"{found.size_bytes} bytes at the end of {path.name} are cut, and nothing is logged")


def read_copy(written: Path, copy: Path, read: Callable[[SegmentLogStore], list[BatchRecord]]) -> Outcome:
    shutil.copytree(written, copy)
    with _warnings() as warnings:
        try:
            with SegmentLogStore(copy) as store:
                return Outcome(read(store), "", warnings)
        except (LogStoreError, LoadError) as error:
            return Outcome(None, _one_line_of(error), warnings)
        except Exception as error:
            raise LogFaultError(f"{type(error).__name__}: {error}") from error


def _one_line_of(error: Exception) -> str:
    causes: list[Exception] = [error]
    if isinstance(error, LoadError):
        causes = list(error.causes.values())
    for cause in causes:
        if not isinstance(cause, (GroupcoordError, LogStoreError)):
            raise LogFaultError(f"refused by accident: {type(cause).__name__}: {cause}") from cause
    text = str(error)
    if "\n" in text or not text or len(text) > LINE_MAX:
        raise LogFaultError(f"refused, but not in one line: {text[:LINE_MAX]!r}")
    return text


def _plain(records: Iterator[LogRecord]) -> list[BatchRecord]:
    found: list[BatchRecord] = []
    for record in records:
        key, value = record.encoded()
        found.append((record.offset, record.timestamp_ms, key, value))
    return found


def _read(store: SegmentLogStore) -> list[BatchRecord]:
    return _plain(store.read(0))


def _open_and_read(store: SegmentLogStore) -> list[BatchRecord]:
    store.end_offset(0)
    return _plain(store.read(0))


def _load_twice(store: SegmentLogStore) -> list[BatchRecord]:
    """Load, then begin to read, load another coordinator and read to the end."""
    _load(store)
    return _plain(store.read(0))


def _read_and_load(store: SegmentLogStore) -> list[BatchRecord]:
    records = _plain(store.read(0))
    _load(store)
    return records


def _load(store: SegmentLogStore) -> None:
    # Loading decodes more of a record than reading does, and refuses what it can't decode.
    coordinator = GroupCoordinator(config=CONFIG, clock=ManualClock(TIME_MS), log_store=store)
    coordinator.load(0, 1)
    coordinator.check()


READINGS: dict[str, Callable[[SegmentLogStore], list[BatchRecord]]] = {
    "read": _read,
    "opened, then read": _open_and_read,
    "loaded": _load_twice,
    "read, then loaded": _read_and_load,
}


def _check_going_on(directory: Path, record_count: int) -> None:
    """Append to the loaded log, and open it again with all records."""
    commit = OffsetCommitRecord("after", "orders", 0, 1, -1, "", TIME_MS)
    with SegmentLogStore(directory) as store:
        base_offset = store.append(0, Ticket(0, 1), [LogRecord(commit, TIME_MS)])
    with SegmentLogStore(directory) as store:
        records = _read(store)
    if len(records) != record_count + 1 or records[-1][0] != base_offset:
        raise LogFaultError(f"{record_count} records and one more are {len(records)} when the log is opened again")


def _check_dump(directory: Path) -> None:
    """``groupcoord dump`` prints what there is, and reports what is not."""
    try:
        done = run_command("dump", directory)
    except Exception as error:
        raise LogFaultError(f"dump: {type(error).__name__}: {error}") from error
    if done.status not in (0, 1, 2) or "Traceback" in done.error:
        raise LogFaultError(f"dump: exit status {done.status}, {done.error[-300:]}")
    if done.status and not done.error:
        raise LogFaultError(f"dump: exit status {done.status}, and no reason")


@contextlib.contextmanager
def _warnings() -> Iterator[list[str]]:
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    handler, logger = Handler(), logging.getLogger("groupcoord")
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
