"""What a group's members have each: who has nothing while others have much, and who has partitions without commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow.compute as pc

from groupcoord.analysis.fold.commits import CommitFacts
from groupcoord.analysis.fold.history import GROUP, MEMBER, REBALANCE
from groupcoord.analysis.fold.history.rows import SHARE, STREAMS
from groupcoord.analysis.options import Thresholds
from groupcoord.analysis.rules.groups import Histories, Place, began_ms, partition_holders
from groupcoord.analysis.rules.statuses import IDLE_MEMBERS, NEVER_COMMITTED, UNEVEN_SHARES
from groupcoord.analysis.rules.stopped_commits import last_commits, places_of

Row = dict[str, Any]

MS_PER_S = 1_000


class Share(NamedTuple):
    """What a member has as the log ends.

    Attributes:
        member_id: the member.
        client_id: what its client calls itself.
        partitions: how many partitions or tasks it has.
        unnamed: how many of them are of topics that the log does not name.
    """

    member_id: str
    client_id: str | None
    partitions: int
    unnamed: int


class Shares(NamedTuple):
    """What the members of a group have as the log ends.

    Attributes:
        of: the group, and its log partition.
        type: of the group.
        members: each of them.
        since_ms: when its generation or epoch began, in milliseconds since 1970; None: the log does not tell.
        uneven_since_ms: since when its generations have uneven numbers of partitions; None: they don't.
    """

    of: Row
    type: str
    members: tuple[Share, ...]
    since_ms: int | None
    uneven_since_ms: int | None


class Assigned(NamedTuple):
    """Who has what as the log ends.

    Attributes:
        holders: who has which partition, as :func:`groupcoord.analysis.rules.groups.partition_holders` tells it.
        shares: what the members of each group have that has members.
    """

    holders: Mapping[Place, Row]
    shares: list[Shares]


def assigned(found: Histories, limits: Thresholds | None = None) -> Assigned:
    """Return who has what as the log ends.

    Args:
        found: the groups' histories.
        limits: what is too much.
    """
    by_group: dict[tuple[int | None, str], list[Row]] = {}
    for row in found[MEMBER]:
        by_group.setdefault((row["log_partition"], row["group_id"]), []).append(row)
    started_ms = {
        (row["log_partition"], row["group_id"], row["type"], row["to_generation"]): row["started_ms"]
        for row in found[REBALANCE]
    }
    told = [
        _shares(
            group, by_group.get((group["log_partition"], group["group_id"]), []), started_ms, limits or Thresholds()
        )
        for group in found[GROUP]
    ]
    return Assigned(partition_holders(found), [shares for shares in told if shares is not None])


def _shares(
    group: Row, members: list[Row], started_ms: Mapping[tuple[Any, ...], int | None], limits: Thresholds
) -> Shares | None:
    """Return what the members of a group have; None if it has none."""
    members.sort(key=lambda row: row["log_offset"])
    views = [
        list(some) for _, some in groupby(members, lambda row: (row["type"], row["generation"], row["log_offset"]))
    ]
    if not views or (views[-1][0]["type"], views[-1][0]["generation"]) != (group["type"], group["generation_or_epoch"]):
        return None
    since_ms = began_ms(group)
    uneven_since_ms = None
    for view in reversed(views):
        if not _is_uneven([_count(row) for row in view], limits.uneven_times):
            break
        key = (group["log_partition"], group["group_id"], view[0]["type"], view[0]["generation"])
        known = (started_ms.get(key), uneven_since_ms, since_ms)
        uneven_since_ms = next((ms for ms in known if ms is not None and ms >= 0), None)
    of = {name: group[name] for name in ("group_id", "log_partition")}
    return Shares(of, group["type"], tuple(_share(row) for row in views[-1]), since_ms, uneven_since_ms)


def _share(row: Row) -> Share:
    unnamed = sum(len(one["partitions"]) for one in row["assignment"] or () if one["topic"] is None)
    return Share(row["member_id"], row["client_id"], _count(row), unnamed)


def _count(row: Row) -> int:
    return sum(len(one["partitions"]) for one in row["assignment"] or ())


def _is_uneven(counts: list[int], times: float) -> bool:
    """Tell whether some have nothing while another has several times the mean, which would do for two."""
    return min(counts) == 0 and max(counts) > 1 and max(counts) * len(counts) >= times * sum(counts)


# ---------------------------------------------------------------- what is wrong with that


def about_shares(
    held: Assigned, facts: CommitFacts, now_ms: int | None, limits: Thresholds, *, has_ends: bool
) -> Iterator[Row]:
    """Yield rows of the table of anomalies.

    Args:
        held: who has what.
        facts: of commits.
        now_ms: the moment to judge from, in milliseconds since 1970.
        limits: what is too much.
        has_ends: it is known where topics end, so that partitions that were never committed are told one by one where
            the log names their topics.
    """
    if now_ms is None or not held.shares:
        return
    work = _Work(held.holders, facts, now_ms, limits)
    for shares in held.shares:
        yield from _never_committed(shares, work, now_ms, limits, has_ends=has_ends)
        uneven = list(_uneven(shares, work, now_ms, limits))
        yield from uneven or _idle(shares, now_ms, limits)


def _never_committed(shares: Shares, work: _Work, now_ms: int, limits: Thresholds, *, has_ends: bool) -> Iterator[Row]:
    """Yield that a group has partitions, and no commit at all."""
    is_one_by_one = has_ends and shares.type != STREAMS
    counts = [one.unnamed if is_one_by_one else one.partitions for one in shares.members]
    if shares.type == SHARE or not any(counts) or shares.since_ms is None or shares.of["group_id"] in work.committed:
        return
    silent_ms = now_ms - shares.since_ms
    if silent_ms >= limits.stopped_ms:
        holders = sum(count > 0 for count in counts)
        evidence = (
            f"{sum(counts):,} partitions of {holders:,} members for {silent_ms // MS_PER_S:,} s, and no commit ever"
        )
        times = {"first_ms": shares.since_ms, "last_ms": now_ms, "count": sum(counts), "value": silent_ms}
        yield shares.of | {"kind": NEVER_COMMITTED, "evidence": evidence, **times}


def _uneven(shares: Shares, work: _Work, now_ms: int, limits: Thresholds) -> Iterator[Row]:
    """Yield that some members of a group have no partitions, or no work, while another has several times the mean."""
    since_ms, amounts, what = shares.uneven_since_ms, [float(one.partitions) for one in shares.members], "partitions"
    if since_ms is None:
        since_ms, amounts, what = work.uneven_since_ms(shares), work.rates(shares), "work"
    if since_ms is None or now_ms - since_ms < limits.uneven_ms:
        return
    most = max(amounts)
    without = sum(amount <= 0 for amount in amounts)
    client = min(str(one.client_id) for one, amount in zip(shares.members, amounts, strict=True) if amount == most)
    evidence = (
        f"{without:,} of {len(amounts):,} members have had no {what} for {(now_ms - since_ms) // MS_PER_S:,} s, "
        f"{client} has {100 * most / sum(amounts):.0f} % of all"
    )
    times = {"first_ms": since_ms, "last_ms": now_ms, "count": without, "value": now_ms - since_ms}
    yield shares.of | {"kind": UNEVEN_SHARES, "evidence": evidence, **times}


def _idle(shares: Shares, now_ms: int, limits: Thresholds) -> Iterator[Row]:
    """Yield that a group has more members than partitions."""
    idle = sum(not one.partitions for one in shares.members)
    partitions = sum(one.partitions for one in shares.members)
    is_shared = shares.type in (SHARE, STREAMS)  # whose members share partitions, or have copies of tasks
    if is_shared or not 0 < partitions < len(shares.members) or shares.since_ms is None:
        return
    idle_ms = now_ms - shares.since_ms
    if idle_ms >= limits.uneven_ms:
        evidence = (
            f"{idle:,} of {len(shares.members):,} members have had no partition for {idle_ms // MS_PER_S:,} s, "
            f"there are {partitions:,} for all"
        )
        times = {"first_ms": shares.since_ms, "last_ms": now_ms, "count": idle, "value": idle_ms}
        yield shares.of | {"kind": IDLE_MEMBERS, "evidence": evidence, **times}


class _Work:
    """How many records members commit.

    Attributes:
        committed: groups of which any commit is known.
    """

    def __init__(self, holders: Mapping[Place, Row], facts: CommitFacts, now_ms: int, limits: Thresholds) -> None:
        self._limits = limits
        self.committed: set[str] = set(pc.unique(facts.last["group_id"]).to_pylist())
        going = _going(facts, now_ms, limits)
        self._of_members: dict[tuple[str, str], list[_Going | None]] = {}
        for place, holder in holders.items():
            self._of_members.setdefault((place[0], holder["member_id"]), []).append(going.get(place))

    def rates(self, shares: Shares) -> list[float]:
        """Return how many records a millisecond each member commits."""
        return [sum(one.rate for one in some if one is not None) for some in self._partitions(shares)]

    def uneven_since_ms(self, shares: Shares) -> int | None:
        """Return since when work is uneven; None: it isn't, or there is too little for it to be no chance."""
        of_members = self._partitions(shares)
        if shares.since_ms is None or not all(of_members):
            return None
        times = [[shares.since_ms if one is None else one.idle_since_ms for one in some] for some in of_members]
        idle_ms = [max(known) for some in times if len(known := [ms for ms in some if ms is not None]) == len(some)]
        records = sum(one.records for some in of_members for one in some if one is not None)
        rates = self.rates(shares)
        is_uneven = max(rates) * len(rates) >= self._limits.uneven_times * sum(rates)
        if not idle_ms or not is_uneven or records < self._limits.uneven_records:
            return None
        return max(shares.since_ms, *idle_ms)

    def _partitions(self, shares: Shares) -> list[list[_Going | None]]:
        group_id = shares.of["group_id"]
        return [self._of_members.get((group_id, one.member_id), []) for one in shares.members]


class _Going(NamedTuple):
    """How the last commits of a partition go on.

    Attributes:
        records: by so many.
        rate: so many a millisecond since they began; 0 where they don't any more.
        idle_since_ms: since when they don't; None: they do.
    """

    records: int
    rate: float
    idle_since_ms: int | None


def _going(facts: CommitFacts, now_ms: int, limits: Thresholds) -> dict[Place, _Going]:
    found = last_commits(facts, limits)
    told = {}
    columns = (found.first_ms, found.last_ms, found.lowest, found.highest)
    for place, first_ms, last_ms, lowest, highest in zip(
        places_of(found.of), *(column.tolist() for column in columns), strict=True
    ):
        if lowest <= highest:
            is_silent = now_ms - last_ms >= limits.stopped_ms
            idle_since_ms = first_ms if lowest == highest else last_ms if is_silent else None
            rate = 0.0 if idle_since_ms is not None else (highest - lowest) / max(now_ms - first_ms, 1)
            told[place] = _Going(highest - lowest, rate, idle_since_ms)
    return told
