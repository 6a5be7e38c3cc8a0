"""Arrow columns of the table of records, made of what numpy found in keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from groupcoord.analysis.decode.batches import PADDING_BYTES, Batches, Bools, Int64s
from groupcoord.analysis.decode.fields import (
    MALFORMED_CONTROL,
    MALFORMED_KEY,
    MALFORMED_VALUE,
    PROBLEMS,
    UUID_BYTES,
    VALUE_LEAD,
    VERSION_BYTES,
    Keys,
    OffsetValues,
    Slices,
    control_types,
    value_versions,
)
from groupcoord.analysis.decode.schema import KIND_CONTROL, KIND_READ, KIND_RECORD, RECORDS

_UUID = np.dtype([("high", "u8"), ("low", "u8")])


class OfBatches(NamedTuple):
    """Which batches records are of. Of records of one batch the header is told once.

    Attributes:
        batches: the batches.
        number: of the batch of each record.
    """

    batches: Batches
    number: Int64s


class Placed(NamedTuple):
    """Keys and values of records, and where they stand. Arrays have one item for each record.

    Attributes:
        keys: their keys.
        values: their values.
        log_offset: their offsets.
        log_timestamp_ms: their timestamps.
        log_partition: of each, or of all; None if it is not known.
        file: of all; None if they come from no file.
        of_batches: their batches; None: not known, and no record is transactional or a control record.
    """

    keys: Slices
    values: Slices
    log_offset: Int64s
    log_timestamp_ms: Int64s
    log_partition: int | Int64s | None
    file: str | None = None
    of_batches: OfBatches | None = None


def record_columns(placed: Placed, columns: Sequence[str], *, raw_bytes: bool = False) -> pa.RecordBatch:
    """Return rows of :data:`groupcoord.analysis.decode.schema.RECORDS`, one for each record, in their order.

    Args:
        placed: the records.
        columns: which columns to make.
        raw_bytes: keep key and value of decoded offsets too.
    """
    decoded = _Decoded(placed, raw_bytes=raw_bytes)
    arrays = [_MAKERS[name](decoded).cast(RECORDS.field(name).type, safe=False) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([RECORDS.field(name) for name in columns]))


class _Decoded:
    """What is known of one set of records.

    Attributes:
        placed: where they are.
        count: how many.
        has_value: no tombstone.
        is_control: a control record.
        key_is_whole: a record whose type is known and whose key could be read; ``is_offset``: of type 0 or 1.
        version: of the value.
        control_type: of control records; ``control_is_sound``: it could be read.
        offsets: what stands in values of committed offsets; ``value_is_whole``: it could be read.
        problem: a number of :data:`groupcoord.analysis.decode.fields.PROBLEMS`.
        texts: the columns of text.
        keeps_bytes: key and value are kept as they are.
    """

    def __init__(self, placed: Placed, *, raw_bytes: bool) -> None:
        keys = Keys(placed.keys)
        self.placed = placed
        self.keys = keys
        self.count = count = len(placed.log_offset)
        self.has_value: Bools = placed.values.size >= 0
        self.is_control = _flags("is_control", placed)
        leads = placed.values.structs(VALUE_LEAD, placed.values.start)
        self.version, value_problem = value_versions(keys, placed.values, leads)
        readable = keys.is_offset & self.has_value & ~self.is_control & (value_problem == 0)
        self.offsets = OffsetValues(placed.keys, placed.values, leads, readable, self.version)
        value_problem = np.where(readable & ~self.offsets.is_whole, MALFORMED_VALUE, value_problem)
        key_problem = keys.problems()
        self.problem: Int64s = np.where(key_problem > 0, key_problem, value_problem)
        self.control_type = self.control_is_sound = None
        if self.is_control.any():
            self.control_type, self.control_is_sound = control_types(placed.keys, placed.values)
            wrong = np.where(self.control_is_sound, 0, MALFORMED_CONTROL)
            self.problem = np.where(self.is_control, wrong, self.problem)
        self.key_is_whole = keys.is_whole & ~self.is_control
        self.is_offset = keys.is_offset & ~self.is_control
        self.value_is_whole = self.offsets.is_whole
        self.texts = self._read_texts()
        is_decoded = self.is_offset & (self.value_is_whole | ~self.has_value)
        self.keeps_bytes = np.ones(count, np.bool_) if raw_bytes else ~is_decoded

    def _read_texts(self) -> dict[str, pa.Array]:
        """Return the columns of text. Records whose text is no UTF-8 become malformed on the way."""
        has_second = self.key_is_whole & (self.keys.second.size >= 0)
        group, no_group = _texts(self.keys.group, self.key_is_whole)
        second, no_second = _texts(self.keys.second, has_second)
        metadata, no_metadata = _texts(self.offsets.metadata, self.value_is_whole)
        if no_group is None and no_second is None and no_metadata is None:
            if not np.array_equal(has_second, self.is_offset):
                second = pc.if_else(pa.array(self.is_offset), second, None)
            return {"group_id": group, "topic": second, "metadata": metadata}
        for wrong, problem in ((no_metadata, MALFORMED_VALUE), (no_group, MALFORMED_KEY), (no_second, MALFORMED_KEY)):
            if wrong is not None:
                self.problem[wrong] = problem
                self.value_is_whole = self.value_is_whole & ~wrong
                if problem == MALFORMED_KEY:
                    self.key_is_whole = self.key_is_whole & ~wrong
                    self.is_offset = self.is_offset & ~wrong
        return self._read_texts()


def _texts(slices: Slices, is_there: Bools) -> tuple[pa.Array, Bools | None]:
    """Return texts, null where there are none, and which are no UTF-8; None if all are."""
    found = gather(slices, is_there, pa.string())
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        wrong = np.zeros(len(is_there), np.bool_)
        for row in np.flatnonzero(is_there).tolist():
            wrong[row] = not _is_text(slices.at(row) or b"")
        return found, wrong
    return found, None


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def gather(slices: Slices, is_there: Bools, kind: pa.DataType) -> pa.Array:
    """Copy pieces of a buffer into an Arrow array of text or bytes; null where they are not there."""
    count = len(is_there)
    if not is_there.any():
        return pa.nulls(count, kind)
    if not slices.size[is_there].any():  # as the metadata of most commits
        return pc.if_else(pa.array(is_there), pa.scalar(b"", pa.binary()), None).cast(kind)
    # Two items for each piece, of which every first one is taken: the piece, and what lies between it and the next.
    bounds = np.zeros(2 * count + 1, np.int32)
    bounds[0:-1:2] = np.where(is_there, slices.start, 0)
    bounds[1::2] = bounds[0:-1:2] + np.where(is_there, slices.size, 0)
    bounds[-1] = len(slices.buffer)
    pieces = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(slices.buffer)])
    every_first = np.arange(0, 2 * count, 2, dtype=np.int32)
    return pieces.take(pa.array(every_first, mask=None if is_there.all() else ~is_there))


def _where(is_there: Bools, values: NDArray[Any]) -> pa.Array:
    """Return numbers, null where they mean nothing."""
    return pa.array(values, mask=None if is_there.all() else ~is_there)


def _constant(value: str | int | None, count: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def _kinds(decoded: _Decoded) -> pa.Array:
    names = pa.array([KIND_RECORD, KIND_CONTROL])
    if decoded.control_type is None:
        return _constant(KIND_RECORD, decoded.count, pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(decoded.is_control.astype(np.int8)), names).dictionary_decode()


def _problems(decoded: _Decoded) -> pa.Array:
    if not decoded.problem.any():
        return pa.nulls(decoded.count, pa.string())
    codes = pa.array(decoded.problem, mask=decoded.problem == 0)
    return pa.array(PROBLEMS).take(codes)


def _topic_ids(decoded: _Decoded) -> pa.Array:
    offsets, values = decoded.offsets, decoded.placed.values
    is_there = decoded.value_is_whole & (offsets.topic_id_start >= 0)
    pieces = values.structs(_UUID, np.maximum(offsets.topic_id_start, 0))
    is_there &= (pieces["high"] | pieces["low"]) != 0
    bounds = np.arange(0, UUID_BYTES * decoded.count + 1, UUID_BYTES, dtype=np.int32)
    valid = np.packbits(is_there, bitorder="little")
    found = pa.Array.from_buffers(pa.binary(), decoded.count, [pa.py_buffer(one) for one in (valid, bounds, pieces)])
    if offsets.rare_topic_ids:
        rows = sorted(offsets.rare_topic_ids)
        mask = np.zeros(decoded.count, np.bool_)
        mask[rows] = decoded.value_is_whole[rows]
        rare = [offsets.rare_topic_ids[row] for row in rows if decoded.value_is_whole[row]]
        found = pc.replace_with_mask(found, pa.array(mask), pa.array(rare, pa.binary()))
    return found


def _partitions(decoded: _Decoded) -> pa.Array:
    partition = decoded.placed.log_partition
    if isinstance(partition, np.ndarray):
        return pa.array(partition)
    return _constant(partition, decoded.count, pa.int32())


def _control_types(decoded: _Decoded) -> pa.Array:
    if decoded.control_type is None or decoded.control_is_sound is None:
        return pa.nulls(decoded.count, pa.int16())
    return _where(decoded.is_control & decoded.control_is_sound, decoded.control_type)


def _sizes(decoded: _Decoded) -> pa.Array:
    return pa.array(np.maximum(decoded.placed.keys.size, 0) + np.maximum(decoded.placed.values.size, 0))


def _bytes(slices: Slices, decoded: _Decoded) -> pa.Array:
    return gather(slices, decoded.keeps_bytes & (slices.size >= 0), pa.binary())


def _flags(name: str, placed: Placed) -> Bools:
    """Return a flag of the batch of each record."""
    if placed.of_batches is not None:
        batches, number = placed.of_batches
        flags: Bools = getattr(batches, name)
        if flags.any():
            return flags[number]
    return np.zeros(len(placed.log_offset), np.bool_)


def _of_batch(name: str, default: int | None) -> Callable[[_Decoded], pa.Array]:
    """Return what makes a column that the batch tells: ``default`` where no batches are known."""

    def make(decoded: _Decoded) -> pa.Array:
        if decoded.placed.of_batches is None:
            return _constant(default, decoded.count, RECORDS.field(name).type)
        batches, number = decoded.placed.of_batches
        return pa.array(getattr(batches, name)[number])

    return make


def _of_value(name: str) -> Callable[[_Decoded], pa.Array]:
    """Return what makes a column of numbers in values of committed offsets."""
    return lambda decoded: _where(decoded.value_is_whole, getattr(decoded.offsets, name))


def _nothing(name: str) -> Callable[[_Decoded], pa.Array]:
    return lambda decoded: pa.nulls(decoded.count, RECORDS.field(name).type)


_MAKERS: dict[str, Callable[[_Decoded], pa.Array]] = {
    "kind": _kinds,
    "log_partition": _partitions,
    "log_offset": lambda decoded: pa.array(decoded.placed.log_offset),
    "log_timestamp_ms": lambda decoded: pa.array(decoded.placed.log_timestamp_ms),
    "record_type": lambda decoded: _where(decoded.keys.has_type & ~decoded.is_control, decoded.keys.record_type),
    "control_type": _control_types,
    "group_id": lambda decoded: decoded.texts["group_id"],
    "tombstone": lambda decoded: pa.array(~decoded.has_value),
    "value_version": lambda decoded: _where(decoded.placed.values.size >= VERSION_BYTES, decoded.version),
    "topic": lambda decoded: decoded.texts["topic"],
    "topic_partition": lambda decoded: _where(decoded.is_offset, decoded.keys.topic_partition),
    "committed_offset": _of_value("committed_offset"),
    "leader_epoch": _of_value("leader_epoch"),
    "metadata": lambda decoded: decoded.texts["metadata"],
    "commit_timestamp_ms": _of_value("commit_timestamp_ms"),
    "expire_timestamp_ms": _of_value("expire_timestamp_ms"),
    "topic_id": _topic_ids,
    "producer_id": _of_batch("producer_id", -1),
    "producer_epoch": _of_batch("producer_epoch", -1),
    "is_transactional": lambda decoded: pa.array(_flags("is_transactional", decoded.placed)),
    "partition_leader_epoch": _of_batch("leader_epoch", None),
    "key": lambda decoded: _bytes(decoded.placed.keys, decoded),
    "value": lambda decoded: _bytes(decoded.placed.values, decoded),
    "size_bytes": _sizes,
    "file": lambda decoded: _constant(decoded.placed.file, decoded.count, pa.string()),
    "position": _of_batch("position", None),
    "problem": _problems,
    "end_offset": _nothing("end_offset"),
    "batch_count": _nothing("batch_count"),
    "complete_from": _nothing("complete_from"),
}
assert tuple(_MAKERS) == tuple(RECORDS.names)


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
