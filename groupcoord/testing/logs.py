"""Hypothesis strategies for logs as bytes, in every format that brokers have written.

Use them for code that reads segment files of ``__consumer_offsets``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from struct import Struct, pack
from typing import Any

from attrs import frozen
from hypothesis import strategies as st

from groupcoord.core.consumer_protocol import NEWEST_VERSION, write_assignment, write_subscription
from groupcoord.records.batches import (
    CONTROL,
    LOG_APPEND_TIME,
    MAGIC_V2,
    TRANSACTIONAL,
    BatchRecord,
    pack_covered,
    seal,
    sized,
)
from groupcoord.records.compression import Compression, compress, xxh32_short
from groupcoord.records.legacy import MAGIC_V0, MAGIC_V1
from groupcoord.records.schemas import SCHEMAS, RecordType
from groupcoord.records.typed import TypedRecord, build_record
from groupcoord.schema.engine import (
    BYTES,
    STRING,
    UNKNOWN_TAGS,
    Array,
    Field,
    FieldType,
    Scalar,
    Structure,
    Values,
    uuid_text,
)
from groupcoord.schema.primitives import write_varint

FIRST_UNKNOWN_TAG = 100
ELEMENTS_MAX = 3
_PROTOCOL_FIELDS = ("subscription", "assignment", "metadata")
TAGS_MAX = 2
_TAG_DEFAULTS = (0, -1, uuid_text(bytes(16)))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.sampled_from("abcäz019._-"), min_size=1, max_size=8)

_int32s = st.integers(-(2**31), 2**31 - 1)
_user_data = st.none() | st.binary(max_size=12)
_topic_partitions = st.lists(
    st.fixed_dictionaries({"topic": texts, "partitions": st.lists(_int32s, max_size=ELEMENTS_MAX)}),
    max_size=ELEMENTS_MAX,
)
_protocol_versions = st.integers(0, NEWEST_VERSION)


@st.composite
def _typed_records(
    draw: st.DrawFn, types: st.SearchStrategy[RecordType], group_ids: st.SearchStrategy[str], *, unknown_tags: bool
) -> TypedRecord:
    record_type = draw(types)
    schema = SCHEMAS[record_type]
    key = draw(_structures(schema.key, 0, False, False))
    key[schema.key.fields[0].name] = draw(group_ids)
    version = draw(st.integers(-1, schema.newest_version))
    if version < 0:
        return TypedRecord(record_type, key)
    value = draw(_structures(schema.value, version, version >= schema.first_flexible, unknown_tags))
    return TypedRecord(record_type, key, version, value)


def subscriptions() -> st.SearchStrategy[bytes]:
    """Return subscriptions of consumers in every version."""
    fields = st.fixed_dictionaries(
        {
            "topics": st.lists(texts, max_size=ELEMENTS_MAX),
            "userData": _user_data,
            "ownedPartitions": _topic_partitions,
            "generationId": _int32s,
            "rackId": st.none() | texts,
        }
    )
    return st.builds(write_subscription, fields, _protocol_versions)


def assignments() -> st.SearchStrategy[bytes]:
    """Return assignments of consumers in every version."""
    fields = st.fixed_dictionaries({"assignedPartitions": _topic_partitions, "userData": _user_data})
    return st.builds(write_assignment, fields, _protocol_versions)


def _structures(schema: Structure, version: int, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[Values]:
    present = [field for field in schema.fields if field.since <= version <= field.until]
    plain = {field.name: _fields(field, version, flexible, unknown_tags) for field in present if field.tag is None}
    tagged = {
        # A tagged field with its default value is never written.
        field.name: _fields(field, version, flexible, unknown_tags).filter(_is_no_default(field))
        for field in present
        if field.tag is not None
    }
    if flexible and unknown_tags:
        tags = st.tuples(st.integers(FIRST_UNKNOWN_TAG, 2**30), st.binary(max_size=8))
        tagged[UNKNOWN_TAGS] = st.lists(tags, min_size=1, max_size=TAGS_MAX, unique_by=lambda tag: tag[0]).map(sorted)
    return st.fixed_dictionaries(plain, optional=tagged)


def _is_no_default(field: Field) -> Callable[[Any], bool]:
    if not field.nullable:
        return lambda value: value not in _TAG_DEFAULTS
    if isinstance(field.type, Structure):
        return lambda value: value is None or any(value.values())
    return lambda value: value is None or bool(value)


def _fields(field: Field, version: int, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[Any]:
    content: st.SearchStrategy[Any] = _contents(field.type, version, flexible, unknown_tags)
    if field.type is BYTES and field.name in _PROTOCOL_FIELDS:
        content |= assignments() if field.name == "assignment" else subscriptions()
    elif field.name == "protocolType":
        content |= st.sampled_from(["consumer", "connect", ""])
    return st.none() | content if field.nullable else content


def _contents(kind: FieldType, version: int, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[Any]:
    if isinstance(kind, Scalar):
        bits = Struct(">" + kind.code).size * 8
        is_signed = kind.code.islower()
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
        return st.integers(low, high)
    if isinstance(kind, Array):
        return st.lists(_contents(kind.element, version, flexible, unknown_tags), max_size=ELEMENTS_MAX)
    if isinstance(kind, Structure):
        return _structures(kind, version, flexible, unknown_tags)
    if kind is STRING:
        return texts
    if kind is BYTES:
        return st.binary(max_size=12)
    return st.binary(min_size=16, max_size=16).map(uuid_text)


def encode_any_batch(
    records: Sequence[BatchRecord],
    *,
    base_offset: int,
    last_offset: int,
    codec: Compression = Compression.NONE,
    append_time_ms: int | None = None,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    base_timestamp_ms = records[0][1] if records else 0
    max_timestamp_ms = max((record[1] for record in records), default=0)
    if append_time_ms is not None:
        max_timestamp_ms = append_time_ms
    header_bytes = write_varint(len(headers)) + b"".join(sized(part) for header in headers for part in header)
    parts: list[bytes] = []
    for offset, timestamp_ms, key, value in records:
        body = b"\x00" + write_varint(timestamp_ms - base_timestamp_ms) + write_varint(offset - base_offset)
        body += sized(key) + sized(value) + header_bytes
        parts += (write_varint(len(body)), body)
    attributes = codec | (0 if append_time_ms is None else LOG_APPEND_TIME)
    attributes |= (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0)
    producer = producer_id, producer_epoch, base_sequence
    header = pack_covered(
        attributes, last_offset - base_offset, base_timestamp_ms, max_timestamp_ms, *producer, len(records)
    )
    return seal(base_offset, leader_epoch, header + compress(codec, b"".join(parts)))


def encode_messages(
    magic: int,
    records: Sequence[BatchRecord],
    *,
    codec: Compression = Compression.NONE,
    append_time_ms: int | None = None,
) -> bytes:
    """Return messages of format v0 or v1, consecutive or compressed in one message."""
    time_bit = 0 if append_time_ms is None else LOG_APPEND_TIME
    if codec is Compression.NONE:
        return b"".join(
            _message(magic, time_bit, offset, timestamp_ms if append_time_ms is None else append_time_ms, key, value)
            for offset, timestamp_ms, key, value in records
        )
    first_offset = records[0][0] if magic == MAGIC_V1 else 0
    inner = b"".join(
        _message(magic, time_bit, offset - first_offset, timestamp_ms, key, value)
        for offset, timestamp_ms, key, value in records
    )
    compressed = compress(codec, inner)
    if magic == MAGIC_V0 and codec is Compression.LZ4:
        # Their checksum covers the magic number, too (KAFKA-3160).
        compressed = compressed[:6] + bytes((xxh32_short(compressed[:6]) >> 8 & 0xFF,)) + compressed[7:]
    timestamp_ms = max(record[1] for record in records) if append_time_ms is None else append_time_ms
    return _message(magic, codec | time_bit, records[-1][0], timestamp_ms, None, compressed)


def _message(
    magic: int, attributes: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> bytes:
    covered = pack(">bb", magic, attributes) + (pack(">q", timestamp_ms) if magic == MAGIC_V1 else b"")
    covered += _int32_sized(key) + _int32_sized(value)
    return pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def _int32_sized(data: bytes | None) -> bytes:
    return pack(">i", -1) if data is None else pack(">i", len(data)) + data


EVERY_TYPE = tuple(RecordType)
EVERY_CODEC = tuple(Compression)
FORMATS = (0, 1, 2)
RECORDS_MAX = 5
BATCHES_MAX = 6
GAP_MAX = 3

_offsets = st.integers(0, 2**40)
_timestamps = st.integers(0, 4_102_444_800_000)
_producer_ids = st.integers(0, 2**62)


@frozen
class GeneratedBatch:
    """Batch, or messages of formats v0 and v1 written together, with its contents.

    Attributes:
        records: ``(offset, timestamp_ms, key, value)``; the timestamp is -1 in format v0.
        next_offset: offset after the last slot.
    """

    data: bytes
    records: tuple[BatchRecord, ...]
    next_offset: int
    producer_id: int = -1
    producer_epoch: int = -1
    is_transactional: bool = False
    is_control: bool = False


@frozen
class GeneratedLog:
    """Segment file: batches in the order of offsets."""

    batches: tuple[GeneratedBatch, ...]

    @property
    def data(self) -> bytes:
        """Bytes of the file."""
        return b"".join(batch.data for batch in self.batches)

    @property
    def records(self) -> tuple[BatchRecord, ...]:
        """All records."""
        return tuple(record for batch in self.batches for record in batch.records)


def records(
    *,
    types: Collection[RecordType] = EVERY_TYPE,
    group_ids: st.SearchStrategy[str] = names,
    unknown_tags: bool = True,
) -> st.SearchStrategy[TypedRecord]:
    """Return records and tombstones in every version that brokers have written.

    Args:
        types: at least one record type.
        group_ids: groups of the records.
        unknown_tags: add unknown tagged fields to flexible values (KIP-915).
    """
    return _typed_records(st.sampled_from(sorted(types)), group_ids, unknown_tags=unknown_tags)


def record_bytes(
    *, records: st.SearchStrategy[TypedRecord] | None = None, unknown_records: bool = True
) -> st.SearchStrategy[tuple[bytes, bytes | None]]:
    """Return keys and values as bytes.

    Args:
        records: default: :func:`records`.
        unknown_records: include records of unknown types and versions.
    """
    known = (_default_records if records is None else records).map(build_record)
    return known | _unknown_records if unknown_records else known


_default_records = records()
_unknown_types = st.integers(100, 2**15 - 1).map(lambda number: number.to_bytes(2, "big"))
_payloads = st.binary(max_size=20)
_unknown_records = st.one_of(
    st.tuples(st.builds(bytes.__add__, _unknown_types, _payloads), st.none() | _payloads),
    st.tuples(
        records(unknown_tags=False).map(lambda record: build_record(record)[0]),
        st.builds(bytes.__add__, _unknown_types, _payloads),
    ),
)


@st.composite
def batches(
    draw: st.DrawFn,
    *,
    keys_and_values: st.SearchStrategy[tuple[bytes, bytes | None]] | None = None,
    base_offsets: st.SearchStrategy[int] = _offsets,
    formats: Collection[int] = FORMATS,
    codecs: Collection[Compression] = EVERY_CODEC,
) -> GeneratedBatch:
    """Return batches without transactions.

    Args:
        keys_and_values: default: :func:`record_bytes`.
        base_offsets: offsets near which the records begin.
        formats: message formats, of 0, 1 and 2.
        codecs: compressions; with zstd, batches of formats other than 2 are uncompressed.
    """
    magic = draw(st.sampled_from(sorted(formats)))
    codec = draw(st.sampled_from(sorted(codecs)))
    if magic < MAGIC_V2 and codec is Compression.ZSTD:
        codec = Compression.NONE
    append_time_ms = draw(st.none() | _timestamps) if magic > MAGIC_V0 else None
    content = record_bytes() if keys_and_values is None else keys_and_values
    found, last_offset = draw(_placed_records(content, draw(base_offsets), magic))
    if magic < MAGIC_V2:
        data = encode_messages(magic, found, codec=codec, append_time_ms=append_time_ms)
        last_offset = found[-1][0]
    else:
        headers = draw(st.lists(st.tuples(_payloads, st.none() | _payloads), max_size=1))
        data = encode_any_batch(
            found,
            base_offset=found[0][0] - draw(st.integers(0, min(GAP_MAX, found[0][0]))),
            last_offset=last_offset,
            codec=codec,
            append_time_ms=append_time_ms,
            leader_epoch=draw(st.integers(-1, 2**31 - 1)),
            headers=headers,
        )
    return GeneratedBatch(data, _timed(found, append_time_ms), last_offset + 1)


@st.composite
def _placed_records(
    draw: st.DrawFn, keys_and_values: st.SearchStrategy[tuple[bytes, bytes | None]], offset: int, magic: int
) -> tuple[list[BatchRecord], int]:
    found: list[BatchRecord] = []
    offset += draw(st.integers(0, GAP_MAX))
    for key, value in draw(st.lists(keys_and_values, min_size=1, max_size=RECORDS_MAX)):
        found.append((offset, -1 if magic == MAGIC_V0 else draw(_timestamps), key, value))
        offset += draw(st.integers(1, GAP_MAX))
    return found, offset - 1


def _timed(found: list[BatchRecord], append_time_ms: int | None) -> tuple[BatchRecord, ...]:
    if append_time_ms is None:
        return tuple(found)
    return tuple((offset, append_time_ms, key, value) for offset, _, key, value in found)


@st.composite
def _transactional(
    draw: st.DrawFn,
    keys_and_values: st.SearchStrategy[tuple[bytes, bytes | None]],
    base_offset: int,
    codecs: Collection[Compression],
) -> list[GeneratedBatch]:
    producer_id, producer_epoch = draw(_producer_ids), draw(st.integers(0, 2**15 - 1))
    made: list[GeneratedBatch] = []

    def add(found: list[BatchRecord], last_offset: int, *, is_control: bool = False, **options: Any) -> None:
        data = encode_any_batch(
            found,
            base_offset=base_offset,
            last_offset=last_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=is_control,
            **options,
        )
        batch = GeneratedBatch(data, tuple(found), last_offset + 1, producer_id, producer_epoch, True, is_control)
        made.append(batch)

    for _ in range(draw(st.integers(0, 2))):
        found, last_offset = draw(_placed_records(keys_and_values, base_offset, MAGIC_V2))
        add(found, last_offset, codec=draw(st.sampled_from(sorted(codecs))), base_sequence=0)
        base_offset = last_offset + 1
    if draw(st.booleans()):
        key = bytes((0, 0, 0, draw(st.integers(0, 1))))
        value = b"\x00\x00" + draw(_int32s).to_bytes(4, "big", signed=True)
        add([(base_offset, draw(_timestamps), key, value)], base_offset, is_control=True)
    return made


@st.composite
def logs(
    draw: st.DrawFn,
    *,
    keys_and_values: st.SearchStrategy[tuple[bytes, bytes | None]] | None = None,
    formats: Collection[int] = FORMATS,
    codecs: Collection[Compression] = EVERY_CODEC,
    transactions: bool = True,
    emptied_batches: bool = True,
    max_batches: int = BATCHES_MAX,
) -> GeneratedLog:
    """Return logs, also empty.

    Args:
        keys_and_values: default: :func:`record_bytes`.
        formats: as for :func:`batches`; older formats may follow newer ones.
        codecs: compressions.
        transactions: include committed, aborted and open transactions, and markers of compacted batches.
        emptied_batches: include batches without records, as compaction leaves them.
        max_batches: maximum number of batches; a transaction counts as one.
    """
    content = record_bytes() if keys_and_values is None else keys_and_values
    kinds = ["plain"] * 4 + ["transaction"] * transactions + ["emptied"] * emptied_batches
    made: list[GeneratedBatch] = []
    offset = draw(_offsets)
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=max_batches)):
        if kind == "transaction":
            made += draw(_transactional(content, offset, codecs))
        elif kind == "emptied":
            last_offset = offset + draw(st.integers(0, GAP_MAX))
            data = encode_any_batch([], base_offset=offset, last_offset=last_offset)
            made.append(GeneratedBatch(data, (), last_offset + 1))
        else:
            # A gap keeps its first slots after those of the batch before.
            base_offsets = st.just(offset + GAP_MAX)
            made.append(
                draw(batches(keys_and_values=content, base_offsets=base_offsets, formats=formats, codecs=codecs))
            )
        offset = made[-1].next_offset if made else offset
    return GeneratedLog(tuple(made))
