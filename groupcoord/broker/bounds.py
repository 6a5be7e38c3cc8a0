"""Bounds on the number of entries in requests that are handled in one step.

A handler that yields between entries takes any number of them. Every other request is refused if its arrays hold more
entries than can be handled while all other connections wait. Kafka has no such bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import accumulate
from typing import Any

from groupcoord.core.columns import OffsetColumns
from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    OffsetCommit,
    StreamsGroupHeartbeat,
    SyncGroup,
    TxnOffsetCommit,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, WireRequest, decode_request
from groupcoord.wire.api import Answered

ENTRIES_AT_ONCE = 10_000
"""Most entries of a request that is handled in one step, unless :data:`ENTRIES_MAX` has another number."""

ENTRIES_MAX: Mapping[type, int] = {
    # Kafka refuses as many offsets, too: their records exceed message.max.bytes.
    OffsetCommit: 25_000,
    TxnOffsetCommit: 25_000,
    ConsumerGroupHeartbeat: 20_000,
    StreamsGroupHeartbeat: 25_000,
    SyncGroup: 100_000,
}

_ERRORS = dict.fromkeys((OffsetCommit, TxnOffsetCommit), ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors other than INVALID_REQUEST: that of an append that is too large."""


def entry_limit(request: type, in_portions: Set[type]) -> int | None:
    return None if request in in_portions else ENTRIES_MAX.get(request, ENTRIES_AT_ONCE)


def decode_bounded(
    in_portions: Set[type], frame: bytes, client_host: str
) -> tuple[RequestHeader, WireRequest, Answered | None]:
    """Decode a request, with its refusal if it has too many entries."""
    header, request = decode_request(frame, client_host)
    limit = entry_limit(type(request), in_portions)
    # Answered: the decoder has refused the request already.
    if limit is None or isinstance(request, Answered) or not holds_more(request, limit):
        return header, request, None
    error_code = _ERRORS.get(type(request), ErrorCode.INVALID_REQUEST)
    bounded: Any = request  # Metadata, which has no refusal, is handled in steps
    return header, request, Answered(bounded.refused(error_code))


def holds_more(request: Any, limit: int) -> bool:
    # Lazy, so that counting ends at the limit.
    counts = accumulate(len(array) for array in arrays_of(request))
    return any(count > limit for count in counts)


def arrays_of(value: Any) -> Iterator[Any]:
    """Yield the arrays of a request, at any depth; of offset columns only one."""
    # A stack, not recursion: the peer decides on the depth.
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, OffsetColumns):
            # Its columns have the same length: one entry for each partition.
            yield value[0]
        # Exact types: a named tuple is an entry with fields, not an array.
        elif type(value) in (tuple, list):
            yield value
            # Entries of an array have one type, so the first decides.
            if value and not isinstance(value[0], (str, int, bytes)):
                waiting += value
        elif isinstance(value, tuple):  # a named tuple
            waiting += (each for each in value if not isinstance(each, (str, int, bytes)))
        elif hasattr(value, "__attrs_attrs__"):
            fields = (getattr(value, each.name) for each in value.__attrs_attrs__)
            waiting += (each for each in fields if not isinstance(each, (str, int, bytes)))
