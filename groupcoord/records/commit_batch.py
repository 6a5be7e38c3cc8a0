"""Batches of commits, written and read by columns.

The bytes are those of :func:`~groupcoord.records.codec.encode_record` and
:func:`~groupcoord.records.batches.encode_batch`, joined from parts that the records of a commit share. When a log is
loaded, the layout of a batch follows from its first record, and shared parts are compared at once. Other batches take
the general path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from struct import (
    Struct,
    error as StructError,  # noqa: N812
)
from typing import Any, NamedTuple

from groupcoord.core.columns import AsciiTexts, OffsetColumns, Widths, encode_each, make_columns
from groupcoord.core.fast_construct import maker
from groupcoord.core.log.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ZERO_UUID,
    CommitRecords,
    CommittedTopic,
    RecordForm,
    make_commit_kind,
    make_committed_topic,
)
from groupcoord.records.batches import (
    BATCH_HEADER_BYTES,
    DELETE_HORIZON,
    MAGIC_V2,
    VARINTS,
    Batch,
    frame_records,
    record_starts,
)
from groupcoord.records.codec import (
    OFFSET_COMMIT_VALUE_VERSION,
    offset_key_names,
    offset_key_strings,
)
from groupcoord.schema.primitives import MalformedError, topic_id_of, write_uvarint, write_varint

_pack_partition = Struct(">i").pack
_pack_tail = Struct(">q2x").pack  # neither tags nor headers
_pack_tail_with_id = Struct(">q3s16sx").pack
_NO_METADATA = b"\x01"
_TOPIC_ID_TAG = b"\x01\x00\x10"
_NO_HEADERS = b"\x00"
_VERSION_AND_OFFSET_BYTES = 14
_METADATA_BYTES_MAX = 0x7FFF

_VALUE_VERSION = Struct(">h").pack(OFFSET_COMMIT_VALUE_VERSION)

_CACHED_STARTS_MAX, _CACHED_NAMES_LENGTH_MAX = 64, 256


# ---------------------------------------------------------------- writing


def encode_commit_batch(base_offset: int, commit: CommitRecords, timestamp_ms: int, leader_epoch: int) -> bytes | None:
    """Return the batch of a plain or transactional commit; arguments are as for ``encode_batch``.

    Returns:
        None if a value has another version or an expiry, or a text can't be encoded: then use ``encode_batch``.

    Raises:
        struct.error: a number does not fit its field.
    """
    parts: list[bytes] = []
    count = 0
    try:
        for kind, columns in commit.topics:
            group_id, topic, topic_id, commit_timestamp_ms, expire_timestamp_ms, producer_id, producer_epoch, form = (
                kind
            )
            if form is not None or expire_timestamp_ms != NO_TIMESTAMP:
                return None
            parts.append(_records_of_topic(group_id, topic, columns, _tail(commit_timestamp_ms, topic_id.int), count))
            count += len(columns[0])
    except (MalformedError, UnicodeEncodeError):
        return None  # encode_record raises the error with the name of the field
    return frame_records(base_offset, parts, count, timestamp_ms, leader_epoch, producer_id, producer_epoch)


@lru_cache(maxsize=256)
def _tail(timestamp_ms: int, topic_id: int) -> bytes:
    """Return the end of a record, after its metadata; many commits share their millisecond."""
    if topic_id:
        return _pack_tail_with_id(timestamp_ms, _TOPIC_ID_TAG, topic_id.to_bytes(16, "big"))
    return _pack_tail(timestamp_ms)


def _records_of_topic(group_id: str, topic: str, columns: OffsetColumns, tail: bytes, position: int) -> bytes:
    """Return a topic's records; ``position`` is the offset delta of the first."""
    indexes, offsets, leader_epochs, metadata = columns
    count = len(offsets)
    is_small = count <= _CACHED_STARTS_MAX and len(group_id) + len(topic) <= _CACHED_NAMES_LENGTH_MAX
    make_frame = _cached_frame if is_small else _frame
    if metadata is None:
        tail = _NO_METADATA + tail
        starts, pack = make_frame(group_id, topic, len(tail), position, indexes, None)
        fields: list[object] = [tail] * (4 * count)
        fields[0::4] = starts
        fields[1::4] = offsets
        fields[2::4] = leader_epochs
        return pack(*fields)
    lengths, texts, widths = encode_each(metadata, _metadata_length)
    starts, pack = make_frame(group_id, topic, len(tail), position, indexes, widths)
    fields = [tail] * (6 * count)
    fields[0::6] = starts
    fields[1::6] = offsets
    fields[2::6] = leader_epochs
    fields[3::6] = lengths
    fields[4::6] = texts
    return pack(*fields)


