"""A request and its answer in a few words each, for a person who looks for what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

import attrs

from groupcoord.core.consumer_protocol import ConsumerProtocolError, decode_assignment
from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    FindCoordinator,
    FindCoordinatorResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetFetchResponse,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    SyncGroup,
    SyncGroupResponse,
    TaskIds,
    TxnOffsetCommit,
)
from groupcoord.core.share_partition.in_flight import AcknowledgeType
from groupcoord.errors import ErrorCode
from groupcoord.testing.asserting.requests import ReceivedRequest
from groupcoord.testing.asserting.words import counted
from groupcoord.wire.broker_messages import CreateTopics, Fetch, FetchResponse, Metadata, Produce, ProduceResponse
from groupcoord.wire.cluster_messages import ApiVersions
from groupcoord.wire.share_messages import ShareAcknowledge, ShareFetch, ShareFetchResponse

NameOf = Callable[[UUID], str | None]
"""Returns the name of a topic with an id."""

ACKNOWLEDGED: dict[int, str] = {
    AcknowledgeType.GAP: "skips",
    AcknowledgeType.ACCEPT: "accepts",
    AcknowledgeType.RELEASE: "releases",
    AcknowledgeType.REJECT: "rejects",
    AcknowledgeType.RENEW: "renews",
}
"""What members of a share group do with records, by Kafka's numbers."""
PARTS_MAX = 4
NODES_MAX = 1_000
ID_LENGTH = 24

ROUTINE = (
    *(ApiVersions, Metadata, Fetch, ShareFetch),
    *(Heartbeat, ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat),
)
"""What clients send again and again. What was answered of these without an error, and without news, is only counted."""


def short(text: str | None) -> str:
    """Return an id so that it fits into a line."""
    if not text:
        return "without an id"
    return text if len(text) <= ID_LENGTH else f"{text[: ID_LENGTH - 1]}…"


def some(parts: Iterable[str], nothing: str = "nothing") -> str:
    """Return the first parts, and how many there are besides."""
    listed = list(parts)
    more = f" and {len(listed) - PARTS_MAX} more" if len(listed) > PARTS_MAX else ""
    return ", ".join(listed[:PARTS_MAX]) + more or nothing


def errors_of(answer: object) -> list[ErrorCode]:
    """Return the errors in an answer, each once, as far as one looks through a large one."""
    found = (code for code in islice(_walk(answer), NODES_MAX) if isinstance(code, ErrorCode))
    return [code for code in dict.fromkeys(found) if code is not ErrorCode.NONE]


def _walk(value: object) -> Iterable[object]:
    if isinstance(value, ErrorCode):
        yield value
    elif attrs.has(kind := type(value)):
        for name in attrs.fields_dict(kind):
            yield from _walk(getattr(value, name))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | memoryview):
        for item in value:
            yield None  # counts for how far one looks
            yield from _walk(item)


def is_routine(request: ReceivedRequest) -> bool:
    """Tell whether a request was answered as it is every time, with nothing to tell."""
    message, answer = request.message, request.answer
    if answer is None or not isinstance(message, ROUTINE) or errors_of(answer):
        return False
    if isinstance(message, ShareFetch):
        return not any(_acquired(answer, lambda _: None)) and not any(_acknowledged(message, lambda _: None))
    if isinstance(message, ConsumerGroupHeartbeat | ShareGroupHeartbeat):
        return answer.assignment is None and message.member_epoch > 0
    if isinstance(message, StreamsGroupHeartbeat):
        return answer.active_tasks is None and not answer.status and message.member_epoch > 0
    return not (isinstance(answer, FetchResponse) and _record_bytes(answer))


# ---------------------------------------------------------------- requests


def describe_request(message: Any, name_of: NameOf) -> str:
    """Return what a request asks for, in a few words."""
    match message:
        case JoinGroup():
            names = ", ".join(protocol.name for protocol in message.protocols)
            return f"{message.group_id}, member {short(message.member_id)}, {names}"
        case SyncGroup():
            leads = f", for {counted(len(message.assignments), 'member')}" if message.assignments else ""
            return f"{message.group_id}, generation {message.generation_id}, member {short(message.member_id)}{leads}"
        case FindCoordinator():
            return some(message.keys)
        case CreateTopics():
            return some(topic.name for topic in message.topics)
        case Heartbeat():
            return f"{message.group_id}, generation {message.generation_id}, member {short(message.member_id)}"
        case LeaveGroup():
            return f"{message.group_id}, {some(short(m.member_id or m.group_instance_id) for m in message.members)}"
        case ConsumerGroupHeartbeat() | ShareGroupHeartbeat() | StreamsGroupHeartbeat():
            return f"{message.group_id}, epoch {message.member_epoch}, member {short(message.member_id)}"
        case OffsetCommit() | TxnOffsetCommit():
            offsets = some(
                f"{place} at {partition.committed_offset}" for place, partition in _partitions(message.topics, name_of)
            )
            return f"{message.group_id}, generation {message.generation_id}: {offsets}"
        case OffsetFetch():
            return some(str(group.group_id) for group in message.groups)
        case Fetch():
            return some(
                f"{place} from {partition.fetch_offset}" for place, partition in _partitions(message.topics, name_of)
            )
        case ShareFetch() | ShareAcknowledge():
            return some(_acknowledged(message, name_of))
        case Produce():
            return some(
                f"{place}: {counted(len(partition.records or b''), 'byte')}"
                for place, partition in _partitions(message.topics, name_of)
            )
    return ""


