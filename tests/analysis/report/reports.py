"""Reports made of plain rows: small, or with every list at its limit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

from attrs import evolve

from groupcoord.analysis.fold.history.causes import CAUSES, EXPIRY_OR_LEAVE, JOIN, LEAVE, UNKNOWN
from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.data.model import BAD, FINE, UNTROUBLED, WARNING

START_MS = 1_795_245_817_000
MINUTE_MS = 60_000
VOID = frozenset({"meta", "br", "hr", "img", "link"})


class Page(HTMLParser):
    """The elements and words of a page; tags that do not match are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    @property
    def ids(self) -> list[str]:
        return [one["id"] or "" for _, one in self.elements if "id" in one]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(re.sub(r"\s+", " ", data))


def bins(*names: str, length: int) -> model.Bins:
    series = {
        name: tuple((place * (7 + number) + 3 * number) % (5 + number) for place in range(length))
        for number, name in enumerate(names)
    }
    return model.Bins(START_MS, MINUTE_MS, length, series)


def rebalance(group_id: str, number: int, cause: str = JOIN) -> model.RebalanceRow:
    """Return one of a series of rebalances, a minute apart, of 3 s each."""
    ended_ms = START_MS + number * MINUTE_MS
    told = f"m{number} (id-{number}) joined {group_id}"
    return model.RebalanceRow(group_id, number, number + 1, ended_ms - 3_000, ended_ms, cause, 0.9, 1, 0, 4, told)


def anomaly(group_id: str, number: int) -> model.AnomalyRow:
    """Return one of a series of anomalies, a minute apart."""
    at_ms = START_MS + number * MINUTE_MS + 30_000
    told = f"{group_id} went from 500 back to 10"
    return model.AnomalyRow(group_id, "offset rewind", "REWIND", "orders:3", at_ms, at_ms, 1, told)


def story(group_id: str, rebalances: int = 9) -> model.GroupStory:
    """Return a troubled group; with more than 9 rebalances each list is at its limit."""
    is_large = rebalances > 9
    happened = tuple(
        rebalance(group_id, number, (JOIN, EXPIRY_OR_LEAVE, LEAVE)[number % 3]) for number in range(rebalances)
    )
    epochs = tuple(
        model.EpochPoint(START_MS + number * MINUTE_MS // 4, number + 2, number + 2, number or None)
        for number in range(model.EPOCHS_OF_GROUP_MAX if is_large else 9)
    )
    return model.GroupStory(
        row(group_id, 37, rebalances=rebalances),
        Counter(one.cause for one in happened),
        happened,
        tuple((one.ended_ms or 0, 1 + number % 4) for number, one in enumerate(happened)),
        tuple(anomaly(group_id, number) for number in range(model.ANOMALIES_OF_GROUP_MAX if is_large else 2)),
        bins("commits", "tombstones", length=model.BINS_OF_GROUP_MAX if is_large else 30),
        epochs,
        shares(group_id, *((model.MEMBERS_SHOWN_MAX, model.PARTITIONS_OF_MEMBER_MAX) if is_large else (2, 2))),
    )


def shares(name: str, members: int, partitions: int) -> tuple[model.MemberShare, ...]:
    """Return members with some partitions, and one without any."""
    some = tuple(
        model.PartitionShare(f"{name} orders", number, 40, START_MS, 900, 42_000, "STOP", BAD)
        for number in range(partitions)
    )
    busy = (model.MemberShare(f"{name} {number}", "/10.0.0.1", 9, 360, 8_100, some) for number in range(members - 1))
    return (*busy, model.MemberShare(f"idle {name}", "/10.0.0.2", 0, 0, None, ()))


def row(group_id: str, trouble: int, rebalances: int = 9) -> model.GroupRow:
    """Return the figures of a group, with stopped commits if it is troubled."""
    told = f"Commits stopped of {group_id}:3: no commit for 900 s."
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
        standing=model.Standing(BAD, "STOP", told, 5_000, 42_000) if trouble else UNTROUBLED,
    )


def partition(number: int, records: int) -> model.PartitionRow:
    """Return the load of a log partition."""
    return model.PartitionRow(
        number, records, records - 10, 8, 2, records * 90, records * 100, 5, "hot", 0.6, records // 2, records * 45
    )