@lru_cache(maxsize=256)
def _metadata_length(length: int) -> bytes:
    if length > _METADATA_BYTES_MAX:
        raise MalformedError(f"metadata of {length} bytes")
    return write_uvarint(length + 1)


def _frame(
    group_id: str, topic: str, tail_bytes: int, position: int, indexes: tuple[int, ...], widths: Widths | None
) -> tuple[list[bytes], Callable[..., bytes]]:
    """Return the start of each record, and a packer of starts, committed offsets, leader epochs, metadata and tails.

    A start holds everything before the committed offset. If ``widths`` is None, the tail includes the empty metadata.
    """
    names = offset_key_names(group_id, topic)
    head = write_varint(len(names) + 4) + names
    starts, layout = [], [">"]
    slots = record_starts(position, len(indexes))
    for place, (slot, index) in enumerate(zip(slots, indexes, strict=True)):
        text, text_bytes = "", 0
        if widths is not None:
            width = widths if isinstance(widths, int) else widths[place]
            length_bytes = len(_metadata_length(width))
            text, text_bytes = f"{length_bytes}s{width}s", length_bytes + width
        value_bytes = _VERSION_AND_OFFSET_BYTES + text_bytes + tail_bytes - len(_NO_HEADERS)
        value_start = write_varint(value_bytes) + _VALUE_VERSION
        size = len(slot) + len(head) + 4 + len(value_start) - len(_VALUE_VERSION) + value_bytes + len(_NO_HEADERS)
        starts.append(write_varint(size) + slot + head + _pack_partition(index) + value_start)
        layout.append(f"{len(starts[-1])}sqi{text}{tail_bytes}s")
    make_packer = _shared_packer if len(indexes) <= _CACHED_STARTS_MAX else _packer
    return starts, make_packer("".join(layout))


def _packer(layout: str) -> Callable[..., bytes]:
    return Struct(layout).pack


_shared_packer = lru_cache(maxsize=256)(_packer)
"""Groups with names of equal length share a packer."""

_cached_frame = lru_cache(maxsize=1_024)(_frame)
"""A consumer commits the same partitions repeatedly."""


# ---------------------------------------------------------------- reading


class _Form:
    """Version and layout of a value.

    Args:
        tags: pattern of the bytes after the timestamp.
        layout: struct layout of timestamp and tags, which returns the timestamp and, if present, the topic id.
    """

    def __init__(self, value_version: int, tags: bytes, layout: str) -> None:
        no_headers = "x"
        rest = Struct(f">{layout}{no_headers}")
        self.read_rest = rest.unpack
        self.rest_bytes = rest.size
        self.rest = rb".{8}" + tags + re.escape(_NO_HEADERS)
        self.version = value_version.to_bytes(_VERSION_BYTES, "big")
        self.as_recorded = None if value_version == OFFSET_COMMIT_VALUE_VERSION else RecordForm(value_version)
        self.length_bytes = 1 if value_version >= OFFSET_COMMIT_VALUE_VERSION else 2


_PARTITION_BYTES, _VERSION_BYTES, _NUMBERS_BYTES = 4, 2, 12
_KEY_VERSION = b"\x00\x01"
_METADATA_LENGTH_MAX = 0x7E
_ALIKE_MAX = 256
_LAYOUTS_MAX = 2_048
_SLOTS = {encoded: slot for slot, encoded in enumerate(VARINTS)}
"""Offset deltas by their varints. Batches with larger ones take the general path."""

