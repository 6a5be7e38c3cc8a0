"""Content of a report: rows of bounded size and number. It needs the base install only.

Times are milliseconds since 1970, None if unknown. Long lists and texts are truncated to the limits below, and counted
in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import asdict, frozen

FINE, WARNING, BAD = "fine", "warning", "bad"
SEVERITIES = (FINE, WARNING, BAD)
"""Bad groups do not process records or process them twice; warnings are possible causes."""

MEMBERS_SHOWN_MAX = 8
PARTITIONS_OF_MEMBER_MAX = 3


@frozen
class Standing:
    """Status of a group in the report.

    Attributes:
        word: the lag status, or the kind of its worst anomaly; empty if all is well.
        told: the same as a sentence; empty if all is well.
        lag: lag in all partitions; None if unknown.
        lag_ms: age of the oldest next record; None if unknown.
    """

    severity: str = FINE
    word: str = ""
    told: str = ""
    lag: int | None = None
    lag_ms: int | None = None

    @property
    def is_fine(self) -> bool:
        return self.severity == FINE


UNTROUBLED = Standing()


@frozen
class PartitionShare:
    """A partition in the list of a member; ``commits`` counts those of any member."""

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
    """A member at the end of the log, with its partitions of largest lag; ``client_id`` is None without an owner."""

    client_id: str | None
    client_host: str | None
    partition_count: int
    commits: int
    lag: int | None
    partitions: tuple[PartitionShare, ...]


@frozen
class ShareGroupRow:
    """Deliveries of a topic to a share group.

    Attributes:
        waiting: records that were released, or are acquired; ``delivered_max`` is their maximum delivery count.
        redeliveries: deliveries after the first.
        given_up: records that were rejected, or delivered too often.
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
"""Version of ``summary.json``; it grows when a name there changes its meaning or goes away."""

ANOMALY_POINTS = 5
EXPIRY_POINTS = 3
"""Points of a rebalance that an expired, departed or fenced member caused. Another rebalance has one, an anomaly
:data:`ANOMALY_POINTS`.
"""

BINS_MAX = 96
BINS_OF_GROUP_MAX = 48
GROUPS_MAX = 300
TROUBLED_MAX = 10
CHURNING_MAX = 10
REBALANCES_OF_GROUP_MAX = 100
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
"""States of groups in drawing order; others follow."""


@frozen
class Bins:
    """Counts over time by name, in bins of one width."""

    start_ms: int
    width_ms: int
    length: int
    series: Mapping[str, tuple[int, ...]]

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.width_ms * self.length

    def total(self, name: str) -> int:
        return sum(self.series.get(name, ()))


def bin_width_ms(span_ms: int, bins_max: int = BINS_MAX) -> int:
    for width_ms in _WIDTHS_MS:
        if span_ms // width_ms + 2 <= bins_max:
            return width_ms
    weeks = span_ms // ((bins_max - 2) * _WIDTHS_MS[-1]) + 1
    return weeks * _WIDTHS_MS[-1]


def bins_of(first_ms: int, last_ms: int, counts: Mapping[str, Mapping[int, int]], width_ms: int) -> Bins:
    """Return bins from counts by name and bin number since 1970."""
    start, end = first_ms // width_ms, last_ms // width_ms
    series = {
        name: tuple(found.get(place, 0) for place in range(start, end + 1)) for name, found in sorted(counts.items())
    }
    return Bins(start * width_ms, width_ms, end - start + 1, series)


@frozen
class Overview:
    """Totals of the log and its groups."""

    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    records: int = 0
    size_bytes: int = 0
    log_partitions: int = 0
    groups: int = 0
    members: int = 0
    current_offsets: int = 0
    rebalances: int = 0
    anomalies: int = 0
    corrupt_ranges: int = 0
    corrupt_bytes: int = 0


@frozen
class StateCount:
    """Groups of one type in one state."""

    type: str
    state: str
    groups: int
    members: int


@frozen
class CauseCount:
    """Rebalances of one cause."""

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
        trouble: points (:data:`EXPIRY_POINTS`).
        state: as a coordinator describes it; None if the group does not exist any more.
        generation: generation of a classic group, epoch of another.
        rebalancing_ms: known duration of all its rebalances.
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
    """One rebalance; ``joined`` and ``left`` count members."""

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
    """One anomaly; ``subject`` is its topic partition or client, or empty."""

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
    """Number of anomalies of one kind, and of their groups."""

    kind: str
    status: str
    count: int
    groups: int
    first_ms: int | None
    last_ms: int | None
    severity: str = WARNING


@frozen
class EpochPoint:
    """Group epoch, epoch of the target assignment and lowest member epoch, from one time on."""

    at_ms: int
    group: int
    target: int
    lowest: int | None


@frozen
class ConsumerGroupRow:
    """A KIP-848 group.

    Attributes:
        epochs: number of epochs in the log.
        members_seen: number of memberships.
        fenced: number of members that certainly exceeded a timeout.
        moved: number of partitions that moved from an owner; ``swapped`` counts unnecessary moves.
        unowned_ms: longest time without an owner.
        median_ms: median duration of revocations; ``slowest_ms`` is the longest.
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
    """Moves of one assignor in all groups.

    Attributes:
        assignor: its name; empty for the brokers' default.
        targets: number of target assignments with moves.
        median_ms: median time until the new owner had the partition.
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
    """Revocations of a client of a consumer group; ``asked_ms`` is the start of the longest one."""

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
    """Details of one of the worst groups.

    Attributes:
        rebalances: the last ones, oldest first.
        members: number of members over time.
        anomalies: the first ones.
        commits: commits over time, in common bins: series ``commits`` and ``tombstones``.
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
    """Load of one log partition."""

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
    """A group with expiring offsets; ``group_ms`` is its deletion time, None if kept."""

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
    """Lag of a group in a topic."""

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
    """Number of partitions with a lag status, and of their groups."""

    status: str
    partitions: int
    groups: int
    severity: str = FINE


@frozen
class ReadCount:
    """Number of rows of one kind; ``problem`` is the reason why they were not decoded, or empty."""

    what: str
    problem: str
    count: int
    size_bytes: int


@frozen
class CorruptRange:
    """Bytes that were skipped."""

    file: str
    position: int
    size_bytes: int
    reason: str
    first_offset: int | None
    end_offset: int | None


@frozen
class Verification:
    """Comparison of the tables with coordinators that loaded the log; ``differences`` has the first ones."""

    groups: int | None
    difference_count: int
    differences: tuple[str, ...]


@frozen
class Polls:
    """Polls of a cluster, instead of a log; ``problems`` has the first gaps of the last poll."""

    count: int
    first_ms: int
    last_ms: int
    problem_count: int
    problems: tuple[str, ...]


@frozen
class Report:
    """Content of the page. Lists are truncated, worst first; totals in the overview are not.

    Attributes:
        rebalances: over time, by cause.
        churn: members that ``joined`` and ``left``, over time.
        severities: number of groups by severity.
        tables: number of rows by table.
        is_retention_told: the brokers returned the retention; otherwise it is Kafka's default.
        polls: None if a log was read.
        excluded_groups: the expressions of excluded groups.
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
    """Return the content of ``summary.json``, named as the classes of this module."""
    return {"format_version": FORMAT_VERSION, **asdict(report)}
