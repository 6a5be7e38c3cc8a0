"""What coordinators that loaded the groups' records answer, held against the tables.

Compared are the groups there are, of classic and consumer groups state, protocol type, protocol, generation or epochs,
and members with what they have (in a consumer group also what they are to have and to give up, and what they subscribe
to), and of all groups their committed offsets with leader epoch and metadata. The coordinator does not know the records
of share and streams groups: of these only the offsets are compared.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from groupcoord.analysis.fold.history import GENERATION, GROUP, MEMBER
from groupcoord.analysis.fold.history.rows import CLASSIC, CONSUMER, SHARE, STREAMS
from groupcoord.analysis.fold.replay import NO_PARTITION, RECORDS_FIELD
from groupcoord.analysis.rules.groups import Histories

Row = dict[str, Any]

_OF_MEMBERS = (
    *("instance_id", "client_id", "client_host", "session_timeout_ms", "rebalance_timeout_ms", "assignor"),
    "member_epoch",
)


class Field(NamedTuple):
    """What is told: of a group, or of an offset."""

    group_id: str
    topic: str | None
    topic_partition: int | None
    field: str


Told = dict[Field, tuple[str, int]]
"""What is told of each field, and the log partition of its group."""


def differences(answers: Iterable[Row], tables: Told, unknown: Container[str]) -> Iterator[Row]:
    """Yield where the tables differ from the coordinator
    (:data:`groupcoord.analysis.decode.group_tables.DIFFERENCES`): nothing, unless something is wrong.

    Args:
        answers: rows of :data:`groupcoord.analysis.fold.replay.ANSWERS`.
        tables: what the tables say of the same groups.
        unknown: groups whose records the coordinator does not know.
    """
    coordinator: Told = {}
    for row in answers:
        if row["field"] != RECORDS_FIELD:
            field = Field(row["group_id"], row["topic"], row["topic_partition"], row["field"])
            coordinator[field] = row["text"], row["log_partition"]
    for field in coordinator.keys() | tables:
        one, other = coordinator.get(field), tables.get(field)
        texts = one and one[0], other and other[0]
        # Of a group whose records the coordinator does not know it may still have the offsets.
        if texts[0] == texts[1] or (field.topic is None and field.group_id in unknown):
            continue
        partition = (one or other or ("", NO_PARTITION))[1]
        told = {"coordinator": texts[0], "table": texts[1]}
        yield field._asdict() | told | {"log_partition": None if partition == NO_PARTITION else partition}


def unknown_groups(found: Histories) -> set[str]:
    """Return the groups whose records the coordinator does not know."""
    return {row["group_id"] for row in found[GROUP] if row["type"] in (SHARE, STREAMS)}


def group_answers(found: Histories) -> Told:
    """Return what the tables say of groups and members, in the shape of what the coordinator answers."""
    told: Told = {}
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
                told[Field(row["group_id"], None, None, name)] = str(value), _partition(row)
    for row, parts in (*_classic_members(found, of_groups), *_consumer_members(found, of_groups)):
        told[Field(row["group_id"], None, None, f"member {row['member_id']}")] = _joined(parts), _partition(row)
    return told


def offset_answers(current_offsets: pa.Table) -> Told:
    """Return what the table of this name says, in the shape of what the coordinator answers."""
    told: Told = {}
    names = ["log_partition", "group_id", "topic", "topic_partition", "committed_offset", "leader_epoch", "metadata"]
    for row in current_offsets.select(names).to_pylist():
        text = _joined((row["committed_offset"], row["leader_epoch"], row["metadata"]))
        told[Field(row["group_id"], row["topic"], row["topic_partition"], "offset")] = text, _partition(row)
    return told


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
