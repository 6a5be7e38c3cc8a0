"""Uneven assignment: partitions without commits, and members without partitions or work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from groupcoord.analysis.decode.schema import COMMITS, LIVE_END_OFFSETS, arrow_schema
from groupcoord.analysis.fold.commits import CommitFacts, CommitFold
from groupcoord.analysis.fold.history import DUPLICATE, GROUP, MEMBER, MEMBERSHIP, REBALANCE, REVOCATION
from groupcoord.analysis.fold.history.rows import CLASSIC, CONSUMER, SHARE
from groupcoord.analysis.options import Thresholds
from groupcoord.analysis.rules.anomalies import anomalies, assigned
from groupcoord.analysis.rules.lag import Ends
from groupcoord.analysis.rules.statuses import IDLE_MEMBERS, NEVER_COMMITTED, UNEVEN_SHARES

NOW_MS = 2_000_000
LIMITS = Thresholds(stopped_ms=100_000, uneven_ms=100_000, uneven_records=100)
Commits = Mapping[int, Sequence[tuple[int, int | None]]]
NO_COMMITS: Commits = {}


def told(
    views: list[tuple[int, dict[str, list[int]]]],
    commits: Commits = NO_COMMITS,
    ends: Ends | None = None,
    group_type: str = CLASSIC,
    topic: str | None = "t",
) -> list[tuple[Any, ...]]:
    """Return kind, partition, start, count and evidence of anomalies, from the start and members of each generation."""
    of: dict[str, Any] = {"group_id": "g", "log_partition": 0}
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in (DUPLICATE, MEMBERSHIP, REVOCATION)}
    found[MEMBER], found[REBALANCE] = [], []
    for number, (began_ms, members) in enumerate(views, 1):
        at = of | {"type": group_type, "generation": number, "log_offset": number}
        for name, partitions in members.items():
            assignment = [{"topic": topic, "topic_id": "id", "partitions": partitions}] if partitions else []
            row = at | {"member_id": f"{name}-id", "client_id": name, "client_host": "/h", "assignment": assignment}
            found[MEMBER].append(row)
        changes = {"from_generation": number - 1, "to_generation": number, "joined_clients": [], "left_clients": []}
        found[REBALANCE].append(at | changes | {"started_ms": began_ms, "ended_ms": began_ms})
    now = {"generation_or_epoch": len(views), "state_timestamp_ms": views[-1][0], "member_count": len(views[-1][1])}
    found[GROUP] = [of | {"type": group_type} | now]
    rows = anomalies(found, committed(commits), assigned(found, LIMITS), ends, NOW_MS, LIMITS)
    kinds = [row for row in rows if row["kind"] in (NEVER_COMMITTED, UNEVEN_SHARES, IDLE_MEMBERS)]
    return [
        (row["kind"], row.get("topic_partition"), row["first_ms"], row["count"], row["evidence"])
        for row in sorted(kinds, key=lambda row: (row["kind"], row.get("topic_partition") or 0))
    ]


def committed(commits: Commits) -> CommitFacts:
    """Fold commits of partitions: times and offsets; None is a tombstone."""
    rows: list[dict[str, Any]] = []
    for partition, some in commits.items():
        for at_ms, offset in some:
            row = {
                "group_id": "g",
                "log_partition": 0,
                "log_offset": len(rows),
                "topic": "t",
                "topic_partition": partition,
            }
            row |= {"committed_offset": offset, "tombstone": offset is None}
            rows.append(row | {"log_timestamp_ms": at_ms, "commit_timestamp_ms": at_ms})
    fold = CommitFold()
    fold.add(pa.Table.from_pylist(rows, arrow_schema(COMMITS)))
    return fold.facts()


def samples(*rows: tuple[int, int, int, int]) -> Ends:
    """Return samples of ends: when, partition, start and end."""
    names = ("at_ms", "topic_partition", "log_start_offset", "end_offset")
    table = pa.Table.from_pylist(
        [dict(zip(names, row, strict=True)) | {"topic": "t"} for row in rows], arrow_schema(LIVE_END_OFFSETS)
    )
    last_ms = max(row[0] for row in rows)
    return Ends(table.filter(pa.compute.equal(table["at_ms"], last_ms)), table)


def steps(last_ms: int, *offsets: int | None) -> list[tuple[int, int | None]]:
    """Return commits a second apart."""
    return [(last_ms - 1_000 * number, offset) for number, offset in enumerate(reversed(offsets))][::-1]


def test_partitions_that_are_never_committed() -> None:
    """Those with records and a member for a long time, one by one; not those that were empty until now."""
    views = [(1_000_000, {"a": [0, 1], "b": [2, 3]})]
    ends = samples(
        *[(1_990_000, 3, 5, 5)],
        *[(1_999_000, number, 5 * (number > 0), 9) for number in range(3)],
        (1_999_000, 3, 5, 6),
    )
    commits = {0: steps(NOW_MS, 1, 2, 9)}

    assert told(views, commits, ends) == [
        ("never committed", 1, 1_000_000, 1, "a has had it for 1,000 s, with 4 records, and no commit ever"),
        ("never committed", 2, 1_000_000, 1, "b has had it for 1,000 s, with 4 records, and no commit ever"),
    ]
    assert told([(1_950_000, views[0][1])], commits, ends) == []
    assert told(views, commits, ends, SHARE) == []


def test_groups_that_never_commit() -> None:
    """Without end offsets, or with unnamed topics in the log, a group without any commit is reported as a whole."""
    views = [(1_000_000, {"a": [0, 1], "b": [2]})]
    evidence = "3 partitions of 2 members for 1,000 s, and no commit ever"

    assert told(views) == [("never committed", None, 1_000_000, 3, evidence)]
    assert told(views, ends=samples((NOW_MS, 0, 0, 9)), group_type=CONSUMER, topic=None)[0][-1] == evidence
    assert told(views, {0: steps(NOW_MS, 1)}) == []
    assert told(views, group_type=SHARE) == []
    assert told([(1_000_000, {"a": []})]) == []


def test_members_without_partitions() -> None:
    """Reported from the first of consecutive such generations; not where partitions can't be divided better."""
    fair, uneven = {"a": [0, 1], "b": [2]}, {"a": [0, 1, 2], "b": [], "c": []}
    commits = {number: steps(NOW_MS, 1, 2, 3) for number in range(4)}
    views = [(1_000_000, fair), (1_200_000, uneven), (1_950_000, {"a": [0, 1, 2], "b": []})]
    evidence = "1 of 2 members have had no partitions for 800 s, a has 100 % of all"

    assert told(views, commits) == [("uneven shares", None, 1_200_000, 1, evidence)]
    assert told(views[:2], commits)[0][3:] == (2, "2 of 3 members have had no partitions for 800 s, a has 100 % of all")
    assert told([*views, (1_960_000, fair)], commits) == []
    assert told([(1_950_000, uneven)], commits) == []
    assert told([(1_000_000, {"a": [0, 1, 2], "b": [2, 3, 1], "c": []})], commits) == []


