"""The records that a conversation left in a log, as plain data that can be compared with another run's.

Every field of keys and values is kept, with the version of the value; decoding and encoding again must give the very
bytes that stood in the log, so that nothing is lost. What differs from run to run:

* *Timestamps* become "is there one" (the value -1 means no). Of an offset with an expiry of its own, the time from
  commit to expiry is kept, which is exact. Timestamps of record batches are dropped.
* *Ids* are the variables of the transcript in a golden: ``$g``, ``$m1``, ``$p1``, ``$topic:NAME``. Ids that no
  response named get names of their own, in order of appearance. :func:`groupcoord.conformance.matching.match` compares
  them: one choice of values must fit all records, and what a response named is fixed.
* *Order*: ``position`` counts the conversation's records in their log partition, so that records are compared in order
  though ``match`` takes lists in any. The members inside one record of a group are compared as a set, since Kafka
  keeps them in a hash map.
* *A leader* whom Kafka picks out of that map is ``$any`` in a golden. :func:`leaders_are_members` goes for all.
* *The coordinator epoch* of a marker counts how often the broker took over its transaction log, restarts for other
  conversations included: it becomes "is there one".
* *Record batches*: Kafka writes what comes at the same time as one batch; only the records count here.

Everything else is exact, also the number of the log partition: a conversation's group id is that of
:func:`group_id_for` in every run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from groupcoord.conformance import Transcript
from groupcoord.conformance.entities import Plain
from groupcoord.conformance.matching import Bindings
from groupcoord.conformance.transcript import Send
from groupcoord.core.log.records import (
    NO_TIMESTAMP,
    ZERO_UUID,
    GroupMetadataRecord,
    GroupTombstone,
    MemberRecord,
    OffsetCommitRecord,
    OffsetTombstone,
    Record,
    TransactionMarker,
)
from groupcoord.log_store import LogRecord
from groupcoord.records.batches import TruncatedBatchError
from groupcoord.records.codec import encode_record
from groupcoord.storage.files import list_partitions, list_segments, partition_folder, segment_path
from groupcoord.storage.log.segment_files import read_records

GOLDEN = Path(__file__).parent / "golden"

Rendered = dict[str, Plain]
PlacedRecord = tuple[int, LogRecord]
"""A record and its log partition."""


class UnfitRecordError(Exception):
    """A log holds something that can't be rendered without loss."""


def group_id_for(transcript: Transcript) -> str:
    """Return the value of ``$g``: the same for every run, so that groups keep their log partition."""
    return f"{transcript.name}-000000"


def read_log(directory: Path) -> Iterator[PlacedRecord]:
    """Yield every record of ``__consumer_offsets`` in a log directory, in order within each log partition.

    A broker may be writing to it: what it has not written whole is left out.
    """
    for log_partition in list_partitions(directory):
        folder = partition_folder(directory, log_partition)
        for base_offset in list_segments(folder):
            try:
                for record in read_records(segment_path(folder, base_offset)):
                    yield log_partition, record
            except TruncatedBatchError:
                break


def records_of(transcript: Transcript, bindings: Bindings, log: Iterable[PlacedRecord]) -> list[PlacedRecord]:
    """Return the records of one conversation: those of its groups, and the markers of its producers."""
    group_id = str(bindings["$g"])
    literal_ids = {
        step.body["group_id"]
        for step in transcript.steps
        if isinstance(step, Send) and step.api == "OffsetCommit" and not step.body["group_id"].startswith("$g")
    }
    producer_ids = {value for name, value in bindings.items() if name.startswith("$p")}
    own = []
    for log_partition, logged in log:
        record = logged.record
        if isinstance(record, TransactionMarker):
            is_own = record.producer_id in producer_ids
        else:
            group = getattr(record, "group_id", None)
            if group is None:
                raise UnfitRecordError(f"log partition {log_partition} holds an opaque record: {logged}")
            is_own = group.startswith(group_id) or group in literal_ids
            if is_own and logged.producer_id >= 0:
                producer_ids.add(logged.producer_id)
        if is_own:
            own.append((log_partition, logged))
    return own


def render(records: Iterable[PlacedRecord]) -> list[Rendered]:
    """Return records as plain data; encoding them again must give the same bytes."""
    positions: Counter[int] = Counter()
    rendered: list[Rendered] = []
    for log_partition, logged in records:
        key, value = logged.encoded()
        if encode_record(logged.record) != (key, value):
            raise UnfitRecordError(f"encoded again, it has other bytes: {logged}, {key.hex()} {value and value.hex()}")
        positions[log_partition] += 1
        rendered.append(
            {
                "log_partition": log_partition,
                "position": positions[log_partition],
                "type": _TYPES[type(logged.record)],
                "value_version": None if value is None else int.from_bytes(value[:2], "big", signed=True),
                **_fields(logged.record),
            }
        )
    return rendered


_TYPES: dict[type, str] = {
    GroupMetadataRecord: "group",
    GroupTombstone: "group tombstone",
    OffsetCommitRecord: "offset",
    OffsetTombstone: "offset tombstone",
    TransactionMarker: "marker",
}


def leaders_are_members(records: Iterable[Rendered]) -> bool:
    return all(
        record["leader"] in ([member["member_id"] for member in record["members"]] or [None])
        for record in records
        if record["type"] == _TYPES[GroupMetadataRecord]
    )


def _fields(record: Record) -> Rendered:
    match record:
        case GroupMetadataRecord():
            return {
                "group_id": record.group_id,
                "protocol_type": record.protocol_type,
                "generation_id": record.generation_id,
                "protocol_name": record.protocol_name,
                "leader": record.leader,
                "has_state_timestamp": record.state_timestamp_ms != NO_TIMESTAMP,
                "members": [_member(member) for member in record.members],
            }
        case GroupTombstone():
            return {"group_id": record.group_id}
        case OffsetCommitRecord():
            expires = record.expire_timestamp_ms != NO_TIMESTAMP
            return {
                "group_id": record.group_id,
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "leader_epoch": record.leader_epoch,
                "metadata": record.metadata,
                "has_commit_timestamp": record.commit_timestamp_ms != NO_TIMESTAMP,
                "expires_after_ms": record.expire_timestamp_ms - record.commit_timestamp_ms if expires else None,
                "topic_id": None if record.topic_id == ZERO_UUID else str(record.topic_id),
                "producer_id": record.producer_id,
                "producer_epoch": record.producer_epoch,
            }
        case OffsetTombstone():
            return {"group_id": record.group_id, "topic": record.topic, "partition": record.partition}
        case TransactionMarker():
            return {
                "producer_id": record.producer_id,
                "producer_epoch": record.producer_epoch,
                "committed": record.committed,
                "has_coordinator_epoch": record.coordinator_epoch >= 0,
            }
        case _:
            raise UnfitRecordError(f"an opaque record: {record}")


def _member(member: MemberRecord) -> Plain:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "session_timeout_ms": member.session_timeout_ms,
        "subscription": member.subscription.hex(),
        "assignment": member.assignment.hex(),
    }
