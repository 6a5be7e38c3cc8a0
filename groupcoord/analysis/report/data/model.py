"""What stands in a report: plain rows, none of them growing with the log. No Spark in here.

Times are milliseconds since 1970, None if nobody knows them. Everything that could be long is cut to the limits below
before it becomes a row, and what was left out is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import asdict, frozen

FINE, WARNING, BAD = "fine", "warning", "bad"
SEVERITIES = (FINE, WARNING, BAD)
"""Bad is a group of which records are not processed, or more than once; of a warning, that may come."""

MEMBERS_TOLD_MAX = 8
PARTITIONS_OF_MEMBER_MAX = 3


@frozen
class Standing:
    """How a group stands.

    Attributes:
        severity: one of :data:`SEVERITIES`.
        word: Burrow's status, or the kind of its worst anomaly; empty if all is well.
        told: its worst anomaly as a sentence; empty if all is well.
        lag: records behind in all partitions; None: that is not known.
        lag_ms: how old the oldest of the next records is, in milliseconds, as far as that can be told.
    """

    severity: str = FINE
    word: str = ""
    told: str = ""
    lag: int | None = None
    lag_ms: int | None = None

    @property
    def is_fine(self) -> bool:
        """Nothing is wrong with it."""
        return self.severity == FINE


UNTROUBLED = Standing()
"""How a group stands of which nothing bad is known."""


@frozen
class PartitionShare:
    """A partition that a member has, or nobody.

    Attributes:
        commits: of it, by whoever had it.
        last_commit_ms: when the last of them was.
        lag: records behind; None: that is not known.
        lag_ms: how old the next record is.
        status: Burrow's; empty: not known.
        severity: how bad that is.
    """

    topic: str
    partition: int
    commits: int = 0
    last_commit_ms: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    status: str = ""
    severity: str = FINE


@frozen
class MemberShare:
    """What a member has as the log ends.

    Attributes:
        client_id: what its client calls itself; None: nobody has these.
        client_host: where it connects from.
        partition_count: how many partitions it has.
        commits: of all of these.
        lag: in all of these; None: not known.
        partitions: the first of them, those that are furthest behind in front.
    """

    client_id: str | None
    client_host: str | None
    partition_count: int
    commits: int
    lag: int | None
    partitions: tuple[PartitionShare, ...]


@frozen
class ShareGroupRow:
    """What a share group's states tell of a topic.

    Attributes:
        partitions: of the topic, which have a state.
        waiting: records that were delivered and wait to be again, or are acquired by somebody.
        delivered_max: how often one of them was delivered; None: there are none.
        redeliveries: deliveries that were not the first.
        given_up: records that were rejected, or delivered too often.
        last_ms: when something changed last.
    """

    group_id: str
    topic: str
    partitions: int
    waiting: int
    delivered_max: int | None
    redeliveries: int
    given_up: int
    last_ms: int | None


FORMAT_VERSION = 1
"""Of ``summary.json``; it grows when a name there changes its meaning or goes away."""

ANOMALY_POINTS = 5
EXPIRY_POINTS = 3
"""A group's trouble is counted in points: so many for each anomaly, so many for each rebalance because a member expired
or left or was fenced, and one for each other."""

BINS_MAX = 96
BINS_OF_GROUP_MAX = 48
GROUPS_MAX = 300
TROUBLED_MAX = 10
WORST_MAX = 5
CHURNING_MAX = 10
REBALANCES_OF_GROUP_MAX = 100
REBALANCES_TOLD_MAX = 12
ANOMALIES_TOLD_MAX = 5
ANOMALIES_OF_GROUP_MAX = 12
ANOMALIES_MAX = 80
STALE_MAX = 50
LAGGING_MAX = 40
CORRUPT_MAX = 50
READ_COUNTS_MAX = 200
PARTITIONS_MAX = 200
DIFFERENCES_MAX = 50
CONSUMER_GROUPS_MAX = 20
ASSIGNORS_MAX = 20
SLOW_MEMBERS_MAX = 10
SHARE_GROUPS_MAX = 10
EPOCHS_OF_GROUP_MAX = 60
PROBLEMS_MAX = 50

_WIDTHS_MS = tuple(
    unit * step
    for unit, steps in (
        (1_000, (1, 2, 5, 10, 15, 30)),
        (60_000, (1, 2, 5, 10, 15, 30)),
        (3_600_000, (1, 2, 3, 6, 12)),
        (86_400_000, (1, 2, 7)),
    )
    for step in steps
)

STATES = ("Stable", "CompletingRebalance", "PreparingRebalance", "Reconciling", "Assigning", "Empty", "Dead")
"""States of groups in the order in which they are drawn; others come behind them."""


@frozen
class Bins:
    """Counts over time, in bins of the same width.

    Attributes:
        start_ms: where the first bin starts.
        width_ms: how long each is.
        length: how many there are.
        series: counts by name, as long as there are bins.
    """

    start_ms: int
    width_ms: int
    length: int
    series: Mapping[str, tuple[int, ...]]

    @property
    def end_ms(self) -> int:
        """Where the last bin ends."""
        return self.start_ms + self.width_ms * self.length

    def total(self, name: str) -> int:
        """Return the sum of one series."""
        return sum(self.series.get(name, ()))


def bin_width_ms(span_ms: int, bins_max: int = BINS_MAX) -> int:
    """Return a round width with which a span falls into at most so many bins, wherever it starts."""
    for width_ms in _WIDTHS_MS:
        if span_ms // width_ms + 2 <= bins_max:
            return width_ms
    weeks = span_ms // ((bins_max - 2) * _WIDTHS_MS[-1]) + 1
    return weeks * _WIDTHS_MS[-1]


def bins_of(first_ms: int, last_ms: int, counts: Mapping[str, Mapping[int, int]], width_ms: int) -> Bins:
    """Return bins from counts by name and number of the bin since 1970."""
    start, end = first_ms // width_ms, last_ms // width_ms
    series = {
        name: tuple(found.get(place, 0) for place in range(start, end + 1)) for name, found in sorted(counts.items())
    }
    return Bins(start * width_ms, width_ms, end - start + 1, series)


@frozen
class Overview:
    """The figures on top.

    Attributes:
        first_timestamp_ms: the oldest timestamp of a record.
        last_timestamp_ms: the newest.
        records: records and control records.
        size_bytes: of their keys and values.
        log_partitions: with anything in them.
        groups: that a coordinator would know.
        members: of those.
        current_offsets: committed offsets that are valid.
        rebalances: found.
        anomalies: found.
        corrupt_ranges: byte ranges that could not be read.
        corrupt_bytes: in them.
    """

    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    records: int
    size_bytes: int
    log_partitions: int
    groups: int
    members: int
    current_offsets: int
    rebalances: int
    anomalies: int
    corrupt_ranges: int
    corrupt_bytes: int


@frozen
class StateCount:
    """Groups of one type in one state."""

    type: str
    state: str
    groups: int
    members: int


@frozen
class CauseCount:
    """Rebalances of one cause.

    Attributes:
        cause: one of :data:`groupcoord.analysis.fold.history.causes.CAUSES`.
        rebalances: how many.
        proven: of how many the records prove the cause.
        confidence: the mean, from 0 to 1.
        groups: of how many groups.
        median_ms: how long they took, as far as that is known.
        longest_ms: the longest.
    """

    cause: str
    rebalances: int
    proven: int
    confidence: float
    groups: int
    median_ms: int | None
    longest_ms: int | None


@frozen
class GroupRow:
    """One group in a table.

    Attributes:
        trouble: points: see :data:`EXPIRY_POINTS`.
        standing: how bad that is, and what is worst.
        type: classic, consumer, …
        state: as a coordinator would answer; None if it would not know the group any more.
        generation: or the group's epoch.
        rebalancing_ms: how long its rebalances took together, as far as that is known.
        first_rebalance_ms: when its first known rebalance ended.
        last_rebalance_ms: and its last.
    """

    group_id: str
    trouble: int
    type: str | None = None
    state: str | None = None
    generation: int | None = None
    members: int | None = None
    rebalances: int = 0
    joined: int = 0
    left: int = 0
    partitions_moved: int = 0
    rebalancing_ms: int = 0
    first_rebalance_ms: int | None = None
    last_rebalance_ms: int | None = None
    anomalies: int = 0
    commits: int = 0
    last_commit_ms: int | None = None
    standing: Standing = UNTROUBLED


@frozen
class RebalanceRow:
    """One rebalance. ``joined`` and ``left`` count members; ``confidence`` is from 0 to 1."""

    group_id: str
    from_generation: int | None
    to_generation: int | None
    started_ms: int | None
    ended_ms: int | None
    cause: str
    confidence: float
    joined: int
    left: int
    partitions_moved: int | None
    evidence: str


@frozen
class AnomalyRow:
    """One finding.

    Attributes:
        kind: what it is, such as offset rewind.
        status: Burrow's word for it, or empty.
        subject: what in the group it is about: a topic's partition, a client, or nothing.
        first_ms: when it began.
        last_ms: when it was seen last.
        count: how often.
        evidence: in words.
    """

    group_id: str
    kind: str
    status: str
    subject: str
    first_ms: int | None
    last_ms: int | None
    count: int
    evidence: str


@frozen
class AnomalyCount:
    """Findings of one kind, how bad they are, and in how many groups."""

    kind: str
    status: str
    count: int
    groups: int
    first_ms: int | None
    last_ms: int | None
    severity: str = WARNING


@frozen
class EpochPoint:
    """The epochs of a consumer group from one moment on.

    Attributes:
        at_ms: the moment.
        group: the group's.
        target: of its target assignment.
        lowest: the lowest of its members; None if none has one.
    """

    at_ms: int
    group: int
    target: int
    lowest: int | None


@frozen
class ConsumerGroupRow:
    """A consumer group (KIP-848).

    Attributes:
        epoch: its last.
        epochs: how many the log shows.
        members_seen: how many members it had, one after the other.
        fenced: how many of them a time-out ended, as far as that is known for sure.
        moved: partitions that another member was given.
        swapped: how many of these without need.
        unowned_ms: the longest time in which nobody had a partition that moved.
        revocations: how often a member was told to give something up.
        median_ms: how long that took.
        slowest_ms: the longest time.
    """

    group_id: str
    epoch: int
    epochs: int
    members_seen: int
    fenced: int
    moved: int
    swapped: int
    unowned_ms: int | None
    revocations: int
    median_ms: int | None
    slowest_ms: int | None


@frozen
class AssignorRow:
    """What one assignor did in all consumer groups.

    Attributes:
        assignor: its name; empty: members left the choice to the brokers.
        groups: in how many groups.
        targets: target assignments that moved something.
        moved: partitions that another member was given.
        swapped: how many of these without need.
        median_ms: how long it took until the new owner had a partition.
        unowned_ms: the longest time in which nobody had one.
    """

    assignor: str
    groups: int
    targets: int
    moved: int
    swapped: int
    median_ms: int | None
    unowned_ms: int | None


@frozen
class SlowMemberRow:
    """A client of a consumer group that gave partitions up.

    Attributes:
        revocations: how often it was told to.
        median_ms: how long it took.
        slowest_ms: the longest time.
        asked_ms: when it was told to then.
        rebalance_timeout_ms: how long it may take.
        fenced: how often it took too long.
    """

    group_id: str
    client_id: str
    revocations: int
    median_ms: int | None
    slowest_ms: int
    asked_ms: int | None
    rebalance_timeout_ms: int
    fenced: int


@frozen
class GroupStory:
    """What is told of one of the most troubled groups.

    Attributes:
        row: its figures.
        causes: its rebalances by cause, all of them.
        rebalances: the newest of them, oldest first.
        members: from when on it had how many members, oldest first.
        anomalies: the first of them.
        commits: commits over time, in bins that all groups share: series ``commits`` and ``tombstones``.
        epochs: of a consumer group, oldest first; of very many, some all along.
        shares: who has what as the log ends.
    """

    row: GroupRow
    causes: Mapping[str, int]
    rebalances: tuple[RebalanceRow, ...]
    members: tuple[tuple[int, int], ...]
    anomalies: tuple[AnomalyRow, ...]
    commits: Bins | None
    epochs: tuple[EpochPoint, ...] = ()
    shares: tuple[MemberShare, ...] = ()


@frozen
class PartitionRow:
    """How loaded one log partition is."""

    log_partition: int | None
    records: int
    commits: int
    group_records: int
    tombstones: int
    size_bytes: int
    file_bytes: int | None
    groups: int
    hottest_group: str | None
    hottest_group_share: float | None
    superseded_records: int
    superseded_bytes: int


@frozen
class StaleRow:
    """A group that loses offsets if nobody uses it.

    Attributes:
        offsets: how many it has.
        expiring: how many of them expire if nothing changes.
        expired: how many are due already.
        next_ms: when the first of them expires.
        group_ms: when the group goes with the last of them; None if something keeps it.
    """

    group_id: str
    type: str
    state: str
    offsets: int
    expiring: int
    expired: int
    last_commit_ms: int | None
    next_ms: int | None
    group_ms: int | None


@frozen
class LagRow:
    """How far a group is behind in a topic.

    Attributes:
        partitions: of the topic, in which it is behind.
        lag: records, in all of them.
        worst: records, in the partition with most.
        lag_ms: how old the oldest of the next records is, as far as that can be told.
        status: Burrow's, the worst of these partitions; empty if it is not known.
        severity: how bad that is.
    """

    group_id: str
    topic: str
    partitions: int
    lag: int
    worst: int
    lag_ms: int | None = None
    status: str = ""
    severity: str = FINE


@frozen
class StatusCount:
    """How many partitions of groups have a status of Burrow's, in how many groups they are, and how bad it is."""

    status: str
    partitions: int
    groups: int
    severity: str = FINE


