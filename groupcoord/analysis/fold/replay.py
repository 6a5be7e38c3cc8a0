"""Replay of each group's records by a coordinator, to compare its responses with the tables.

One group's state and one Arrow batch are in memory. The responses are those to DescribeGroups, ConsumerGroupDescribe
and OffsetFetch.

Outside transactions only the last commit and tombstone of each partition are loaded: earlier ones change no response.
Transaction markers have no group; each is passed to the groups that its producer wrote to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.parquet import Runs, every, is_offset_record
from groupcoord.analysis.decode.schema import KIND_CONTROL, KIND_RECORD, RECORDS, Column, arrow_schema
from groupcoord.analysis.fold.commits import is_marker
from groupcoord.analysis.fold.history.rows import NO_PARTITIONS, Row, by_topic, decode_partitions
from groupcoord.clock import ManualClock
from groupcoord.config import Config
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.consumer.group import ConsumerGroup, preferred_assignor
from groupcoord.core.groups.group_types import as_classic_group, as_consumer_group
from groupcoord.core.log.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ZERO_UUID,
    OffsetCommitRecord,
    OffsetTombstone,
    Record,
    TransactionMarker,
)
from groupcoord.core.messages import ConsumerGroupDescribe, DescribeGroups, GroupToFetch, OffsetFetch
from groupcoord.errors import ErrorCode
from groupcoord.log_store import LogRecord, NotLeaderError, StorageError, Ticket
from groupcoord.records.codec import decode_record
from groupcoord.schema.engine import uuid_text

REPLAYED = (
    *("log_offset", "kind", "control_type", "tombstone", "topic", "topic_partition", "committed_offset"),
    *("leader_epoch", "metadata", "commit_timestamp_ms", "expire_timestamp_ms", "topic_id"),
    *("producer_id", "producer_epoch", "is_transactional", "key", "value"),
)
ROWS_MAX = 4_096
RECORDS_FIELD = "records"
NO_PARTITION = -1
_ONE_PARTITION = Config(offsets_topic_num_partitions=1)
_OF_COMMIT = ("leader_epoch", "metadata", "commit_timestamp_ms", "expire_timestamp_ms")

ANSWERS = (
    Column("log_partition", pa.int32(), "where the group's records lie"),
    Column("group_id", pa.string(), "the group"),
    Column("topic", pa.string(), "of an offset; null: about the group"),
    Column("topic_partition", pa.int32(), "goes with topic"),
    Column("field", pa.string(), "what is told"),
    Column("text", pa.string(), "what the coordinator answers"),
    Column("number", pa.int64(), "how many records were replayed, for the field records"),
)
"""Responses of coordinators: one row for each field of a group or an offset."""


class ReplayedLog:
    """Read-only log store of one group's records, which are streamed."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows
        self.record_count = 0

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        raise NotLeaderError

    def read(self, partition: int) -> Iterator[LogRecord]:
        raise StorageError("these records can only be read by read_last")

    def read_last(self, partition: int) -> Iterator[LogRecord]:
        last_offset: int | None = None
        for row in self._rows:
            if row["log_offset"] != last_offset:  # a damaged log, or a copy of one, may hold a record twice
                self.record_count += 1
                yield LogRecord(_record(row), -1, row["log_offset"])
            last_offset = row["log_offset"]


def replay_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Load each group's records, which are sorted, into a coordinator, and yield its responses."""
    schema = arrow_schema(ANSWERS)
    rows = (row for batch in batches for row in batch.to_pylist())
    for (partition, group_id), records in groupby(rows, itemgetter("log_partition", "group_id")):
        answers = _answers(partition, group_id, ReplayedLog(records))
        while some := list(islice(answers, ROWS_MAX)):
            yield pa.RecordBatch.from_pylist(some, schema)


def _answers(log_partition: int, group_id: str, log: ReplayedLog) -> Iterator[Row]:
    coordinator = GroupCoordinator(config=_ONE_PARTITION, clock=ManualClock(0), log_store=log)
    coordinator.load(0)
    place = {"log_partition": log_partition, "group_id": group_id}
    yield place | {"field": RECORDS_FIELD, "number": log.record_count}
    for field, text in _description(coordinator, group_id).items():
        yield place | {"field": field, "text": text}
    (fetched,) = coordinator.call(OffsetFetch((GroupToFetch(group_id),))).groups
    for topic in fetched.topics:
        for offset in topic.partitions:
            text = f"{offset.committed_offset}|{offset.committed_leader_epoch}|{offset.metadata}"
            where = {"topic": topic.name, "topic_partition": offset.partition_index}
            yield place | where | {"field": "offset", "text": text}