_FORMS = (
    _Form(4, rb"\x01\x00\x10(?!\x00{16}).{16}", "q3x16s"),  # zero ids take the general path
    _Form(4, rb"\x00", "qx"),  # without a topic id
    _Form(3, b"", "q"),  # Kafka 2.1 to 4.0
)


class FoundCommit(NamedTuple):
    """Adjacent commits of one topic with the same layout, not decoded yet.

    Attributes:
        log_offset: offset of the first one in the log.
        names: group and topic.
        metadata: ASCII of equal length.
        rest: the value after the metadata.
    """

    log_offset: int
    names: tuple[str, str]
    partition_indexes: tuple[int, ...]
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    metadata: tuple[bytes, ...]
    rest: bytes
    form: _Form

    def to_topic(self) -> CommittedTopic:
        _, (group_id, topic), indexes, offsets, leader_epochs, texts, rest, form = self
        timestamp_ms, *topic_ids = form.read_rest(rest)
        topic_id = topic_id_of(topic_ids[0]) if topic_ids else ZERO_UUID
        metadata = AsciiTexts(texts) if texts[0] else None
        kind = make_commit_kind(
            (
                group_id,
                topic,
                topic_id,
                timestamp_ms,
                NO_TIMESTAMP,
                NO_PRODUCER_ID,
                NO_PRODUCER_EPOCH,
                form.as_recorded,
            )
        )
        return make_committed_topic((kind, make_columns((indexes, offsets, leader_epochs, metadata))))


_make_found = maker(FoundCommit)


class _Layout:
    """Layout of records with parts of equal lengths.

    Args:
        size, slot_bytes, key_bytes, text_length: lengths of a record, its offset delta, key and metadata.

    Attributes:
        size_bytes: bytes of a record with its length.
        match: matches such a record and the following ones with the same group, topic and rest of the value; the groups
            of the match are the names with their lengths, and the rest.
    """

    __slots__ = ("_record", "form", "match", "size_bytes")

    def __init__(self, size: int, slot_bytes: int, key_bytes: int, text_length: int, form: _Form) -> None:
        length, key_length = write_varint(size), write_varint(key_bytes)
        self.form = form
        self.size_bytes = len(length) + size
        names_bytes = key_bytes - len(_KEY_VERSION) - _PARTITION_BYTES
        value_bytes = _VERSION_BYTES + _NUMBERS_BYTES + form.length_bytes + text_length + form.rest_bytes - 1
        value_start = write_varint(value_bytes) + form.version
        text_start = bytes([text_length + 1]) if form.length_bytes == 1 else text_length.to_bytes(2, "big")
        head, names_head = length + b"\x00", key_length + _KEY_VERSION
        slot = rb"[\x00-\x7f]" if slot_bytes == 1 else rb"[\x80-\xff][\x00-\x7f]"
        start = re.escape(head) + rb"[\x00-\x7f]" + slot + re.escape(names_head)  # the timestamp delta has one byte
        value = b".{4}" + re.escape(value_start) + b".{12}" + re.escape(text_start)
        value += rb"[\x00-\x7f]{%d}" % text_length
        first = start + b"(.{%d})" % names_bytes + value + b"(" + form.rest + b")"
        others = rb"(?:%b\1%b\2){0,%d}+" % (start, value, _ALIKE_MAX - 1)
        self.match = re.compile(first + others, re.DOTALL).match
        self._record = (
            f"{len(head) + 1}x{slot_bytes}s{len(names_head) + names_bytes}xi"
            f"{len(value_start)}xqi{len(text_start)}x{text_length}s{form.rest_bytes}x"
        )

    @lru_cache(maxsize=_ALIKE_MAX)  # noqa: B019 - layouts are remembered anyway
    def columns(self, count: int) -> Callable[[bytes, int], tuple[Any, ...]]:
        """Return an unpacker of offset delta, partition, offset, leader epoch and metadata of ``count`` records."""
        return Struct(">" + self._record * count).unpack_from


