"""From finished tables to figures, in memory and from Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

from groupcoord.analysis.decode.results import ResultDirectory
from groupcoord.analysis.decode.schema import COMMITS, arrow_schema
from groupcoord.analysis.fold.history.causes import JOIN, SESSION_EXPIRY
from groupcoord.analysis.report.data.groups import (
    CommitCount,
    RebalanceFigures,
    count_commits,
    count_rebalances,
    epoch_lines,
    group_rows,
    state_counts,
)
from groupcoord.analysis.report.data.model import EPOCHS_OF_GROUP_MAX
from groupcoord.analysis.report.data.rows import stale_rows
from groupcoord.analysis.tables import FinishedTables


def rebalance(group_id: str, cause: str, started_ms: int | None, ended_ms: int | None) -> dict[str, Any]:
    """Return a row of the table of rebalances, of which one member joined."""
    return {
        "group_id": group_id,
        "cause": cause,
        "confidence": 1.0,
        "started_ms": started_ms,
        "ended_ms": ended_ms,
        "joined": ["a"],
        "left": [],
        "partitions_moved": None,
    }


def commits(*rows: tuple[str, int, bool]) -> pa.RecordBatch:
    """Return rows of the table of commits: groups, times, and whether they are tombstones."""
    columns = ("group_id", "commit_timestamp_ms", "tombstone")
    return pa.RecordBatch.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], arrow_schema(COMMITS))


def test_causes_have_the_lower_of_two_middle_times() -> None:
    """Of an even number of times the middle one is one that there was, and what went back in time has none."""
    rows = [rebalance("g", JOIN, 0, end_ms) for end_ms in (40, 10, 20, 30)]
    figures, _ = count_rebalances([*rows, rebalance("h", JOIN, 50, 20), rebalance("h", SESSION_EXPIRY, None, 9)])
    joined, expired = figures.causes()

    assert (joined.rebalances, joined.median_ms, joined.longest_ms, joined.groups) == (5, 20, 40, 2)
    assert (expired.rebalances, expired.median_ms, expired.longest_ms) == (1, None, None)


def test_only_the_newest_times_are_kept_where_that_is_asked() -> None:
    """A count that goes on for ever has a bound."""
    figures = RebalanceFigures(times_max=2)
    for end_ms in (100, 3, 5):
        figures.add(rebalance("g", JOIN, 0, end_ms))

    assert figures.causes()[0].longest_ms == 5
    assert figures.causes()[0].rebalances == 3


def test_trouble_comes_first() -> None:
    """Expiries and anomalies weigh more than rebalances, and groups that are gone stand among the others."""
    rows = [rebalance("calm", JOIN, 0, 5), rebalance("gone", SESSION_EXPIRY, -1, 7)]
    _, of_groups = count_rebalances(rows)
    described = [
        {"group_id": "calm", "type": "classic", "state": "Stable", "generation_or_epoch": 4, "member_count": 1}
    ]
    found = group_rows(described, of_groups, {"odd": 1}, {"calm": CommitCount(3, 9)})

    assert [(row.group_id, row.state) for row in found] == [("odd", None), ("gone", None), ("calm", "Stable")]
    assert (found[2].commits, found[2].last_commit_ms, found[2].rebalancing_ms) == (3, 9, 5)
    assert found[1].last_rebalance_ms == 7


def test_commits_are_counted_over_batches() -> None:
    """Tombstones don't count, and a commit without a time has none."""
    batches = [commits(("g", 5, False), ("g", 9, True), ("h", -1, False)), commits(("g", 7, False))]

    assert count_commits(batches) == {"g": CommitCount(2, 7), "h": CommitCount(1, None)}


def test_states_that_are_not_told_are_named_so() -> None:
    """A group whose state nobody may see is counted with a word for it."""
    (one,) = state_counts([{"type": "consumer", "state": None, "member_count": None}])

    assert (one.state, one.groups, one.members) == ("unknown", 1, 0)


def test_what_does_not_expire_is_no_forecast() -> None:
    """Groups without a next expiry are left out."""
    assert stale_rows([{"group_id": "g", "next_expiry_ms": None}]) == ()


def test_tables_are_read_from_all_their_files(tmp_path: Path) -> None:
    results = ResultDirectory(tmp_path)
    for name in ("part-0.parquet", "part-1.parquet", ".part-2.parquet"):
        with results.new_table_file(f"tables/commits/{name}", arrow_schema(COMMITS)) as file:
            file.write(commits(("g", 5, False), ("h", 6, False)))
    tables = FinishedTables(results, {"commits": 4, "lag": 0})

    assert [row["group_id"] for row in tables.rows("commits", ("group_id",), ["g"])] == ["g", "g"]
    assert list(tables.rows("lag")) == []
    assert tables.has("lag")
    assert not tables.has("differences")


def test_a_long_table_is_not_read_far_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes batches one by one, however slowly, has no file open but the one that is read."""
    results = ResultDirectory(tmp_path / "out")
    for number in range(12):
        with results.new_table_file(
            f"tables/commits/log_partition={number}/part.parquet", arrow_schema(COMMITS)
        ) as file:
            file.write(commits(("a", number, False)))
    opened: list[str] = []
    open_file = LocalFileSystem.open

    def note(self: LocalFileSystem, path: str, *arguments: Any, **options: Any) -> Any:
        opened.append(path)
        return open_file(self, path, *arguments, **options)

    monkeypatch.setattr(LocalFileSystem, "open", note)
    ahead = [
        len(opened) - taken
        for taken, _ in enumerate(FinishedTables(results, {"commits": 12}).batches("commits", ["group_id"]), 1)
    ]

    assert len(ahead) == 12
    assert max(ahead) == 0


def test_epochs_are_shown_from_the_start_to_the_end() -> None:
    """Of a group with more epochs than a picture has points some are left out all along, and no member is forgotten."""
    of_group = {"group_id": "g", "member_id": None, "member_epoch": None}
    rows: list[dict[str, Any]] = [
        of_group | {"log_offset": number, "log_timestamp_ms": number, "group_epoch": number, "target_epoch": number}
        for number in range(1, 5 * EPOCHS_OF_GROUP_MAX)
    ]
    rows[0] |= {"member_id": "m", "member_epoch": 1}
    points = epoch_lines(rows, ["g"])["g"]

    assert len(points) == EPOCHS_OF_GROUP_MAX
    assert points[0].at_ms < 6
    assert points[-1].at_ms == len(rows)
    assert {point.lowest for point in points} == {1}
