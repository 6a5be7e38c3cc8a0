"""What is wrong with groups, and which lose their offsets for want of use, by the functions of
:mod:`groupcoord.analysis.rules`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from groupcoord.analysis.decode.schema import CURRENT_OFFSETS, arrow_schema
from groupcoord.analysis.fold.history.rows import DUPLICATE, GROUP, MEMBER, MEMBERSHIP, REBALANCE, REVOCATION
from groupcoord.analysis.rules import groups as rules
from groupcoord.analysis.rules.anomalies import about_groups
from groupcoord.analysis.rules.assignment_balance import assigned
from groupcoord.analysis.rules.groups import groups
from groupcoord.analysis.rules.stopped_commits import about_offsets
from groupcoord.analysis.rules.thresholds import OFFSETS_RETENTION_MINUTES, Thresholds
from groupcoord.spark.grouped_udf import BY_GROUP, BY_PARTITION, Bucket, Row, judged, packed, packed_blobs
from groupcoord.spark.groups import History, history_of
from groupcoord.spark.lag import known_commits, known_end_offsets, known_ends, known_holders, packed_holders
from groupcoord.spark.schemas import ANOMALIES, OFFSET_EXPIRY, STALE_GROUPS
from groupcoord.spark.tables import BUSY, CURRENT, LAST, REWOUND, current_offsets, facts_of, last_moment

_CURRENT = pa.schema([arrow_schema(CURRENT_OFFSETS).field(name) for name in rules.OFFSET_COLUMNS])
_JUDGED = (GROUP, MEMBER, REBALANCE, DUPLICATE, REVOCATION, MEMBERSHIP)


def anomalies(
    records: DataFrame,
    *,
    history: DataFrame | History | None = None,
    commits: DataFrame | None = None,
    end_offsets: DataFrame | None = None,
    end_offset_samples: DataFrame | None = None,
    now_ms: int | None = None,
    thresholds: Thresholds | None = None,
) -> DataFrame:
    """Return what is wrong with groups (:data:`groupcoord.spark.schemas.ANOMALIES`).

    The rules are those of :func:`groupcoord.analysis.rules.anomalies.anomalies`.

    Args:
        records: the table of records.
        history: what :func:`groupcoord.spark.history` makes of it, if it is there already.
        commits: what :func:`groupcoord.spark.commits` makes of it, likewise.
        end_offsets: :data:`groupcoord.spark.schemas.END_OFFSETS`.
        end_offset_samples: as for :func:`groupcoord.spark.lag`: commits have not stopped where the group was at the end
            of late.
        now_ms: the moment to judge from; the last timestamp of the records if left out.
        thresholds: what is too much.
    """
    limits = thresholds or Thresholds()
    folded = history_of(records if history is None else history)
    facts = facts_of(records if commits is None else commits, limits)
    now = _now(records, now_ms)
    of_groups = [packed(kind, folded.rows(kind), BY_GROUP) for kind in _JUDGED]
    of_groups.append(packed_blobs(facts, [BUSY, LAST], BY_GROUP))
    of_offsets = [packed_blobs(facts, [LAST, REWOUND], BY_PARTITION)]
    of_offsets.append(packed_holders(folded))
    has_ends = end_offsets is not None
    if end_offsets is not None:
        of_offsets += known_ends(end_offsets, end_offset_samples)

    def tell_of_groups(bucket: Bucket) -> list[Row]:
        found = {kind: bucket.rows(kind) for kind in _JUDGED}
        held = assigned(found, limits)
        return about_groups(found, known_commits(bucket), held, bucket.now_ms, limits, has_ends=has_ends)

    def tell_of_offsets(bucket: Bucket) -> Iterator[Row]:
        ends = known_end_offsets(bucket) if has_ends else None
        return about_offsets(known_commits(bucket), known_holders(bucket), ends, bucket.now_ms, limits)

    return judged(of_groups, now, tell_of_groups, ANOMALIES).unionByName(
        judged(of_offsets, now, tell_of_offsets, ANOMALIES)
    )


def _now(records: DataFrame, now_ms: int | None) -> DataFrame | int:
    """Return the moment to judge from, or one row with it."""
    return last_moment(records) if now_ms is None else now_ms


def stale_groups(
    records: DataFrame,
    *,
    history: DataFrame | History | None = None,
    commits: DataFrame | None = None,
    offsets: DataFrame | None = None,
    now_ms: int | None = None,
    offsets_retention_minutes: int = OFFSETS_RETENTION_MINUTES,
) -> DataFrame:
    """Return groups whose offsets expire if nobody uses them (:data:`groupcoord.spark.schemas.STALE_GROUPS`).

    The rules are those of :func:`groupcoord.analysis.rules.groups.stale_groups`.

    Args:
        records: the table of records.
        history: what :func:`groupcoord.spark.history` makes of it, if it is there already.
        commits: what :func:`groupcoord.spark.commits` makes of it, likewise.
        offsets: what :func:`groupcoord.spark.current_offsets` makes of it, likewise.
        now_ms: the moment to judge from; the last timestamp of the records if left out.
        offsets_retention_minutes: ``offsets.retention.minutes`` of the brokers.
    """
    tables = _packed_offsets(records, history, commits, offsets)

    def tell(bucket: Bucket) -> list[Row]:
        described, expiry = _expiry(bucket, offsets_retention_minutes)
        return rules.stale_groups(described, expiry, known_commits(bucket), bucket.now_ms)

    return judged(tables, _now(records, now_ms), tell, STALE_GROUPS)


def offset_expiry(
    records: DataFrame,
    *,
    history: DataFrame | History | None = None,
    commits: DataFrame | None = None,
    offsets: DataFrame | None = None,
    offsets_retention_minutes: int = OFFSETS_RETENTION_MINUTES,
) -> DataFrame:
    """Return when each current offset expires (:data:`groupcoord.spark.schemas.OFFSET_EXPIRY`).

    The rules are those of :func:`groupcoord.analysis.rules.groups.offset_expiry`. The arguments are those of
    :func:`stale_groups`.
    """

    def tell(bucket: Bucket) -> list[Row]:
        return _expiry(bucket, offsets_retention_minutes)[1]

    return judged(_packed_offsets(records, history, commits, offsets), None, tell, OFFSET_EXPIRY)


def _packed_offsets(
    records: DataFrame, history: DataFrame | History | None, commits: DataFrame | None, offsets: DataFrame | None
) -> list[DataFrame]:
    facts = facts_of(records if commits is None else commits)
    current = current_offsets(records if commits is None else commits) if offsets is None else offsets
    of_groups = history_of(records if history is None else history).rows(GROUP)
    tables = [packed(GROUP, of_groups, BY_GROUP), packed(CURRENT, current.select(*_CURRENT.names), BY_GROUP)]
    return [*tables, packed_blobs(facts, [LAST], BY_GROUP)]


def _expiry(bucket: Bucket, offsets_retention_minutes: int) -> tuple[list[Row], list[Row]]:
    """Return rows of the tables ``groups`` and ``offset_expiry``."""
    kept = bucket.table(CURRENT, _CURRENT)
    described = groups({GROUP: bucket.rows(GROUP)}, kept)
    return described, rules.offset_expiry(described, kept, known_commits(bucket), offsets_retention_minutes)
