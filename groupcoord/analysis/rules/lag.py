"""Lag of groups in records and in time, and the end offsets that it is computed from.

End offsets come from a file, or from a running cluster as samples over time. The statuses are in
:mod:`groupcoord.analysis.rules.statuses`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.parquet import Runs
from groupcoord.analysis.fold.history.rows import HOLDER
from groupcoord.analysis.options import WINDOW_COMMITS
from groupcoord.analysis.rules.groups import Place
from groupcoord.analysis.rules.statuses import SAMPLES_MAX, PartitionEnd, judged, known_offset, records_behind

Row = dict[str, Any]

_NEXT = ("topic", "topic_partition", "committed_offset")
_NO_END: Mapping[str, None] = dict.fromkeys(("end_offset", "at_ms", "log_start_offset", "last_stable_offset"))


class Behind(NamedTuple):
    """A committed offset and the end of its partition.

    Attributes:
        end: the row of the end; its values are None if unknown.
        lag: lag in records; None without an end, or with records but no commit.
        first: the first sample of the end; None without samples.
        before: the last sample at or below the committed offset, with the following one as ``next``.
        was_at_end: ``before`` is one of the last samples.
    """

    end: Mapping[str, Any]
    lag: int | None
    first: Row | None
    last: Row | None
    before: Row | None
    was_at_end: bool


class Ends:
    """End offsets of topics."""

    def __init__(self, table: pa.Table, samples: pa.Table | None = None) -> None:
        self._rows: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
        for row in table.to_pylist():
            self._rows.setdefault((row["topic"], row["topic_partition"]), []).append(_NO_END | row)
        self._samples = _samples(table if samples is None else samples)

    def topics(self) -> set[str]:
        return {topic for topic, _ in self._rows if topic is not None}

    def of(self, topic: str, partition: int, committed_offset: int | None) -> list[Behind]:
        """Return the distance of an offset to each known end, or one without an end."""
        rows = self._rows.get((topic, partition), [_NO_END])
        samples = self._samples.get((topic, partition), ())
        offset = -1 if committed_offset is None else committed_offset
        number = next((one for one in reversed(range(len(samples))) if samples[one]["end_offset"] <= offset), -1)
        before = samples[number] if number >= 0 else None
        first, last = (samples[0], samples[-1]) if samples else (None, None)
        was_at_end = number >= 0 and len(samples) - number <= WINDOW_COMMITS
        logs = [PartitionEnd(row["log_start_offset"], row["end_offset"]) for row in rows]
        return [
            Behind(row, records_behind(committed_offset, log), first, last, before, was_at_end)
            for row, log in zip(rows, logs, strict=True)
        ]

    def records(self, topic: str, partition: int) -> int:
        """Return the number of records of a partition; 0 if unknown, or if a recent sample had none."""
        counts = []
        for end in (behind.end for behind in self.of(topic, partition, 0)):
            start, end_offset = end["log_start_offset"] or 0, end["end_offset"]
            was_empty = any(behind.was_at_end for behind in self.of(topic, partition, start))
            counts.append(0 if was_empty or end_offset is None else max(end_offset - start, 0))
        return max(counts)

    def lag_then(self, topic: str, partition: int, committed_offset: int | None, at_ms: int | None) -> int | None:
        """Return the lag at a commit, to the last sample before it; None without one."""
        samples = self._samples.get((topic, partition), ())
        number = bisect_right(samples, at_ms, key=lambda sample: sample["at_ms"]) if at_ms is not None else 0
        if not number or known_offset(committed_offset) is None:
            return None
        return records_behind(committed_offset, PartitionEnd(None, samples[number - 1]["end_offset"]))

    def lag_between(self, topic: str, partition: int, committed_offset: int, at_ms: int) -> int | None:
        """Return the lag at a commit, assuming evenly spaced records between samples; None without
        an earlier sample.
        """
        samples = self._samples.get((topic, partition), ())
        number = bisect_right(samples, at_ms, key=lambda sample: sample["at_ms"])
        if not number:
            return None
        before = samples[number - 1]
        after = before["next"] or before
        took_ms = max(after["at_ms"] - before["at_ms"], 1)
        grown = (after["end_offset"] - before["end_offset"]) * (at_ms - before["at_ms"]) // took_ms
        return max(int(before["end_offset"] + grown) - committed_offset, 0)


def _samples(table: pa.Table) -> dict[tuple[str, int], list[Row]]:
    """Return the last samples of each partition, linked by ``next``."""
    if "at_ms" not in table.column_names:
        return {}
    found: dict[tuple[str, int], dict[int, Row]] = {}
    for row in table.select(["topic", "topic_partition", "at_ms", "end_offset"]).to_pylist():
        place, at_ms = (row["topic"], row["topic_partition"]), row["at_ms"]
        if at_ms is not None and row["topic_partition"] is not None and row["end_offset"] is not None:
            sample = {"at_ms": at_ms, "end_offset": row["end_offset"], "next": None}
            found.setdefault(place, {}).setdefault(at_ms, sample)
    of_place = {place: sorted(some.values(), key=lambda sample: sample["at_ms"]) for place, some in found.items()}
    for samples in of_place.values():
        for sample, following in pairwise(samples):
            sample["next"] = following
    return {place: samples[-SAMPLES_MAX:] for place, samples in of_place.items()}


def behind_ends(current_offsets: Iterable[pa.Table], ends: Ends) -> Collection[Row]:
    """Return offsets with a next record; a cluster can return its timestamp."""
    found: dict[tuple[str, int, int], Row] = {}
    for row in (row for table in current_offsets for row in table.select(_NEXT).to_pylist()):
        place = (row["topic"], row["topic_partition"], row["committed_offset"])
        for end in (behind.end for behind in ends.of(*place)):
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
    """Return the lag and status of groups (:data:`groupcoord.analysis.decode.schema.LAG`).

    There is a row for each committed offset, and for each partition with an owner but no commit.
    """
    counts = {place[0]: holder["members"] for place, holder in holders.items()} | dict(members or {})
    windows = {} if counted is None else _windows(counted, ends)
    written_ms = {tuple(row[name] for name in _NEXT): row["record_timestamp_ms"] for row in record_times}
    rows = []
    for offset in _offsets(current_offsets, holders):
        place = (offset["group_id"], offset["topic"], offset["topic_partition"])
        for behind in ends.of(*place[1:], offset["committed_offset"]):
            next_ms = written_ms.get((*place[1:], offset["committed_offset"]))
            at_ms = behind.end["at_ms"]
            judged_ms = now_ms if at_ms is None else at_ms if read_ms is None else min(at_ms, read_ms)
            holder = holders.get(place, _NO_HOLDER)
            row = offset | {name: holder[name] for name in HOLDER} | {"members": counts.get(place[0])}
            window = windows.get(place)
            rows.append(_row(row, behind, window, judged_ms, next_ms, _lag_before(window, ends, place)))
    return rows


def _offsets(current_offsets: pa.Table, holders: Mapping[Place, Row]) -> Iterator[Row]:
    """Yield committed offsets, with None for -1, and rows with None for partitions with an owner but no commit."""
    left = {place: None for place, holder in holders.items() if place[1] is not None and not holder["is_shared"]}
    for offset in current_offsets.select(OFFSET_COLUMNS).to_pylist():
        left.pop((offset["group_id"], offset["topic"], offset["topic_partition"]), None)
        yield offset | {"committed_offset": known_offset(offset["committed_offset"])}
    for place in left:
        yield dict.fromkeys(OFFSET_COLUMNS) | dict(zip(_KEY, place, strict=True))


def _lag_before(window: list[Row] | None, ends: Ends, place: Place) -> int | None:
    if not window or window[0]["tombstone"] or window[0]["at_ms"] is None:
        return None
    return ends.lag_between(*place[1:], window[0]["committed_offset"], window[0]["at_ms"])


def _row(
    offset: Row,
    behind: Behind,
    window: list[Row] | None,
    now_ms: int | None,
    next_ms: int | None,
    lag_before: int | None,
) -> Row:
    end, committed_offset = behind.end, offset["committed_offset"]
    at_ms, start = end["at_ms"], end["log_start_offset"]
    row = offset | {
        "end_offset": end["end_offset"],
        "lag": behind.lag,
        "at_ms": at_ms,
        "lag_stable": records_behind(committed_offset, PartitionEnd(start, end["last_stable_offset"])),
        "is_lost": None if start is None or committed_offset is None else committed_offset < start,
    }
    evidence = {
        "log_start_offset": start,
        "has_owner": None if offset["member_id"] is None else True,  # a log may not name the topics that members have
        "first": behind.first,
        "last": behind.last,
        "before": behind.before,
        "was_at_end": behind.was_at_end,
        "window": window,
        "lag_before": lag_before,
        "now_ms": now_ms,
        "record_timestamp_ms": next_ms,
    }
    return row | judged(row | evidence)


def _windows(commits: pa.Table, ends: Ends) -> dict[Place, list[Row]]:
    topics = pa.array(sorted(ends.topics()), pa.string())
    wanted = commits.filter(pc.is_in(commits["topic"], topics)).select(_WINDOW)
    runs = Runs(wanted, _KEY)
    last = runs.order[runs.from_end() <= WINDOW_COMMITS]
    windows: dict[Place, list[Row]] = {}
    for row in wanted.take(pa.array(last)).to_pylist():
        at_ms, committed_offset = row["commit_timestamp_ms"], row["committed_offset"]
        found = {
            "tombstone": row["tombstone"],
            "at_ms": at_ms,
            "committed_offset": committed_offset,
            "lag": ends.lag_then(row["topic"], row["topic_partition"], committed_offset, at_ms),
        }
        windows.setdefault((row["group_id"], row["topic"], row["topic_partition"]), []).append(found)
    return windows
