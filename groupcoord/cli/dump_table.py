"""Records as a table for the eye: one row each, in pages, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from groupcoord.analysis.report.text import escape
from groupcoord.cli.dump_json import selected_records
from groupcoord.cli.dump_selection import Selection
from groupcoord.cli.messages import escape_lines
from groupcoord.records.salvage import SoundBatch
from groupcoord.records.schemas import RecordType

if TYPE_CHECKING:
    from rich.table import Table

PAGE_ROWS = 200
OFFSET_TYPES = (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """What the table says about one record."""

    partition: str
    offset: str
    time: str
    type: str
    group: str
    content: str


def table_rows(partition: int | None, sound: SoundBatch, selection: Selection) -> Iterator[Row]:
    """Yield a row for each selected record of a batch."""
    batch = sound.batch
    producer = f" [producer {batch.producer_id}, epoch {batch.producer_epoch}]" if batch.is_transactional else ""
    for record in selected_records(sound, selection):
        yield Row(
            "" if partition is None else str(partition),
            str(record.offset),
            time_text(record.timestamp_ms),
            record.record_type.lower().replace("_", "-"),
            record.group_id or "",
            _content(record.key, record.value) + producer,
        )


def time_text(timestamp_ms: int) -> str:
    """Return a timestamp as date and time in UTC; the number itself if it lies outside the calendar."""
    try:
        return (EPOCH + timedelta(milliseconds=timestamp_ms)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except OverflowError:
        return str(timestamp_ms)


def _content(key: dict[str, Any] | None, value: dict[str, Any] | None) -> str:
    fields = None if key is None else key.get("data")
    if key is None or fields is None:
        return f"key {_brief(key)}, value {_brief(value)}"
    record_type = key.get("type")
    if record_type is None:
        subject = ""
    elif record_type in OFFSET_TYPES:
        subject = f"{fields['topic']}-{fields['partition']}"
    elif record_type in _CONSUMER_GROUP_TEXTS:
        subject = " ".join(content for name, content in fields.items() if name != "groupId")
    else:
        subject = _pairs({name: content for name, content in fields.items() if name not in ("group", "groupId")})
    if value is None:
        text = "deleted"
    elif "data" not in value:
        text = _brief(value)
    elif record_type == RecordType.GROUP_METADATA:
        text = _group_text(value["data"])
    elif record_type in OFFSET_TYPES:
        text = _offset_text(value["data"])
    elif record_type in _CONSUMER_GROUP_TEXTS:
        text = _CONSUMER_GROUP_TEXTS[record_type](value["data"])
    else:
        text = _pairs(value["data"])
    return f"{subject} {text}".lstrip()


def _offset_text(data: dict[str, Any]) -> str:
    """Return a committed offset, and what is not always the same: the time is in another column, the id says little."""
    parts = [f"at {data['offset']}"]
    if data.get("leaderEpoch", -1) != -1:
        parts.append(f"leader epoch {data['leaderEpoch']}")
    if data["metadata"]:
        parts.append(f"metadata {data['metadata']!r}")
    if data.get("expireTimestamp", -1) != -1:
        parts.append(f"expires {time_text(data['expireTimestamp'])}")
    return ", ".join(parts)


def _group_text(data: dict[str, Any]) -> str:
    """Return a classic group's generation, a line for each member below it."""
    generation = f"{data['protocolType'] or 'no protocol type'}, generation {data['generation']}"
    chosen = f", {data['protocol']}" if data["protocol"] else ""
    members = data["members"]
    lines = [f"{generation}{chosen}, {len(members)} member{'' if len(members) == 1 else 's'}"]
    for member in members:
        leads = " leads," if member["memberId"] == data["leader"] else ""
        subscription, assignment = _protocol_text(member["subscription"]), _protocol_text(member["assignment"])
        instance = f" ({member['groupInstanceId']})" if member.get("groupInstanceId") else ""
        lines.append(f"{member['memberId']}{instance}:{leads} subscription {subscription}; assignment {assignment}")
    return "\n".join(lines)


def _protocol_text(described: dict[str, Any] | str) -> str:
    """Return a subscription or an assignment: topics, ``topic[partitions]``, whatever else there is."""
    if isinstance(described, str):
        return described or "empty"
    data = dict(described["data"])
    parts = [*data.pop("topics", ())]
    parts += [topic_text(topic) for topic in data.pop("assignedPartitions", ())]
    owned = data.pop("ownedPartitions", ())
    if owned:
        parts.append(f"owns {' '.join(map(topic_text, owned))}")
    parts += [f"{name}={_brief(content)}" for name, content in data.items() if content not in (None, "", -1)]
    return " ".join(parts) or "nothing"


def topic_text(topic: dict[str, Any]) -> str:
    """Return a topic with its partitions, neighbours as a range: ``orders[0-3,7]``."""
    ranges: list[list[int]] = []
    for partition in topic["partitions"]:
        if ranges and partition == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], partition]
        else:
            ranges.append([partition])
    name = topic["topic"] if "topic" in topic else topic["topicId"]
    return f"{name}[{','.join('-'.join(map(str, ends)) for ends in ranges)}]"


