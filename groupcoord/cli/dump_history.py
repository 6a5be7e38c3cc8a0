"""Histories of groups as ``groupcoord dump --history`` prints them: as text, JSON lines, or rows of a table."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from groupcoord.analysis.fold.history import (
    DUPLICATE,
    EPOCH,
    GENERATION,
    GROUP,
    MEMBER,
    MEMBERSHIP,
    MOVE,
    REBALANCE,
    REVOCATION,
    HistoryRow,
    LogHistory,
)
from groupcoord.analysis.fold.history.share_partitions import SHARE_PARTITION, SharePartitions
from groupcoord.analysis.report.text import escape
from groupcoord.cli.dump_records import Filters, Parts, Row, time_text, topic_text
from groupcoord.core.log.records import OpaqueRecord
from groupcoord.records.share_state import decode_share_state


def histories(parts: Parts, filters: Filters) -> Iterator[HistoryRow]:
    """Yield the selected rows, group by group; parts of a log partition must follow each other.

    Records before the selected times are read as well, since later rows depend on them.
    """
    for log_partition, files in groupby(parts, itemgetter(0)):
        history = LogHistory(log_partition, group_ids=filters.group_ids or None)
        for _, batches in files:
            history.begin_file()
            for sound in batches:
                history.add(sound)
        for row in history.rows():
            if filters.pass_type(row.kind) and filters.pass_time(row.log_timestamp_ms):
                yield row


def share_partitions(parts: Parts, filters: Filters) -> Iterator[dict[str, Any]]:
    for log_partition, files in groupby(parts, itemgetter(0)):
        found = SharePartitions(log_partition)
        records = (record for _, batches in files for sound in batches for record in sound.records)
        for offset, timestamp_ms, key, value in records:
            decoded = decode_share_state(key or b"", value)
            if not isinstance(decoded, OpaqueRecord):
                found.add(offset, timestamp_ms, decoded)
        for row in found.rows() if filters.pass_type(SHARE_PARTITION) else ():
            if filters.pass_group(row["group_id"]) and filters.pass_time(row["last_ms"]):
                yield {"kind": SHARE_PARTITION, **row}


def described(row: HistoryRow, *, raw: bool = False) -> dict[str, Any]:
    place = {"kind": row.kind, "group_id": row.group_id, "log_partition": row.log_partition}
    values = dict(row.values)
    if row.kind == MEMBER:
        values["subscription"] = _subscription(values["subscription"], raw=raw)
    return place | values | {"log_offset": row.log_offset, "log_timestamp_ms": row.log_timestamp_ms}


def _subscription(subscription: dict[str, Any], *, raw: bool) -> dict[str, Any]:
    data, user_data = subscription["raw"], subscription["user_data"]
    shown = {name: value for name, value in subscription.items() if name != "raw"}
    shown["user_data"] = None if user_data is None else user_data.hex()
    return shown | {"raw": None if data is None else b64encode(data).decode("ascii")} if raw else shown


def story_lines(rows: Iterable[HistoryRow]) -> Iterator[str]:
    """Yield a line for each group, followed by its rows; rows must be sorted by group."""
    for (log_partition, group_id), some in groupby(rows, lambda row: (row.log_partition, row.group_id)):
        place = "" if log_partition is None else f", log partition {log_partition}"
        yield escape(f"group {group_id}{place}")
        for row in some:
            first, *more = _TEXTS[row.kind](row.values).split("\n")
            yield f"  {_time(row):{_TIME_LENGTH}}  {escape(_PREFIXES.get(row.kind, f'{row.kind} ') + first)}"
            for line in more:
                yield f"  {'':{_TIME_LENGTH}}    {escape(line)}"


def table_row(row: HistoryRow) -> Row:
    partition = "" if row.log_partition is None else str(row.log_partition)
    return Row(partition, str(row.log_offset), _time(row), row.kind, row.group_id, _TEXTS[row.kind](row.values))


def _time(row: HistoryRow) -> str:
    return "" if row.log_timestamp_ms is None else time_text(row.log_timestamp_ms)


def _generation_text(values: dict[str, Any]) -> str:
    parts = [f"generation {values['generation']}", values["protocol_type"] or "no protocol type"]
    parts += [values["protocol"]] if values["protocol"] else []
    parts.append(_members(values["member_count"]))
    return ", ".join(parts)


def _member_text(values: dict[str, Any]) -> str:
    leads = " leads," if values["is_leader"] else ""
    subscription = values["subscription"]
    topics = subscription["topics"]
    wanted = [*(topics or ()), *([f"/{subscription['topic_regex']}/"] if subscription["topic_regex"] else ())]
    subscribed = "what can't be read" if topics is None and not wanted else " ".join(wanted) or "nothing"
    number = "generation" if values["member_epoch"] is None else "epoch"
    client = f"client {values['client_id']} at {values['client_host']}"
    return (
        f"{_member_name(values)}:{leads} {number} {values['generation']}, {client}, "
        f"subscribes to {subscribed}; has {_partitions(values['assignment'])}"
    )


def _rebalance_text(values: dict[str, Any]) -> str:
    before = "" if values["from_generation"] is None else f"{values['from_generation']} "
    sure = f"{values['confidence']:.0%} sure" if values["confidence"] else "not shown by the log"
    others = [cause for cause in values["causes"] if cause != values["cause"]]
    also = f", also {' and '.join(others)}" if others else ""
    conversion = f", with {values['conversion']}" if values["conversion"] else ""
    return f"{before}-> {values['to_generation']}: {values['cause']} ({sure}){also}{conversion}\n{values['evidence']}"


def _duplicate_text(values: dict[str, Any]) -> str:
    partition = f"{values['topic']}-{values['topic_partition']}"
    return f"generation {values['generation']}: {partition} belongs to {' and '.join(values['member_ids'])}"


def _epoch_text(values: dict[str, Any]) -> str:
    text = f"group {values['group_epoch']}, target {values['target_epoch']}"
    if values["member_id"] is None:
        return text
    if values["member_epoch"] is None:
        return f"{text}, {values['member_id']} is gone"
    giving = f", {values['pending_partitions']} to give up" if values["pending_partitions"] else ""
    return (
        f"{text}, {values['member_id']} {values['member_epoch']}: {values['state']}, "
        f"has {values['partitions']} partitions{giving}"
    )


def _membership_text(values: dict[str, Any]) -> str:
    began = "there before" if values["began_ms"] is None else f"{values['began']} at {time_text(values['began_ms'])}"
    ended = "is a member" if values["end"] is None else f"{values['end']} at {time_text(values['ended_ms'])}"
    text = f"{_member_name(values)}, client {values['client_id']}: {began}, {ended}"
    return text if values["evidence"] is None else f"{text}\n{values['evidence']}"


def _move_text(values: dict[str, Any]) -> str:
    partition = f"{values['topic'] or values['topic_id']}-{values['topic_partition']}"
    text = f"epoch {values['epoch']}: {partition} from {values['from_member'] or 'no member'}"
    text += f" to {values['to_member'] or 'no member'} ({values['reason']})"
    if values["assigned_ms"] is None:
        return text if values["to_member"] is None else f"{text}, never arrived"
    unowned = f", {values['unowned_ms']} ms without owner" if values["unowned_ms"] else ""
    return f"{text}, after {values['assigned_ms'] - values['decided_ms']} ms{unowned}"


def _revocation_text(values: dict[str, Any]) -> str:
    text = f"{values['member_id']} is to give up {_partitions(values['partitions'])}"
    return f"{text}: not yet" if values["end"] is None else f"{text}: {values['end']} after {values['took_ms']} ms"


def _partitions(topics: list[dict[str, Any]]) -> str:
    held = [{"topic": one["topic"] or one["topic_id"], "partitions": one["partitions"]} for one in topics]
    return " ".join(map(topic_text, held)) or "nothing"


def _group_text(values: dict[str, Any]) -> str:
    number = "generation" if values["type"] == "Classic" else "epoch"
    parts = [values["type"], values["state"], f"{number} {values['generation_or_epoch']}"]
    return ", ".join([*parts, _members(values["member_count"])])


def _members(count: int) -> str:
    return f"{count} member{'' if count == 1 else 's'}"


def _member_name(values: dict[str, Any]) -> str:
    return str(values["member_id"]) + (f" ({values['instance_id']})" if values["instance_id"] else "")


_TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    GENERATION: _generation_text,
    MEMBER: _member_text,
    REBALANCE: _rebalance_text,
    DUPLICATE: _duplicate_text,
    EPOCH: _epoch_text,
    MEMBERSHIP: _membership_text,
    MOVE: _move_text,
    REVOCATION: _revocation_text,
    GROUP: _group_text,
}

_PREFIXES = {GENERATION: "", EPOCH: "epochs: ", GROUP: "as the log ends: "}
"""Prefix of a row's text, if it is not its kind."""

_TIME_LENGTH = len(time_text(0))
