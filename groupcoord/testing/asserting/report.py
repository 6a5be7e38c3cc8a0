"""Report of a server for a failed test: warnings, faults, groups, requests, and known client bugs."""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

import attrs
from attrs import frozen

from groupcoord.analysis.report.text import counted
from groupcoord.broker.broker import Broker
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
from groupcoord.testing.asserting.groups import (
    CommittedOffset,
    GroupDescription,
    committed_offsets,
    describe_group,
    describe_groups,
    no_such_group,
)
from groupcoord.testing.asserting.requests import ReceivedRequest, Requests
from groupcoord.wire.broker_messages import CreateTopics, Fetch, FetchResponse, Metadata, Produce, ProduceResponse
from groupcoord.wire.cluster_messages import ApiVersions
from groupcoord.wire.share_messages import ShareAcknowledge, ShareFetch, ShareFetchResponse
from groupcoord.wire.transaction_messages import AddOffsetsToTxn, EndTxn, InitProducerId

NameOf = Callable[[UUID], str | None]
ACKNOWLEDGED: dict[int, str] = {
    AcknowledgeType.GAP: "skips",
    AcknowledgeType.ACCEPT: "accepts",
    AcknowledgeType.RELEASE: "releases",
    AcknowledgeType.REJECT: "rejects",
    AcknowledgeType.RENEW: "renews",
}
PARTS_MAX = 4
NODES_MAX = 1_000
ID_LENGTH = 24

ROUTINE = (
    *(ApiVersions, Metadata, Fetch, ShareFetch),
    *(Heartbeat, ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat),
)
"""Repeated requests of clients; without errors and changes they are only counted."""


def short(text: str | None) -> str:
    if not text:
        return "without an id"
    return text if len(text) <= ID_LENGTH else f"{text[: ID_LENGTH - 1]}…"


def some(parts: Iterable[str], nothing: str = "nothing") -> str:
    listed = list(parts)
    more = f" and {len(listed) - PARTS_MAX} more" if len(listed) > PARTS_MAX else ""
    return ", ".join(listed[:PARTS_MAX]) + more or nothing


def errors_of(answer: object) -> list[ErrorCode]:
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
            yield None  # counts against the limit
            yield from _walk(item)


def is_routine(request: ReceivedRequest) -> bool:
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
    for topic in topics:
        name = getattr(topic, "name", None) or name_of(topic.topic_id)
        for partition in topic.partitions:
            yield f"{name}-{partition.partition_index}", partition


# ---------------------------------------------------------------- answers


def describe_answer(answer: Any, name_of: NameOf) -> str:
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
            return ", ".join(
                [f"epoch {answer.member_epoch}", *_tasks(answer), *(each.code.name for each in answer.status or ())]
            )
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
    if answer.active_tasks is None:
        return
    yield some(_task_names(answer.active_tasks), "no tasks")
    if answer.standby_tasks:
        yield f"standby {some(_task_names(answer.standby_tasks))}"


def _task_names(tasks: Iterable[TaskIds]) -> Iterator[str]:
    return (f"{each.subtopology_id}_{index}" for each in tasks for index in each.partitions)


def _acknowledged(message: ShareFetch | ShareAcknowledge, name_of: NameOf) -> Iterator[str]:
    for place, partition in _partitions(message.topics, name_of):
        for batch in partition.acknowledgement_batches:
            verbs = [ACKNOWLEDGED.get(kind, f"{kind}") for kind in dict.fromkeys(batch.acknowledge_types)]
            yield f"{' and '.join(verbs)} {place} from {batch.first_offset} to {batch.last_offset}"


def _acquired(answer: ShareFetchResponse, name_of: NameOf) -> Iterator[str]:
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


DOCUMENT = "docs/client-bugs.md"
_LOOKS_UP_AGAIN = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


@frozen
class KnownBug:
    """Bug of a client library, with the requests that reveal it.

    Attributes:
        heading: its section in ``docs/client-bugs.md``.
        software: matches name and version in the client's ApiVersions.
        starts: returns whether the client becomes silent after a request.
        followed_by: requests of which one should follow within ``within_ms``.
    """

    heading: str
    name: str
    software: re.Pattern[str]
    starts: Callable[[ReceivedRequest], bool]
    followed_by: Collection[type]
    within_ms: int


def _is_answered(kind: type, errors: Collection[ErrorCode]) -> Callable[[ReceivedRequest], bool]:
    def check(request: ReceivedRequest) -> bool:
        if not isinstance(request.message, kind) or request.answer is None:
            return False
        found = errors_of(request.answer)
        return not found if not errors else any(code in errors for code in found)

    return check


