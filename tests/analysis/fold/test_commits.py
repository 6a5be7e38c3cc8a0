"""Fold of commits: for any portions, the result equals that of a reader of all commits."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings, strategies as st

from groupcoord.analysis.decode.parquet import COMMITTED, OPEN
from groupcoord.analysis.decode.schema import COMMITS, arrow_schema
from groupcoord.analysis.fold.commits import PARTITION, CommitFold
from groupcoord.analysis.options import Thresholds

Row = dict[str, Any]

SCHEMA = arrow_schema(COMMITS)
LIMITS = Thresholds(window_commits=3, storm_commits=2)

commits = st.builds(
    dict,
    log_partition=st.sampled_from([None, 1]),
    group_id=st.sampled_from(["a", "b"]),
    topic=st.sampled_from(["t", "u"]),
    topic_partition=st.sampled_from([0, 7]),
    committed_offset=st.integers(0, 5),
    transaction=st.sampled_from([None, None, COMMITTED, OPEN]),
    tombstone=st.booleans(),
    log_timestamp_ms=st.integers(0, 180_000),
)


def written(rows: list[Row]) -> list[Row]:
    """Return commits one behind the other in the log."""
    found = []
    for offset, row in enumerate(rows):
        nothing = {"committed_offset": None} if row["tombstone"] else {}
        found.append(row | {"log_offset": offset, "metadata": f"at {offset}"} | nothing)
    return found


def folded(rows: list[Row], at_a_time: int) -> Any:
    """Fold commits some at a time."""
    fold = CommitFold(LIMITS, rows_min=1)
    for start in range(0, len(rows), at_a_time):
        fold.add(pa.Table.from_pylist(rows[start : start + at_a_time], SCHEMA))
    return fold.facts()


def by_partition(rows: list[Row]) -> dict[tuple[Any, ...], list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in PARTITION)].append(row)
    return found


def rewinds_of(rows: list[Row]) -> Row | None:
    """Return what one partition's commits that went back come to, found one by one."""
    back = [
        (before["committed_offset"] - row["committed_offset"], row["log_offset"], row)
        for before, row in pairwise(rows)
        if not (before["tombstone"] or row["tombstone"]) and row["committed_offset"] < before["committed_offset"]
    ]
    if not back:
        return None
    by, log_offset, row = max(back, key=lambda one: one[:2])
    times_ms = [one[2]["log_timestamp_ms"] for one in back]
    told = {"count": len(back), "first_ms": min(times_ms), "last_ms": max(times_ms), "by": by}
    return told | {"log_offset": log_offset, "to": row["committed_offset"]}


def minutes_of(rows: list[Row]) -> list[tuple[Any, ...]]:
    found = defaultdict(list)
    for row in rows:
        if not row["tombstone"]:
            found[row["log_partition"], row["group_id"], row["log_timestamp_ms"] // 60_000].append(row)
    return [
        (*of, len(some), len(by_partition(some)), min(times_ms), max(times_ms))
        for of, some in found.items()
        if len(some) > LIMITS.storm_commits and (times_ms := [row["log_timestamp_ms"] for row in some])
    ]


@settings(max_examples=60)
@given(st.lists(commits, max_size=40).map(written), st.integers(1, 9))
def test_what_is_kept_tells_what_all_commits_do(rows: list[Row], at_a_time: int) -> None:
    """Last commits, those that count, open ones, current offsets, what went back, and busy minutes."""
    facts = folded(rows, at_a_time)
    rewinds = {tuple(row[name] for name in PARTITION): row for row in facts.rewinds.to_pylist()}
    kept, counted = by_partition(facts.last.to_pylist()), by_partition(facts.counted().to_pylist())
    current = {tuple(row[name] for name in PARTITION): row["log_offset"] for row in facts.current_offsets().to_pylist()}
    for of, some in by_partition(rows).items():
        counts = [row["log_offset"] for row in some if row["transaction"] != OPEN]
        known = {name: value for name, value in rewinds.get(of, {}).items() if name not in PARTITION} or None

        assert [row["log_offset"] for row in kept[of]][-3:] == [row["log_offset"] for row in some][-3:]
        assert [row["log_offset"] for row in counted.get(of, [])][-10:] == counts[-10:]
        assert current.get(of) == (counts[-1] if counts and not rows[counts[-1]]["tombstone"] else None)
        assert known == rewinds_of(some)
    assert {of for of, some in by_partition(rows).items() if any(row["transaction"] == OPEN for row in some)} == set(
        by_partition(facts.open().to_pylist())
    )
    assert sorted(map(repr, minutes_of(rows))) == sorted(repr(tuple(row.values())) for row in facts.minutes.to_pylist())


def test_memory_is_that_of_the_partitions() -> None:
    rows = written(
        [
            {"group_id": "a", "topic": "t", "topic_partition": number % 2, "committed_offset": number}
            | {"tombstone": False, "transaction": None, "log_timestamp_ms": 600_000 * number, "log_partition": 0}
            for number in range(2_000)
        ]
    )
    facts = folded(rows, 100)

    assert facts.last.num_rows == 2 * 10
    assert (facts.rewinds.num_rows, facts.minutes.num_rows) == (0, 0)
