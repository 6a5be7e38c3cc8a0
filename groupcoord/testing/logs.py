"""Hypothesis strategies for valid logs of ``__consumer_offsets``, for tests of anything that reads them.

Everything that brokers from 0.9 to 4.4 write is in them: every record type and version, message formats v0 to v2, every
codec, transactions that are committed, aborted or still open, and what compaction leaves. Every example is valid, and
says what a decoder must find in it.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen
from hypothesis import strategies as st

from groupcoord.records.batches import BatchRecord
from groupcoord.records.compression import Compression
from groupcoord.records.schemas import RecordType
from groupcoord.records.typed import TypedRecord, build_record
from groupcoord.testing.log_bytes import encode_any_batch, encode_messages
from groupcoord.testing.record_values import assignments, names, subscriptions, typed_records

__all__ = [
    "GeneratedBatch",
    "GeneratedLog",
    "assignments",
    "batches",
    "logs",
    "record_bytes",
    "records",
    "subscriptions",
]

EVERY_TYPE = tuple(RecordType)
EVERY_CODEC = tuple(Compression)
FORMATS = (0, 1, 2)
MAGIC_V0, MAGIC_V2 = 0, 2
RECORDS_MAX = 5
BATCHES_MAX = 6
GAP_MAX = 3

_offsets = st.integers(0, 2**40)
_timestamps = st.integers(0, 4_102_444_800_000)
_producer_ids = st.integers(0, 2**62)
_int32s = st.integers(-(2**31), 2**31 - 1)


@frozen
class GeneratedBatch:
    """A batch, or the messages of formats v0 and v1 that were written together, and what is in it.

    Attributes:
        data: the bytes.
        records: ``(offset, timestamp_ms, key, value)`` of each record; the timestamp is -1 in format v0.
        next_offset: the offset after its last slot.
        producer_id: -1 if there is none.
        producer_epoch: goes with it.
        is_transactional: the records belong to a transaction.
        is_control: they are markers.
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
    """A segment file: batches back to back, in order of their offsets."""

    batches: tuple[GeneratedBatch, ...]

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
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
    """Return records and tombstones, field by field, in every version that a broker wrote.

    Args:
        types: which of them; at least one.
        group_ids: the groups that they are about.
        unknown_tags: put tagged fields of versions to come into flexible values (KIP-915).
    """
    return typed_records(st.sampled_from(sorted(types)), group_ids, unknown_tags=unknown_tags)


def record_bytes(
    *, records: st.SearchStrategy[TypedRecord] | None = None, unknown_records: bool = True
) -> st.SearchStrategy[tuple[bytes, bytes | None]]:
    """Return keys and values as bytes.

    Args:
        records: what is in them; all of :func:`records` by default.
        unknown_records: put records of types and versions to come among them.
    """
    known = (_default_records if records is None else records).map(build_record)
    return known | _unknown_records if unknown_records else known


_default_records = records()
_unknown_types = st.integers(100, 2**15 - 1).map(lambda number: number.to_bytes(2, "big"))
_contents = st.binary(max_size=20)
_unknown_records = st.one_of(
    st.tuples(st.builds(bytes.__add__, _unknown_types, _contents), st.none() | _contents),
    st.tuples(
        records(unknown_tags=False).map(lambda record: build_record(record)[0]),
        st.builds(bytes.__add__, _unknown_types, _contents),
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
    """Return batches of records that belong to no transaction.

    Args:
        keys_and_values: what is in them; all of :func:`record_bytes` by default.
        base_offsets: where they start.
        formats: message formats, of 0, 1 and 2.
        codecs: how they are compressed. Zstd is for format 2 alone; where it meets another one, nothing is compressed.
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
        headers = draw(st.lists(st.tuples(_contents, st.none() | _contents), max_size=1))
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
    """Return records with gaps between their offsets, and the last slot's offset."""
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
    """Return the batches of a transaction and its marker; some are without a batch, some without a marker."""
    producer_id, producer_epoch = draw(_producer_ids), draw(st.integers(0, 2**15 - 1))
    made: list[GeneratedBatch] = []
    for _ in range(draw(st.integers(0, 2))):
        found, last_offset = draw(_placed_records(keys_and_values, base_offset, MAGIC_V2))
        data = encode_any_batch(
            found,
            base_offset=base_offset,
            last_offset=last_offset,
            codec=draw(st.sampled_from(sorted(codecs))),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        made.append(GeneratedBatch(data, tuple(found), last_offset + 1, producer_id, producer_epoch, True))
        base_offset = last_offset + 1
    if draw(st.booleans()):
        key = bytes((0, 0, 0, draw(st.integers(0, 1))))
        value = b"\x00\x00" + draw(_int32s).to_bytes(4, "big", signed=True)
        marker = (base_offset, draw(_timestamps), key, value)
        data = encode_any_batch(
            [marker],
            base_offset=base_offset,
            last_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=True,
        )
        made.append(GeneratedBatch(data, (marker,), base_offset + 1, producer_id, producer_epoch, True, True))
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
    """Return logs; the empty one is among them.

    Args:
        keys_and_values: what is in their batches; all of :func:`record_bytes` by default.
        formats: message formats, as for :func:`batches`; older ones may follow newer ones.
        codecs: how batches are compressed.
        transactions: put transactions among them: committed, aborted, open, and markers whose batches compaction took.
        emptied_batches: put batches among them that compaction left without records.
        max_batches: how many batches of no transaction at most.
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
            # A gap before it keeps its first slots behind those of the batch before.
            base_offsets = st.just(offset + GAP_MAX)
            made.append(
                draw(batches(keys_and_values=content, base_offsets=base_offsets, formats=formats, codecs=codecs))
            )
        offset = made[-1].next_offset if made else offset
    return GeneratedLog(tuple(made))
