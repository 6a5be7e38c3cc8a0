"""Anomalies of groups: rewinds, stopped commits, storms, uneven shares, slow and fenced members."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.parquet import Figure, Runs, aggregated, flags, integers
from groupcoord.analysis.fold.commits import PARTITION, CommitFacts
from groupcoord.analysis.fold.history import DUPLICATE, GROUP, MEMBER, MEMBERSHIP, REBALANCE, REVOCATION
from groupcoord.analysis.fold.history.causes import REBALANCE_TIMEOUT
from groupcoord.analysis.fold.history.rows import SHARE, STREAMS, Row, grouped
from groupcoord.analysis.options import Thresholds
from groupcoord.analysis.report.text import format_limit
from groupcoord.analysis.rules.groups import Histories, Place, began_ms, partition_holders
from groupcoord.analysis.rules.lag import Behind, Ends
from groupcoord.analysis.rules.statuses import (
    COMMIT_STORM,
    COMMITS_STOPPED,
    DUPLICATE_OWNER,
    FENCED_MEMBER,
    FLAPPING_MEMBER,
    IDLE_MEMBERS,
    NEVER_COMMITTED,
    NO_OFFSET,
    OFFSET_REWIND,
    REBALANCE_STORM,
    REWIND,
    SLOW_REVOCATION,
    STALL,
    STALLED,
    STOP,
    UNEVEN_SHARES,
    has_stopped,
    known_offset,
    stands_still,
)


def anomalies(
    found: Histories,
    facts: CommitFacts,
    held: Assigned,
    ends: Ends | None,
    now_ms: int | None,
    thresholds: Thresholds | None = None,
) -> list[Row]:
    """Return the anomalies of groups (:data:`groupcoord.analysis.decode.schema.ANOMALIES`).

    All rewinds in the log count, and silences beyond the thresholds. With ``ends`` stopped and stalled partitions count
    only with a lag. Without them nothing is stalled, and commits have stopped only if a member owns the partition.
    """
    limits = thresholds or Thresholds()
    return [
        *_about_offsets(facts, held.holders, ends, now_ms, limits),
        *_about_shares(held, facts, now_ms, limits, has_ends=ends is not None),
        *_commit_storms(facts.minutes, limits),
        *_rebalance_storms(found[REBALANCE], limits),
        *_flapping_members(found[REBALANCE], limits),
        *_duplicate_owners(found[DUPLICATE]),
        *_slow_revocations(found[REVOCATION], now_ms, limits),
        *_fenced_members(found[MEMBERSHIP]),
    ]


_OF_GROUP = ("log_partition", "group_id")
_OF_CLIENT = (*_OF_GROUP, "client_id")
_OF_PARTITION = (*_OF_GROUP, "topic", "topic_partition")


def _gathered(
    kind: str,
    rows: Iterable[Row],
    names: Sequence[str],
    worst: Callable[[list[Row]], tuple[int | None, str]],
    first_ms: str = "first_ms",
    last_ms: str = "last_ms",
) -> Iterator[Row]:
    """Yield one anomaly for all rows with the same names, with the value and the evidence of the worst one."""
    for values, some in grouped(rows, itemgetter(*names)).items():
        value, evidence = worst(some)
        yield dict(zip(names, values, strict=True)) | {
            "kind": kind,
            "first_ms": min(row[first_ms] for row in some),
            "last_ms": max(row[last_ms] for row in some),
            "count": len(some),
            "value": value,
            "evidence": evidence,
        }


def _commit_storms(minutes: pa.Table, limits: Thresholds) -> Iterator[Row]:
    storms = (
        row
        for row in minutes.to_pylist()
        if row["commits"] > max(limits.storm_commits, row["partitions"] * limits.commits_per_minute)
    )

    def worst(busy: list[Row]) -> tuple[int, str]:
        # Of minutes with equally many commits the one with most partitions wins, so that results repeat.
        value, partitions_of = max((row["commits"], row["partitions"]) for row in busy)
        return value, f"{value:,} commits of {partitions_of:,} partitions in a minute"

    return _gathered(COMMIT_STORM, storms, _OF_GROUP, worst)


def _moment(row: Row) -> int | None:
    at_ms: int | None = row["started_ms"] if row["ended_ms"] is None else row["ended_ms"]
    return at_ms


def _peaks(
    events: Iterable[tuple[tuple[Any, ...], int, int]],
    names: Sequence[str],
    window_ms: int,
    value_min: int,
    *,
    is_both: bool,
) -> Iterator[Row]:
    for some in grouped(events, lambda event: event[0][1:]).values():
        some.sort(key=itemgetter(1))
        times = [at_ms for _, at_ms, _ in some]
        ones = [0, *accumulate(sign for _, _, sign in some)]
        for of, at_ms, _ in some:
            first, end = bisect_left(times, at_ms - window_ms), bisect_right(times, at_ms)
            count, count_ones = end - first, ones[end] - ones[first]
            value = min(count_ones, count - count_ones) if is_both else count
            if value >= value_min:
                yield dict(zip(names, of, strict=True)) | {"first_ms": times[first], "last_ms": at_ms, "value": value}


def _rebalance_storms(rebalances: Iterable[Row], limits: Thresholds) -> Iterator[Row]:
    events = []
    for row in rebalances:
        at_ms, before, after = _moment(row), row["from_generation"], row["to_generation"]
        # Excludes replaced static members, which keep the generation.
        if at_ms is not None and (before is None or (after is not None and before < after)):
            events.append(((row["log_partition"], row["group_id"]), at_ms, 1))

    def worst(some: list[Row]) -> tuple[int, str]:
        value = max(row["value"] for row in some)
        return value, f"{value:,} rebalances within {format_limit(limits.rebalance_window_ms)}"

    peaks = _peaks(events, _OF_GROUP, limits.rebalance_window_ms, limits.rebalances, is_both=False)
    return _gathered(REBALANCE_STORM, peaks, _OF_GROUP, worst)


def _flapping_members(rebalances: Iterable[Row], limits: Thresholds) -> Iterator[Row]:
    """Return clients that often left and joined; the smaller of both numbers counts."""
    events = []
    for row in rebalances:
        at_ms = _moment(row)
        if at_ms is not None:
            place = (row["log_partition"], row["group_id"])
            events += [((*place, client), at_ms, 1) for client in row["joined_clients"] or ()]
            events += [((*place, client), at_ms, 0) for client in row["left_clients"] or ()]

    def worst(some: list[Row]) -> tuple[int, str]:
        value, client = max(row["value"] for row in some), some[0]["client_id"]
        name = "null" if client is None else client
        return value, f"{name} left and joined {value:,} times within {format_limit(limits.rebalance_window_ms)}"

    peaks = _peaks(events, _OF_CLIENT, limits.rebalance_window_ms, limits.comebacks, is_both=True)
    return _gathered(FLAPPING_MEMBER, peaks, _OF_CLIENT, worst)


def _duplicate_owners(duplicates: Iterable[Row]) -> Iterator[Row]:
    def worst(some: list[Row]) -> tuple[int, str]:
        first = min(some, key=lambda row: row["log_offset"])
        owners = f"in generation {first['generation']} by {', '.join(first['member_ids'])}"
        return max(len(row["member_ids"]) for row in some), owners

    return _gathered(DUPLICATE_OWNER, duplicates, _OF_PARTITION, worst, "log_timestamp_ms", "log_timestamp_ms")


def _slow_revocations(revocations: Iterable[Row], now_ms: int | None, limits: Thresholds) -> Iterator[Row]:
    """Return clients with slow revocations, except those fenced for it."""
    slow = []
    for row in revocations:
        until_ms = now_ms if row["ended_ms"] is None else row["ended_ms"]
        if row["end"] != REBALANCE_TIMEOUT and until_ms is not None and row["asked_ms"] is not None:
            took_ms = until_ms - row["asked_ms"]
            if took_ms >= limits.revocation_ms:
                slow.append(row | {"until_ms": until_ms, "value": took_ms})

    def worst(some: list[Row]) -> tuple[int, str]:
        value, partitions = max((row["value"], row["partition_count"]) for row in some)
        return value, f"{some[0]['client_id']} took {value // 1_000:,} s to give up {partitions:,} partitions"

    return _gathered(SLOW_REVOCATION, slow, _OF_CLIENT, worst, "asked_ms", "until_ms")


def _fenced_members(memberships: Iterable[Row]) -> Iterator[Row]:
    fenced = (row for row in memberships if row["end"] == REBALANCE_TIMEOUT)

    def worst(some: list[Row]) -> tuple[None, str]:
        return None, max((row["ended_ms"], row["evidence"]) for row in some)[1]

    return _gathered(FENCED_MEMBER, fenced, _OF_CLIENT, worst, "ended_ms", "ended_ms")


_PLACE = ("group_id", "topic", "topic_partition")
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_BOUNDS = ("first_ms", "last_ms", "lowest", "highest")
_LAST: dict[str, Figure] = {
    "first_ms": ("log_timestamp_ms", "min"),
    "last_ms": ("log_timestamp_ms", "max"),
    "count": ([], "count_all"),
    "lowest": ("committed_offset", "min"),
    "highest": ("committed_offset", "max"),
    "is_gone": ("tombstone", "any"),
}


def _about_offsets(
    facts: CommitFacts, holders: Mapping[Place, Row], ends: Ends | None, now_ms: int | None, limits: Thresholds
) -> Iterator[Row]:
    if now_ms is None:
        return
    commits = _last_commits(facts, limits)
    rewinds = {tuple(row[name] for name in PARTITION): row for row in facts.rewinds.to_pylist()}
    commit = "new offset" if facts.are_samples else "commit"
    for found in _silent_or_back(commits, rewinds, now_ms):
        of = {name: found[name] for name in PARTITION}
        place: Place = itemgetter(*_PLACE)(found)
        if (rewound := rewinds.get(tuple(of.values()))) is not None:
            yield of | _rewind(rewound)
        if not found["is_gone"] and known_offset(found["highest"]) is not None:
            behind = None if ends is None else ends.of(*place[1:], found["highest"])
            silence = _silence(found, behind, holders.get(place), now_ms, limits, commit)
            yield from (of | row for row in silence)
    if ends is not None:
        committed = commits.filter(pc.not_equal(commits["highest"], NO_OFFSET)).select(_PLACE).to_pylist()
        yield from _never_committed({tuple(row.values()) for row in committed}, holders, ends, now_ms, limits)


def _last_commits(facts: CommitFacts, limits: Thresholds) -> pa.Table:
    """Return figures of the last commits of each partition; ``lowest`` is above ``highest`` if all are tombstones."""
    runs = Runs(facts.last, PARTITION)
    last = pa.array(runs.order[runs.from_end() <= limits.window_commits])
    found = aggregated(facts.last.take(last), PARTITION, _LAST, use_threads=False)
    for name, unknown in (("lowest", _MOST), ("highest", _LEAST)):
        found = found.set_column(found.column_names.index(name), name, pc.fill_null(found[name], unknown))
    return found


def _silent_or_back(commits: pa.Table, rewinds: Mapping[tuple[Any, ...], Row], now_ms: int) -> list[Row]:
    first_ms, last_ms, lowest, highest = (
        integers(commits[name]) for name in ("first_ms", "last_ms", "lowest", "highest")
    )
    wanted = has_stopped(first_ms, last_ms, now_ms) | stands_still(lowest, highest)
    wanted &= ~flags(commits["is_gone"])
    if rewinds:
        wanted |= np.array([tuple(row.values()) in rewinds for row in commits.select(PARTITION).to_pylist()], np.bool_)
    found: list[Row] = commits.filter(pa.array(wanted)).to_pylist()
    return found


def _never_committed(
    committed: Collection[Place], holders: Mapping[Place, Row], ends: Ends, now_ms: int, limits: Thresholds
) -> Iterator[Row]:
    for place, holder in holders.items():
        since_ms, (_, topic, partition) = holder["since_ms"], place
        if place in committed or topic is None or holder["is_shared"] or since_ms is None:
            continue
        silent_ms, records = now_ms - since_ms, ends.records(topic, partition)
        if records and silent_ms >= limits.stopped_ms:
            had = f"{holder['client_id']} has had it for {silent_ms // 1_000:,} s"
            evidence = f"{had}, with {records:,} records, and no commit ever"
            of = (holder["log_partition"], *place)
            yield dict(zip(_OF_PARTITION, of, strict=True)) | {
                "kind": NEVER_COMMITTED,
                "client_id": holder["client_id"],
                **_lasting(since_ms, now_ms, 1, evidence),
            }


def _lasting(since_ms: int, now_ms: int, count: int, evidence: str) -> Row:
    value = now_ms - since_ms
    return {"first_ms": since_ms, "last_ms": now_ms, "count": count, "value": value, "evidence": evidence}


def _silence(
    found: Row, behind: Behind | None, holder: Row | None, now_ms: int, limits: Thresholds, commit: str
) -> Iterator[Row]:
    """Yield that commits stopped, or that they stay at one offset in spite of a lag."""
    lag = None if behind is None else behind.lag
    if behind is None:
        is_wanted = holder is not None and holder["member_id"] is not None
    else:
        is_wanted = lag is not None and lag > 0 and not behind.was_at_end
    silent_ms, count = now_ms - found["last_ms"], found["count"]
    is_silent = has_stopped(found["first_ms"], found["last_ms"], now_ms) and silent_ms >= limits.stopped_ms
    figures = {name: found[name] for name in ("first_ms", "last_ms", "count")}
    if is_silent and is_wanted and count > 1:
        backlog = "" if lag is None else f", {lag:,} records behind"
        evidence = f"no {commit} for {silent_ms // 1_000:,} s{backlog}"
        yield {"kind": COMMITS_STOPPED, "status": STOP, **figures, "value": silent_ms, "evidence": evidence}
    is_same = stands_still(found["lowest"], found["highest"]) and count >= limits.window_commits
    if is_same and lag is not None and lag > 0 and not is_silent:
        evidence = f"{count:,} commits of offset {found['highest']:,}, {lag:,} records behind"
        yield {"kind": STALLED, "status": STALL, **figures, "value": lag, "evidence": evidence}


def _rewind(rewinds: Row) -> Row:
    evidence = f"back by {rewinds['by']:,} to {rewinds['to']:,}"
    figures = {name: rewinds[name] for name in ("first_ms", "last_ms", "count")}
    return {"kind": OFFSET_REWIND, "status": REWIND, **figures, "value": rewinds["by"], "evidence": evidence}


MS_PER_S = 1_000


class Share(NamedTuple):
    """Partitions or tasks of a member at the end of the log; ``unnamed`` counts those with unknown topic names."""

    member_id: str
    client_id: str | None
    partitions: int
    unnamed: int


class Shares(NamedTuple):
    """Partitions of a group's members at the end of the log.

    Attributes:
        since_ms: start of the generation or epoch; None if unknown.
        uneven_since_ms: start of the uneven generations at the end; None if the last one is even.
    """

    of: Row
    type: str
    members: tuple[Share, ...]
    since_ms: int | None
    uneven_since_ms: int | None


class Assigned(NamedTuple):
    """Assignments at the end of the log: owners of partitions, and the members' shares of each group."""

    holders: Mapping[Place, Row]
    shares: list[Shares]


