"""What a server has seen lately, for a person who looks at a test that has failed.

What clients send again and again without news is counted, the rest is a line each; there is a limit to everything.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence

from groupcoord.broker.broker import Broker
from groupcoord.testing.asserting.groups import (
    CommittedOffset,
    GroupDescription,
    committed_offsets,
    describe_group,
    describe_groups,
    no_such_group,
)
from groupcoord.testing.asserting.known_client_bugs import known_client_bugs
from groupcoord.testing.asserting.requests import ReceivedRequest, Requests
from groupcoord.testing.asserting.summaries import NameOf, describe_answer, describe_request, is_routine, some
from groupcoord.testing.asserting.words import counted

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
    tells_nodes: bool = False,
) -> str:
    """Return what a server has said, what goes wrong on purpose, how its groups stand, and what each client asked last.

    Args:
        broker: of the server; None if it does not run any more.
        requests: what has come to it.
        log_lines: what it has written to its log.
        faults: what goes wrong on purpose at the moment, in words.
        group_ids: the groups to tell of; None: all.
        tells_nodes: say to which node each request came: there are several.
    """
    lines = [*log_lines, *(f"on purpose: {fault}" for fault in faults[:FAULTS_MAX])]
    if len(faults) > FAULTS_MAX:
        lines.append(f"and {len(faults) - FAULTS_MAX} more faults")
    if broker is None:
        lines.append("the server has stopped")
    else:
        lines += _groups(broker, group_ids)
    lines += _clients(requests, _names(broker), tells_nodes)
    for client, sentences in known_client_bugs(requests).items():
        lines += [f"client {client!r} {sentence}" for sentence in sentences]
    return "\n".join(map(_cut, lines))


def story_of(broker: Broker, requests: Requests, group_id: str) -> list[str]:
    """Return how a group stands and what was last asked about it with news, a line each, by whichever client."""
    group = describe_group(broker, group_id)
    lines = [no_such_group(broker, group_id)] if group is None else [f"{group}", *_members(group)]
    asked = [request for request in requests.where(group_id=group_id) if not is_routine(request)]
    for request in asked[-REQUESTS_MAX:]:
        time = _seconds(request.received_ms, requests[0].received_ms)
        lines.append(f"{time}  client {request.client_id!r}: {_outcome(request, _names(broker))}")
    return list(map(_cut, lines))


def _cut(line: str) -> str:
    return line if len(line) <= LINE_MAX else f"{line[: LINE_MAX - 1]}…"


def _names(broker: Broker | None) -> NameOf:
    return _no_name if broker is None else broker.topics.topic_name


def _no_name(topic_id: object) -> None:
    return None


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


def _clients(requests: Requests, name_of: NameOf, tells_nodes: bool) -> Iterator[str]:
    by_client: dict[str, list[ReceivedRequest]] = {}
    for request in reversed(requests):
        by_client.setdefault(request.client_id, []).append(request)
    start_ms = requests[0].received_ms if requests else 0
    if not requests:
        yield "no requests"
    for client_id in list(by_client)[:CLIENTS_MAX]:
        yield from _client(client_id, by_client[client_id][::-1], start_ms, name_of, tells_nodes)
    if len(by_client) > CLIENTS_MAX:
        yield f"and {len(by_client) - CLIENTS_MAX} more clients that came before"


def _client(
    client_id: str, requests: list[ReceivedRequest], start_ms: int, name_of: NameOf, tells_nodes: bool
) -> Iterator[str]:
    routine = [request for request in requests if is_routine(request)]
    told = [request for request in requests if not is_routine(request)]
    connections = len({request.connection for request in requests})
    yield f"client {client_id!r}: {counted(len(requests), 'request')} on {counted(connections, 'connection')}"
    if len(told) > REQUESTS_MAX:
        yield f"  … {len(told) - REQUESTS_MAX} before"
    for request in told[-REQUESTS_MAX:]:
        place = f"node {request.node_id}  " if tells_nodes else ""
        yield f"  {_seconds(request.received_ms, start_ms)}  {place}{_outcome(request, name_of)}"
    if routine:
        counts = Counter((request.api, request.node_id if tells_nodes else None) for request in routine).most_common()
        named = ", ".join(f"{count} {api}{'' if node is None else f' to node {node}'}" for (api, node), count in counts)
        yield f"  besides, without news: {named}, the last at {_seconds(routine[-1].received_ms, start_ms)}"


def _outcome(request: ReceivedRequest, name_of: NameOf) -> str:
    asked = describe_request(request.message, name_of)
    if request.refusal is not None:
        outcome = f"no answer: {request.refusal}"
    elif request.answered_ms is None:
        outcome = "waits for its answer"
    else:
        outcome = describe_answer(request.answer, name_of)
        waited_ms = request.answered_ms - request.received_ms
        if waited_ms >= 10:
            outcome += f" (after {waited_ms} ms)"
    api = f"{request.api} {asked}".rstrip()
    return f"{api} -> {outcome}"


def _seconds(at_ms: int, start_ms: int) -> str:
    return f"{(at_ms - start_ms) / 1000:.3f} s"


LOGGER_NAME = "groupcoord.host"
KEPT_LINES = 20


class LogTap(logging.Filter):
    """Keeps the last warnings and errors that are written in one thread during a ``with`` block, and lets all pass."""

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
        """Keep a line, and let it pass."""
        if record.thread == self._thread_id and record.levelno >= logging.WARNING:
            self._lines.append(f"{record.levelname.lower()}: {record.getMessage()}")
        return True

    def lines(self) -> list[str]:
        """Return what was kept."""
        return list(self._lines)