def _epoch_text(data: dict[str, Any]) -> str:
    return f"epoch {data['epoch']}" + (f", metadata hash {data['metadataHash']}" if "metadataHash" in data else "")


def _topics_text(data: dict[str, Any]) -> str:
    topics = (f"{topic['topicName']} with {topic['numPartitions']} partitions" for topic in data["topics"])
    return ", ".join(topics) or "no topics"


def _member_text(data: dict[str, Any]) -> str:
    """Return what a member of a consumer group told of itself."""
    parts = [f"({data['instanceId']})"] if data["instanceId"] else []
    parts.append(f"client {data['clientId']} at {data['clientHost']}, subscription")
    parts += data["subscribedTopicNames"]
    if data["subscribedTopicRegex"]:
        parts.append(f"matching {data['subscribedTopicRegex']}")
    text = " ".join(parts)
    if data["rackId"]:
        text += f", rack {data['rackId']}"
    if data["serverAssignor"]:
        text += f", assignor {data['serverAssignor']}"
    text += f", rebalance timeout {data['rebalanceTimeoutMs']} ms"
    classic = data.get("classicMemberMetadata", {})
    if classic is None:
        return text
    text += f"; classic protocol, session timeout {classic.get('sessionTimeoutMs', 0)} ms"
    protocols = classic.get("supportedProtocols", ())
    return text + "".join(f", {protocol['name']} {_protocol_text(protocol['metadata'])}" for protocol in protocols)


def _target_epoch_text(data: dict[str, Any]) -> str:
    made = f", made {time_text(data['assignmentTimestamp'])}" if "assignmentTimestamp" in data else ""
    return f"epoch {data['assignmentEpoch']}{made}"


def _target_text(data: dict[str, Any]) -> str:
    return f"target {_partitions_text(data['topicPartitions'])}"


def _current_text(data: dict[str, Any]) -> str:
    """Return what a member of a consumer group has: its epoch and the one before, its state, its partitions."""
    state = _MEMBER_STATES.get(data["state"], f"state {data['state']}")
    revoked = data["partitionsPendingRevocation"]
    text = f"epoch {data['memberEpoch']} after {data['previousMemberEpoch']}, {state}, has "
    text += _partitions_text(data["assignedPartitions"])
    return f"{text}, gives up {_partitions_text(revoked)}" if revoked else text


def _partitions_text(topics: list[dict[str, Any]]) -> str:
    return " ".join(map(topic_text, topics)) or "nothing"


def _expression_text(data: dict[str, Any]) -> str:
    topics = " ".join(data["topics"]) or "nothing"
    return f"matches {topics} in metadata version {data['version']}, asked {time_text(data['timestamp'])}"


_MEMBER_STATES = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}
_CONSUMER_GROUP_TEXTS: dict[int, Callable[[dict[str, Any]], str]] = {
    RecordType.CONSUMER_GROUP_METADATA: _epoch_text,
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: _topics_text,
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: _member_text,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: _target_epoch_text,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: _target_text,
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: _current_text,
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: _expression_text,
}


def _pairs(data: dict[str, Any]) -> str:
    return " ".join(f"{name}={_brief(content)}" for name, content in data.items())


def _brief(content: Any) -> str:
    """Return a value in few characters: only names, numbers and brackets."""
    if isinstance(content, dict):
        return "{" + _pairs(content) + "}"
    if isinstance(content, list):
        return "[" + ", ".join(map(_brief, content)) + "]"
    if content is None:
        return "null"
    return content or '""' if isinstance(content, str) else str(content)


def pages(rows: Iterable[Row], width: int | None) -> Iterator[Table]:
    """Yield tables of at most ``PAGE_ROWS`` rows; the first has titles.

    Args:
        rows: what they show.
        width: how many columns each takes, all of them laid out alike; None: as many as its longest line, unfolded.
    """
    page: list[Row] = []
    is_first = True
    for row in rows:
        page.append(row)
        if len(page) == PAGE_ROWS:
            yield _page(page, width, is_first)
            page, is_first = [], False
    if page or is_first:
        yield _page(page, width, is_first)


def _page(rows: list[Row], width: int | None, is_first: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, width=width, show_header=is_first, pad_edge=False)
    titles = {"P": 3, "Offset": 9, "Time (UTC)": 23, "Type": 15}
    if width is None:
        for title, least in titles.items():
            table.add_column(title, min_width=least, justify="right" if least < 10 else "left", no_wrap=True)
        table.add_column("Group", min_width=12, no_wrap=True)
        table.add_column("Content", no_wrap=True)
    else:
        for title, exact in titles.items():
            table.add_column(title, width=exact, justify="right" if exact < 10 else "left", overflow="fold")
        table.add_column("Group", ratio=1, overflow="fold")
        table.add_column("Content", ratio=3, overflow="fold")
    for row in rows:
        *fields, content = row
        table.add_row(*(Text(escape(field)) for field in fields), Text(escape_lines(content)))
    return table