_cached_layout = lru_cache(_LAYOUTS_MAX)(_Layout)
_layouts: dict[bytes, _Layout] = {}
"""The last layout by the first two bytes of a record, which begin with its length."""


def read_commits(batch: Batch) -> list[FoundCommit] | None:
    """Return the commits of a batch without decoding them, in order; None if the batch may hold anything else."""
    if batch.magic != MAGIC_V2 or batch.attributes & ~DELETE_HORIZON:
        return None
    data = batch.to_bytes()
    found: list[FoundCommit] = []
    position, left = BATCH_HEADER_BYTES, batch.record_count
    try:
        while left > 0:
            length = data[position : position + 2]
            layout = _layouts.get(length)
            match = layout.match(data, position) if layout else None
            if match is None:
                layout = _layouts[length] = _find_layout(data, position)
                match = layout.match(data, position)
                if match is None:
                    return None
            assert layout is not None
            end = match.end()
            count = (end - position) // layout.size_bytes
            _collect(batch.base_offset, layout, match, layout.columns(count)(data, position), found)
            position = end
            left -= count
    except (StructError, MalformedError, UnicodeDecodeError, IndexError, KeyError):
        return None
    return found if position == len(data) and not left else None


def _find_layout(data: bytes, position: int) -> _Layout:
    size, start = _small_varint(data, position)
    slot = start + 2  # after attributes and a timestamp delta of one byte
    _, key_length = _small_varint(data, slot)
    key_bytes, key = _small_varint(data, key_length)
    value_bytes, version = _small_varint(data, key + key_bytes)
    text = version + _VERSION_BYTES + _NUMBERS_BYTES
    if version + value_bytes + len(_NO_HEADERS) != start + size or key_bytes <= len(_KEY_VERSION) + _PARTITION_BYTES:
        raise MalformedError("a record of another kind")
    for form in _FORMS:
        text_length = version + value_bytes - (text + form.length_bytes + form.rest_bytes - len(_NO_HEADERS))
        is_of_version = data[version : version + _VERSION_BYTES] == form.version
        stated = data[text] - 1 if form.length_bytes == 1 else int.from_bytes(data[text : text + 2], "big")
        if is_of_version and 0 <= text_length <= _METADATA_LENGTH_MAX and stated == text_length:
            return _cached_layout(size, key_length - slot, key_bytes, text_length, form)
    raise MalformedError("a value of another form")


def _small_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a non-negative number of one or two bytes, and the position after it."""
    raw, end = data[position], position + 1
    if raw > 0x7F:
        raw, end = raw & 0x7F | data[end] << 7, end + 1
    if raw & 1 or raw > 0x3FFF:
        raise MalformedError("a negative length, or a long one")
    return raw >> 1, end


def _collect(
    base_offset: int, layout: _Layout, match: re.Match[bytes], fields: tuple[Any, ...], found: list[FoundCommit]
) -> None:
    """Add commits of one layout: at once if they are adjacent, as in logs that were not compacted."""
    slots, indexes, offsets, leader_epochs, texts = fields[0::5], fields[1::5], fields[2::5], fields[3::5], fields[4::5]
    names, rest = match.groups()
    strings, form, count = offset_key_strings(_KEY_VERSION + names), layout.form, len(slots)
    slot = _SLOTS[slots[0]]
    if slots == VARINTS[slot : slot + count]:
        found.append(_make_found((base_offset + slot, strings, indexes, offsets, leader_epochs, texts, rest, form)))
        return
    places = [_SLOTS[encoded] for encoded in slots]
    breaks = [place for place in range(1, count) if places[place] != places[place - 1] + 1]
    for start, end in pairwise([0, *breaks, count]):
        columns = (indexes[start:end], offsets[start:end], leader_epochs[start:end], texts[start:end])
        found.append(_make_found((base_offset + places[start], strings, *columns, rest, form)))
