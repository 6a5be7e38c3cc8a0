"""A report to look at, made of plain rows: small, or as large as a report can get."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from groupcoord.analysis.fold.history.causes import CAUSES, EXPIRY_OR_LEAVE, JOIN, LEAVE, UNKNOWN
from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.model import (
    BAD,
    FINE,
    MEMBERS_TOLD_MAX,
    PARTITIONS_OF_MEMBER_MAX,
    UNTROUBLED,
    WARNING,
    MemberShare,
    PartitionShare,
    ShareGroupRow,
    Standing,
)

START_MS = 1_795_245_817_000
MINUTE_MS = 60_000


def bins(*names: str, length: int = 30, width_ms: int = MINUTE_MS) -> model.Bins:
    series = {
        name: tuple((place * (7 + number) + 3 * number) % (5 + number) for place in range(length))
        for number, name in enumerate(names)
    }
    return model.Bins(START_MS, width_ms, length, series)


def rebalance(group_id: str, number: int, cause: str = JOIN, took_ms: int = 3_000) -> model.RebalanceRow:
    """One of a row of rebalances, a minute after the other."""
    ended_ms = START_MS + number * MINUTE_MS
    return model.RebalanceRow(
        group_id,
        number,
        number + 1,
        ended_ms - took_ms,
        ended_ms,
        cause,
        0.9,
        1,
        0,
        4,
        f"m{number} (id-{number}) joined {group_id}",
    )


def anomaly(group_id: str, number: int) -> model.AnomalyRow:
    """One of a row of findings."""
    at_ms = START_MS + number * MINUTE_MS + 30_000
    told = f"{group_id} went from 500 back to 10"
    return model.AnomalyRow(group_id, "offset rewind", "REWIND", "orders:3", at_ms, at_ms, 1, told)


def story(group_id: str, rebalances: int = 9) -> model.GroupStory:
    """A group with trouble."""
    happened = tuple(
        rebalance(group_id, number, (JOIN, EXPIRY_OR_LEAVE, LEAVE)[number % 3]) for number in range(rebalances)
    )
    causes: dict[str, int] = {}
    for one in happened:
        causes[one.cause] = causes.get(one.cause, 0) + 1
    return model.GroupStory(
        row(group_id, 37, rebalances=rebalances),
        causes,
        happened,
        tuple((one.ended_ms or 0, 1 + number % 4) for number, one in enumerate(happened)),
        tuple(anomaly(group_id, number) for number in range(model.ANOMALIES_OF_GROUP_MAX if rebalances > 9 else 2)),
        bins("commits", "tombstones", length=model.BINS_OF_GROUP_MAX if rebalances > 9 else 30),
        epochs(model.EPOCHS_OF_GROUP_MAX if rebalances > 9 else 9),
        shares(group_id, *((MEMBERS_TOLD_MAX, PARTITIONS_OF_MEMBER_MAX) if rebalances > 9 else (2, 2))),
    )


def standing(group_id: str) -> Standing:
    """A group whose commits stopped."""
    return Standing(BAD, "STOP", f"Commits stopped of {group_id}:3: no commit for 900 s.", 5_000, 42_000)


def shares(name: str, members: int, partitions: int) -> tuple[MemberShare, ...]:
    """Members that have some partitions, and one that has none."""
    some = tuple(
        PartitionShare(f"{name} orders", number, 40, START_MS, 900, 42_000, "STOP", BAD) for number in range(partitions)
    )
    busy = (MemberShare(f"{name} {number}", "/10.0.0.1", 9, 360, 8_100, some) for number in range(members - 1))
    return (*busy, MemberShare(f"idle {name}", "/10.0.0.2", 0, 0, None, ()))


def epochs(length: int) -> tuple[model.EpochPoint, ...]:
    """Epochs that grow, with members that come later."""
    return tuple(
        model.EpochPoint(START_MS + number * MINUTE_MS // 4, number + 2, number + 2, max(number, 1) if number else None)
        for number in range(length)
    )


def consumer_group(group_id: str) -> model.ConsumerGroupRow:
    return model.ConsumerGroupRow(group_id, 17, 16, 8, 1, 30, 4, 1_500, 11, 1_000, 31_000)


def slow_member(group_id: str) -> model.SlowMemberRow:
    return model.SlowMemberRow(group_id, f"client of {group_id}", 4, 1_000, 31_000, START_MS, 300_000, 0)


def row(group_id: str, trouble: int, rebalances: int = 9) -> model.GroupRow:
    """A group's figures."""
    return model.GroupRow(
        group_id,
        trouble,
        type="Classic",
        state="Stable",
        generation=9,
        members=3,
        rebalances=rebalances,
        joined=6,
        left=3,
        partitions_moved=21,
        rebalancing_ms=27_000,
        first_rebalance_ms=START_MS,
        last_rebalance_ms=START_MS + (rebalances - 1) * MINUTE_MS,
        anomalies=2,
        commits=1_234,
        last_commit_ms=START_MS + 25 * MINUTE_MS,
        standing=standing(group_id) if trouble else UNTROUBLED,
    )


