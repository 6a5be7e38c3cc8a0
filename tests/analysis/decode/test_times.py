"""Timestamp columns derived from columns of milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain

import pyarrow as pa
import pytest

from groupcoord.analysis.decode.parquet import (
    DURATIONS,
    LATEST_MS,
    TIMESTAMP,
    is_moment,
    schema_with_times,
    time_name,
    with_times,
)
from groupcoord.analysis.decode.schema import arrow_schema
from groupcoord.analysis.poll.polling import APPENDED, REPLACED
from groupcoord.analysis.tables import TABLES
from tests.tables import as_one_test

ALL_TABLES = {**TABLES, **{f"polled {name}": columns for name, columns in (REPLACED | APPENDED).items()}}


@as_one_test
@pytest.mark.parametrize("name", sorted(ALL_TABLES))
def test_moments_are_long(name: str) -> None:
    """Moments are int64, and no timestamp takes another column's name."""
    columns = {column.name: column.type for column in ALL_TABLES[name]}
    told = {column for column in columns if column.endswith("_ms")}
    assert all(columns[column] == pa.int64() for column in filter(is_moment, told))
    assert not {time_name(column) for column in told} & columns.keys()


def test_durations_name_only_what_there_is() -> None:
    assert {column.name for column in chain(*ALL_TABLES.values())} >= DURATIONS


def test_timestamps_stand_behind_their_numbers() -> None:
    """None, Kafka's -1 and what no calendar holds are null; the rest is the same moment in UTC, to the millisecond."""
    moments = [0, 1_700_000_000_123, LATEST_MS, None, -1, LATEST_MS + 1, 2**63 - 1, -(2**63)]
    rows = pa.table({"started_ms": pa.array(moments, pa.int64()), "took_ms": pa.array(range(len(moments)), pa.int64())})
    found = with_times(rows)

    assert found.schema.names == ["started_ms", "started_utc", "took_ms"]
    assert found.schema == schema_with_times(rows.schema) == schema_with_times(found.schema)
    assert found.schema.field("started_utc").type == TIMESTAMP
    assert found["started_utc"].to_pylist() == [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        *[None] * 5,
    ]
    assert with_times(found).equals(found)


def test_batches_are_as_tables() -> None:
    batch = pa.RecordBatch.from_pylist([{"at_ms": 5}], arrow_schema([TABLES["end_offsets"][2]]))
    assert with_times(batch).to_pylist() == [{"at_ms": 5, "at_utc": datetime(1970, 1, 1, 0, 0, 0, 5_000, tzinfo=UTC)}]