def consumer_groups(name: str, names: Callable[[int, int], list[str]]) -> dict[str, Any]:
    """Return the attributes of a report about consumer and share groups."""
    return {
        "consumer_groups": tuple(
            model.ConsumerGroupRow(one, 17, 16, 8, 1, 30, 4, 1_500, 11, 1_000, 31_000)
            for one in names(model.CONSUMER_GROUPS_MAX, 2)
        ),
        "assignors": (
            model.AssignorRow("", 2, 12, 26, 0, 1_000, 1_500),
            model.AssignorRow("range", 1, 4, 8, 4, 2_000, 1_000),
        ),
        "slow_members": tuple(
            model.SlowMemberRow(one, f"client of {one}", 4, 1_000, 31_000, START_MS, 300_000, 0)
            for one in names(model.SLOW_MEMBERS_MAX, 2)
        ),
        "share_groups": tuple(
            model.ShareGroupRow(f"{name}shared", name, 3, 5, 4, 7, 2, START_MS)
            for _ in names(model.SHARE_GROUPS_MAX, 1)
        ),
    }


def report(groups: int = 12, name: str = "group-") -> model.Report:
    """Return a report with something in every section; with more groups than a page shows, each list is at its limit.

    The names of groups begin with ``name``, which long texts are made of, too.
    """
    is_large = groups > model.GROUPS_MAX

    def names(most: int, few: int) -> list[str]:
        return [f"{name}{number}" for number in range(most if is_large else few)]

    rows = tuple(row(f"{name}{number}", groups - number) for number in range(min(groups, model.GROUPS_MAX)))
    rebalances = model.REBALANCES_OF_GROUP_MAX if is_large else 9
    length, expires_ms = model.BINS_MAX if is_large else 30, START_MS + 7 * 86_400_000
    lag = model.LagRow(name, "orders", 6, 5_000, 900, 42_000, "STOP", BAD)
    overview = (START_MS, START_MS + 30 * MINUTE_MS, 1_234_567, 98_765_432, 8, groups, 3 * groups, 9 * groups)
    return model.Report(
        title="Consumer groups of kafka-data",
        inputs=("/var/lib/kafka/data",),
        made_ms=START_MS + 3_600_000,
        version="0.1.0",
        overview=model.Overview(*overview, 97, 12, 1, 512),
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
        rebalances=bins(*CAUSES, length=length),
        churn=bins("joined", "left", length=length),
        churning=rows[: model.CHURNING_MAX],
        **consumer_groups(name, names),
        groups=rows,
        severities={BAD: groups, WARNING: 0, FINE: 0},
        troubled=tuple(story(one.group_id, rebalances) for one in rows[: model.TROUBLED_MAX]),
        partitions=tuple(
            partition(number, 1_000 * (number + 1)) for number, _ in enumerate(names(model.PARTITIONS_MAX, 8))
        ),
        anomaly_counts=(
            model.AnomalyCount("offset rewind", "REWIND", 11, 4, START_MS, START_MS + MINUTE_MS),
            model.AnomalyCount("duplicate owner", "", 1, 1, START_MS, START_MS),
        ),
        anomalies=tuple(anomaly(one, number) for number, one in enumerate(names(model.ANOMALIES_MAX, 12))),
        stale_count=60,
        retention_minutes=1_440,
        is_retention_told=True,
        stale=tuple(
            model.StaleRow(one, "Classic", "Empty", 6, 6, 0, START_MS, expires_ms, expires_ms + MINUTE_MS)
            for one in names(model.STALE_MAX, 3)
        ),
        lag=tuple(
            evolve(lag, group_id=one, lag=5_000 - number) for number, one in enumerate(names(model.LAGGING_MAX, 3))
        ),
        statuses=(model.StatusCount("STOP", 6, 3, BAD), model.StatusCount("OK", 40, 7)),
        read=(
            model.ReadCount("record OFFSET_COMMIT", "", 1_234_000, 98_000_000),
            model.ReadCount("record of unknown type 99", "unknown record type", 3, 120),
        ),
        corrupt=tuple(
            model.CorruptRange(f"/data/{name}/0.log", 4_096, 512, f"CRC does not match {name}", 100, 120)
            for _ in names(model.CORRUPT_MAX, 1)
        ),
        verification=model.Verification(groups, 0, ()),
        tables={"commits": 1_234_000, "rebalances": 97, "anomalies": 12},
    )
