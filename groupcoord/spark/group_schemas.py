"""The schemas of the tables about groups: their history, what is wrong with them, what expires.

They are declared in :mod:`groupcoord.analysis.columns.group_tables`. Like those of :mod:`groupcoord.spark.schemas`:
numbers are as Kafka writes them, and what does not apply is null. Generations of classic groups and epochs of KIP-848,
share and streams groups share their columns.
"""

from __future__ import annotations

from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructType

from groupcoord.analysis.columns import group_tables
from groupcoord.spark.schemas import declared, table_schema

_INT, _LONG, _STRING = IntegerType(), LongType(), StringType()
_STRINGS = ArrayType(_STRING)

GENERATIONS = declared(group_tables.GENERATIONS)
"""Every generation of a classic group that the log holds; one whose static member was replaced comes again."""

MEMBERS = declared(group_tables.MEMBERS)
"""The members of every generation; of an epoch those that it began with, and what they had when it ended."""

GROUPS = declared(group_tables.GROUPS)
"""Every group as a coordinator that loads the log would describe it."""

REBALANCES = declared(group_tables.REBALANCES)
"""Every change of a generation, an epoch or a static member's id that the log shows, and why it came."""

EPOCHS = declared(group_tables.EPOCHS)
"""Every change of an epoch in a consumer, share or streams group, be it the group's, the target assignment's or a
member's."""

MEMBERSHIPS = declared(group_tables.MEMBERSHIPS)
"""Each life of a member of a consumer, share or streams group: how it began and ended."""

MOVES = declared(group_tables.MOVES)
"""What assignors of consumer and streams groups moved, partition by partition or task by task."""

REVOCATIONS = declared(group_tables.REVOCATIONS)
"""What members of consumer and streams groups were told to give up, and how long that took."""

_DUPLICATE = (
    StructType()
    .add("generation", _INT)
    .add("topic", _STRING)
    .add("topic_partition", _INT)
    .add("member_ids", _STRINGS)
    .add("log_offset", _LONG)
    .add("log_timestamp_ms", _LONG)
)


def _without(schema: StructType, *names: str) -> StructType:
    return StructType([column for column in schema if column.name not in names])


_PLACE = ("group_id", "log_partition")

HISTORY = table_schema(
    ("group_id", _STRING, "the group"),
    ("log_partition", _INT, "where its records lie"),
    ("kind", _STRING, "which of the other columns is set"),
    ("generation", _without(GENERATIONS, *_PLACE), "a row of generations"),
    ("member", _without(MEMBERS, *_PLACE), "a row of members"),
    ("rebalance", _without(REBALANCES, *_PLACE), "a row of rebalances"),
    ("epoch", _without(EPOCHS, *_PLACE), "a row of epochs"),
    ("membership", _without(MEMBERSHIPS, *_PLACE), "a row of memberships"),
    ("move", _without(MOVES, *_PLACE), "a row of moves"),
    ("revocation", _without(REVOCATIONS, *_PLACE), "a row of revocations"),
    ("group", _without(GROUPS, *_PLACE, "last_commit_ms", "offset_count"), "a row of groups, but for its offsets"),
    ("duplicate", _DUPLICATE, "a partition that several members have at a time"),
)
"""What the fold of each group gives: the rows of several tables in one."""

ANOMALIES = declared(group_tables.ANOMALIES)
"""What is wrong with groups: offset rewind, commits stopped, stalled, commit storm, rebalance storm, flapping member,
duplicate owner, slow revocation, fenced member, never committed, uneven shares."""

STALE_GROUPS = declared(group_tables.STALE_GROUPS)
"""Groups that lose offsets if nobody uses them, by the rules of KIP-211; checks of retention come some minutes late."""

DIFFERENCES = declared(group_tables.DIFFERENCES)
"""Where the tables differ from the coordinator that loads the same records."""
