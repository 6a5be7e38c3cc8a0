"""Groups as coordinators describe them, owners of partitions, expiry of offsets, and comparison with a coordinator."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from groupcoord.analysis.decode.parquet import Figure, aggregated
from groupcoord.analysis.fold.commits import CommitFacts
from groupcoord.analysis.fold.history import GENERATION, GROUP, MEMBER
from groupcoord.analysis.fold.history.rows import CLASSIC, CONSUMER, HOLDER, SHARE, STREAMS, Row, grouped
from groupcoord.analysis.fold.replay import NO_PARTITION, RECORDS_FIELD
from groupcoord.analysis.options import MS_PER_MINUTE, OFFSETS_RETENTION_MINUTES
from groupcoord.core.consumer_protocol import CONSUMER_PROTOCOL_TYPE

Histories = Mapping[str, list[Row]]
"""By kind (:data:`groupcoord.analysis.fold.history.KINDS`), rows with the group and its log partition."""

Place = tuple[str, str, int]
"""A group, a topic and its partition."""


def groups(found: Histories, current_offsets: pa.Table) -> list[Row]:
    """Return the rows of the table ``groups``."""
    figures: dict[str, Figure] = {"last_commit_ms": ("commit_timestamp_ms", "max"), "offset_count": ([], "count_all")}
    counts = {row["group_id"]: row for row in aggregated(current_offsets, ["group_id"], figures).to_pylist()}
    nothing = {"last_commit_ms": None, "offset_count": 0}
    return [row | counts.get(row["group_id"], nothing) for row in found[GROUP]]


def partition_holders(found: Histories) -> dict[Place, Row]:
    """Return the owner of each partition at the end of the log; one of them if several members claim it.

    A row also has the start of the generation or epoch, the log partition, the number of members, and whether members
    share partitions. Tasks of streams groups are omitted.
    """
    now = {(row["group_id"], row["generation_or_epoch"], row["type"]): row for row in found[GROUP]}
    holders: dict[Place, Row] = {}
    for member in found[MEMBER]:
        group = now.get((member["group_id"], member["generation"], member["type"]))
        if group is not None and group["type"] != STREAMS:
            balance = {
                "since_ms": began_ms(group),
                "log_partition": group["log_partition"],
                "members": group["member_count"],
                "is_shared": group["type"] == SHARE,
            }
            holder = {name: member[name] for name in HOLDER} | balance
            for assigned in member["assignment"] or ():
                for partition in assigned["partitions"]:
                    place = (member["group_id"], assigned["topic"], partition)
                    holders[place] = min(holder, holders.get(place, holder), key=_order)
    return holders


def began_ms(group: Row) -> int | None:
    at_ms: int | None = group["state_timestamp_ms"]
    return None if at_ms is None or at_ms < 0 else at_ms


def _order(holder: Row) -> tuple[tuple[bool, Any], ...]:
    return tuple((holder[name] is not None, holder[name]) for name in HOLDER)


OFFSET_COLUMNS = (
    *("group_id", "topic", "topic_partition", "committed_offset", "commit_timestamp_ms", "expire_timestamp_ms"),
    "log_partition",
)
_SHOWN = tuple(name for name in OFFSET_COLUMNS if name != "expire_timestamp_ms")
_PLACE = ("group_id", "topic", "topic_partition")
_EMPTY = "Empty"


def offset_expiry(
    groups: Iterable[Row],
    current_offsets: pa.Table,
    facts: CommitFacts,
    offsets_retention_minutes: int = OFFSETS_RETENTION_MINUTES,
) -> list[Row]:
    """Return when each current offset expires (:data:`groupcoord.analysis.decode.schema.OFFSET_EXPIRY`).

    The rules are Kafka's (KIP-211, and ``isSubscribedToTopic`` of each group type). The age of an offset counts from
    its commit, or from when a classic group became empty. These do not expire: topics that a live group subscribes to,
    all topics of a live group with unreadable subscriptions, and offsets that an open transaction will replace.
    """
    by_id = {group["group_id"]: group for group in groups}
    pending = {tuple(row.values()) for row in facts.open().select(_PLACE).to_pylist()}
    retention_ms = offsets_retention_minutes * MS_PER_MINUTE
    found = []
    for row in current_offsets.select(OFFSET_COLUMNS).to_pylist():
        group = by_id.get(row["group_id"])
        is_pending = tuple(row[name] for name in _PLACE) in pending
        expires_ms = None if group is None or is_pending else _expiry_ms(group, row, retention_ms)
        found.append({name: row[name] for name in _SHOWN} | {"expires_ms": expires_ms})
    return found


def stale_groups(groups: Iterable[Row], offsets: Iterable[Row], facts: CommitFacts, now_ms: int | None) -> list[Row]:
    """Return groups with offsets that expire unless they are used.

    An empty group is deleted with its last offset, unless an open transaction has offsets of it.
    """
    pending = set(facts.open()["group_id"].to_pylist())
    expiring = grouped((row for row in offsets if row["expires_ms"] is not None), itemgetter("group_id"))
    return [
        _row(group, [row["expires_ms"] for row in expiring[group["group_id"]]], group["group_id"] in pending, now_ms)
        for group in groups
        if group["group_id"] in expiring
    ]


def _row(group: Row, expiring_ms: list[int], is_pending: bool, now_ms: int | None) -> Row:
    goes = group["state"] == _EMPTY and len(expiring_ms) == group["offset_count"] and not is_pending
    used = (group["last_commit_ms"], group["state_timestamp_ms"])
    used_ms = max((one for one in used if one is not None), default=None)
    return {
        **{name: group[name] for name in ("group_id", "type", "state", "offset_count", "last_commit_ms")},
        "log_partition": group["log_partition"],
        "expiring_offsets": len(expiring_ms),
        "expired_offsets": 0 if now_ms is None else sum(one <= now_ms for one in expiring_ms),
        "next_expiry_ms": min(expiring_ms),
        "group_expiry_ms": max(expiring_ms) if goes else None,
        "idle_ms": None if now_ms is None or used_ms is None else now_ms - used_ms,
    }


def _expiry_ms(group: Row, offset: Row, retention_ms: int) -> int | None:
    is_classic, is_empty = group["type"] == CLASSIC, group["state"] == _EMPTY
    protocol_type, subscribed = group["protocol_type"], group["subscribed_topics"]
    is_simple = protocol_type == ""
    is_unused = subscribed is not None and offset["topic"] not in subscribed
    # A live classic group keeps all offsets, except one of consumers: a load makes it Stable, so its topics count.
    is_free = is_simple or is_empty or (is_unused and (not is_classic or protocol_type == CONSUMER_PROTOCOL_TYPE))
    if not is_free:
        return None
    if offset["expire_timestamp_ms"] >= 0:
        own_ms: int = offset["expire_timestamp_ms"]
        return own_ms
    emptied_ms = group["state_timestamp_ms"] if is_classic and is_empty and not is_simple else None
    base_ms: int = offset["commit_timestamp_ms"] if emptied_ms is None else emptied_ms
    return base_ms + retention_ms


_OF_MEMBERS = (
    *("instance_id", "client_id", "client_host", "session_timeout_ms", "rebalance_timeout_ms", "assignor"),
    "member_epoch",
)


class Field(NamedTuple):
    """A field of a group or an offset."""

    group_id: str
    topic: str | None
    topic_partition: int | None
    field: str


FieldTexts = dict[Field, tuple[str, int]]


def differences(answers: Iterable[Row], tables: FieldTexts, unknown: Container[str]) -> Iterator[Row]:
    """Yield differences between the tables and the coordinator."""
    coordinator: FieldTexts = {}
    for row in answers:
        if row["field"] != RECORDS_FIELD:
            field = Field(row["group_id"], row["topic"], row["topic_partition"], row["field"])
            coordinator[field] = row["text"], row["log_partition"]
    for field in coordinator.keys() | tables:
        one, other = coordinator.get(field), tables.get(field)
        texts = one and one[0], other and other[0]
        # Only offsets of share groups and streams groups are compared.
        if texts[0] == texts[1] or (field.topic is None and field.group_id in unknown):
            continue
        partition = (one or other or ("", NO_PARTITION))[1]
        values = {"coordinator": texts[0], "table": texts[1]}
        yield field._asdict() | values | {"log_partition": None if partition == NO_PARTITION else partition}


def unknown_groups(found: Histories) -> set[str]:
    return {row["group_id"] for row in found[GROUP] if row["type"] in (SHARE, STREAMS)}


def group_answers(found: Histories) -> FieldTexts:
    """Return groups and members of the tables in the form of the coordinator's responses."""
    texts: FieldTexts = {}
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
                texts[Field(row["group_id"], None, None, name)] = str(value), _partition(row)
    for row, parts in (*_classic_members(found, of_groups), *_consumer_members(found, of_groups)):
        texts[Field(row["group_id"], None, None, f"member {row['member_id']}")] = _joined(parts), _partition(row)
    return texts