def test_more_members_than_partitions() -> None:
    """Members without partitions, since the generation began; members of share groups share partitions."""
    views = [(1_000_000, {"a": [0], "b": [1], "c": [], "d": []})]
    commits = {number: steps(NOW_MS, 1, 2, 3) for number in range(2)}
    evidence = "2 of 4 members have had no partition for 1,000 s, there are 2 for all"

    assert told(views, commits) == [("idle members", None, 1_000_000, 2, evidence)]
    assert told([(1_950_000, views[0][1])], commits) == []
    assert told(views, commits, group_type=SHARE) == []
    assert told([(1_000_000, {"a": [], "b": []})]) == []


def test_members_without_work() -> None:
    """Reported since the last of them stopped; not with so little work that it may be chance."""
    views = [(1_000_000, {"a": [0, 1], "b": [2], "c": [3]})]
    busy = steps(NOW_MS, *range(0, 1_000, 100))
    idle = {2: [(1_700_000, 5), (1_900_000, 5)], 3: [(1_800_000, 5), (1_850_000, 9)]}
    evidence = "2 of 3 members have had no work for 150 s, a has 100 % of all"

    assert told(views, {0: busy, **idle}) == [("uneven shares", None, 1_850_000, 2, evidence)]
    assert told(views, {0: steps(NOW_MS, 1, 2, 50), **idle}) == []
    assert told(views, {0: busy, 2: busy, 3: idle[3]}) == []
    assert told(views, {0: busy, 2: idle[2], 3: steps(NOW_MS, 1, 2, 3)})[0][3] == 1