def assigned(found: Histories, limits: Thresholds | None = None) -> Assigned:
    """Return the assignments at the end of the log."""
    group_of = itemgetter("log_partition", "group_id")
    by_group = grouped(found[MEMBER], group_of)
    started_ms = {
        (row["log_partition"], row["group_id"], row["type"], row["to_generation"]): row["started_ms"]
        for row in found[REBALANCE]
    }
    of_groups = [
        _shares(group, by_group.get(group_of(group), []), started_ms, limits or Thresholds()) for group in found[GROUP]
    ]
    return Assigned(partition_holders(found), [shares for shares in of_groups if shares is not None])


def _shares(
    group: Row, members: list[Row], started_ms: Mapping[tuple[Any, ...], int | None], limits: Thresholds
) -> Shares | None:
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
    """Return whether some have nothing and another has several times the mean, enough for two."""
    return min(counts) == 0 and max(counts) > 1 and max(counts) * len(counts) >= times * sum(counts)


# ---------------------------------------------------------------- anomalies of shares


def _about_shares(
    held: Assigned, facts: CommitFacts, now_ms: int | None, limits: Thresholds, *, has_ends: bool
) -> Iterator[Row]:
    if now_ms is None or not held.shares:
        return
    work = _Work(held.holders, facts, now_ms, limits)
    for shares in held.shares:
        yield from _group_never_committed(shares, work, now_ms, limits, has_ends=has_ends)
        uneven = list(_uneven(shares, work, now_ms, limits))
        yield from uneven or _idle(shares, now_ms, limits)