def offset_answers(current_offsets: pa.Table) -> FieldTexts:
    texts: FieldTexts = {}
    names = ["log_partition", "group_id", "topic", "topic_partition", "committed_offset", "leader_epoch", "metadata"]
    for row in current_offsets.select(names).to_pylist():
        text = _joined((row["committed_offset"], row["leader_epoch"], row["metadata"]))
        texts[Field(row["group_id"], row["topic"], row["topic_partition"], "offset")] = text, _partition(row)
    return texts


def _partition(row: Row) -> int:
    partition: int | None = row["log_partition"]
    return NO_PARTITION if partition is None else partition


def _joined(parts: Iterable[object]) -> str:
    return "|".join(str(part) for part in parts if part is not None)


def _classic_members(found: Histories, of_groups: Iterable[Row]) -> Iterator[tuple[Row, Sequence[object]]]:
    # Only the last record counts: a generation has several if a static member was replaced.
    last = _last_offsets(found[GENERATION])
    wanted = {row["group_id"] for row in of_groups if row["type"] == CLASSIC}
    for row in found[MEMBER]:
        group_id = row["group_id"]
        if row["type"] == CLASSIC and group_id in wanted and row["log_offset"] == last.get(group_id):
            assigned = ";".join(_topics(row["assignment"], "topic"))
            yield row, (row["instance_id"] or "", row["client_id"], row["client_host"], assigned)


