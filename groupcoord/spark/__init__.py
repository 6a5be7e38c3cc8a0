"""Tables of ``__consumer_offsets`` logs of any size, with PySpark.

Start with :func:`session`, or register your own session with :func:`register`. :func:`read_log` and
:func:`from_messages` return the table of records, from which the other functions make tables. Their schemas are in
:mod:`groupcoord.spark.schemas`::

    spark = groupcoord.spark.session()
    records = groupcoord.spark.read_log(spark, "/var/lib/kafka/data")
    groupcoord.spark.current_offsets(records).show()

To add a table, write a function ``DataFrame → DataFrame`` that selects rows of ``records`` by ``kind`` and
``record_type`` (:class:`groupcoord.records.schemas.RecordType`), declare its schema, and end with a ``select`` of that
schema's names. Committed offsets are columns; other records are decoded by
:func:`groupcoord.records.typed.parse_record` or :func:`groupcoord.records.codec.decode_record`. ``log_offset`` is the
order within a group.
"""

from groupcoord.analysis.errors import ClusterError, InputError, PipelineError
from groupcoord.analysis.options import Thresholds
from groupcoord.spark.reading import (
    from_messages,
    read_cluster,
    read_cluster_stream,
    read_end_offsets,
    read_log,
    read_log_stream,
)
from groupcoord.spark.rules import anomalies, lag, offset_expiry, read_record_times, stale_groups
from groupcoord.spark.schemas import with_times
from groupcoord.spark.sessions import JavaNotFoundError, register, session
from groupcoord.spark.sources import RowArguments
from groupcoord.spark.tables import (
    COMMIT_COLUMNS,
    commits,
    corrupt,
    current_offsets,
    epochs,
    generations,
    groups,
    history,
    members,
    memberships,
    moves,
    partition_load,
    read_counts,
    rebalances,
    revocations,
    verify,
)

__all__ = [
    "COMMIT_COLUMNS",
    "ClusterError",
    "InputError",
    "JavaNotFoundError",
    "PipelineError",
    "RowArguments",
    "Thresholds",
    "anomalies",
    "commits",
    "corrupt",
    "current_offsets",
    "epochs",
    "from_messages",
    "generations",
    "groups",
    "history",
    "lag",
    "members",
    "memberships",
    "moves",
    "offset_expiry",
    "partition_load",
    "read_cluster",
    "read_cluster_stream",
    "read_counts",
    "read_end_offsets",
    "read_log",
    "read_log_stream",
    "read_record_times",
    "rebalances",
    "register",
    "revocations",
    "session",
    "stale_groups",
    "verify",
    "with_times",
]


def __dir__() -> list[str]:
    return __all__
