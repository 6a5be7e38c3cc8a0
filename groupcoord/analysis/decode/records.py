"""Columns of records: the fields of keys and values, decoded with numpy.

Versions 0 to 4 of a committed offset (:mod:`groupcoord.records.schemas`) are decoded here; those with unknown tagged
fields go to :func:`groupcoord.records.codec.decode_record`, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from groupcoord.analysis.decode.batches import PADDING_BYTES, Batches, Bools, Bytes, Int64s, read_varints
from groupcoord.analysis.decode.schema import KIND_CONTROL, KIND_READ, KIND_RECORD, RECORDS
from groupcoord.core.log.records import ZERO_UUID, OffsetCommitRecord
from groupcoord.records.codec import decode_record
from groupcoord.records.schemas import SCHEMAS, RecordType
from groupcoord.schema.engine import STRING

NO_KEY, UNKNOWN_TYPE, MALFORMED_KEY, UNKNOWN_VERSION, MALFORMED_VALUE, MALFORMED_CONTROL = range(1, 7)
PROBLEMS = (
    "no problem",
    "no record type",
    "unknown record type",
    "malformed key",
    "unknown value version",
    "malformed value",
    "malformed control record",
)
TYPE_BYTES = 2
VERSION_BYTES = 2
UUID_BYTES = 16
_LEADER_EPOCH_SINCE, _EXPIRING, _FLEXIBLE = 3, 1, 4
_MARKER_TYPES_END = 2
_MARKER_KEY_BYTES, _MARKER_VALUE_BYTES = 4, 6

_KEY_LEAD = np.dtype([("record_type", ">i2"), ("group_size", ">i2")])
VALUE_LEAD = np.dtype(
    [
        *(("version", ">i2"), ("committed_offset", ">i8"), ("leader_epoch", ">i4"), ("text_length", "u1")),
        *(("commit_timestamp_ms", ">i8"), ("tag_count", "u1"), ("tag", "u1"), ("tag_size", "u1")),
        ("topic_id", "V16"),
    ]
)
"""Start of a value; the whole of a committed offset in version 4 with a topic id and without metadata."""

_LEAD_BYTES = VALUE_LEAD.itemsize
_TEXT_START = 15


class Slices(NamedTuple):
    """Pieces of a padded buffer, one for each record; ``size`` is -1 for null."""

    buffer: Bytes
    start: Int64s
    size: Int64s

    @property
    def end(self) -> Int64s:
        return self.start + np.maximum(self.size, 0)

    def at(self, row: int) -> bytes | None:
        size = int(self.size[row])
        start = int(self.start[row])
        return None if size < 0 else self.buffer[start : start + size].tobytes()

    def structs(self, kind: np.dtype[np.void], position: Int64s) -> NDArray[np.void]:
        whole = np.dtype(f"V{kind.itemsize}")
        everywhere = np.ndarray((len(self.buffer) - kind.itemsize + 1,), whole, self.buffer, strides=(1,))
        return everywhere[position].view(kind)

    def integers(self, code: str, position: Int64s) -> Int64s:
        kind = np.dtype(">" + code)
        count = len(self.buffer) - kind.itemsize + 1
        view: NDArray[np.signedinteger] = np.ndarray((count,), kind, self.buffer, strides=(1,))
        try:
            return view[position].astype(np.int64)
        except IndexError:  # rare: a malformed record's field beyond the buffer
            return view[np.clip(position, 0, count - 1)].astype(np.int64)


_TYPES = max(SCHEMAS) + 1
_strings_in_key = np.zeros(_TYPES, np.int64)
_newest_version = np.full(_TYPES, -1, np.int64)
for _type, _schema in SCHEMAS.items():
    _strings_in_key[_type] = sum(field.type == STRING for field in _schema.key.fields)
    _newest_version[_type] = _schema.newest_version


class Keys:
    """Decoded keys.

    Attributes:
        record_type: the first two bytes; -1 without them.
        is_whole: the type is known and the key has its layout; its text may still be invalid UTF-8.
        strings: number of strings in a key of this type; 0 for an unknown type.
        second: the second string: a topic, a member id or a regular expression.
        topic_partition: of types 0 and 1.
        is_offset: whole and of type 0 or 1.
    """

    def __init__(self, keys: Slices) -> None:
        size, end = keys.size, keys.end
        lead = keys.structs(_KEY_LEAD, keys.start)
        self.has_type: Bools = size >= TYPE_BYTES
        self.record_type: Int64s = np.where(self.has_type, lead["record_type"].astype(np.int64), -1)
        is_known = (self.record_type >= 0) & (self.record_type < _TYPES)
        known_type = np.where(is_known, self.record_type, 0)
        self.strings: Int64s = np.where(is_known, _strings_in_key[known_type], 0)
        is_known = self.strings > 0
        group_start = keys.start + 4
        group_size = lead["group_size"].astype(np.int64)
        group_end = group_start + group_size
        fits = is_known & (size >= 4) & (group_size >= 0) & (group_end <= end)
        self.group = Slices(keys.buffer, group_start, np.where(fits, group_size, -1))
        second_start = group_end + 2
        second_size = keys.integers("i2", np.minimum(group_end, end))
        second_end = second_start + second_size
        has_second = fits & (self.strings > 1) & (second_size >= 0)
        is_offset = self.record_type <= RecordType.OFFSET_COMMIT
        key_end = np.where(self.strings > 1, second_end + 4 * is_offset, group_end)
        self.is_whole: Bools = fits & (has_second | (self.strings == 1)) & (key_end == end)
        self.second = Slices(keys.buffer, second_start, np.where(has_second & self.is_whole, second_size, -1))
        self.is_offset: Bools = self.is_whole & is_offset
        self.topic_partition: Int64s = keys.integers("i4", np.where(self.is_offset, second_end, 0))

    def problems(self) -> Int64s:
        wrong = np.where(self.strings > 0, MALFORMED_KEY, UNKNOWN_TYPE)
        return np.where(self.is_whole, 0, np.where(self.has_type, wrong, NO_KEY))


class OffsetValues:
    """Decoded values of committed offsets: arrays with one item for each record of any type.

    Attributes:
        is_whole: it is a decoded committed offset; otherwise the other items are undefined.
        topic_id_start: position of the topic id; -1 for none.
        rare_topic_ids: topic ids from the scalar codec, by record.
    """

    def __init__(
        self, keys: Slices, values: Slices, leads: NDArray[np.void], is_candidate: Bools, version: Int64s
    ) -> None:
        # Nearly all commits have the newest version and no metadata, so their fields are at fixed positions.
        is_flexible = is_candidate & (version == _FLEXIBLE)
        has_id = (leads["tag_count"] == 1) & (leads["tag"] == 0) & (leads["tag_size"] == UUID_BYTES)
        has_id &= values.size == _LEAD_BYTES
        has_none = (leads["tag_count"] == 0) & (values.size == _LEAD_BYTES - UUID_BYTES - 2)
        self.is_whole: Bools = is_flexible & (leads["text_length"] == 1) & (has_id | has_none)
        self.committed_offset: Int64s = leads["committed_offset"].astype(np.int64)
        self.leader_epoch: Int64s = leads["leader_epoch"].astype(np.int64)
        self.metadata = Slices(values.buffer, values.start + _TEXT_START, np.where(self.is_whole, 0, -1))
        self.commit_timestamp_ms: Int64s = leads["commit_timestamp_ms"].astype(np.int64)
        self.expire_timestamp_ms: Int64s = np.full(len(version), -1, np.int64)
        self.topic_id_start: Int64s = np.where(has_id, values.start + (_LEAD_BYTES - UUID_BYTES), -1)
        self.rare_topic_ids: dict[int, bytes] = {}
        others = np.flatnonzero(is_flexible & ~self.is_whole)
        if len(others):
            self._read_rare(keys, values, self._read_flexible(values, others))
        older = np.flatnonzero(is_candidate & (version < _FLEXIBLE))
        if len(older):
            self._read_older(values, older, version[older])

    def _read_older(self, values: Slices, rows: Int64s, version: Int64s) -> None:
        start, end = values.start[rows], values.end[rows]
        has_epoch, expires = version >= _LEADER_EPOCH_SINCE, version == _EXPIRING
        length_start = start + 10 + 4 * has_epoch
        size = values.integers("i2", length_start)
        text_start = length_start + 2
        text_end = text_start + np.maximum(size, 0)
        self.is_whole[rows] = (size >= 0) & (text_end + 8 + 8 * expires == end)
        self.committed_offset[rows] = values.integers("i8", start + 2)
        self.leader_epoch[rows] = np.where(has_epoch, values.integers("i4", start + 10), -1)
        self.metadata.start[rows], self.metadata.size[rows] = text_start, size
        self.commit_timestamp_ms[rows] = values.integers("i8", text_end)
        self.expire_timestamp_ms[rows] = np.where(expires, values.integers("i8", text_end + 8), -1)

    def _read_flexible(self, values: Slices, rows: Int64s) -> Int64s:
        """Read version 4 with any metadata; return the records that have tagged fields other than a topic id."""
        start, end = values.start[rows], values.end[rows]
        length, text_start = read_varints(values.buffer, start + 14)
        size = length - 1
        text_end = text_start + np.maximum(size, 0)
        fits = (size >= 0) & (text_end + 9 <= end)
        tags_start = np.where(fits, text_end + 8, start)
        tags = values.integers("u1", tags_start)
        has_id = (values.integers("u2", tags_start) == 0x0100) & (values.integers("u1", tags_start + 2) == 16)
        has_id &= fits & (text_end + 27 == end)
        self.is_whole[rows] = is_whole = has_id | (fits & (tags == 0) & (text_end + 9 == end))
        self.metadata.start[rows], self.metadata.size[rows] = text_start, size
        self.commit_timestamp_ms[rows] = values.integers("i8", text_end)
        self.topic_id_start[rows] = np.where(has_id, text_end + 11, -1)
        rare: Int64s = rows[fits & ~is_whole]
        return rare

    def _read_rare(self, keys: Slices, values: Slices, rows: Int64s) -> None:
        for row in rows.tolist():
            record = decode_record(keys.at(row) or b"", values.at(row))
            if isinstance(record, OffsetCommitRecord):
                self.is_whole[row] = True
                if record.topic_id != ZERO_UUID:
                    self.rare_topic_ids[row] = record.topic_id.bytes


def value_versions(keys: Keys, values: Slices, leads: NDArray[np.void]) -> tuple[Int64s, Int64s]:
    """Return the version of each value (-1 for none) and its problem; only committed offsets are checked further."""
    version = np.where(values.size >= VERSION_BYTES, leads["version"].astype(np.int64), -1)
    newest = _newest_version[np.where(keys.is_whole, keys.record_type, 0)]
    problem = np.where((version < 0) | (version > newest), UNKNOWN_VERSION, 0)
    problem = np.where((values.size >= 0) & (values.size < VERSION_BYTES), MALFORMED_VALUE, problem)
    return version, np.where(keys.is_whole & (values.size >= 0), problem, 0)


def control_types(keys: Slices, values: Slices) -> tuple[Int64s, Bools]:
    """Return the type of each control record, and which are valid."""
    control_type = keys.integers("i2", keys.start + 2)
    has_key = (keys.size >= _MARKER_KEY_BYTES) & (keys.integers("i2", keys.start) >= 0)
    has_value = (values.size >= _MARKER_VALUE_BYTES) & (values.integers("i2", values.start) >= 0)
    is_marker = (control_type >= 0) & (control_type < _MARKER_TYPES_END)
    return control_type, has_key & (has_value | ~is_marker)


_UUID = np.dtype([("high", "u8"), ("low", "u8")])


class OfBatches(NamedTuple):
    """Batches, and the index of the batch of each record."""

    batches: Batches
    number: Int64s


class Placed(NamedTuple):
    """Keys and values of records, and their positions: arrays with one item for each record.

    Attributes:
        log_partition: one for each record or for all; None if unknown.
        of_batches: their batches; None if unknown, then no record is transactional or a control record.
    """

    keys: Slices
    values: Slices
    log_offset: Int64s
    log_timestamp_ms: Int64s
    log_partition: int | Int64s | None
    file: str | None = None
    of_batches: OfBatches | None = None


def record_columns(placed: Placed, columns: Sequence[str], *, raw_bytes: bool = False) -> pa.RecordBatch:
    decoded = _Decoded(placed, raw_bytes=raw_bytes)
    arrays = [_MAKERS[name](decoded).cast(RECORDS.field(name).type, safe=False) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([RECORDS.field(name) for name in columns]))


class _Decoded:
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
    """Return texts, null where missing, and a mask of those with invalid UTF-8, or None if all are valid."""
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
    """Copy pieces of a buffer into an Arrow array; null where ``is_there`` is false."""
    count = len(is_there)
    if not is_there.any():
        return pa.nulls(count, kind)
    if not slices.size[is_there].any():  # as the metadata of most commits
        return pc.if_else(pa.array(is_there), pa.scalar(b"", pa.binary()), None).cast(kind)
    # Two items for each piece, of which the first is taken: the piece, and the gap before the next.
    bounds = np.zeros(2 * count + 1, np.int32)
    bounds[0:-1:2] = np.where(is_there, slices.start, 0)
    bounds[1::2] = bounds[0:-1:2] + np.where(is_there, slices.size, 0)
    bounds[-1] = len(slices.buffer)
    pieces = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(slices.buffer)])
    every_first = np.arange(0, 2 * count, 2, dtype=np.int32)
    return pieces.take(pa.array(every_first, mask=None if is_there.all() else ~is_there))


def _where(is_there: Bools, values: NDArray[Any]) -> pa.Array:
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
    if placed.of_batches is not None:
        batches, number = placed.of_batches
        flags: Bools = getattr(batches, name)
        if flags.any():
            return flags[number]
    return np.zeros(len(placed.log_offset), np.bool_)


def _of_batch(name: str, default: int | None) -> Callable[[_Decoded], pa.Array]:
    def make(decoded: _Decoded) -> pa.Array:
        if decoded.placed.of_batches is None:
            return _constant(default, decoded.count, RECORDS.field(name).type)
        batches, number = decoded.placed.of_batches
        return pa.array(getattr(batches, name)[number])

    return make


def _of_value(name: str) -> Callable[[_Decoded], pa.Array]:
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
    placed = Placed(
        _slices(batch.column("key")),
        _slices(batch.column("value")),
        _numbers(batch.column("offset")),
        _numbers(batch.column("timestamp")),
        _numbers(batch.column("partition")),
    )
    return record_columns(placed, RECORDS.names, raw_bytes=raw_bytes)


def accounts_of_messages(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a row of kind ``read`` for each log partition of messages.

    Messages may be incomplete and their batches are unknown, so ``complete_from`` follows from their offsets.
    """
    partitions = np.asarray(rows.column("log_partition"))
    offsets = np.asarray(rows.column("log_offset"))
    found = []
    for partition in np.unique(partitions).tolist():
        mine = np.unique(offsets[partitions == partition])
        behind_gap = mine[1:][np.diff(mine) > 1]
        first, end = int(mine[0]), int(mine[-1]) + 1
        found.append(
            {
                "kind": KIND_READ,
                "log_partition": partition,
                "log_offset": first,
                "end_offset": end,
                "complete_from": int(behind_gap[-1]) if len(behind_gap) else first,
            }
        )
    return pa.RecordBatch.from_pylist(found, schema=RECORDS)


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
