"""Lag of groups in records and in time, and the end offsets that it is computed from, from a file
or a running cluster.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.parquet import Runs
from groupcoord.analysis.fold.history.rows import HOLDER, Row
from groupcoord.analysis.options import WINDOW_COMMITS
from groupcoord.analysis.rules.groups import Place
from groupcoord.analysis.rules.statuses import (
    SAMPLES_MAX,
    EndOffsetSample,
    Evidence,
    LagMethod,
    PartitionEnd,
    TimeLag,
    WindowCommit,
    known_offset,
    lag_status,
    records_behind,
    time_lag,
)

_NEXT = ("topic", "topic_partition", "committed_offset")
_SAMPLED = ("topic", "topic_partition", "at_ms", "end_offset")
_NO_END: Mapping[str, None] = dict.fromkeys(("end_offset", "at_ms", "log_start_offset", "last_stable_offset"))


class Behind(NamedTuple):
    """A committed offset and the end of its partition.

    Attributes:
        end: the row of the end; its values are None if unknown.
        lag: lag in records; None without an end, or with records but no commit.
        number: index of the last sample at or below the committed offset; -1 if there is none.
    """

    end: Mapping[str, Any]
    lag: int | None
    samples: Sequence[EndOffsetSample] = ()
    number: int = -1

    @property
    def was_at_end(self) -> bool:
        return self.number >= 0 and len(self.samples) - self.number <= WINDOW_COMMITS

    def time_lag(self, committed_offset: int | None, record_timestamp_ms: int | None = None) -> TimeLag | None:
        """Return the age of the next record, by its timestamp if given; None if unknown."""
        if self.lag is None or not self.samples:
            return None
        if self.lag and self.end["at_ms"] is not None and record_timestamp_ms is not None:
            # At least 0, since producers' clocks may be ahead.
            return TimeLag(max(self.end["at_ms"] - record_timestamp_ms, 0), LagMethod.RECORD)
        offset = known_offset(committed_offset)
        return time_lag(self.samples[-1].end_offset if offset is None else offset, self.samples, self.number)


class Ends:
    """End offsets of topics; of several rows for a partition, the newest counts."""

    def __init__(self, table: pa.Table, samples: pa.Table | None = None) -> None:
        self._rows: dict[tuple[str, int], Mapping[str, Any]] = {}
        for row in table.to_pylist():
            place = (row["topic"], row["topic_partition"])
            self._rows[place] = max(_NO_END | row, self._rows.get(place, _NO_END), key=_newest)
        self._samples = _samples(table if samples is None else samples)

    def topics(self) -> set[str]:
        return {topic for topic, _ in self._rows if topic is not None}

    def of(self, topic: str, partition: int, committed_offset: int | None) -> Behind:
        end = self._rows.get((topic, partition), _NO_END)
        samples = self._samples.get((topic, partition), ())
        offset = -1 if committed_offset is None else committed_offset
        number = next((one for one in reversed(range(len(samples))) if samples[one].end_offset <= offset), -1)
        log = PartitionEnd(end["log_start_offset"], end["end_offset"])
        return Behind(end, records_behind(committed_offset, log), samples, number)

    def records(self, topic: str, partition: int) -> int:
        """Return the number of records of a partition; 0 if unknown, or if a recent sample had none."""
        end = self.of(topic, partition, 0).end
        start, end_offset = end["log_start_offset"] or 0, end["end_offset"]
        was_empty = self.of(topic, partition, start).was_at_end
        return 0 if was_empty or end_offset is None else max(end_offset - start, 0)

    def lag_then(self, topic: str, partition: int, committed_offset: int | None, at_ms: int | None) -> int | None:
        """Return the lag at a commit, to the last sample before it; None without one."""
        samples = self._samples.get((topic, partition), ())
        number = bisect_right(samples, at_ms, key=_sample_ms) if at_ms is not None else 0
        if not number or known_offset(committed_offset) is None:
            return None
        return records_behind(committed_offset, PartitionEnd(None, samples[number - 1].end_offset))

    def lag_between(self, topic: str, partition: int, committed_offset: int, at_ms: int) -> int | None:
        """Return the lag at a commit, with evenly spaced records between samples; None without an earlier sample."""
        samples = self._samples.get((topic, partition), ())
        number = bisect_right(samples, at_ms, key=_sample_ms)
        if not number:
            return None
        before, after = samples[number - 1], samples[min(number, len(samples) - 1)]
        took_ms = max(after.at_ms - before.at_ms, 1)
        grown = (after.end_offset - before.end_offset) * (at_ms - before.at_ms) // took_ms
        return max(before.end_offset + grown - committed_offset, 0)


def _newest(end: Mapping[str, Any]) -> tuple[int, int]:
    at_ms, end_offset = (-1 if end[name] is None else end[name] for name in ("at_ms", "end_offset"))
    return at_ms, end_offset


def _sample_ms(sample: EndOffsetSample) -> int:
    return sample.at_ms


def _samples(table: pa.Table) -> dict[tuple[str, int], list[EndOffsetSample]]:
    """Return the last samples of each partition."""
    if "at_ms" not in table.column_names:
        return {}
    found: dict[tuple[str, int], dict[int, EndOffsetSample]] = {}
    for topic, partition, *sample in zip(*(table[name].to_pylist() for name in _SAMPLED), strict=True):
        if None not in (partition, *sample):
            found.setdefault((topic, partition), {}).setdefault(sample[0], EndOffsetSample(*sample))
    return {place: sorted(some.values(), key=_sample_ms)[-SAMPLES_MAX:] for place, some in found.items()}


def behind_ends(current_offsets: Iterable[pa.Table], ends: Ends) -> Collection[Row]:
    """Return offsets with a next record."""
    found: dict[tuple[str, int, int], Row] = {}
    for row in (row for table in current_offsets for row in table.select(_NEXT).to_pylist()):
        place = (row["topic"], row["topic_partition"], row["committed_offset"])
        end = ends.of(*place).end
        start, end_offset = end["log_start_offset"], end["end_offset"]
        if start is not None and end_offset is not None and start <= row["committed_offset"] < end_offset:
            found[place] = row | {"end_offset": end_offset}
    return list(found.values())


_KEY = ("group_id", "topic", "topic_partition")
_WINDOW = (*_KEY, "log_offset", "tombstone", "commit_timestamp_ms", "committed_offset")
OFFSET_COLUMNS = (*_KEY, "committed_offset", "commit_timestamp_ms")
_NO_HOLDER: Row = dict.fromkeys(HOLDER)


def lag(
    current_offsets: pa.Table,
    ends: Ends,
    counted: pa.Table | None,
    holders: Mapping[Place, Row],
    now_ms: int | None,
    record_times: Iterable[Mapping[str, Any]] = (),
    read_ms: int | None = None,
    members: Mapping[str, int | None] | None = None,
) -> list[Row]:
    """Return the lag and status of groups (:data:`groupcoord.analysis.decode.schema.LAG`), by committed offset, and for
    each partition with an owner but no commit.
    """
    counts = {place[0]: holder["members"] for place, holder in holders.items()} | dict(members or {})
    windows = {} if counted is None else _windows(counted, ends)
    written_ms = {tuple(row[name] for name in _NEXT): row["record_timestamp_ms"] for row in record_times}
    rows = []
    for offset in _offsets(current_offsets, holders):
        group_id, topic, partition = place = tuple(offset[name] for name in _KEY)
        behind = ends.of(topic, partition, offset["committed_offset"])
        at_ms = behind.end["at_ms"]
        judged_ms = now_ms if at_ms is None else at_ms if read_ms is None else min(at_ms, read_ms)
        holder = holders.get(place, _NO_HOLDER)
        row = offset | {name: holder[name] for name in HOLDER} | {"members": counts.get(group_id)}
        next_ms = written_ms.get((topic, partition, offset["committed_offset"]))
        row |= distance(offset["committed_offset"], behind, next_ms)
        rows.append(row | _status(row, behind, windows.get(place), judged_ms, ends))
    return rows


def _offsets(current_offsets: pa.Table, holders: Mapping[Place, Row]) -> Iterator[Row]:
    """Yield committed offsets, with None for -1, and rows with None for partitions with an owner but no commit."""
    left = {place: None for place, holder in holders.items() if place[1] is not None and not holder["is_shared"]}
    for offset in current_offsets.select(OFFSET_COLUMNS).to_pylist():
        left.pop((offset["group_id"], offset["topic"], offset["topic_partition"]), None)
        yield offset | {"committed_offset": known_offset(offset["committed_offset"])}
    for place in left:
        yield dict.fromkeys(OFFSET_COLUMNS) | dict(zip(_KEY, place, strict=True))


def distance(committed_offset: int | None, behind: Behind, next_ms: int | None = None) -> Row:
    end, time = behind.end, behind.time_lag(committed_offset, next_ms)
    start = end["log_start_offset"]
    return {
        "end_offset": end["end_offset"],
        "lag": behind.lag,
        "at_ms": end["at_ms"],
        "lag_stable": records_behind(committed_offset, PartitionEnd(start, end["last_stable_offset"])),
        "is_lost": None if start is None or committed_offset is None else committed_offset < start,
        "lag_ms": None if time is None else time.lag_ms,
        "lag_ms_method": None if time is None else time.method.value,
    }


def _status(row: Row, behind: Behind, window: list[WindowCommit] | None, now_ms: int | None, ends: Ends) -> Row:
    committed_offset, committed_ms, at_ms = row["committed_offset"], row["commit_timestamp_ms"], row["at_ms"]
    lag_before = None
    if window:
        first_ms, first_offset, _ = window[0]
        lag_before = ends.lag_between(row["topic"], row["topic_partition"], first_offset, first_ms)
    seen = Evidence(
        window or (),
        now_ms or 0,
        behind.was_at_end,
        has_owner=None if row["member_id"] is None else True,  # a log may not name the topics that members have
        is_end_older=committed_ms is not None and at_ms is not None and committed_ms > at_ms,
        lag_before=lag_before,
    )
    log = PartitionEnd(behind.end["log_start_offset"], behind.end["end_offset"])
    is_complete = behind.lag is not None and window is not None
    return {
        "status": lag_status(committed_offset, log, behind.lag, row["lag_ms"], seen).label,
        "complete": len(window or ()) / WINDOW_COMMITS if is_complete else None,
    }


def _windows(commits: pa.Table, ends: Ends) -> dict[Place, list[WindowCommit]]:
    """Return the last commits of each place since its last tombstone."""
    topics = pa.array(sorted(ends.topics()), pa.string())
    wanted = commits.filter(pc.is_in(commits["topic"], topics)).select(_WINDOW)
    runs = Runs(wanted, _KEY)
    last = runs.order[runs.from_end() <= WINDOW_COMMITS]
    windows: dict[Place, list[WindowCommit]] = {}
    for row in wanted.take(pa.array(last)).to_pylist():
        at_ms, committed_offset = row["commit_timestamp_ms"], row["committed_offset"]
        window = windows.setdefault((row["group_id"], row["topic"], row["topic_partition"]), [])
        if row["tombstone"] or known_offset(committed_offset) is None:
            window.clear()
        else:
            lag_then = ends.lag_then(row["topic"], row["topic_partition"], committed_offset, at_ms)
            window.append(WindowCommit(at_ms, committed_offset, lag_then))
    return windows
