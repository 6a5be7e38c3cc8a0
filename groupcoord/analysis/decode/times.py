"""Points in time as timestamps, beside the milliseconds that tables hold: what every writer of tables adds.

A column ``NAME_ms`` that is a point in time, in milliseconds since 1970, has a column ``NAME_utc`` behind it: the same
as a timestamp in UTC, as notebooks want it. It is null where the number is null, where it is Kafka's -1 for none, and
where no calendar holds it. Durations have none.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

MOMENTS = frozenset(
    (
        *("log_timestamp_ms", "commit_timestamp_ms", "expire_timestamp_ms", "state_timestamp_ms", "last_commit_ms"),
        *("first_timestamp_ms", "last_timestamp_ms", "first_ms", "last_ms", "next_expiry_ms", "group_expiry_ms"),
        *("started_after_ms", "started_ms", "target_ms", "ended_ms", "began_ms", "away_ms", "asked_ms"),
        *("decided_ms", "released_ms", "assigned_ms", "at_ms", "polled_ms", "expires_ms"),
    )
)
"""The columns that are points in time."""

DURATIONS = frozenset(
    ("session_timeout_ms", "rebalance_timeout_ms", "unowned_ms", "took_ms", "idle_ms", "lag_ms"),
)
"""The columns that are not."""

TIMESTAMP = pa.timestamp("us", "UTC")
"""The type of the timestamps, as Spark has them."""

LATEST_MS = (datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
"""The last moment that a timestamp holds: the end of the year 9999, as in Python and SQL."""

_MS, _UTC = "_ms", "_utc"
_US_PER_MS = 1_000

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def time_name(moment: str) -> str:
    """Return what the timestamp beside a point in time is called."""
    return moment.removesuffix(_MS) + _UTC


def schema_with_times(schema: pa.Schema) -> pa.Schema:
    """Return a schema with a timestamp behind each point in time, but for those that are there."""
    for moment in _without_time(schema):
        schema = schema.insert(schema.get_field_index(moment) + 1, pa.field(time_name(moment), TIMESTAMP))
    return schema


def with_times(rows: Rows) -> Rows:
    """Return rows with a timestamp behind each point in time, but for those that are there."""
    for moment in _without_time(rows.schema):
        place = rows.schema.get_field_index(moment)
        rows = rows.add_column(place + 1, pa.field(time_name(moment), TIMESTAMP), timestamps(rows.column(place)))
    return rows


def timestamps(moments: pa.Array) -> pa.Array:
    """Return points in time, in milliseconds since 1970, as timestamps."""
    is_moment = pc.and_(pc.greater_equal(moments, 0), pc.less_equal(moments, LATEST_MS))
    return pc.multiply(pc.if_else(is_moment, moments, None), _US_PER_MS).cast(TIMESTAMP)


def _without_time(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name in MOMENTS and time_name(name) not in schema.names]