def _is_a_failed_commit(request: ReceivedRequest) -> bool:
    is_cut_off = isinstance(request.message, OffsetCommit) and request.refusal is not None
    return is_cut_off or _is_answered(OffsetCommit, (ErrorCode.COORDINATOR_NOT_AVAILABLE,))(request)


LIBRDKAFKA = re.compile("rdkafka")
KNOWN_BUGS = (
    KnownBug(
        "A partition is assigned, and nothing of it is ever read",
        "librdkafka #5586",
        LIBRDKAFKA,
        _is_answered(OffsetFetch, _LOOKS_UP_AGAIN),
        (OffsetFetch,),
        5_000,
    ),
    KnownBug(
        "The end of a transaction outlasts its time-out",
        "librdkafka #5456",
        LIBRDKAFKA,
        _is_answered(AddOffsetsToTxn, ()),
        (TxnOffsetCommit, EndTxn, InitProducerId),
        10_000,
    ),
    KnownBug(
        "A commit blocks, heartbeats stop, and the member falls out",
        "librdkafka",
        LIBRDKAFKA,
        _is_a_failed_commit,
        (OffsetCommit, Heartbeat, ConsumerGroupHeartbeat, JoinGroup),
        9_000,
    ),
)


def known_client_bugs(requests: Sequence[ReceivedRequest]) -> dict[str, list[str]]:
    """Return sentences about known bugs with visible symptoms, by listener, or by client id if there is one listener.

    Clients of one listener or client id count as one, so a symptom may be missed.
    """
    by_client: dict[str, list[ReceivedRequest]] = {}
    for request in requests:
        by_client.setdefault(request.listener or request.client_id, []).append(request)
    end_ms = requests[-1].received_ms if requests else 0
    found = {client: list(_bugs_of(own, end_ms)) for client, own in by_client.items()}
    return {client: sentences for client, sentences in found.items() if sentences}


def _bugs_of(requests: Sequence[ReceivedRequest], end_ms: int) -> Iterator[str]:
    software = _software(requests)
    for bug in KNOWN_BUGS:
        if bug.software.search(software) and _is_seen(bug, requests, end_ms):
            yield f"looks like a known bug, {bug.name}: {bug.heading} ({DOCUMENT})"


def _is_seen(bug: KnownBug, requests: Sequence[ReceivedRequest], end_ms: int) -> bool:
    for number, request in enumerate(requests):
        if bug.starts(request):
            later = (next_.received_ms for next_ in requests[number + 1 :] if type(next_.message) in bug.followed_by)
            if next(later, end_ms) - request.received_ms >= bug.within_ms:
                return True
    return False


def _software(requests: Sequence[ReceivedRequest]) -> str:
    versions = (request.message for request in reversed(requests) if isinstance(request.message, ApiVersions))
    named = (
        f"{one.client_software_name} {one.client_software_version}" for one in versions if one.client_software_name
    )
    return next(named, "")


CLIENTS_MAX = 8
REQUESTS_MAX = 12
GROUPS_MAX = 8
FAULTS_MAX = 8
MEMBERS_MAX = 8
LINE_MAX = 180


def report_on(
    broker: Broker | None,
    requests: Requests,
    log_lines: Sequence[str],
    *,
    faults: Sequence[str] = (),
    group_ids: Collection[str] | None = None,
    shows_nodes: bool = False,
) -> str:
    lines = [*log_lines, *(f"on purpose: {fault}" for fault in faults[:FAULTS_MAX])]
    if len(faults) > FAULTS_MAX:
        lines.append(f"and {len(faults) - FAULTS_MAX} more faults")
    if broker is None:
        lines.append("the server has stopped")
    else:
        lines += _groups(broker, group_ids)
    lines += _clients(requests, _names(broker), shows_nodes)
    for client, sentences in known_client_bugs(requests).items():
        lines += [f"client {client!r} {sentence}" for sentence in sentences]
    return "\n".join(map(_cut, lines))


def story_of(broker: Broker, requests: Requests, group_id: str) -> list[str]:
    group = describe_group(broker, group_id)
    lines = [no_such_group(broker, group_id)] if group is None else [f"{group}", *_members(group)]
    sent = [request for request in requests.where(group_id=group_id) if not is_routine(request)]
    for request in sent[-REQUESTS_MAX:]:
        time = _seconds(request.received_ms, requests[0].received_ms)
        lines.append(f"{time}  client {request.client_id!r}: {_outcome(request, _names(broker))}")
    return list(map(_cut, lines))


def _cut(line: str) -> str:
    return line if len(line) <= LINE_MAX else f"{line[: LINE_MAX - 1]}…"