def _group_never_committed(
    shares: Shares, work: _Work, now_ms: int, limits: Thresholds, *, has_ends: bool
) -> Iterator[Row]:
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
        yield shares.of | {"kind": NEVER_COMMITTED, **_lasting(shares.since_ms, now_ms, sum(counts), evidence)}


def _uneven(shares: Shares, work: _Work, now_ms: int, limits: Thresholds) -> Iterator[Row]:
    """Yield that some members have no partitions, or no work, while another has several times the mean."""
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
    yield shares.of | {"kind": UNEVEN_SHARES, **_lasting(since_ms, now_ms, without, evidence)}


def _idle(shares: Shares, now_ms: int, limits: Thresholds) -> Iterator[Row]:
    idle = sum(not one.partitions for one in shares.members)
    partitions = sum(one.partitions for one in shares.members)
    is_shared = shares.type in (SHARE, STREAMS)  # members share partitions, or have copies of tasks
    if is_shared or not 0 < partitions < len(shares.members) or shares.since_ms is None:
        return
    idle_ms = now_ms - shares.since_ms
    if idle_ms >= limits.uneven_ms:
        evidence = (
            f"{idle:,} of {len(shares.members):,} members have had no partition for {idle_ms // MS_PER_S:,} s, "
            f"there are {partitions:,} for all"
        )
        yield shares.of | {"kind": IDLE_MEMBERS, **_lasting(shares.since_ms, now_ms, idle, evidence)}


