"""How far groups are behind, in records and in time, by the rules of :mod:`groupcoord.analysis.rules.lag_status`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.fold.arrow import Runs
from groupcoord.analysis.fold.history.rows import HOLDER
from groupcoord.analysis.rules.ends import Behind, Ends
from groupcoord.analysis.rules.groups import Place
from groupcoord.analysis.rules.lag_status import WINDOW_COMMITS, PartitionEnd, judged, known_offset, records_behind

Row = dict[str, Any]

_KEY = ("group_id", "topic", "topic_partition")
_NEXT = ("topic", "topic_partition", "committed_offset")
_WINDOW = (*_KEY, "log_offset", "tombstone", "commit_timestamp_ms", "committed_offset")
OFFSET_COLUMNS = (*_KEY, "committed_offset", "commit_timestamp_ms")
"""The columns of current offsets that are needed."""

_NO_HOLDER: Row = dict.fromkeys(HOLDER)


def lag(
    current_offsets: pa.Table,
    ends: Ends,
    counted: pa.Table | None,
    holders: Mapping[Place, Row],
    now_ms: int | None,
    record_times: Iterable[Mapping[str, Any]] = (),
    read_ms: int | None = None,
) -> list[Row]:
    """Return how far groups are behind, and how well they keep up (:data:`groupcoord.analysis.decode.tables.LAG`).

    There is a row for each committed offset, and for each partition that a member has and of which none is committed.

    Args:
        current_offsets: the table of this name.
        ends: where topics end.
        counted: the last commits that count; None: they are not known.
        holders: who has the partitions.
        now_ms: the moment to judge from where the cluster was not asked.
        record_times: when next records were written (:data:`groupcoord.analysis.decode.tables.RECORD_TIMES`), where it
            is told.
        read_ms: when the log was read that the commits are from, if the cluster was asked for the ends later.
    """
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
            row = offset | {name: holder[name] for name in HOLDER}
            window = windows.get(place)
            rows.append(_row(row, behind, window, judged_ms, next_ms, _lag_before(window, ends, place)))
    return rows


def _offsets(current_offsets: pa.Table, holders: Mapping[Place, Row]) -> Iterator[Row]:
    """Yield committed offsets, None where -1 is committed, and then None for what members have and did not commit."""
    left = {place: None for place, holder in holders.items() if place[1] is not None and not holder["is_shared"]}
    for offset in current_offsets.select(OFFSET_COLUMNS).to_pylist():
        left.pop((offset["group_id"], offset["topic"], offset["topic_partition"]), None)
        yield offset | {"committed_offset": known_offset(offset["committed_offset"])}
    for place in left:
        yield dict.fromkeys(OFFSET_COLUMNS) | dict(zip(_KEY, place, strict=True))


def _lag_before(window: list[Row] | None, ends: Ends, place: Place) -> int | None:
    """Return how far behind a group was at the first commit of a window; None if that is not known."""
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
    """Return the last commits of each group in partitions whose end is known, tombstones among them, in order."""
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
