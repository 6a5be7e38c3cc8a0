"""From finished tables to figures, in memory and from Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

from groupcoord.analysis.decode.parquet import ResultDirectory
from groupcoord.analysis.decode.schema import COMMITS, MEMBERS, arrow_schema
from groupcoord.analysis.fold.history.causes import JOIN, SESSION_EXPIRY
from groupcoord.analysis.report.data.groups import (
    CommitCount,
    CommitsOfGroups,
    RebalanceFigures,
    count_commits,
    count_rebalances,
    epoch_lines,
    group_rows,
    members_now,
    shares,
    state_counts,
)
from groupcoord.analysis.report.data.model import BAD, EPOCHS_OF_GROUP_MAX, FINE, WARNING, Standing
from groupcoord.analysis.report.data.rows import standings
from groupcoord.analysis.rules.statuses import COMMIT_STORM, COMMITS_STOPPED, FLAPPING_MEMBER, REBALANCE_STORM, STOP
from groupcoord.analysis.tables import FinishedTables
from tests.tables import as_one_test

MINUTE_MS = 60_000


def commits(*rows: tuple[str, int, int, bool]) -> pa.RecordBatch:
    """Return rows of the table of commits: groups, partitions, times, and whether they are tombstones."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "group_id": group_id,
                "topic": "orders",
                "topic_partition": partition,
                "log_timestamp_ms": at_ms,
                "commit_timestamp_ms": at_ms,
                "tombstone": tombstone,
            }
            for group_id, partition, at_ms, tombstone in rows
        ],
        arrow_schema(COMMITS),
    )


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


def test_causes_have_the_lower_of_two_middle_times() -> None:
    """Of an even number of times the middle one is one that there was, and what went back in time has none."""
    rows = [rebalance("g", JOIN, 0, end_ms) for end_ms in (40, 10, 20, 30)]
    figures, _ = count_rebalances([*rows, rebalance("h", JOIN, 50, 20), rebalance("h", SESSION_EXPIRY, None, 9)])
    joined, expired = figures.causes()
    assert (joined.rebalances, joined.median_ms, joined.longest_ms, joined.groups) == (5, 20, 40, 2)
    assert (expired.rebalances, expired.median_ms, expired.longest_ms) == (1, None, None)


def test_only_the_newest_times_are_kept_where_that_is_asked() -> None:
    """The number of kept times is bounded."""
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
    batches = [commits(("g", 0, 5, False), ("g", 0, 9, True), ("h", 0, -1, False)), commits(("g", 0, 7, False))]
    assert count_commits(batches) == {"g": CommitCount(2, 7), "h": CommitCount(1, None)}


def test_states_that_are_not_told_are_named_so() -> None:
    (one,) = state_counts([{"type": "consumer", "state": None, "member_count": None}])
    assert (one.state, one.groups, one.members) == ("unknown", 1, 0)


def test_tables_are_read_from_all_their_files(tmp_path: Path) -> None:
    results = ResultDirectory(tmp_path)
    for name in ("part-0.parquet", "part-1.parquet", ".part-2.parquet"):
        with results.new_table_file(f"tables/commits/{name}", arrow_schema(COMMITS)) as file:
            file.write(commits(("g", 0, 5, False), ("h", 0, 6, False)))
    tables = FinishedTables(results, {"commits": 4, "lag": 0})

    assert [row["group_id"] for row in tables.rows("commits", ("group_id",), ["g"])] == ["g", "g"]
    assert list(tables.rows("lag")) == []
    assert tables.has("lag")
    assert not tables.has("differences")


