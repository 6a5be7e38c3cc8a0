"""What counts as an anomaly of a group: its kinds, Burrow's words for them, and from where on they are told."""

from __future__ import annotations

from attrs import frozen

from groupcoord.analysis.rules.lag_status import WINDOW_COMMITS, LagStatus

OFFSET_REWIND, COMMITS_STOPPED, STALLED = "offset rewind", "commits stopped", "stalled"
COMMIT_STORM, REBALANCE_STORM = "commit storm", "rebalance storm"
FLAPPING_MEMBER, DUPLICATE_OWNER = "flapping member", "duplicate owner"
SLOW_REVOCATION, FENCED_MEMBER = "slow revocation", "fenced member"
NEVER_COMMITTED, UNEVEN_SHARES, IDLE_MEMBERS = "never committed", "uneven shares", "idle members"

BROKEN_KINDS = (COMMITS_STOPPED, STALLED, NEVER_COMMITTED, OFFSET_REWIND, DUPLICATE_OWNER)
"""Kinds with which records are not processed, or more than once; the worst first."""

WORST_FIRST = (
    *(*BROKEN_KINDS, FENCED_MEMBER, FLAPPING_MEMBER, SLOW_REVOCATION),
    *(REBALANCE_STORM, UNEVEN_SHARES, IDLE_MEMBERS, COMMIT_STORM),
)
"""All kinds; what is the cause comes before what follows from it."""

REWIND, STOP, STALL = LagStatus.REWIND.name, LagStatus.STOP.name, LagStatus.STALL.name

OFFSETS_RETENTION_MINUTES = 10_080


@frozen
class Thresholds:
    """From where on something is an anomaly.

    Attributes:
        window_commits: how many of a partition's last commits are looked at, as Burrow's ``intervals``.
        stopped_ms: how long a partition of a live group goes without a commit at least before its commits have stopped,
            or a member has a partition that was never committed.
        commits_per_minute: of one partition, on average over a group's partitions: more is a storm.
        storm_commits: a group's commits in a minute that are no storm, however few partitions they are of.
        rebalances: so many within ``rebalance_window_ms`` are a storm.
        rebalance_window_ms: see there; for flapping members too.
        comebacks: a client that left and joined so many times in that window flaps.
        revocation_ms: a member of a consumer group that takes so long to give partitions up is slow.
        uneven_times: members without partitions or work are told of if another has so many times the mean.
        uneven_ms: and if that is so for so long; likewise of members that are more than there are partitions.
        uneven_records: and, where it is work that they lack, if the last commits of all came to so many records.
    """

    window_commits: int = WINDOW_COMMITS
    stopped_ms: int = 300_000
    commits_per_minute: int = 60
    storm_commits: int = 600
    rebalances: int = 5
    rebalance_window_ms: int = 600_000
    comebacks: int = 3
    revocation_ms: int = 30_000
    uneven_times: float = 2.0
    uneven_ms: int = 300_000
    uneven_records: int = 1_000
