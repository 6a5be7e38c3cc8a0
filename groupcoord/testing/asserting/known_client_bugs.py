"""Known client bugs (``docs/client-bugs.md``) whose symptom is seen in the requests that a server has received."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

from attrs import frozen

from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    TxnOffsetCommit,
)
from groupcoord.errors import ErrorCode
from groupcoord.testing.asserting.requests import ReceivedRequest
from groupcoord.testing.asserting.summaries import errors_of
from groupcoord.wire.cluster_messages import ApiVersions
from groupcoord.wire.transaction_messages import AddOffsetsToTxn, EndTxn, InitProducerId

DOCUMENT = "docs/client-bugs.md"
_LOOKS_UP_AGAIN = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


@frozen
class KnownBug:
    """A bug of a client library, and the requests by which it is recognized.

    Attributes:
        heading: of its section in ``docs/client-bugs.md``.
        name: the library, and the number of the issue if there is one.
        software: matches the name and version that the client sends in ApiVersions.
        starts: returns whether a request is the one after which the client goes silent.
        followed_by: the requests of which one should come soon.
        within_ms: how soon.
    """

    heading: str
    name: str
    software: re.Pattern[str]
    starts: Callable[[ReceivedRequest], bool]
    followed_by: Collection[type]
    within_ms: int


def _is_answered(kind: type, errors: Collection[ErrorCode]) -> Callable[[ReceivedRequest], bool]:
    """Return whether a request of a class was answered with one of some errors; with none, if no errors are given."""

    def check(request: ReceivedRequest) -> bool:
        if not isinstance(request.message, kind) or request.answer is None:
            return False
        found = errors_of(request.answer)
        return not found if not errors else any(code in errors for code in found)

    return check


def _is_a_failed_commit(request: ReceivedRequest) -> bool:
    """Return whether a commit's coordinator was not available, or its connection broke before the answer."""
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
"""Those that show in what a client no longer sends."""


def known_client_bugs(requests: Sequence[ReceivedRequest]) -> dict[str, list[str]]:
    """Return for each client, by listener or else client id, a sentence about each known bug whose symptom is seen.

    Clients that share a client id and a listener count as one: a symptom of one of them may be missed.
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
    """Return what the client last said of itself, such as ``confluent-kafka-python 2.16.1-rdkafka-2.16.0``."""
    said = (request.message for request in reversed(requests) if isinstance(request.message, ApiVersions))
    named = (f"{one.client_software_name} {one.client_software_version}" for one in said if one.client_software_name)
    return next(named, "")