class _Work:
    """Records committed by members; ``committed`` has the groups with a known commit."""

    def __init__(self, holders: Mapping[Place, Row], facts: CommitFacts, now_ms: int, limits: Thresholds) -> None:
        self._limits = limits
        self.committed: set[str] = set(pc.unique(facts.last["group_id"]).to_pylist())
        going = _going(facts, now_ms, limits)
        self._of_members: dict[tuple[str, str], list[_Going | None]] = {}
        for place, holder in holders.items():
            self._of_members.setdefault((place[0], holder["member_id"]), []).append(going.get(place))

    def rates(self, shares: Shares) -> list[float]:
        """Return the records per millisecond of each member."""
        return [sum(one.rate for one in some if one is not None) for some in self._partitions(shares)]

    def uneven_since_ms(self, shares: Shares) -> int | None:
        """Return the start of uneven work; None if it is even, or too little to be significant."""
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
    """Progress of a partition in its last commits.

    Attributes:
        rate: records per millisecond; 0 if commits stand still.
        idle_since_ms: start of the standstill; None while offsets increase.
    """

    records: int
    rate: float
    idle_since_ms: int | None


def _going(facts: CommitFacts, now_ms: int, limits: Thresholds) -> dict[Place, _Going]:
    found = _last_commits(facts, limits)
    going = {}
    columns = (found[name].to_pylist() for name in (*_PLACE, *_BOUNDS))
    for *place, first_ms, last_ms, lowest, highest in zip(*columns, strict=True):
        if lowest <= highest:
            is_silent = now_ms - last_ms >= limits.stopped_ms
            idle_since_ms = first_ms if lowest == highest else last_ms if is_silent else None
            rate = 0.0 if idle_since_ms is not None else (highest - lowest) / max(now_ms - first_ms, 1)
            going[tuple(place)] = _Going(highest - lowest, rate, idle_since_ms)
    return going
