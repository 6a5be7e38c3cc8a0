"""The tables about groups that are made of others as a whole: judged, and written."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from groupcoord.analysis.fold.commits import CommitFacts
from groupcoord.analysis.fold.history import DUPLICATE, GROUP, MEMBERSHIP, REBALANCE, REVOCATION
from groupcoord.analysis.options import OFFSETS_RETENTION_MINUTES
from groupcoord.analysis.rules.anomalies import anomalies
from groupcoord.analysis.rules.assignment_balance import Assigned, assigned
from groupcoord.analysis.rules.groups import Histories, groups, offset_expiry, stale_groups
from groupcoord.analysis.rules.lag import Ends, lag
from groupcoord.analysis.tables import TableFiles

JUDGED = (GROUP, REBALANCE, DUPLICATE, REVOCATION, MEMBERSHIP)
"""Kinds of a history's rows that are needed, besides those of members."""

HISTORY_ROWS_MAX = 50_000
"""So many rows of each table of histories are kept, the newest, where logs are followed or groups polled."""

SAMPLES_MAX = 200_000
"""So many answers where partitions end are kept."""


@frozen
class Known:
    """What is known of some groups.

    Attributes:
        facts: of commits.
        current: the table of current offsets.
        histories: what is judged of them.
        held: who has what.
    """

    facts: CommitFacts
    current: pa.Table
    histories: Histories
    held: Assigned

    @classmethod
    def of(cls, facts: CommitFacts, rows: Histories) -> Known:
        """Return what is known by the facts of commits and the rows of the history."""
        return cls(facts, facts.current_offsets(), {kind: rows[kind] for kind in JUDGED}, assigned(rows))


class EndOffsetSamples:
    """What a cluster has answered where its topics end, look by look; the newest answers are kept."""

    def __init__(self) -> None:
        self._kept: deque[pa.Table] = deque()

    def take(self, told: pa.Table) -> Ends:
        """Return where topics end, by an answer (:data:`groupcoord.analysis.decode.schema.LIVE_END_OFFSETS`)."""
        self._kept.append(told)
        while len(self._kept) > 1 and sum(one.num_rows for one in self._kept) > SAMPLES_MAX:
            self._kept.popleft()
        return Ends(told, self.table())

    def table(self) -> pa.Table:
        """Return all answers that are kept."""
        return pa.concat_tables(self._kept)


def topics_of(known: Sequence[Known]) -> list[str]:
    """Return the topics of which something is committed, or that members have."""
    topics = {topic: None for one in known for topic in pc.unique(one.current["topic"]).to_pylist()}
    held = {topic: None for one in known for _, topic, _ in one.held.holders if topic is not None}
    return list(topics | held)


def write_groups(
    known: Sequence[Known], ends: Ends | None, files: TableFiles, now_ms: int | None, retention_minutes: int | None
) -> None:
    """Write the groups, what is wrong with them, and what they lose for want of use."""
    with files.growing(["groups", "anomalies", "offset_expiry", "stale_groups"]) as add:
        for one in known:
            described = groups(one.histories, one.current)
            kept_minutes = retention_minutes or OFFSETS_RETENTION_MINUTES
            add("groups", described)
            add("anomalies", anomalies(one.histories, one.facts, one.held, ends, now_ms))
            expiry = offset_expiry(described, one.current, one.facts, kept_minutes)
            add("offset_expiry", expiry)
            add("stale_groups", stale_groups(described, expiry, one.facts, now_ms))


def write_lag(
    known: Sequence[Known],
    ends: Ends,
    times: Sequence[Mapping[str, Any]],
    files: TableFiles,
    now_ms: int | None,
    read_ms: int,
) -> None:
    """Write how far groups are behind; see :func:`groupcoord.analysis.rules.lag.lag`."""
    with files.growing(["lag"]) as add:
        for one in known:
            members = {row["group_id"]: row["member_count"] for row in one.histories[GROUP]}
            add("lag", lag(one.current, ends, one.facts.counted(), one.held.holders, now_ms, times, read_ms, members))
