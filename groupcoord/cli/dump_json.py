"""JSON lines of ``groupcoord dump``, in the shape of Kafka's own formatters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from groupcoord.cli.dump_selection import CONTROL, Selection
from groupcoord.records.describe import control_name, describe_control, describe_record, record_name
from groupcoord.records.salvage import SoundBatch
from groupcoord.records.typed import group_id_of

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class DescribedRecord(NamedTuple):
    """One record as :mod:`groupcoord.records.describe` shows it.

    Attributes:
        record_type: Kafka's name of the type.
        group_id: the group that the record is about, if any.
        key, value: as JSON takes them.
    """

    offset: int
    timestamp_ms: int
    record_type: str
    group_id: str | None
    key: dict[str, Any] | None
    value: dict[str, Any] | None


def selected_records(sound: SoundBatch, selection: Selection, *, raw: bool = False) -> Iterator[DescribedRecord]:
    """Yield the selected records of a batch."""
    is_control = sound.batch.is_control
    for offset, timestamp_ms, key, value in selection.in_time(sound.records):
        name = control_name(key) if is_control else record_name(key)
        if not selection.has_type(CONTROL if is_control else name):
            continue
        described = describe_control(key, value) if is_control else describe_record(key, value, raw=raw)
        fields = None if is_control or described["key"] is None else described["key"].get("data")
        group_id = None if fields is None else group_id_of(fields)
        if selection.has_group(group_id):
            yield DescribedRecord(offset, timestamp_ms, name, group_id, described["key"], described["value"])


def record_lines(partition: int | None, sound: SoundBatch, selection: Selection, *, raw: bool) -> list[str]:
    """Return a line for each selected record of a batch, without line ends.

    Args:
        partition: the log partition, if it is known.
        sound: the batch.
        selection: which records are wanted.
        raw: leave bytes inside records in base 64, as Kafka's formatter does.
    """
    batch = sound.batch
    return [
        encode(
            {
                "partition": partition,
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "producerId": batch.producer_id,
                "producerEpoch": batch.producer_epoch,
                "isTransactional": batch.is_transactional,
                "isControl": batch.is_control,
                "recordType": record.record_type,
                "key": record.key,
                "value": record.value,
            }
        )
        for record in selected_records(sound, selection, raw=raw)
    ]