def _consumer_members(found: Histories, of_groups: Iterable[Row]) -> Iterator[tuple[Row, Sequence[object]]]:
    now = {
        (row["group_id"], row["generation_or_epoch"])
        for row in of_groups
        if row["type"] == CONSUMER and row["member_count"] > 0
    }
    members = [row for row in found[MEMBER] if row["type"] == CONSUMER and (row["group_id"], row["generation"]) in now]
    # A group that was deleted and created again may have had the same epoch before.
    last = _last_offsets(members)
    for row in members:
        if row["log_offset"] == last[row["group_id"]]:
            subscription = row["subscription"]
            parts = ["" if row[name] is None else row[name] for name in _OF_MEMBERS]
            parts += [",".join(subscription["topics"] or ())]
            parts += [subscription["topic_regex"] or "", subscription["rack_id"] or ""]
            parts += [";".join(sorted(_topics(row[name], "topic_id"))) for name in ("assignment", "pending", "target")]
            yield row, parts


def _last_offsets(rows: Iterable[Row]) -> dict[str, int]:
    by_group = grouped(rows, itemgetter("group_id"))
    return {group_id: max(row["log_offset"] for row in some) for group_id, some in by_group.items()}


def _topics(assigned: Iterable[Row] | None, name: str) -> list[str]:
    return [f"{one[name]}:{','.join(map(str, one['partitions']))}" for one in assigned or ()]
