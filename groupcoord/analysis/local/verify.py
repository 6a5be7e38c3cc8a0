"""Coordinators load each group's records, and what they answer is held against the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.columns.commits import ABORT_TYPE, COMMIT_TYPE
from groupcoord.analysis.columns.schema import KIND_CONTROL, KIND_RECORD
from groupcoord.analysis.history import GENERATION, GROUP, MEMBER
from groupcoord.analysis.history.views import CLASSIC, CONSUMER, SHARE, STREAMS
from groupcoord.analysis.local.arrow import every, is_offset_record
from groupcoord.analysis.local.groups import Histories
from groupcoord.analysis.local.replay import RECORDS_FIELD, REPLAYED, replay_batches

Row = dict[str, Any]

NO_PARTITION = -1
"""Stands for a log partition that is not known."""

_ROWS_MAX = 8_192
_OF_MEMBERS = (
    *("instance_id", "client_id", "client_host", "session_timeout_ms", "rebalance_timeout_ms", "assignor"),
    "member_epoch",
)


class _Field(NamedTuple):
    """What is told: of a group, or of an offset."""

    group_id: str
    topic: str | None
    topic_partition: int | None
    field: str


def verify(records: pa.Table, found: Histories, current_offsets: pa.Table) -> list[Row]:
    """Return where the tables differ from the coordinator
    (:data:`groupcoord.analysis.columns.group_tables.DIFFERENCES`).

    Nothing, that is, unless something is wrong. What is compared :func:`groupcoord.spark.verify` says.

    Args:
        records: the records that are held.
        found: what :func:`groupcoord.analysis.local.groups.histories` gives.
        current_offsets: the table of this name.
    """
    coordinator: dict[_Field, tuple[str, int]] = {}
    for batch in replay_batches(_replayed(records)):
        for row in batch.to_pylist():
            if row["field"] != RECORDS_FIELD:
                field = _Field(row["group_id"], row["topic"], row["topic_partition"], row["field"])
                coordinator[field] = row["text"], row["log_partition"]
    tables = {field: (text, partition) for field, text, partition in _told(found, current_offsets)}
    # Of a group whose records the coordinator does not know it may still have the offsets.
    unknown = {row["group_id"] for row in found[GROUP] if row["type"] in (SHARE, STREAMS)}
    rows = []
    for field in coordinator.keys() | tables:
        one, other = coordinator.get(field), tables.get(field)
        texts = one and one[0], other and other[0]
        if texts[0] == texts[1] or (field.topic is None and field.group_id in unknown):
            continue
        partition = (one or other or ("", NO_PARTITION))[1]
        told = {"coordinator": texts[0], "table": texts[1]}
        rows.append(field._asdict() | told | {"log_partition": None if partition == NO_PARTITION else partition})
    return rows


def _replayed(records: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield what coordinators load, group by group in the order of the log.

    Transaction markers have no group; each is given to the groups that its producer wrote to in that log partition.
    """
    partition = pc.fill_null(records["log_partition"], NO_PARTITION)
    place = records.schema.get_field_index("log_partition")
    records = records.set_column(place, "log_partition", partition)
    names = ["log_partition", "group_id", *REPLAYED]
    is_record = every(pc.equal(records["kind"], KIND_RECORD), pc.is_null(records["problem"]))
    of_groups = records.filter(every(is_record, pc.is_valid(records["group_id"]))).select(names)
    wrote = records.filter(every(is_offset_record(records), records["is_transactional"]))
    writers = wrote.group_by(["log_partition", "producer_id", "group_id"]).aggregate([])
    is_end = pc.is_in(records["control_type"], pa.array([ABORT_TYPE, COMMIT_TYPE], pa.int16()))
    markers = records.filter(every(pc.equal(records["kind"], KIND_CONTROL), is_end))
    markers = markers.select(["log_partition", *REPLAYED])
    places = pa.table({"log_partition": markers["log_partition"], "producer_id": markers["producer_id"]})
    places = places.append_column("place", pa.array(range(places.num_rows), pa.int64()))
    given = places.join(writers, ["log_partition", "producer_id"], join_type="inner")
    of_writers = markers.take(given["place"].combine_chunks()).append_column("group_id", given["group_id"])
    together = pa.concat_tables([of_groups, of_writers.select(names)])
    order = pc.sort_indices(together, [(name, "ascending") for name in ("log_partition", "group_id", "log_offset")])
    yield from together.take(order).combine_chunks().to_batches(_ROWS_MAX)