def _names(broker: Broker | None) -> NameOf:
    return (lambda topic_id: None) if broker is None else broker.topics.topic_name


# ---------------------------------------------------------------- groups


def _groups(broker: Broker, group_ids: Collection[str] | None) -> Iterator[str]:
    groups = [group for group in describe_groups(broker) if group_ids is None or group.group_id in group_ids]
    if not groups:
        yield "no groups"
    for group in groups[:GROUPS_MAX]:
        yield f"group {group}"
        yield from _members(group)
        offsets = committed_offsets(broker, group.group_id)
        if offsets:
            yield f"  committed: {some(_progress(broker, offset) for offset in offsets)}"
    if len(groups) > GROUPS_MAX:
        yield f"and {len(groups) - GROUPS_MAX} more groups"


def _members(group: GroupDescription) -> Iterator[str]:
    for member in group.members[:MEMBERS_MAX]:
        yield f"  {member}"
    if len(group.members) > MEMBERS_MAX:
        yield f"  and {len(group.members) - MEMBERS_MAX} more members"


def _progress(broker: Broker, committed: CommittedOffset) -> str:
    place = f"{committed.topic}-{committed.partition} at {committed.offset}"
    topic = broker.topics.get(committed.topic)
    data = broker.data.whole
    log = data.log(topic, committed.partition) if topic and topic.has_partition(committed.partition) else None
    return place if log is None else f"{place} of {log.end_offset}"


# ---------------------------------------------------------------- requests


def _clients(requests: Requests, name_of: NameOf, shows_nodes: bool) -> Iterator[str]:
    by_client: dict[str, list[ReceivedRequest]] = {}
    for request in reversed(requests):
        by_client.setdefault(request.client_id, []).append(request)
    start_ms = requests[0].received_ms if requests else 0
    if not requests:
        yield "no requests"
    for client_id in list(by_client)[:CLIENTS_MAX]:
        yield from _client(client_id, by_client[client_id][::-1], start_ms, name_of, shows_nodes)
    if len(by_client) > CLIENTS_MAX:
        yield f"and {len(by_client) - CLIENTS_MAX} more clients with older requests"


def _client(
    client_id: str, requests: list[ReceivedRequest], start_ms: int, name_of: NameOf, shows_nodes: bool
) -> Iterator[str]:
    routine = [request for request in requests if is_routine(request)]
    shown = [request for request in requests if not is_routine(request)]
    connections = len({request.connection for request in requests})
    yield f"client {client_id!r}: {counted(len(requests), 'request')} on {counted(connections, 'connection')}"
    if len(shown) > REQUESTS_MAX:
        yield f"  … {len(shown) - REQUESTS_MAX} before"
    for request in shown[-REQUESTS_MAX:]:
        place = f"node {request.node_id}  " if shows_nodes else ""
        yield f"  {_seconds(request.received_ms, start_ms)}  {place}{_outcome(request, name_of)}"
    if routine:
        counts = Counter((request.api, request.node_id if shows_nodes else None) for request in routine).most_common()
        named = ", ".join(f"{count} {api}{'' if node is None else f' to node {node}'}" for (api, node), count in counts)
        yield f"  routine: {named}, the last at {_seconds(routine[-1].received_ms, start_ms)}"


def _outcome(request: ReceivedRequest, name_of: NameOf) -> str:
    sent = describe_request(request.message, name_of)
    if request.refusal is not None:
        outcome = f"no answer: {request.refusal}"
    elif request.answered_ms is None:
        outcome = "waits for its answer"
    else:
        outcome = describe_answer(request.answer, name_of)
        waited_ms = request.answered_ms - request.received_ms
        if waited_ms >= 10:
            outcome += f" (after {waited_ms} ms)"
    api = f"{request.api} {sent}".rstrip()
    return f"{api} -> {outcome}"


def _seconds(at_ms: int, start_ms: int) -> str:
    return f"{(at_ms - start_ms) / 1000:.3f} s"


LOGGER_NAME = "groupcoord.host"
KEPT_LINES = 20


class LogTap(logging.Filter):
    """Log filter that keeps the last warnings and errors of one thread during a ``with`` block."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._thread_id: int | None = None

    def __enter__(self) -> LogTap:
        self._thread_id = threading.get_ident()
        logging.getLogger(LOGGER_NAME).addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger(LOGGER_NAME).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread == self._thread_id and record.levelno >= logging.WARNING:
            self._lines.append(f"{record.levelname.lower()}: {record.getMessage()}")
        return True

    def lines(self) -> list[str]:
        return list(self._lines)
