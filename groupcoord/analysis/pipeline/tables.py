"""Tables about groups: computed from folded groups, and written; the table of share-partitions; figures for metrics."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, field, frozen

from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.decode.schema import KIND_RECORD
from groupcoord.analysis.errors import InputError, LogCutError
from groupcoord.analysis.fold.commits import CommitFacts
from groupcoord.analysis.fold.history import DUPLICATE, GROUP, MEMBERSHIP, REBALANCE, REVOCATION
from groupcoord.analysis.fold.history.rows import SHARE
from groupcoord.analysis.fold.history.share_partitions import SharePartitions
from groupcoord.analysis.options import OFFSETS_RETENTION_MINUTES
from groupcoord.analysis.pipeline.sources import Source, Tail, attempted
from groupcoord.analysis.rules.anomalies import Assigned, anomalies, assigned
from groupcoord.analysis.rules.groups import Histories, groups, offset_expiry, stale_groups
from groupcoord.analysis.rules.lag import Ends, lag
from groupcoord.analysis.tables import FinishedTables, TableFiles
from groupcoord.core.log.records import OpaqueRecord
from groupcoord.records.share_state import decode_share_state

JUDGED = (GROUP, REBALANCE, DUPLICATE, REVOCATION, MEMBERSHIP)
HISTORY_ROWS_MAX = 50_000
"""Number of newest rows kept of each history table when following logs or polling."""

SAMPLES_MAX = 200_000


@frozen
class Known:
    """Facts about some groups."""

    facts: CommitFacts
    current: pa.Table
    histories: Histories
    held: Assigned

    @classmethod
    def of(cls, facts: CommitFacts, rows: Histories) -> Known:
        return cls(facts, facts.current_offsets(), {kind: rows[kind] for kind in JUDGED}, assigned(rows))


class EndOffsetSamples:
    """The newest samples of a cluster's end offsets."""

    def __init__(self) -> None:
        self._kept: deque[pa.Table] = deque()

    def take(self, ends: pa.Table) -> Ends:
        """Add the end offsets of one request; return the present ends, with all samples."""
        self._kept.append(ends)
        while len(self._kept) > 1 and sum(one.num_rows for one in self._kept) > SAMPLES_MAX:
            self._kept.popleft()
        return Ends(ends, self.table())

    def table(self) -> pa.Table:
        return pa.concat_tables(self._kept)


def topics_of(known: Sequence[Known]) -> list[str]:
    topics = {topic: None for one in known for topic in pc.unique(one.current["topic"]).to_pylist()}
    held = {topic: None for one in known for _, topic, _ in one.held.holders if topic is not None}
    return list(topics | held)


def write_groups(
    known: Sequence[Known], ends: Ends | None, files: TableFiles, now_ms: int | None, retention_minutes: int | None
) -> None:
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
    with files.growing(["lag"]) as add:
        for one in known:
            members = {row["group_id"]: row["member_count"] for row in one.histories[GROUP]}
            add("lag", lag(one.current, ends, one.facts.counted(), one.held.holders, now_ms, times, read_ms, members))


SHARE_STATE_SETTINGS = RowSettings(("kind", "log_offset", "log_timestamp_ms", "key", "value"), raw_bytes=True)
"""Columns of ``__share_group_state``. Its records share only their framing with ``__consumer_offsets``."""


_TABLE = "share_partitions"


class ShareStates:
    """Reader of ``__share_group_state``."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._begin()

    def _begin(self) -> None:
        self._tail = Tail(self._source.share_states())
        self._logs: dict[int | None, SharePartitions] = {}
        self._next_offsets: dict[int | None, int] = {}

    def write(self, tables: FinishedTables) -> None:
        """Read new records, and write the table; nothing without the topic, or without permission."""
        try:
            attempted(self._read)
        except LogCutError:
            self._begin()  # the topic was recreated: read it with the next update
        except InputError:
            pass
        if self._logs:
            members = (row for row in tables.rows("members", ("type", "assignment")) if row["type"] == SHARE)
            assigned = (one for row in members for one in row["assignment"])
            names = {one["topic_id"]: one["topic"] for one in assigned if one["topic"] is not None}
            files = TableFiles(tables.results)
            excludes = self._source.selection.excludes
            found = (row for log in self._logs.values() for row in log.rows() if not excludes(row["group_id"]))
            files.write_rows(_TABLE, [row | {"topic": names.get(row["topic_id"])} for row in found])
            tables.counts |= files.counts

    def _read(self) -> None:
        for number, batches in self._tail.read(SHARE_STATE_SETTINGS):
            log = self._logs.setdefault(number, SharePartitions(number))
            for columns in (batch.columns for batch in batches):
                for kind, offset, at_ms, key, value in zip(*(column.to_pylist() for column in columns), strict=True):
                    # Rows may come again after a file changed.
                    if kind == KIND_RECORD and offset >= self._next_offsets.get(number, 0):
                        self._next_offsets[number] = offset + 1
                        record = decode_share_state(key or b"", value)
                        if not isinstance(record, OpaqueRecord):
                            log.add(offset, at_ms, record)


ROWS_MAX = 100_000
_OF_LAG = (
    *("group_id", "topic", "topic_partition", "committed_offset", "end_offset", "lag", "lag_ms", "status"),
    *("member_id", "client_id", "client_host"),
)

FigureRow = Mapping[str, Any]
RebalanceCounts = Mapping[tuple[str, str], int]


@frozen
class Figures:
    """Values for metrics.

    Attributes:
        seen_ms: when the input was listed, in milliseconds since 1970.
        rows: number of log rows; None without a log.
        rebalances: number by group and cause.
        anomalies: number by group and kind.
    """

    seen_ms: int
    rows: int | None = None
    lag: Sequence[FigureRow] | None = None
    groups: Sequence[FigureRow] = ()
    rebalances: RebalanceCounts = field(factory=dict)
    anomalies: Mapping[tuple[str, str], int] = field(factory=dict)


def figures_of(
    before: Figures | None, tables: FinishedTables, seen_ms: int, rows: int, earlier: RebalanceCounts | None = None
) -> Figures:
    found = evolve(before or Figures(seen_ms), seen_ms=seen_ms, rows=rows)
    if tables.has("lag"):
        found = evolve(
            found, lag=heapq.nlargest(ROWS_MAX, tables.rows("lag", _OF_LAG), key=lambda row: row["lag"] or 0)
        )
    if tables.has("groups"):
        counts = Counter(earlier or {})
        counts.update((row["group_id"], row["cause"]) for row in tables.rows("rebalances", ("group_id", "cause")))
        kinds = Counter((row["group_id"], row["kind"]) for row in tables.rows("anomalies", ("group_id", "kind")))
        described = list(tables.rows("groups", ("group_id", "type", "state", "member_count")))
        found = evolve(found, groups=described[:ROWS_MAX], rebalances=counts, anomalies=kinds)
    return found