def _record(row: Row) -> Record:
    producer = row["producer_id"], row["producer_epoch"]
    if row["kind"] == KIND_CONTROL:
        return TransactionMarker(*producer, row["control_type"] == 1)
    if row["topic"] is None:
        return decode_record(row["key"] or b"", row["value"], *producer)
    place = row["group_id"], row["topic"], row["topic_partition"]
    if row["tombstone"]:
        return OffsetTombstone(*place)
    producer_id, producer_epoch = producer if row["is_transactional"] else (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return OffsetCommitRecord(
        *place,
        row["committed_offset"],
        **{name: row[name] for name in _OF_COMMIT},
        topic_id=ZERO_UUID if row["topic_id"] is None else UUID(bytes=row["topic_id"]),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def _description(coordinator: GroupCoordinator, group_id: str) -> dict[str, str]:
    """Return a coordinator's description of a group and its members by field; empty if the group does not exist."""
    partition = coordinator.partition(0)
    assert partition is not None
    group = partition.groups.get(group_id)
    classic, modern = as_classic_group(group), as_consumer_group(group)
    if modern is not None:
        return _consumer_description(coordinator, modern)
    return {} if classic is None else _classic_description(coordinator, classic)


def _classic_description(coordinator: GroupCoordinator, group: GroupMetadata) -> dict[str, str]:
    (described,) = coordinator.call(DescribeGroups((group.group_id,))).groups
    if described.error_code is not ErrorCode.NONE:
        return {}
    texts = {
        "state": described.group_state,
        "protocol type": described.protocol_type,
        "protocol": described.protocol_data,
        "generation": str(group.generation_id),
    }
    is_consumer = described.protocol_type == CONSUMER_PROTOCOL_TYPE
    for member in described.members:
        assigned = decode_partitions(member.member_assignment) if is_consumer else NO_PARTITIONS
        partitions = ";".join(f"{topic}:{','.join(map(str, found))}" for topic, found in by_topic(assigned))
        parts = (member.group_instance_id or "", member.client_id, member.client_host, partitions)
        texts[f"member {member.member_id}"] = "|".join(parts)
    return texts


def _consumer_description(coordinator: GroupCoordinator, group: ConsumerGroup) -> dict[str, str]:
    (described,) = coordinator.call(ConsumerGroupDescribe((group.group_id,))).groups
    state = group.state
    texts = {
        "state": described.group_state,
        "protocol type": CONSUMER_PROTOCOL_TYPE,
        "protocol": preferred_assignor(state.votes) or "",
        "generation": str(described.group_epoch),
        "assignment epoch": str(described.assignment_epoch),
    }
    for member_id, member in state.members.items():
        metadata, assignment, classic = member.metadata, member.assignment, member.metadata.classic_member_metadata
        parts = (
            metadata.instance_id or "",
            metadata.client_id,
            metadata.client_host,
            "" if classic is None else str(classic.session_timeout_ms),
            str(metadata.rebalance_timeout_ms),
            metadata.server_assignor or "",
            str(assignment.member_epoch),
            ",".join(sorted(metadata.subscribed_topic_names)),
            member.regex,
            metadata.rack_id or "",
            *map(_told, (assignment.assigned, assignment.pending_revocation, state.targets.get(member_id, {}))),
        )
        texts[f"member {member_id}"] = "|".join(parts)
    return texts


def _told(partitions: Mapping[UUID, Iterable[int]]) -> str:
    return ";".join(
        sorted(
            f"{uuid_text(topic.bytes)}:{','.join(map(str, sorted(found)))}"
            for topic, found in partitions.items()
            if found
        )
    )


_NAMES = ("log_partition", "group_id", *REPLAYED)
_SCHEMA = pa.schema([RECORDS.field(name) for name in _NAMES])
_OFFSET_KEY = ("group_id", "topic", "topic_partition", "tombstone")
_ROWS_MIN, _ROWS_MAX = 262_144, 8_192


class Replayed:
    """The records of one log partition that coordinators load."""

    def __init__(self) -> None:
        self._others: list[pa.Table] = []
        self._markers: list[pa.Table] = []
        self._writers: list[pa.Table] = []
        self._last = _SCHEMA.empty_table()
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def add(self, records: pa.Table) -> None:
        partition = pc.fill_null(records["log_partition"], NO_PARTITION)
        records = records.set_column(records.schema.get_field_index("log_partition"), "log_partition", partition)
        is_known = every(pc.equal(records["kind"], KIND_RECORD), pc.is_null(records["problem"]))
        is_offset = is_offset_record(records)
        is_transactional = every(is_offset, records["is_transactional"])
        is_plain = every(is_offset, pc.invert(records["is_transactional"]))
        is_other = every(is_known, pc.is_valid(records["group_id"]), pc.invert(is_plain))
        self._others.append(records.filter(is_other).select(_NAMES))
        self._markers.append(records.filter(is_marker(records)).select(_NAMES))
        self._writers.append(records.filter(is_transactional).group_by(["producer_id", "group_id"]).aggregate([]))
        plain = records.filter(is_plain).select(_NAMES)
        self._waiting.append(plain)
        self._waiting_rows += plain.num_rows
        # A merge costs as much as all rows, so it waits for as many new ones.
        if self._waiting_rows >= max(_ROWS_MIN, self._last.num_rows):
            self._keep_last()

    def _keep_last(self) -> None:
        rows = pa.concat_tables([self._last, *self._waiting]).combine_chunks()
        self._waiting, self._waiting_rows = [], 0
        self._last = rows.take(pa.array(Runs(rows, _OFFSET_KEY, is_sorted=True).last_rows())).combine_chunks()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all records, group by group in the order of the log."""
        self._keep_last()
        together = pa.concat_tables([self._last, *self._others, *self._given_markers()])
        order = pc.sort_indices(together, [(name, "ascending") for name in ("log_partition", "group_id", "log_offset")])
        yield from together.take(order).combine_chunks().to_batches(_ROWS_MAX)

    def _given_markers(self) -> Iterator[pa.Table]:
        if not self._markers:
            return
        markers = pa.concat_tables(self._markers)
        writers = pa.concat_tables(self._writers).group_by(["producer_id", "group_id"]).aggregate([])
        places = pa.table(
            {"producer_id": markers["producer_id"], "place": pa.array(range(markers.num_rows), pa.int64())}
        )
        given = places.join(writers, ["producer_id"], join_type="inner")
        found = markers.take(given["place"].combine_chunks())
        yield found.set_column(found.schema.get_field_index("group_id"), "group_id", given["group_id"])
