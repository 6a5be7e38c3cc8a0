"""How groups stand, what they committed over a shared time, and who has what of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from groupcoord.analysis.decode.schema import COMMITS, MEMBERS, arrow_schema
from groupcoord.analysis.report.data.groups import CommitCount, CommitsOfGroups, members_now, shares
from groupcoord.analysis.report.data.model import BAD, FINE, WARNING, Standing
from groupcoord.analysis.report.data.rows import standings
from groupcoord.analysis.rules.statuses import COMMIT_STORM, COMMITS_STOPPED, FLAPPING_MEMBER, REBALANCE_STORM, STOP
from tests.tables import as_one_test

MINUTE_MS = 60_000


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
    """What stops records from being processed comes before what may, and of several partitions the worst is told."""
    assert standings(anomalies, behind) == {"g": expected}


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
    """Members of the last generation, those furthest behind first; who has nothing is told, and what nobody has."""
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
