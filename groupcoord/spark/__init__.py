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

import inspect

from groupcoord.analysis.errors import (
    ClusterError as ClusterError,
    InputError as InputError,
    PipelineError as PipelineError,
)
from groupcoord.analysis.options import Thresholds as Thresholds
from groupcoord.spark.reading import (
    from_messages as from_messages,
    read_cluster as read_cluster,
    read_cluster_stream as read_cluster_stream,
    read_end_offsets as read_end_offsets,
    read_log as read_log,
    read_log_stream as read_log_stream,
)
from groupcoord.spark.rules import (
    anomalies as anomalies,
    lag as lag,
    offset_expiry as offset_expiry,
    read_record_times as read_record_times,
    stale_groups as stale_groups,
)
from groupcoord.spark.schemas import with_times as with_times
from groupcoord.spark.sessions import JavaNotFoundError as JavaNotFoundError, register as register, session as session
from groupcoord.spark.sources import RowArguments as RowArguments
from groupcoord.spark.tables import (
    COMMIT_COLUMNS as COMMIT_COLUMNS,
    commits as commits,
    corrupt as corrupt,
    current_offsets as current_offsets,
    epochs as epochs,
    generations as generations,
    groups as groups,
    history as history,
    members as members,
    memberships as memberships,
    moves as moves,
    partition_load as partition_load,
    read_counts as read_counts,
    rebalances as rebalances,
    revocations as revocations,
    verify as verify,
)

__all__ = sorted(name for name, value in vars().items() if not (name.startswith("_") or inspect.ismodule(value)))


def __dir__() -> list[str]:
    return __all__
