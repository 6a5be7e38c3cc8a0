"""The table of lag: looks at ends and windows of commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.schema import END_OFFSETS, LIVE_END_OFFSETS, arrow_schema
from groupcoord.analysis.fold.commits import CommitFacts
from groupcoord.analysis.fold.history import KINDS
from groupcoord.analysis.rules.anomalies import Assigned, anomalies
from groupcoord.analysis.rules.lag import Ends, lag

from .test_assignment_balance import committed as fold, steps

NOW_MS = 91_000
TOPIC = "t"


def committed(*partitions: tuple[int, Sequence[int | None]]) -> CommitFacts:
    """Fold commits a second apart: for each partition the time of the last one, and the offsets."""
    return fold({number: steps(last_ms, *offsets) for number, (last_ms, offsets) in enumerate(partitions)})


def samples(*rows: tuple[int, int, int]) -> pa.Table:
    """Return samples of ends: partition, time and end."""
    names = ("topic_partition", "at_ms", "end_offset")
    told = [dict(zip(names, row, strict=True)) | {"topic": TOPIC, "last_stable_offset": row[2]} for row in rows]
    return pa.Table.from_pylist(told, arrow_schema(LIVE_END_OFFSETS))


def by_partition(rows: list[dict[str, Any]], *names: str) -> dict[int, tuple[Any, ...]]:
    return {row["topic_partition"]: tuple(row.get(name) for name in names) for row in rows}


def test_statuses_come_of_commits_and_looks() -> None:
    """The last ten commits since the last tombstone, each with the lag of the poll before it, and the present lag. A
    group that had not stopped when the log was read has not stopped because end offsets came later.
    """
    facts = committed(
        (90_000, [10 * number for number in range(1, 13)]),  # 10 records a second, of 12 that come
        (90_000, [50, None, 40, 40, 40]),
        (90_000, [20, 50, 30]),
        (60_000, [10, 20, 30]),
        (60_000, [10, 20, 30]),  # and was at the end of late
        (90_000, [50]),
        (90_000, [10, 20]),  # of which no end is known
    )
    seen = samples(
        *[(0, 78_500 + 1_000 * second, 30 + 12 * second) for second in range(12)],
        *[(partition, 85_000, 60) for partition in (1, 2, 5)],
        *[(3, 61_000, 50), (4, 85_000, 30)],
        *[(partition, NOW_MS, 200) for partition in range(6)],
    )
    ends = Ends(seen.filter(pc.equal(seen["at_ms"], NOW_MS)), seen)
    names = ("topic", "topic_partition", "committed_offset", "record_timestamp_ms")
    times = [dict(zip(names, (TOPIC, *row), strict=True)) for row in ((2, 30, 80_000), (3, 30, 99_000), (4, 10, 0))]
    found = lag(facts.current_offsets(), ends, facts.counted(), {}, None, times)

    assert by_partition(found, "lag", "status", "complete") == {
        0: (80, "WARN", 1.0),
        1: (160, "STALL", 0.3),
        2: (170, "REWIND", 0.3),
        3: (170, "STOP", 0.3),
        4: (170, "OK", 0.3),
        5: (150, "BEHIND", 0.1),
        6: (None, "UNKNOWN", None),
    }
    told = by_partition(found, "lag_ms", "lag_ms_method")
    assert {partition: told[partition] for partition in range(2, 7)} == {
        2: (11_000, "record"),
        3: (0, "record"),  # by a clock that is ahead
        4: (6_000, "interpolated"),  # the record is one of another offset
        5: (6_429, "extrapolated"),
        6: (None, None),
    }
    by_then = lag(facts.current_offsets(), ends, facts.counted(), {}, None, times, 61_500)
    assert by_partition(by_then, "status")[3] == ("OK",)
    assert by_partition(by_then, "lag_ms") == by_partition(found, "lag_ms")


def test_lag_is_the_distance_to_the_end() -> None:
    """The distance is to the newest end, if a partition has several."""
    names = ("topic", "topic_partition", "end_offset")
    rows = [dict(zip(names, (TOPIC, *end), strict=True)) for end in ((0, 15), (0, 14), (1, 18))]
    ends = Ends(pa.Table.from_pylist(rows, arrow_schema(END_OFFSETS)))
    current = committed((90_000, [10]), (90_000, [20]), (90_000, [30])).current_offsets()
    found = by_partition(lag(current, ends, None, {}, NOW_MS), "end_offset", "lag", "status")
    assert found == {0: (15, 5, "BEHIND"), 1: (18, 0, "AHEAD"), 2: (None, None, "UNKNOWN")}


def test_a_commit_after_the_look_at_the_end_is_not_ahead() -> None:
    ends = Ends(samples((0, 80_000, 18), (1, 95_000, 18)))
    current = committed((90_000, [20]), (90_000, [20])).current_offsets()
    assert by_partition(lag(current, ends, None, {}, NOW_MS), "status") == {0: ("OK",), 1: ("AHEAD",)}


def test_what_is_not_committed_has_a_row() -> None:
    """A member's partitions without a commit, and those with -1, which stands for none: no offset, and no lag in them.

    In an empty partition there is nothing to commit; partitions of share groups, and of topics that have no name in the
    log, are left out.
    """
    ends = Ends(samples((0, NOW_MS, 30), (1, NOW_MS, 30), (2, NOW_MS, 0)))
    current = committed((90_000, [7, -1])).current_offsets()
    holder = {"member_id": "m", "client_id": "c", "client_host": "/h", "members": 2, "is_shared": False}
    places = [("g", TOPIC, 1), ("g", TOPIC, 2), ("g", TOPIC, 3), ("g", None, 4)]
    holders = dict.fromkeys(places, holder) | {("s", TOPIC, 5): holder | {"is_shared": True}}
    found = lag(current, ends, committed((90_000, [7, -1])).counted(), holders, NOW_MS)

    assert by_partition(
        found, "committed_offset", "end_offset", "lag", "is_lost", "status", "client_id", "members"
    ) == {
        0: (None, 30, None, None, "NO COMMIT", None, 2),
        1: (None, 30, None, None, "NO COMMIT", "c", 2),
        2: (None, 0, 0, None, "OK", "c", 2),
        3: (None, None, None, None, "UNKNOWN", "c", 2),
    }


def test_a_group_that_is_too_slow_between_two_looks() -> None:
    """Its commits seem to catch up with an end that was looked at long ago, and what it reads is older each time."""
    slow = [500 + number for number in range(10)]
    quick = [500 + 50 * number for number in range(10)]
    facts = committed((90_000, slow), (90_000, quick))
    seen = samples(*[(partition, at_ms, at_ms // 50) for partition in (0, 1) for at_ms in (10_000, 80_000, NOW_MS)])
    ends = Ends(seen.filter(pc.equal(seen["at_ms"], NOW_MS)), seen)
    found = lag(facts.current_offsets(), ends, facts.counted(), {}, None)

    assert by_partition(found, "status", "lag", "lag_ms") == {0: ("WARN", 1_311, 65_550), 1: ("OK", 870, 43_500)}


def test_ends_without_times_tell_statuses() -> None:
    """End offsets of a file: judged at the given time; without commits the status is unknown."""
    facts = committed((80_000, [10, 20, 30]), (90_000, [40, 40]))
    rows = [{"topic": TOPIC, "topic_partition": partition, "end_offset": 50} for partition in (0, 1)]
    ends, current = Ends(pa.Table.from_pylist(rows, arrow_schema(END_OFFSETS))), facts.current_offsets()
    judged = [
        by_partition(lag(current, ends, counted, {}, now_ms), "status", "lag", "lag_ms")
        for counted, now_ms in ((facts.counted(), 90_000), (facts.counted(), 80_000), (None, 90_000))
    ]

    assert judged == [
        {0: ("STOP", 20, None), 1: ("STALL", 10, None)},
        {0: ("OK", 20, None), 1: ("STALL", 10, None)},
        {0: ("BEHIND", 20, None), 1: ("BEHIND", 10, None)},
    ]


def test_a_group_that_was_at_the_end_of_late_has_not_stopped() -> None:
    """A record that just arrived in an idle topic is no anomaly of its consumers."""
    facts = committed((90_000, [30, 30, 30]), (90_000, [30, 30, 30]))
    seen = samples((0, 700_000, 30), (0, 710_000, 31), (1, 710_000, 31))
    ends = Ends(seen.filter(pc.equal(seen["at_ms"], 710_000)), seen)
    found = anomalies({kind: [] for kind in KINDS}, facts, Assigned({}, []), ends, 710_000)
    assert [(row["topic_partition"], row["status"]) for row in found] == [(1, "STOP")]