def consumer_groups(name: str, is_large: bool) -> dict[str, Any]:
    """What a report says of consumer and share groups alone, by the names of its attributes."""
    groups, slow = (model.CONSUMER_GROUPS_MAX, model.SLOW_MEMBERS_MAX) if is_large else (2, 2)
    return {
        "consumer_groups": tuple(consumer_group(f"{name}{number}") for number in range(groups)),
        "assignors": (
            model.AssignorRow("", 2, 12, 26, 0, 1_000, 1_500),
            model.AssignorRow("range", 1, 4, 8, 4, 2_000, 1_000),
        ),
        "slow_members": tuple(slow_member(f"{name}{number}") for number in range(slow)),
        "share_groups": (ShareGroupRow(f"{name}shared", name, 3, 5, 4, 7, 2, START_MS),)
        * (model.SHARE_GROUPS_MAX if is_large else 1),
    }


def stale(group_id: str) -> model.StaleRow:
    """A group that nobody uses."""
    expires_ms = START_MS + 7 * 86_400_000
    return model.StaleRow(group_id, "Classic", "Empty", 6, 6, 0, START_MS, expires_ms, expires_ms + MINUTE_MS)


def partition(number: int, records: int) -> model.PartitionRow:
    """A log partition's load."""
    return model.PartitionRow(
        number, records, records - 10, 8, 2, records * 90, records * 100, 5, "hot", 0.6, records // 2, records * 45
    )


def lag(name: str, is_large: bool) -> dict[str, Any]:
    """What a report says of lag."""
    row = model.LagRow(name, "orders", 6, 5_000, 900, 42_000, "STOP", BAD)
    count = model.LAGGING_MAX if is_large else 3
    rows = tuple(evolve(row, group_id=f"{name}{number}", lag=5_000 - number) for number in range(count))
    return {"lag": rows, "statuses": (model.StatusCount("STOP", 6, 3, BAD), model.StatusCount("OK", 40, 7))}


def report(groups: int = 12, name: str = "group-") -> model.Report:
    """A report with something in every section, as long as its limits allow for so many groups.

    Args:
        groups: how many there are.
        name: what the names of groups start with; text that is long is made of it too.
    """
    rows = tuple(row(f"{name}{number}", groups - number) for number in range(min(groups, model.GROUPS_MAX)))
    is_large = groups > model.GROUPS_MAX
    rebalances = model.REBALANCES_OF_GROUP_MAX if is_large else 9
    return model.Report(
        title="Consumer groups of kafka-data",
        inputs=("/var/lib/kafka/data",),
        made_ms=START_MS + 3_600_000,
        version="0.1.0",
        overview=model.Overview(
            START_MS,
            START_MS + 30 * MINUTE_MS,
            1_234_567,
            98_765_432,
            8,
            groups,
            3 * groups,
            9 * groups,
            97,
            12,
            1,
            512,
        ),
        states=(
            model.StateCount("Classic", "Stable", groups - 2, 3 * groups),
            model.StateCount("Classic", "Empty", 1, 0),
            model.StateCount("Consumer", "Reconciling", 1, 2),
        ),
        causes=(
            model.CauseCount(JOIN, 60, 60, 1.0, 7, 3_000, 12_000),
            model.CauseCount(EXPIRY_OR_LEAVE, 30, 20, 0.9, 5, 10_000, 45_000),
            model.CauseCount(UNKNOWN, 7, 0, 0.0, 2, None, None),
        ),
        rebalances=bins(*CAUSES, length=model.BINS_MAX if is_large else 30),
        churn=bins("joined", "left", length=model.BINS_MAX if is_large else 30),
        churning=rows[: model.CHURNING_MAX],
        **consumer_groups(name, is_large),
        groups=rows,
        severities={BAD: groups, WARNING: 0, FINE: 0},
        troubled=tuple(story(one.group_id, rebalances) for one in rows[: model.TROUBLED_MAX]),
        partitions=tuple(
            partition(number, 1_000 * (number + 1)) for number in range(model.PARTITIONS_MAX if is_large else 8)
        ),
        anomaly_counts=(
            model.AnomalyCount("offset rewind", "REWIND", 11, 4, START_MS, START_MS + MINUTE_MS),
            model.AnomalyCount("duplicate owner", "", 1, 1, START_MS, START_MS),
        ),
        anomalies=tuple(
            anomaly(f"{name}{number}", number) for number in range(model.ANOMALIES_MAX if is_large else 12)
        ),
        stale_count=60,
        retention_minutes=1_440,
        is_retention_told=True,
        stale=tuple(stale(f"{name}{number}") for number in range(model.STALE_MAX if is_large else 3)),
        **lag(name, is_large),
        read=(
            model.ReadCount("record OFFSET_COMMIT", "", 1_234_000, 98_000_000),
            model.ReadCount("record of unknown type 99", "unknown record type", 3, 120),
        ),
        corrupt=(model.CorruptRange(f"/data/{name}/0.log", 4_096, 512, f"CRC does not match {name}", 100, 120),)
        * (model.CORRUPT_MAX if is_large else 1),
        verification=model.Verification(groups, 0, ()),
        tables={"commits": 1_234_000, "rebalances": 97, "anomalies": 12},
    )