def test_a_long_table_is_not_read_far_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading batch by batch has only one file open at a time."""
    results = ResultDirectory(tmp_path / "out")
    for number in range(12):
        with results.new_table_file(
            f"tables/commits/log_partition={number}/part.parquet", arrow_schema(COMMITS)
        ) as file:
            file.write(commits(("a", 0, number, False)))
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


def anomaly(kind: str, evidence: str, value: int = 0, partition: int | None = None) -> dict[str, Any]:
    topic = None if partition is None else "orders"
    status = STOP if kind == COMMITS_STOPPED else None
    return {
        "group_id": "g",
        "kind": kind,
        "status": status,
        "topic": topic,
        "topic_partition": partition,
        "value": value,
        "evidence": evidence,
    }


def lag(partition: int, records: int, status: str | None, lag_ms: int | None = None) -> dict[str, Any]:
    return {
        "group_id": "g",
        "topic": "orders",
        "topic_partition": partition,
        "lag": records,
        "lag_ms": lag_ms,
        "status": status,
    }


STOPPED = (
    anomaly(COMMITS_STOPPED, "no commit for 400 s", 400, 1),
    anomaly(COMMITS_STOPPED, "no commit for 900 s", 900, 2),
)


@as_one_test
@pytest.mark.parametrize(
    ("anomalies", "behind", "expected"),
    [
        pytest.param((), (lag(0, 7, "OK", 50), lag(1, 3, None)), Standing(FINE, "", "", 10, 50), id="fine"),
        pytest.param(
            (anomaly(REBALANCE_STORM, "9 rebalances"), *STOPPED),
            (),
            Standing(BAD, STOP, "Commits stopped of orders:2 and 1 more partition: no commit for 900 s."),
            id="bad-before-warning",
        ),
        pytest.param(
            (anomaly(REBALANCE_STORM, "9 rebalances"), anomaly(FLAPPING_MEMBER, "a came back")),
            (lag(0, 5, "WARN"),),
            Standing(WARNING, FLAPPING_MEMBER, "Flapping member: a came back.", 5),
            id="cause-before-consequence",
        ),
        pytest.param(
            (anomaly(COMMIT_STORM, "900 commits"),),
            (lag(0, 5, "STALL"), lag(1, 9, "STALL")),
            Standing(
                BAD,
                "STALL",
                "Commits the same offset of orders:1 and 1 more partition again and again, though records wait.",
                14,
            ),
            id="bad-lag-before-warning",
        ),
        pytest.param(
            (), (lag(3, 5, "WARN"),), Standing(WARNING, "WARN", "Its lag in orders:3 never became less.", 5), id="warn"
        ),
    ],
)
def test_the_worst_decides_how_a_group_stands(
    anomalies: tuple[dict[str, Any], ...], behind: tuple[dict[str, Any], ...], expected: Standing
) -> None:
    """Causes that stop processing precede those that may, and the worst partition counts."""
    assert standings(anomalies, behind) == {"g": expected}


def test_commits_are_counted_over_the_time_of_the_log() -> None:
    """Bins span the whole log, also of a group that was there for a moment, and go on over batches."""
    counted = CommitsOfGroups(0, 40 * MINUTE_MS)
    counted.add(commits(("g", 0, 5, False), ("g", 1, 6, False), ("h", 0, 39 * MINUTE_MS, False)))
    counted.add(commits(("g", 0, MINUTE_MS, False), ("g", 0, 2 * MINUTE_MS, True)))
    first, second = counted.bins("g"), counted.bins("h")

    assert first is not None
    assert second is not None
    assert (first.start_ms, first.width_ms, first.length) == (second.start_ms, second.width_ms, second.length)
    assert (first.series["commits"][:3], first.series["tombstones"][:3]) == ((2, 1, 0), (0, 0, 1))
    assert (second.total("commits"), counted.bins("nobody")) == (1, None)
    assert counted.places("g") == {("orders", 0): CommitCount(2, MINUTE_MS), ("orders", 1): CommitCount(1, 6)}
    assert CommitsOfGroups(None, None).bins("g") is None


def test_members_have_shares_and_what_is_left_has_nobody() -> None:
    """Members of the last generation, those furthest behind first; members without partitions, and partitions without
    members.
    """
    rows = [
        {
            "group_id": "g",
            "generation": generation,
            "client_id": client,
            "client_host": "/h",
            "assignment": [{"topic": "orders", "topic_id": None, "partitions": partitions}],
            "log_offset": log_offset,
        }
        for generation, client, partitions, log_offset in (
            (1, "gone", [0, 1, 2, 3], 1),
            (2, "replaced", [0], 5),
            (2, "a", [0, 1], 6),
            (2, "b", [2], 6),
            (2, "idle", [], 6),
        )
    ]
    members = members_now([pa.RecordBatch.from_pylist(rows, arrow_schema(MEMBERS))], {"g": 2})["g"]
    counts = {("orders", number): CommitCount(number, 50) for number in range(4)}
    behind = [lag(0, 1, "OK"), lag(1, 2, "OK"), lag(2, 9, "STOP", 70), lag(3, 4, "STOP")]
    found = shares(members, counts, behind)

    assert [(one.client_id, one.partition_count, one.commits, one.lag) for one in found] == [
        (None, 1, 3, 4),
        ("b", 1, 2, 9),
        ("a", 2, 1, 3),
        ("idle", 0, 0, None),
    ]
    assert [(one.partition, one.lag) for one in found[2].partitions] == [(1, 2), (0, 1)]
    assert (found[1].partitions[0].status, found[1].partitions[0].severity) == ("STOP", BAD)