@frozen
class ReadCount:
    """How much was read of one kind.

    Attributes:
        what: record, control, corrupt or read, with the record's type.
        problem: why it was not understood, or empty.
    """

    what: str
    problem: str
    count: int
    size_bytes: int


@frozen
class CorruptRange:
    """Bytes that were passed over."""

    file: str
    position: int
    size_bytes: int
    reason: str
    first_offset: int | None
    end_offset: int | None


@frozen
class Verification:
    """What came of loading the log into coordinators and comparing their answers with the tables.

    Attributes:
        groups: how many groups were compared; None if not told.
        difference_count: in how many places they differ.
        differences: the first of them, in words.
    """

    groups: int | None
    difference_count: int
    differences: tuple[str, ...]


@frozen
class Polls:
    """What a report is made of if groups were asked for every so often, and their log was not read.

    Attributes:
        count: how often.
        first_ms: when the first time.
        last_ms: when the last time.
        problem_count: how much was not told the last time.
        problems: the first of it, in words.
    """

    count: int
    first_ms: int
    last_ms: int
    problem_count: int
    problems: tuple[str, ...]


@frozen
class Report:
    """Everything on the page. Lists are cut; ``counts`` in the overview are not.

    Attributes:
        title: what was analyzed.
        inputs: the paths.
        made_ms: when.
        version: of groupcoord.
        rebalances: by cause over time; the series are causes.
        churn: members that ``joined`` and ``left``, over time.
        churning: the groups with most of both.
        consumer_groups: those with fenced and slow members first.
        assignors: what they moved.
        slow_members: who took longest to give partitions up.
        share_groups: those with most records given up, then with most redeliveries, first.
        groups: the worst first.
        severities: how many groups stand how.
        troubled: stories of the first of those with which something is wrong.
        tables: names of the tables beside the report, and how many rows each has.
        retention_minutes: how long offsets are kept that nobody uses.
        is_retention_told: brokers say so; else it is Kafka's default.
        statuses: the worst first.
        polls: None if a log was read.
        missing: names of tables that were not made.
        excluded_groups: the expressions of groups that were left out.
    """

    title: str
    inputs: tuple[str, ...]
    made_ms: int
    version: str
    overview: Overview
    states: tuple[StateCount, ...] = ()
    causes: tuple[CauseCount, ...] = ()
    rebalances: Bins | None = None
    churn: Bins | None = None
    churning: tuple[GroupRow, ...] = ()
    consumer_groups: tuple[ConsumerGroupRow, ...] = ()
    assignors: tuple[AssignorRow, ...] = ()
    slow_members: tuple[SlowMemberRow, ...] = ()
    share_groups: tuple[ShareGroupRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    severities: Mapping[str, int] = {}
    troubled: tuple[GroupStory, ...] = ()
    partitions: tuple[PartitionRow, ...] = ()
    anomaly_counts: tuple[AnomalyCount, ...] = ()
    anomalies: tuple[AnomalyRow, ...] = ()
    stale_count: int = 0
    stale: tuple[StaleRow, ...] = ()
    retention_minutes: int = 10_080
    is_retention_told: bool = False
    lag: tuple[LagRow, ...] | None = None
    statuses: tuple[StatusCount, ...] = ()
    read: tuple[ReadCount, ...] = ()
    corrupt: tuple[CorruptRange, ...] = ()
    verification: Verification | None = None
    tables: Mapping[str, int] = {}
    polls: Polls | None = None
    excluded_groups: tuple[str, ...] = ()


def summary(report: Report) -> dict[str, Any]:
    """Return what ``summary.json`` holds: the figures of the page, under the names of this module's classes."""
    return {"format_version": FORMAT_VERSION, **asdict(report)}