def _told(found: Histories, current_offsets: pa.Table) -> Iterator[tuple[_Field, str, int]]:
    """Yield what the tables say, in the shape of what the coordinator answers."""
    of_groups = [row for row in found[GROUP] if row["type"] in (CLASSIC, CONSUMER)]
    for row in of_groups:
        fields = {
            "state": row["state"],
            "protocol type": row["protocol_type"],
            "protocol": row["protocol"] or "",
            "generation": row["generation_or_epoch"],
            "assignment epoch": row["assignment_epoch"],
        }
        for name, value in fields.items():
            if value is not None:
                yield _Field(row["group_id"], None, None, name), str(value), _partition(row)
    for row, parts in (*_classic_members(found, of_groups), *_consumer_members(found, of_groups)):
        yield _Field(row["group_id"], None, None, f"member {row['member_id']}"), _joined(parts), _partition(row)
    names = ["log_partition", "group_id", "topic", "topic_partition", "committed_offset", "leader_epoch", "metadata"]
    for row in current_offsets.select(names).to_pylist():
        text = _joined((row["committed_offset"], row["leader_epoch"], row["metadata"]))
        yield _Field(row["group_id"], row["topic"], row["topic_partition"], "offset"), text, _partition(row)


def _partition(row: Row) -> int:
    partition: int | None = row["log_partition"]
    return NO_PARTITION if partition is None else partition


def _joined(parts: Iterable[object]) -> str:
    return "|".join(str(part) for part in parts if part is not None)


def _classic_members(found: Histories, of_groups: Iterable[Row]) -> Iterator[tuple[Row, Sequence[object]]]:
    """Yield the last members of classic groups, with what is told of each."""
    # The last record of a group has its members: a generation comes again when a static member was replaced.
    last: dict[str, int] = {}
    for row in found[GENERATION]:
        last[row["group_id"]] = max(row["log_offset"], last.get(row["group_id"], row["log_offset"]))
    wanted = {row["group_id"] for row in of_groups if row["type"] == CLASSIC}
    for row in found[MEMBER]:
        group_id = row["group_id"]
        if row["type"] == CLASSIC and group_id in wanted and row["log_offset"] == last.get(group_id):
            assigned = ";".join(_topics(row["assignment"], "topic"))
            yield row, (row["instance_id"] or "", row["client_id"], row["client_host"], assigned)


def _consumer_members(found: Histories, of_groups: Iterable[Row]) -> Iterator[tuple[Row, Sequence[object]]]:
    """Yield the members of consumer groups as the log ends, with what is told of each."""
    now = {
        (row["group_id"], row["generation_or_epoch"])
        for row in of_groups
        if row["type"] == CONSUMER and row["member_count"] > 0
    }
    members = [row for row in found[MEMBER] if row["type"] == CONSUMER and (row["group_id"], row["generation"]) in now]
    # A group that was deleted and came back may have had the same epoch before.
    last: dict[str, int] = {}
    for row in members:
        last[row["group_id"]] = max(row["log_offset"], last.get(row["group_id"], row["log_offset"]))
    for row in members:
        if row["log_offset"] == last[row["group_id"]]:
            subscription = row["subscription"]
            parts = ["" if row[name] is None else row[name] for name in _OF_MEMBERS]
            parts += [",".join(subscription["topics"] or ())]
            parts += [subscription["topic_regex"] or "", subscription["rack_id"] or ""]
            parts += [";".join(sorted(_topics(row[name], "topic_id"))) for name in ("assignment", "pending", "target")]
            yield row, parts


def _topics(assigned: Iterable[Row] | None, name: str) -> list[str]:
    return [f"{one[name]}:{','.join(map(str, one['partitions']))}" for one in assigned or ()]
