"""Anomalies of groups: each rule, on rows in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from groupcoord.analysis.decode.schema import END_OFFSETS, arrow_schema
from groupcoord.analysis.options import Thresholds
from groupcoord.analysis.rules.anomalies import anomalies, assigned
from groupcoord.analysis.rules.groups import (
    differences,
    group_answers,
    groups,
    offset_answers,
    offset_expiry,
    partition_holders,
    stale_groups,
    unknown_groups,
)
from groupcoord.analysis.rules.lag import Ends, lag

from .troubled import Known, fold_log, write_troubled

LIMITS = Thresholds(
    window_commits=5, commits_per_minute=6, storm_commits=6, stopped_ms=100_000, rebalances=7, comebacks=3
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Groups with every trouble."""
    folder = tmp_path_factory.mktemp("troubled")
    write_troubled(folder)
    return folder


@pytest.fixture(scope="module")
def troubled(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Known:
    """State of the troubled groups."""
    return fold_log(log, tmp_path_factory.mktemp("out"))


def ends(*rows: tuple[str, int, int]) -> Ends:
    schema = arrow_schema(END_OFFSETS)
    return Ends(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema))


def test_anomalies(log: Path, tmp_path: Path) -> None:
    """Each of the troubles is found once, with Burrow's status, and nothing else is, also with repeated end offsets."""
    known = fold_log(log, tmp_path, LIMITS)
    rows = anomalies(
        known.histories,
        known.facts,
        assigned(known.histories, LIMITS),
        ends(("t", 0, 1_000), ("t", 0, 900), ("t", 1, 9)),
        12_000,
        LIMITS,
    )
    found: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        of = (row["kind"], row["group_id"], row.get("topic_partition"), row.get("client_id"))
        found[of] = [row.get("status"), row["count"], row["value"]]
    told = {row["kind"]: row["evidence"] for row in rows}

    assert told["rebalance storm"] == "8 rebalances within 10 min"
    assert told["flapping member"] == "b left and joined 4 times within 10 min"
    assert told["offset rewind"] == "back by 40 to 60"
    assert found == {
        ("offset rewind", "stormy", 0, None): ["REWIND", 1, 40],
        ("stalled", "double", 0, None): ["STALL", 5, 995],
        ("commit storm", "busy", None, None): [None, 1, 7],
        ("rebalance storm", "stormy", None, None): [None, 2, 8],
        ("flapping member", "stormy", None, "b"): [None, 3, 4],
        ("duplicate owner", "double", 1, None): [None, 1, 2],
    }


def test_commits_that_stopped(troubled: Known) -> None:
    """A member's partition with recent commits and then a long pause; without end offsets others are not judged."""
    held, limits = assigned(troubled.histories), Thresholds(stopped_ms=100_000)
    rows = anomalies(troubled.histories, troubled.facts, held, None, 600_000, limits)
    found = [row for row in rows if row.get("status") == "STOP"]

    assert {row["evidence"] for row in found} == {"no commit for 590 s", "no commit for 588 s"}
    assert {(row["kind"], row["group_id"], row["topic_partition"], row["value"]) for row in found} == {
        ("commits stopped", "stormy", 0, 590_500),
        ("commits stopped", "double", 0, 588_996),
        ("commits stopped", "double", 1, 588_996),
    }


def test_lag_names_who_has_the_partition(troubled: Known) -> None:
    """The owner at the end of the log, of two that claim a partition; none if the group is empty."""
    told = lag(
        troubled.current,
        ends(("t", 0, 1_000), ("t", 1, 1_000)),
        None,
        partition_holders(troubled.histories),
        None,
    )
    found = {
        (row["group_id"], row["topic_partition"]): (row["member_id"], row["client_id"])
        for row in told
        if row["topic"] == "t"
    }

    assert found["stormy", 0] == found["live", 0] == ("a1", "a")
    assert found["double", 1] == ("a1", "a")
    assert found["quiet", 1] == ("a1", "a")
    assert found["emptied", 0] == found["simple", 0] == (None, None)


def test_stale_groups(troubled: Known) -> None:
    """Offsets that expire, and when. An emptied group counts from then, one without members from its commits, as do
    unsubscribed topics; a commit's own expiry is kept, and an open transaction keeps its group.
    """
    described = groups(troubled.histories, troubled.current)
    names = ("expiring_offsets", "expired_offsets", "next_expiry_ms", "group_expiry_ms", "idle_ms")
    offsets = offset_expiry(described, troubled.current, troubled.facts, 1)
    rows = stale_groups(described, offsets, troubled.facts, 655_000)

    assert {row["group_id"]: tuple(row[name] for name in names) for row in rows} == {
        "busy": (1, 1, 650_006, 650_006, 64_994),
        "last": (1, 0, 660_000, 660_000, 55_000),
        "emptied": (1, 1, 590_000, 590_000, 125_000),
        "live": (1, 1, 560_007, None, 154_993),
        "simple": (1, 0, 700_000, 700_000, 154_992),
    }


def test_offset_expiry(troubled: Known) -> None:
    """Each current offset has a row; one that is in use, or in an open transaction, has no time to expire."""
    described = groups(troubled.histories, troubled.current)
    rows = offset_expiry(described, troubled.current, troubled.facts, 1)
    found = {(row["group_id"], row["topic"]): row["expires_ms"] for row in rows}

    assert len(rows) == troubled.current.num_rows
    assert found == {
        ("stormy", "t"): None,
        ("double", "t"): None,
        ("quiet", "t"): None,
        ("open", "t"): None,
        ("live", "t"): None,
        ("live", "former"): 560_007,
        ("busy", "t"): 650_006,
        ("last", "t"): 660_000,
        ("simple", "t"): 700_000,
        ("emptied", "t"): 590_000,
    }


def test_differences_are_told(troubled: Known) -> None:
    """A missing answer, a different one, and a field that the tables lack."""
    tables = group_answers(troubled.histories) | offset_answers(troubled.current)
    answers = [
        {**field._asdict(), "text": "Empty" if (field.group_id, field.field) == ("quiet", "state") else text}
        | {"log_partition": partition}
        for field, (text, partition) in tables.items()
        if field.group_id != "last"
    ]
    answers.append(answers[0] | {"group_id": "new", "field": "state", "text": "Dead"})
    found = differences(answers, tables, unknown_groups(troubled.histories))

    assert {(row["group_id"], row["field"], row["coordinator"], row["table"]) for row in found} == {
        ("last", "state", None, "Empty"),
        ("last", "protocol type", None, ""),
        ("last", "protocol", None, ""),
        ("last", "generation", None, "0"),
        ("last", "offset", None, "1|-1|"),
        ("new", "state", "Dead", None),
        ("quiet", "state", "Empty", "Stable"),
    }
