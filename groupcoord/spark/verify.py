"""The coordinator itself loads each group's records, and its answers are held against the tables.

A task holds one group's state and one Arrow batch, however hot the group (:mod:`groupcoord.analysis.fold.replay`).
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from groupcoord.analysis.decode.schema import CURRENT_OFFSETS, KIND_CONTROL, KIND_RECORD, arrow_schema
from groupcoord.analysis.fold import replay as replaying
from groupcoord.analysis.fold.history.rows import GENERATION, GROUP, MEMBER
from groupcoord.analysis.fold.replay import NO_PARTITION, REPLAYED, replay_batches
from groupcoord.analysis.rules.differences import differences, group_answers, offset_answers, unknown_groups
from groupcoord.spark.groups import History, history_of
from groupcoord.spark.packing import BY_GROUP, Bucket, Row, judged, packed
from groupcoord.spark.schemas import DIFFERENCES, declared
from groupcoord.spark.tables import CURRENT, current_offsets, is_offset_record

_ANSWERS = "answers"
_KEY = ("log_partition", "group_id")
_NEEDED = (*_KEY, *REPLAYED)
_OFFSET_KEY = ("group_id", "topic", "topic_partition", "tombstone")

ANSWERS = declared(replaying.ANSWERS)
"""What :func:`replay` gives."""


def verify(
    records: DataFrame, *, history: DataFrame | History | None = None, offsets: DataFrame | None = None
) -> DataFrame:
    """Return where the tables differ from the coordinator (:data:`groupcoord.spark.schemas.DIFFERENCES`).

    Nothing, that is, unless something is wrong. What is compared :mod:`groupcoord.analysis.rules.differences` says.

    Args:
        records: the table of records.
        history: what :func:`groupcoord.spark.history` makes of it, if it is there already.
        offsets: what :func:`groupcoord.spark.current_offsets` makes of it, likewise.
    """
    folded = history_of(records if history is None else history)
    current = current_offsets(records) if offsets is None else offsets
    tables = [packed(kind, folded.rows(kind), BY_GROUP) for kind in (GROUP, MEMBER)]
    tables.append(packed(GENERATION, folded.rows(GENERATION).select("group_id", "log_offset"), BY_GROUP))
    tables += [packed(CURRENT, current, BY_GROUP), packed(_ANSWERS, replay(records), BY_GROUP)]

    def tell(bucket: Bucket) -> Iterator[Row]:
        found = {kind: bucket.rows(kind) for kind in (GROUP, MEMBER, GENERATION)}
        told = group_answers(found) | offset_answers(bucket.table(CURRENT, arrow_schema(CURRENT_OFFSETS)))
        return differences(bucket.rows(_ANSWERS), told, unknown_groups(found))

    return judged(tables, None, tell, DIFFERENCES)


def replay(records: DataFrame) -> DataFrame:
    """Return what the coordinator answers about each group after loading its records (:data:`ANSWERS`).

    Outside of transactions the last commit and the last tombstone of each partition are replayed: what else was there
    changes no answer, and a group that commits all day has no more to load than one that seldom does. Transaction
    markers have no group; each is given to the groups that its producer wrote to in that log partition.
    """
    is_offset = is_offset_record()
    is_plain = is_offset & ~F.col("is_transactional")
    is_known = (F.col("kind") == KIND_RECORD) & F.col("problem").isNull() & F.col("group_id").isNotNull()
    # Null equals nothing where tables are joined.
    partition = F.coalesce("log_partition", F.lit(NO_PARTITION)).alias("log_partition")
    of_groups = records.where(is_known & ~is_plain).select(partition, *_NEEDED[1:])
    of_offset = [name for name in REPLAYED if name not in _OFFSET_KEY]
    last_commits = (
        records.where(is_plain)
        .groupBy(partition, *_OFFSET_KEY)
        .agg(F.max_by(F.struct(*of_offset), "log_offset").alias("last"))
        .select("log_partition", *_OFFSET_KEY, "last.*")
        .select(*_NEEDED)
    )
    writers = (
        records.where(is_offset & F.col("is_transactional")).select(partition, "group_id", "producer_id").distinct()
    )
    markers = (
        records.where((F.col("kind") == KIND_CONTROL) & F.col("control_type").isin(0, 1))
        .select(partition, *REPLAYED)
        .join(writers, ["log_partition", "producer_id"])
        .select(*_NEEDED)
    )
    ordered = (
        of_groups.unionByName(last_commits)
        .unionByName(markers)
        .repartition(*_KEY)
        .sortWithinPartitions(*_KEY, "log_offset")
    )
    return ordered.mapInArrow(replay_batches, ANSWERS)