def _partitions(topics: Iterable[Any], name_of: NameOf) -> Iterator[tuple[str, Any]]:
    """Yield what a message says of each partition, behind the partition's name: ``orders-0``."""
    for topic in topics:
        name = getattr(topic, "name", None) or name_of(topic.topic_id)
        for partition in topic.partitions:
            yield f"{name}-{partition.partition_index}", partition


# ---------------------------------------------------------------- answers


def describe_answer(answer: Any, name_of: NameOf) -> str:
    """Return what an answer says, in a few words: its errors, if it has any."""
    errors = errors_of(answer)
    if errors:
        return some(code.name for code in errors)
    match answer:
        case HeartbeatResponse():
            return "fine"
        case FindCoordinatorResponse():
            return some(f"node {found.node.node_id}" for found in answer.coordinators)
        case JoinGroupResponse():
            leads = f", leads {counted(len(answer.members), 'member')}" if answer.members else ""
            return f"generation {answer.generation_id}, member {short(answer.member_id)}{leads}"
        case SyncGroupResponse():
            return _assignment(answer.assignment)
        case ConsumerGroupHeartbeatResponse() | ShareGroupHeartbeatResponse():
            has = "" if answer.assignment is None else f", {_partitions_by_id(answer, name_of)}"
            return f"epoch {answer.member_epoch}{has}"
        case StreamsGroupHeartbeatResponse():
            return ", ".join([f"epoch {answer.member_epoch}", *_tasks(answer), *_statuses(answer)])
        case OffsetFetchResponse():
            return some(
                f"{place} at {offset.committed_offset}"
                for group in answer.groups
                for place, offset in _partitions(group.topics, name_of)
                if offset.committed_offset >= 0
            )
        case ShareFetchResponse():
            return some(_acquired(answer, name_of), "no records")
        case FetchResponse():
            return f"{counted(_record_bytes(answer), 'byte')} of records"
        case ProduceResponse():
            return some(
                f"{place} from {partition.base_offset}" for place, partition in _partitions(answer.topics, name_of)
            )
    return "fine"


def _assignment(data: bytes) -> str:
    try:
        partitions = decode_assignment(data).partitions if data else ()
    except ConsumerProtocolError:
        return counted(len(data), "byte")
    return some((f"{topic}-{index}" for topic, index in partitions), "no partitions")


def _tasks(answer: StreamsGroupHeartbeatResponse) -> Iterator[str]:
    """Yield the tasks that a member is given, of each kind; if there are none of any, that."""
    if answer.active_tasks is None:
        return
    yield some(_task_names(answer.active_tasks), "no tasks")
    if answer.standby_tasks:
        yield f"standby {some(_task_names(answer.standby_tasks))}"


def _task_names(tasks: Iterable[TaskIds]) -> Iterator[str]:
    return (f"{each.subtopology_id}_{index}" for each in tasks for index in each.partitions)


def _statuses(answer: StreamsGroupHeartbeatResponse) -> list[str]:
    return [status.code.name for status in answer.status or ()]


def _acknowledged(message: ShareFetch | ShareAcknowledge, name_of: NameOf) -> Iterator[str]:
    """Yield what becomes of records: ``accepts orders-0 from 3 to 5``."""
    for place, partition in _partitions(message.topics, name_of):
        for batch in partition.acknowledgement_batches:
            verbs = [ACKNOWLEDGED.get(kind, f"{kind}") for kind in dict.fromkeys(batch.acknowledge_types)]
            yield f"{' and '.join(verbs)} {place} from {batch.first_offset} to {batch.last_offset}"


def _acquired(answer: ShareFetchResponse, name_of: NameOf) -> Iterator[str]:
    """Yield what the asker has now: ``orders-0 from 3 to 5``."""
    for place, partition in _partitions(answer.responses, name_of):
        for run in partition.acquired_records:
            again = f" (time {run.delivery_count})" if run.delivery_count > 1 else ""
            yield f"{place} from {run.first_offset} to {run.last_offset}{again}"


def _partitions_by_id(answer: ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse, name_of: NameOf) -> str:
    partitions = (
        f"{name_of(topic.topic_id)}-{index}" for topic in answer.assignment or () for index in topic.partitions
    )
    return some(partitions, "no partitions")


def _record_bytes(answer: FetchResponse) -> int:
    return sum(len(part) for topic in answer.topics for p in topic.partitions for part in p.records)
