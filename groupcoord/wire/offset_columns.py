"""Column-wise codec of partitions in OffsetCommit and OffsetFetch: offsets, leader epochs, metadata, results.

Parts that the partitions of a topic have in common, usually the length of their metadata, are handled once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from groupcoord.core.columns import AsciiTexts, OffsetColumns, Widths, encode_each, make_columns, offset_columns
from groupcoord.core.messages import FetchedOffset, TopicResult
from groupcoord.core.messages.commits import PartitionResults, fetched_offsets, partition_results
from groupcoord.errors import ErrorCode
from groupcoord.schema import primitives
from groupcoord.schema.engine import ALONE, PROTOCOL, parse_structures, reader_of
from groupcoord.schema.primitives import (
    INT16_FROM,
    INT32,
    INT32_FROM,
    UTF8_AS_JAVA,
    Reader,
    write_compact_string_length,
    write_string_length,
)

COLUMNS_MAX = 256
"""Partitions handled at a time, so that a layout takes little memory."""

_LAYOUTS_MAX = 128
_CACHED_RESULTS_MAX, _CACHED_NAME_LENGTH_MAX = 64, 256
_ALIKE_MAX = 0x7F
"""Bound of the numbers of partitions and of bytes of metadata whose varint has one byte."""

_ROWS = parse_structures(
    """
    Partition: partition_index int32, committed_offset int64, leader_epoch int32 1+ = -1, metadata string?
    Partitions: partitions Partition[]
    """,
    made={"Partitions": ALONE},
)["Partitions"]
"""Partitions of a topic in a commit; version 0 has no leader epochs."""

OffsetsReader = Callable[[bytes, int], tuple[OffsetColumns, int]]


def offsets_reader(*, has_leader_epoch: bool, is_flexible: bool) -> OffsetsReader:
    """Return a reader of the partitions of a topic in a commit, including their number.

    Args:
        has_leader_epoch: whether partitions have a leader epoch; otherwise it is -1.
        is_flexible: whether lengths are varints and tagged fields follow.
    """
    numbers = struct.Struct(">iqi" if has_leader_epoch else ">iq")
    size_at = numbers.size  # of the metadata, in the bytes of a partition
    size_place = len(numbers.format) - 1  # in the fields of a partition
    read_rows = reader_of(_ROWS, int(has_leader_epoch), is_flexible, PROTOCOL, has_end=False)
    read_one_by_one = partial(_read_one_by_one, read_rows)

    @lru_cache(maxsize=_LAYOUTS_MAX)
    def layout_of(size: int, count: int) -> tuple[Callable[[bytes, int], tuple[Any, ...]], int, int]:
        text = f"{size - is_flexible}s" if size > is_flexible else ""
        partition = numbers.format[1:] + (f"B{text}B" if is_flexible else f"h{text}")
        partitions = struct.Struct(">" + partition * count)
        return partitions.unpack_from, partitions.size, size_place + 1 + bool(text) + is_flexible

    def read(frame: bytes, position: int) -> tuple[OffsetColumns, int]:
        # Usually metadata have equal length: then all are read at once.
        if is_flexible:
            count, start = frame[position] - 1, position + 1
            size = frame[start + size_at] if 0 < count < _ALIKE_MAX else 0
        else:
            count, start = INT32_FROM(frame, position)[0], position + 4
            size = INT16_FROM(frame, start + size_at)[0] if 0 < count < _ALIKE_MAX else -1
        if not is_flexible <= size < _ALIKE_MAX:
            return read_one_by_one(frame, position)
        unpack, total_bytes, width = layout_of(size, count)
        end = start + total_bytes
        if end > len(frame):
            return read_one_by_one(frame, position)
        fields = unpack(frame, start)
        if is_flexible and fields[width - 1 :: width].count(0) != count:  # of tagged fields
            return read_one_by_one(frame, position)
        if fields[size_place::width].count(size) != count:
            return read_one_by_one(frame, position)
        leader_epochs = fields[2::width] if has_leader_epoch else (-1,) * count
        metadata = None
        if size > is_flexible:
            metadata = _texts(fields[size_place + 1 :: width])
        return make_columns((fields[0::width], fields[1::width], leader_epochs, metadata)), end

    return read


def _read_one_by_one(
    read_rows: Reader[list[tuple[Any, ...]]], frame: bytes, position: int
) -> tuple[OffsetColumns, int]:
    rows, position = read_rows(frame, position)
    # Not transposed by zip, which takes an iterator for each of up to a million rows.
    indexes, offsets, leader_epochs = ([row[place] for row in rows] for place in range(3))
    return offset_columns(indexes, offsets, leader_epochs, [row[3] or "" for row in rows]), position


def _texts(encoded: tuple[bytes, ...]) -> Sequence[str]:
    if b"".join(encoded).isascii():
        return AsciiTexts(encoded)
    return tuple([str(text, "utf-8", UTF8_AS_JAVA) for text in encoded])


# ---------------------------------------------------------------- offsets


class OffsetsWriter:
    """Encodes the partitions of a topic in an OffsetFetch response and their number.

    Its arguments are those of :func:`offsets_reader`.
    """

    def __init__(self, *, has_leader_epoch: bool, is_flexible: bool) -> None:
        self._numbers = "iqi" if has_leader_epoch else "iq"
        self._has_leader_epoch = has_leader_epoch
        self._write_count = (primitives.FLEXIBLE if is_flexible else primitives.PLAIN).write_length
        self._write_length = write_compact_string_length if is_flexible else write_string_length
        self._nothing = self._write_length(0)
        self._error, self._no_error = ("hx", "3x") if is_flexible else ("h", "2x")
        self._pack_of = lru_cache(maxsize=_LAYOUTS_MAX)(self._pack)

    def write(self, partitions: Sequence[FetchedOffset]) -> bytes:
        fetched = fetched_offsets(partitions)
        columns, error_codes = fetched.columns, fetched.error_codes
        count = len(columns[0])
        if count <= COLUMNS_MAX:
            return self._write_count(count) + self._write(columns, error_codes)
        written = [self._write_count(count)]
        for start in range(0, count, COLUMNS_MAX):
            part = slice(start, start + COLUMNS_MAX)
            errors = None if error_codes is None else error_codes[part]
            written.append(self._write(columns.select(range(count)[part]), errors))
        return b"".join(written)

    def _pack(self, widths: Widths | None, count: int, rest: str) -> Callable[..., bytes]:
        """Return ``Struct.pack`` of ``count`` rows; ``widths``: lengths of the metadata, common or by row, or None."""
        if widths is None:
            texts = [f"{len(self._nothing)}s"] * count
        else:
            each = (widths,) * count if isinstance(widths, int) else widths
            texts = [f"{len(self._write_length(width))}s{width}s" for width in each]
        return struct.Struct(">" + "".join([f"{self._numbers}{text}{rest}" for text in texts])).pack

    def _write(self, columns: OffsetColumns, error_codes: Sequence[int] | None) -> bytes:
        indexes, offsets, leader_epochs, metadata = columns
        count = len(indexes)
        rest = self._no_error if error_codes is None else self._error
        text_at = len(self._numbers)
        width = text_at + 1 + (metadata is not None) + (error_codes is not None)
        fields: list[object] = [self._nothing] * (width * count)
        widths = None
        fields[0::width] = indexes
        fields[1::width] = offsets
        if self._has_leader_epoch:
            fields[2::width] = leader_epochs
        if metadata is not None:
            fields[text_at::width], fields[text_at + 1 :: width], widths = encode_each(metadata, self._write_length)
        if error_codes is not None:
            fields[width - 1 :: width] = error_codes
        return self._pack_of(widths, count, rest)(*fields)


# ---------------------------------------------------------------- results


class ResultsWriter:
    """Encodes the topics of OffsetCommit and TxnOffsetCommit responses.

    Args:
        errors: replacements of error codes that a version does not know.
        is_flexible: whether lengths are varints and tagged fields follow.
        uses_topic_ids: whether topics are named by id.
    """

    def __init__(
        self, errors: Mapping[ErrorCode, ErrorCode], *, is_flexible: bool, uses_topic_ids: bool = False
    ) -> None:
        self._errors = errors
        self._is_flexible = is_flexible
        self._uses_topic_ids = uses_topic_ids
        self._row = "ihx" if is_flexible else "ih"
        self._pack_of = lru_cache(maxsize=_LAYOUTS_MAX)(self._pack)
        self._one = self._write_count(1)
        self._write_few_accepted = lru_cache(maxsize=1_024)(self._write_accepted)

    def write(self, topics: Sequence[TopicResult]) -> bytes:
        if len(topics) == 1:  # nearly always
            return self._one + self._write_result(topics[0])
        parts = [self._write_count(len(topics))]
        parts += [self._write_result(topic) for topic in topics]
        return b"".join(parts)

    def _write_result(self, result: TopicResult) -> bytes:
        name, topic_id, results = result
        if type(results) is not PartitionResults:
            results = partition_results(results)
        indexes = results.partition_indexes
        topic = topic_id.bytes if self._uses_topic_ids else name or ""
        if results.error_codes is None:
            is_small = len(indexes) <= _CACHED_RESULTS_MAX and len(topic) <= _CACHED_NAME_LENGTH_MAX
            return (self._write_few_accepted if is_small else self._write_accepted)(topic, indexes)
        return self._write_topic(topic, indexes, self._write_rows(indexes, results.error_codes))

    def _write_rows(self, indexes: tuple[int, ...], error_codes: tuple[ErrorCode, ...]) -> bytes:
        rows = []
        for start in range(0, len(indexes), COLUMNS_MAX):
            part = slice(start, start + COLUMNS_MAX)
            columns: list[int] = [0] * (2 * len(indexes[part]))
            columns[0::2] = indexes[part]
            columns[1::2] = [self._errors.get(error, error) for error in error_codes[part]]
            rows.append(self._pack_of(len(columns) // 2)(*columns))
        return b"".join(rows)

    def _write_count(self, count: int) -> bytes:
        return primitives.write_uvarint(count + 1) if self._is_flexible else INT32.pack(count)

    def _pack(self, count: int) -> Callable[..., bytes]:
        return struct.Struct(">" + self._row * count).pack

    def _write_accepted(self, topic: str | bytes, indexes: tuple[int, ...]) -> bytes:
        return self._write_topic(topic, indexes, self._write_rows(indexes, (ErrorCode.NONE,) * len(indexes)))

    def _write_topic(self, topic: str | bytes, indexes: tuple[int, ...], rows: bytes) -> bytes:
        if isinstance(topic, str):
            write_string = primitives.write_compact_string if self._is_flexible else primitives.write_string
            topic = write_string(topic)
        return b"".join([topic, self._write_count(len(indexes)), rows, b"\x00" if self._is_flexible else b""])
