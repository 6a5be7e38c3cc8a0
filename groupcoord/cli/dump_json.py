"""Records as JSON lines in the shape of Kafka's own formatters.

Committed offsets, which are nearly all of a log, go from bytes to text at once; the rest by way of dicts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812

from groupcoord.cli.dump_selection import CONTROL, Selection
from groupcoord.records.batches import CONTROL as CONTROL_BIT
from groupcoord.records.batches import TRANSACTIONAL as TRANSACTIONAL_BIT
from groupcoord.records.batches import BatchRecord
from groupcoord.records.describe import control_name, describe_control, describe_record, describe_value, record_name
from groupcoord.records.salvage import SoundBatch
from groupcoord.records.schemas import RecordType
from groupcoord.records.structures import uuid_text
from groupcoord.records.typed import group_id_of, parse_key

#: What the lines of a batch have in common: their start, what stands between timestamp and type, and that for offsets.
_Frame = tuple[str, str, str]

_FLAGS = TRANSACTIONAL_BIT | CONTROL_BIT
_CACHED_NAMES_MAX = 65_536
_OFFSET_COMMIT_KEY = b"\x00\x01"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_unpack_int32 = Struct(">i").unpack
_unpack_v4_head = Struct(">hqiB").unpack_from
_unpack_v3_head = Struct(">hqih").unpack_from
_unpack_older_head = Struct(">hqh").unpack_from
_unpack_int64 = Struct(">q").unpack_from
_ONE_TAG_WITH_TOPIC_ID = b"\x01\x00\x10"


class JsonLines:
    """Makes one line for each selected record.

    Args:
        selection: which records are wanted.
        raw: print bytes inside records in base 64, as Kafka does, and leave them as they are.
    """

    def __init__(self, selection: Selection, *, raw: bool = False) -> None:
        self._selection = selection
        self._raw = raw
        self._wants_offsets = selection.has_type(RecordType.OFFSET_COMMIT.name)
        # Key bytes without type and partition → the start of the key's JSON; "" if the group is not wanted.
        self._names: dict[bytes, str | None] = {}

    def lines(self, partition: int | None, sound: SoundBatch) -> list[str]:
        """Return the lines of a batch, without line ends."""
        batch = sound.batch
        records = self._selection.in_time(sound.records)
        frame = _frame(partition, batch.producer_id, batch.producer_epoch, batch.attributes & _FLAGS)
        if batch.attributes & CONTROL_BIT:
            return self._control_lines(records, frame)
        return self._data_lines(records, frame)

    def _data_lines(self, records: Sequence[BatchRecord], frame: _Frame) -> list[str]:
        start, producer, offset_commit = frame
        names_of = self._names
        lines: list[str] = []
        for offset, timestamp_ms, key, value in records:
            if key is not None and key[:2] == _OFFSET_COMMIT_KEY:
                if not self._wants_offsets:
                    continue
                names = key[2:-4]
                start_of_key = names_of[names] if names in names_of else self._find_names(names, key)
                if start_of_key is not None:
                    if start_of_key:
                        text = "null" if value is None else _offset_value_json(value)
                        lines.append(
                            f'{start}{offset},"timestamp":{timestamp_ms}{offset_commit}{start_of_key}'
                            f'{_unpack_int32(key[-4:])[0]}}}}},"value":{text}}}'
                        )
                    continue
            name = record_name(key)
            described = self._described(name, key, value)
            if described is not None:
                lines.append(f'{start}{offset},"timestamp":{timestamp_ms}{producer}{name}",{described}')
        return lines

    def _find_names(self, names: bytes, key: bytes) -> str | None:
        """Return the start of an offset key's JSON, "" if its group is not wanted, None if the key is malformed."""
        parsed = parse_key(key)
        found: str | None = None
        if parsed is not None:
            fields = parsed[1]
            found = ""
            if self._selection.has_group(fields["group"]):
                found = f'"group":{_encode(fields["group"])},"topic":{_encode(fields["topic"])},"partition":'
        if len(self._names) >= _CACHED_NAMES_MAX:
            self._names.clear()
        self._names[names] = found
        return found

    def _described(self, name: str, key: bytes | None, value: bytes | None) -> str | None:
        """Return the last part of a record's line; None if it is not wanted."""
        if not self._selection.has_type(name):
            return None
        described = describe_record(key, value, raw=self._raw)
        fields = described["key"].get("data") if described["key"] is not None else None
        if not self._selection.has_group(None if fields is None else group_id_of(fields)):
            return None
        return _encode(described)[1:]

    def _control_lines(self, records: Sequence[BatchRecord], frame: _Frame) -> list[str]:
        start, producer, _ = frame
        if not (self._selection.has_type(CONTROL) and self._selection.has_group(None)):
            return []
        return [
            f'{start}{offset},"timestamp":{timestamp_ms}{producer}{control_name(key)}",'
            f"{_encode(describe_control(key, value))[1:]}"
            for offset, timestamp_ms, key, value in records
        ]


