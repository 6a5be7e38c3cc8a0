"""Records of ``groupcoord dump``: batches of files or a cluster, damage, filters, JSON lines and table rows."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from attrs import frozen

from groupcoord.analysis.errors import ClusterError
from groupcoord.analysis.live.cluster import KafkaCluster, Patience, connection
from groupcoord.analysis.live.offsets import DELETED, Lost, OffsetRange, check_readable, sound_batches, topic_ends
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.report.text import format_ranges
from groupcoord.cli.messages import CommandError, command_errors, complain
from groupcoord.config.files import open_file
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.records.describe import (
    control_name,
    describe_control,
    describe_record,
    describe_share_state,
    record_name,
)
from groupcoord.records.salvage import Damage, SoundBatch, salvage_batches
from groupcoord.records.schemas import RecordType
from groupcoord.records.typed import group_id_of
from groupcoord.storage.files import OTHER_FILES, PARTITION_FOLDER, SEGMENT_SUFFIX, SWAP_SUFFIX, found_in_some

CONTROL = "CONTROL"
OFFSET_TYPES = (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@frozen
class Filters:
    """The filters of the command line; an empty or missing one passes everything."""

    group_ids: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None

    def pass_type(self, name: str) -> bool:
        return not self.types or name in self.types

    def pass_group(self, group_id: str | None) -> bool:
        return not self.group_ids or group_id in self.group_ids

    def pass_time(self, timestamp_ms: int | None) -> bool:
        since_ms, until_ms = self.since_ms, self.until_ms
        if timestamp_ms is None:
            return since_ms is None and until_ms is None
        return (since_ms is None or timestamp_ms >= since_ms) and (until_ms is None or timestamp_ms < until_ms)


class Row(NamedTuple):
    """A row of the table."""

    partition: str
    offset: str
    time: str
    type: str
    group: str
    content: str


def selected_records(
    parts: Parts, filters: Filters, *, raw: bool = False
) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """Yield the selected records for JSON, each with the group that it is about; ``raw`` leaves bytes in base 64."""
    for partition, sound in _batches(parts):
        batch = sound.batch
        for offset, timestamp_ms, key, value in sound.records:
            name = control_name(key) if batch.is_control else record_name(key)
            if not (filters.pass_time(timestamp_ms) and filters.pass_type(CONTROL if batch.is_control else name)):
                continue
            described = describe_control(key, value) if batch.is_control else describe_record(key, value, raw=raw)
            fields = None if batch.is_control or described["key"] is None else described["key"].get("data")
            group_id = None if fields is None else group_id_of(fields)
            if filters.pass_group(group_id):
                yield (
                    group_id,
                    {
                        "partition": partition,
                        "offset": offset,
                        "timestamp": timestamp_ms,
                        "producerId": batch.producer_id,
                        "producerEpoch": batch.producer_epoch,
                        "isTransactional": batch.is_transactional,
                        "isControl": batch.is_control,
                        "recordType": name,
                        **described,
                    },
                )


def selected_share_states(parts: Parts, filters: Filters) -> Iterator[dict[str, Any]]:
    for partition, sound in _batches(parts):
        for offset, timestamp_ms, key, value in sound.records:
            if not filters.pass_time(timestamp_ms):
                continue
            described = describe_share_state(key or b"", value)
            group_id = described["key"].get("data", {}).get("groupId")
            if filters.pass_type(described["recordType"]) and filters.pass_group(group_id):
                yield {"partition": partition, "offset": offset, "timestamp": timestamp_ms, **described}


def _batches(parts: Parts) -> Iterator[tuple[int | None, SoundBatch]]:
    return ((partition, sound) for partition, batches in parts for sound in batches)


def table_row(group_id: str | None, record: dict[str, Any]) -> Row:
    producer = f" [producer {record['producerId']}, epoch {record['producerEpoch']}]"
    return Row(
        "" if record["partition"] is None else str(record["partition"]),
        str(record["offset"]),
        time_text(record["timestamp"]),
        record["recordType"].lower().replace("_", "-"),
        group_id or "",
        _content(record["key"], record["value"]) + (producer if record["isTransactional"] else ""),
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
    text_of = _VALUE_TEXTS.get(record_type, _pairs)
    others = {name: content for name, content in fields.items() if name not in ("group", "groupId")}
    if record_type is None:
        subject = ""
    elif record_type in OFFSET_TYPES:
        subject = f"{fields['topic']}-{fields['partition']}"
    else:
        subject = _pairs(others) if text_of is _pairs else " ".join(others.values())
    if value is None:
        return f"{subject} deleted".lstrip()
    return f"{subject} {text_of(value['data']) if 'data' in value else _brief(value)}".lstrip()


def _offset_text(data: dict[str, Any]) -> str:
    parts = [f"at {data['offset']}"]
    if data.get("leaderEpoch", -1) != -1:
        parts.append(f"leader epoch {data['leaderEpoch']}")
    if data["metadata"]:
        parts.append(f"metadata {data['metadata']!r}")
    if data.get("expireTimestamp", -1) != -1:
        parts.append(f"expires {time_text(data['expireTimestamp'])}")
    return ", ".join(parts)


def _group_text(data: dict[str, Any]) -> str:
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
    name = topic["topic"] if "topic" in topic else topic["topicId"]
    return f"{name}[{format_ranges(topic['partitions'])}]"


def _epoch_text(data: dict[str, Any]) -> str:
    return f"epoch {data['epoch']}" + (f", metadata hash {data['metadataHash']}" if "metadataHash" in data else "")


def _topics_text(data: dict[str, Any]) -> str:
    topics = (f"{topic['topicName']} with {topic['numPartitions']} partitions" for topic in data["topics"])
    return ", ".join(topics) or "no topics"


def _member_text(data: dict[str, Any]) -> str:
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


def _current_text(data: dict[str, Any]) -> str:
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
_VALUE_TEXTS: dict[int | None, Callable[[dict[str, Any]], str]] = {
    RecordType.LEGACY_OFFSET_COMMIT: _offset_text,
    RecordType.OFFSET_COMMIT: _offset_text,
    RecordType.GROUP_METADATA: _group_text,
    RecordType.CONSUMER_GROUP_METADATA: _epoch_text,
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: _topics_text,
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: _member_text,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: _target_epoch_text,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: (
        lambda data: f"target {_partitions_text(data['topicPartitions'])}"
    ),
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: _current_text,
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: _expression_text,
}


def _pairs(data: dict[str, Any]) -> str:
    return " ".join(f"{name}={_brief(content)}" for name, content in data.items())


def _brief(content: Any) -> str:
    if isinstance(content, dict):
        return "{" + _pairs(content) + "}"
    if isinstance(content, list):
        return "[" + ", ".join(map(_brief, content)) + "]"
    if content is None:
        return "null"
    return content or '""' if isinstance(content, str) else str(content)


ADVANCE_BYTES = 262_144
PROGRESS_BYTES_MIN = 16_777_216

Parts = Iterator[tuple[int | None, Iterator[SoundBatch]]]
"""The batches of each segment file or offset range, with the number of the log partition."""


class _NoPartitionsError(CommandError):
    """A directory has no folders of the topic; one of several may."""


class Segment(NamedTuple):
    """A segment file, with the log partition that its folder is named after, and its size when it was found."""

    path: Path
    partition: int | None
    size_bytes: int


class Progress:
    """Counts bytes, and reports damage on stderr."""

    def __init__(self, advance: Callable[[int], None], show: Callable[[str], None]) -> None:
        self.advance = advance
        self.show = show
        self.is_damaged = False

    def report(self, message: str) -> None:
        self.is_damaged = True
        self.show(message)


class DumpInput(NamedTuple):
    """Batches to read; ``size_bytes`` is 0 if unknown."""

    size_bytes: int
    notes: list[str]
    read: Callable[[Progress], Parts]


def open_cluster(address: ClusterAddress, topic: str, partitions: Collection[int]) -> DumpInput:
    with connection(address, begins_run=True) as (cluster, patience):
        ends = topic_ends(cluster, patience, topic, partitions)
        check_readable(cluster, patience, ends)
    ranges = ends.whole()
    if not ranges:
        raise CommandError(f"topic {topic} of the cluster holds no records")
    return DumpInput(0, [], partial(_read_cluster, address, ranges))


def open_files(
    paths: Iterable[Path], topic: str, partitions: Collection[int], *, by_partition: bool = False
) -> DumpInput:
    segments = [one for one in find_segments(paths, topic) if not partitions or one.partition in partitions]
    if not segments:
        raise CommandError("none of the paths has these log partitions")
    given = {segment.path for segment in segments}
    folders = dict.fromkeys(segment.path.parent for segment in segments)
    swaps = [path for folder in folders for path in sorted(folder.glob(f"*{SWAP_SUFFIX}")) if path not in given]
    notes = [f"{path}: not read; compaction was interrupted when it wrote this" for path in swaps]
    if by_partition:
        order = list(dict.fromkeys(segment.partition for segment in segments))
        segments.sort(key=lambda segment: order.index(segment.partition))
    return DumpInput(sum(segment.size_bytes for segment in segments), notes, partial(_read_files, segments))


def find_segments(paths: Iterable[Path], topic: str = OFFSETS_TOPIC) -> list[Segment]:
    """Return the segment files of paths: files, folders of segments, and data directories. Paths are in the order
    given, log partitions and segments by number and offset.
    """
    found = found_in_some(lambda path: _segments_of(path, topic), paths, _NoPartitionsError)
    return [segment for segments in found for segment in segments]


def _segments_of(path: Path, topic: str) -> list[Segment]:
    with command_errors(OSError, prefix=f"{path}: "):
        if path.is_dir():
            return _in_folder(path, topic)
        if OTHER_FILES.fullmatch(path.name):
            raise CommandError(f"{path} is no segment file; those end in {SEGMENT_SUFFIX}")
        return [_segment(path)]


def _in_folder(folder: Path, topic: str) -> list[Segment]:
    segments = sorted(folder.glob(f"*{SEGMENT_SUFFIX}"))
    if segments:
        return [_segment(path) for path in segments]
    of_topic = re.compile(re.escape(topic) + r"-(\d{1,10})")
    partitions = [(int(match[1]), path) for path in folder.iterdir() if (match := of_topic.fullmatch(path.name))]
    found = [_segment(path) for _, inner in sorted(partitions) for path in sorted(inner.glob(f"*{SEGMENT_SUFFIX}"))]
    if found:
        return found
    if partitions or PARTITION_FOLDER.fullmatch(folder.name):
        raise CommandError(f"{folder} holds no segment files (*{SEGMENT_SUFFIX})")
    raise _NoPartitionsError(f"{folder} holds neither segment files (*{SEGMENT_SUFFIX}) nor folders {topic}-N")


def _segment(path: Path) -> Segment:
    match = PARTITION_FOLDER.fullmatch(path.absolute().parent.name)
    return Segment(path, int(match[1]) if match else None, path.stat().st_size)


def read_segment(segment: Segment) -> Iterator[SoundBatch | Damage]:
    with open(segment.path, "rb", opener=open_file) as file:

        def read_at(position: int, size: int) -> bytes:
            file.seek(position)
            return file.read(size)

        yield from salvage_batches(read_at, segment.size_bytes)


def _read_files(segments: list[Segment], progress: Progress) -> Parts:
    return ((segment.partition, _read_file(segment, progress)) for segment in segments)


def _read_file(segment: Segment, progress: Progress) -> Iterator[SoundBatch]:
    position, next_offset = 0, -1
    try:
        for found in read_segment(segment):
            if isinstance(found, Damage):
                progress.report(f"{segment.path}: {_damage_text(found)}")
                continue
            batch = found.batch
            if batch.base_offset < next_offset:
                offsets = f"{batch.base_offset} after {next_offset - 1}"
                progress.report(f"{segment.path}: offsets go back at position {batch.position}: {offsets}")
            next_offset = batch.next_offset
            yield found
            end = batch.position + batch.size_bytes
            if end - position >= ADVANCE_BYTES:
                progress.advance(end - position)
                position = end
        progress.advance(segment.size_bytes - position)
    except OSError as error:
        progress.report(f"{segment.path}: {error.strerror or error}")


def _read_cluster(address: ClusterAddress, ranges: list[OffsetRange], progress: Progress) -> Parts:
    with connection(address) as (cluster, patience):
        for one in ranges:
            yield one.partition, _read_range(cluster, patience, one, progress)


def _read_range(
    cluster: KafkaCluster, patience: Patience, one: OffsetRange, progress: Progress
) -> Iterator[SoundBatch]:
    name = f"{one.topic}-{one.partition}"
    try:
        for found in sound_batches(cluster, one, patience):
            if isinstance(found, SoundBatch):
                yield found
            elif isinstance(found, Lost):
                progress.report(f"{name}: offsets {found.start} to {found.end - 1} were {DELETED}")
            else:
                progress.report(f"{name}: {_damage_text(found)}")
    except ClusterError as error:
        progress.report(f"{name}: {error}")


def _damage_text(damage: Damage) -> str:
    end = damage.position + damage.size_bytes
    text = f"{damage.reason}; skipped {damage.size_bytes} bytes, positions {damage.position} to {end - 1}"
    first, behind = damage.first_offset, damage.end_offset
    if first is not None and behind is not None and first < behind:
        return f"{text}, offsets {first} to {behind - 1}"
    if behind is None:
        return f"{text}, to the end" + ("" if first is None else f", offsets from {first} on")
    return f"{text}, offsets before {behind}" if first is None else text


@contextmanager
def progress_of(size_bytes: int) -> Iterator[Progress]:
    """Show a progress bar for a large input, if stderr is a terminal and the records do not go there."""
    if size_bytes < PROGRESS_BYTES_MIN or not sys.stderr.isatty() or sys.stdout.isatty():
        yield Progress(lambda size: None, partial(complain, "dump"))
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

    from groupcoord.cli.console import progress_bar

    with progress_bar(TextColumn("dump"), BarColumn(), DownloadColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("dump", total=size_bytes)
        yield Progress(
            lambda size: bar.advance(task, size),
            lambda message: bar.console.print(f"groupcoord dump: {message}", soft_wrap=True),
        )
