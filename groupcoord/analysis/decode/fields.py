"""What stands in the keys and values of many records, read with numpy: the fields of committed offsets, above all.

The layouts are those of :mod:`groupcoord.records.schemas`. Versions 0 to 4 of a committed offset are read here; what
is rare (tagged fields of versions to come, metadata of 16 KiB) is left to the scalar codec
(:func:`groupcoord.records.codec.decode_record`), one record at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from groupcoord.analysis.decode.batches import Bools, Bytes, Int64s, read_varints
from groupcoord.core.log.records import ZERO_UUID, OffsetCommitRecord
from groupcoord.records.codec import decode_record
from groupcoord.records.schemas import SCHEMAS, RecordType
from groupcoord.records.structures import STRING

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
"""What may be wrong with a record, by number. 0 is null in the table of records."""

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
"""How a value starts; all of a committed offset in version 4 without metadata."""

_LEAD_BYTES = VALUE_LEAD.itemsize
_TEXT_START = 15


class Slices(NamedTuple):
    """Pieces of a buffer, one for each record.

    Attributes:
        buffer: the bytes, padded with :data:`groupcoord.analysis.decode.batches.PADDING_BYTES`.
        start: where each starts.
        size: how long it is; -1: it is null.
    """

    buffer: Bytes
    start: Int64s
    size: Int64s

    @property
    def end(self) -> Int64s:
        """Where each ends."""
        return self.start + np.maximum(self.size, 0)

    def at(self, row: int) -> bytes | None:
        """Return the piece of one record."""
        size = int(self.size[row])
        start = int(self.start[row])
        return None if size < 0 else self.buffer[start : start + size].tobytes()

    def structs(self, kind: np.dtype[np.void], position: Int64s) -> NDArray[np.void]:
        """Return some bytes at any positions, as a packed structured type. None may leave the buffer."""
        whole = np.dtype(f"V{kind.itemsize}")
        everywhere = np.ndarray((len(self.buffer) - kind.itemsize + 1,), whole, self.buffer, strides=(1,))
        return everywhere[position].view(kind)

    def integers(self, code: str, position: Int64s) -> Int64s:
        """Return big-endian numbers at any positions; ``code`` is numpy's, such as ``i4``. None leaves its buffer."""
        kind = np.dtype(">" + code)
        count = len(self.buffer) - kind.itemsize + 1
        view: NDArray[np.signedinteger] = np.ndarray((count,), kind, self.buffer, strides=(1,))
        try:
            return view[position].astype(np.int64)
        except IndexError:  # hardly ever: a length that lies at the end of the buffer
            return view[np.clip(position, 0, count - 1)].astype(np.int64)


_TYPES = max(SCHEMAS) + 1
_strings_in_key = np.zeros(_TYPES, np.int64)
_newest_version = np.full(_TYPES, -1, np.int64)
for _type, _schema in SCHEMAS.items():
    _strings_in_key[_type] = sum(field.type == STRING for field in _schema.key.fields)
    _newest_version[_type] = _schema.newest_version


class Keys:
    """What stands in keys.

    Attributes:
        record_type: the first two bytes; -1 in records that have none.
        has_type: there are two bytes at least.
        is_whole: the type is known and the key has its layout; text may still be no UTF-8.
        strings: how many strings a key of this type holds: 1 or 2.
        group: where the group id is.
        second: where the second string is, if there is one: a topic, a member id or a regular expression.
        topic_partition: of types 0 and 1.
        is_offset: of type 0 or 1, and whole.
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
        """Return what is wrong with each key, as a number of :data:`PROBLEMS`."""
        wrong = np.where(self.strings > 0, MALFORMED_KEY, UNKNOWN_TYPE)
        return np.where(self.is_whole, 0, np.where(self.has_type, wrong, NO_KEY))


class OffsetValues:
    """What stands in the values of committed offsets. Arrays of one item for each record, of whatever type.

    Attributes:
        is_whole: it is a committed offset that was read; of the others the rest means nothing.
        committed_offset: the offset.
        leader_epoch: -1 if there is none.
        metadata: where the text is.
        commit_timestamp_ms: when it was committed.
        expire_timestamp_ms: -1 if it has none.
        topic_id_start: where its 16 bytes start; -1 if there are none.
        rare_topic_ids: topic ids that stand elsewhere, by record.
    """

    def __init__(
        self, keys: Slices, values: Slices, leads: NDArray[np.void], is_candidate: Bools, version: Int64s
    ) -> None:
        # Nearly all commits are of the newest version and without metadata, so that its fields have fixed places.
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
        """Read versions 0 to 3."""
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
        """Ask the scalar codec whether tagged fields are sound, and for the topic id among them."""
        for row in rows.tolist():
            record = decode_record(keys.at(row) or b"", values.at(row))
            if isinstance(record, OffsetCommitRecord):
                self.is_whole[row] = True
                if record.topic_id != ZERO_UUID:
                    self.rare_topic_ids[row] = record.topic_id.bytes


def value_versions(keys: Keys, values: Slices, leads: NDArray[np.void]) -> tuple[Int64s, Int64s]:
    """Return the version of each value (-1 if it has none), and what is wrong with it, as a number of PROBLEMS.

    Of values that are no committed offsets no more than the version is looked at.
    """
    version = np.where(values.size >= VERSION_BYTES, leads["version"].astype(np.int64), -1)
    newest = _newest_version[np.where(keys.is_whole, keys.record_type, 0)]
    problem = np.where((version < 0) | (version > newest), UNKNOWN_VERSION, 0)
    problem = np.where((values.size >= 0) & (values.size < VERSION_BYTES), MALFORMED_VALUE, problem)
    return version, np.where(keys.is_whole & (values.size >= 0), problem, 0)


def control_types(keys: Slices, values: Slices) -> tuple[Int64s, Bools]:
    """Return the type of each control record, and which of them are sound.

    As :func:`groupcoord.records.codec.decode_control` has it, a marker (type 0 or 1) has an epoch of the coordinator in
    its value, and neither version is negative.
    """
    control_type = keys.integers("i2", keys.start + 2)
    has_key = (keys.size >= _MARKER_KEY_BYTES) & (keys.integers("i2", keys.start) >= 0)
    has_value = (values.size >= _MARKER_VALUE_BYTES) & (values.integers("i2", values.start) >= 0)
    is_marker = (control_type >= 0) & (control_type < _MARKER_TYPES_END)
    return control_type, has_key & (has_value | ~is_marker)