@lru_cache(1_024)
def _frame(partition: int | None, producer_id: int, producer_epoch: int, attributes: int) -> _Frame:
    start = f'{{"partition":{"null" if partition is None else partition},"offset":'
    producer = (
        f',"producerId":{producer_id},"producerEpoch":{producer_epoch},'
        f'"isTransactional":{_bool(attributes & TRANSACTIONAL_BIT)},'
        f'"isControl":{_bool(attributes & CONTROL_BIT)},"recordType":"'
    )
    return start, producer, producer + 'OFFSET_COMMIT","key":{"type":1,"data":{'


def _bool(value: int) -> str:
    return "true" if value else "false"


def _offset_value_json(value: bytes) -> str:
    """Return the JSON of a committed offset's value: the usual shapes at once, any other like all records."""
    try:
        text = _v4_json(value) if value[:2] == b"\x00\x04" else _older_json(value)
    except (StructError, UnicodeDecodeError, IndexError):
        text = None
    return _encode(describe_value(RecordType.OFFSET_COMMIT, value)) if text is None else text


def _v4_json(value: bytes) -> str | None:
    """Metadata of less than 127 bytes, with a topic id as the one tag or without tags."""
    _, offset, epoch, length = _unpack_v4_head(value)
    if not 0 < length < 128:
        return None
    end = length + 14
    metadata = '""' if length == 1 else _encode(value[15:end].decode())
    if len(value) == end + 27 and value[end + 8 : end + 11] == _ONE_TAG_WITH_TOPIC_ID:
        topic_id = f',"topicId":"{uuid_text(value[-16:])}"'
    elif len(value) == end + 9 and value[-1] == 0:
        topic_id = ""
    else:
        return None
    return (
        f'{{"version":4,"data":{{"offset":{offset},"leaderEpoch":{epoch},"metadata":{metadata},'
        f'"commitTimestamp":{_unpack_int64(value, end)[0]}{topic_id}}}}}'
    )


def _older_json(value: bytes) -> str | None:
    """Versions 0 to 3, which have no tags: version 3 has a leader epoch, version 1 an expiry at the end."""
    epoch = expiry = ""
    if value[:2] == b"\x00\x03":
        version, offset, leader_epoch, length = _unpack_v3_head(value)
        epoch, start = f'"leaderEpoch":{leader_epoch},', 16
    else:
        version, offset, length = _unpack_older_head(value)
        start = 12
    end = start + length
    if version == 1:
        expiry = f',"expireTimestamp":{_unpack_int64(value, end + 8)[0]}'
    if length < 0 or not 0 <= version <= 3 or len(value) != end + (16 if version == 1 else 8):
        return None
    metadata = _encode(value[start:end].decode())
    return (
        f'{{"version":{version},"data":{{"offset":{offset},{epoch}"metadata":{metadata},'
        f'"commitTimestamp":{_unpack_int64(value, end)[0]}{expiry}}}}}'
    )
