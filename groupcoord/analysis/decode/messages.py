"""Keys and values that somebody else has read from the topic, as rows of the table of records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from groupcoord.analysis.decode.fields import Slices
from groupcoord.analysis.decode.framing import PADDING_BYTES, Int64s
from groupcoord.analysis.decode.records import Placed, record_columns
from groupcoord.analysis.decode.schema import KIND_READ, RECORDS


def rows_of_messages(batch: pa.RecordBatch, *, raw_bytes: bool = False) -> pa.RecordBatch:
    """Return :data:`groupcoord.analysis.decode.schema.RECORDS`, a row for each message, in their order.

    Args:
        batch: columns ``key``, ``value``, ``partition``, ``offset`` and ``timestamp``, in milliseconds.
        raw_bytes: keep key and value of decoded offsets too.
    """
    placed = Placed(
        _slices(batch.column("key")),
        _slices(batch.column("value")),
        _numbers(batch.column("offset")),
        _numbers(batch.column("timestamp")),
        _numbers(batch.column("partition")),
    )
    return record_columns(placed, RECORDS.names, raw_bytes=raw_bytes)


def accounts_of_messages(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a row of kind ``read`` for each log partition that rows of messages are of: which offsets these are.

    Whoever gave the messages may have left some out, and nobody knows what was in their batches. So each batch of rows
    tells for itself from where on none is missing.

    Args:
        rows: what :func:`rows_of_messages` returned.
    """
    partitions = np.asarray(rows.column("log_partition"))
    offsets = np.asarray(rows.column("log_offset"))
    told = []
    for partition in np.unique(partitions).tolist():
        mine = np.unique(offsets[partitions == partition])
        behind_gap = mine[1:][np.diff(mine) > 1]
        first, end = int(mine[0]), int(mine[-1]) + 1
        told.append(
            {
                "kind": KIND_READ,
                "log_partition": partition,
                "log_offset": first,
                "end_offset": end,
                "complete_from": int(behind_gap[-1]) if len(behind_gap) else first,
            }
        )
    return pa.RecordBatch.from_pylist(told, schema=RECORDS)


def _numbers(column: pa.Array) -> Int64s:
    return np.asarray(column.fill_null(-1).cast(pa.int64()))


def _slices(column: pa.Array) -> Slices:
    column = column.cast(pa.binary())
    _, bounds, data = column.buffers()
    edges = np.frombuffer(bounds, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    start = int(edges[0]) if len(edges) else 0
    end = int(edges[-1]) if len(edges) else 0
    content = b"" if data is None else data.slice(start, end - start).to_pybytes()
    buffer = np.frombuffer(content + bytes(PADDING_BYTES), np.uint8)
    is_null = np.asarray(column.is_null())
    return Slices(buffer, edges[:-1] - start, np.where(is_null, -1, np.diff(edges)))
