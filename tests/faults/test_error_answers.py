"""Error responses: each API has one that contains only an error, readable in every version."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_args, get_type_hints

import attrs
import pytest

import groupcoord.core.messages
import groupcoord.wire
from groupcoord.errors import ErrorCode
from groupcoord.messages import GroupToFetch, OffsetFetch, TopicToFetch
from groupcoord.testing.faults.error_answers import refuse, refuse_topics, request_types
from groupcoord.wire import Answered, decode_request, encode_response
from groupcoord.wire.broker_messages import Fetch, MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic
from groupcoord.wire.registry import APIS
from tests.tables import as_one_test
from tests.wire.kio_client import read_response, versions_of
from tests.wire.sample_frames import FRAMES

MESSAGE_MODULES = [
    import_module(f"{package.__name__}.{found.name}")
    for package in (groupcoord.core.messages, groupcoord.wire)
    for found in iter_modules(package.__path__)
]
ERROR = ErrorCode.NOT_COORDINATOR
METADATA, DESCRIBE_LOG_DIRS = 3, 35
TOKENS = frozenset((38, 39, 40))
"""Their answers have a time that is -1 with an error, which kio can't read."""


def error_codes(value: Any, name: str = "") -> Iterator[int]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from error_codes(inner, key)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from error_codes(inner, name)
    elif name.endswith("error_code"):
        yield value


def test_every_api_can_fail() -> None:
    """Each API has an error response; only those of Metadata and ApiVersions need more than the request."""
    kinds = request_types()
    unable = {api.name for api in APIS.values() if not hasattr(kinds[api.name], "refused")}

    assert unable == {"Metadata", "ApiVersions"}


@as_one_test
@pytest.mark.parametrize("api_key", sorted(APIS.keys() - {METADATA} - TOKENS))
def test_the_error_is_where_clients_look(api_key: int) -> None:
    """Every entry of the response has the error; a response without entries has it at the top."""
    for version in versions_of(api_key):
        if api_key == DESCRIBE_LOG_DIRS and version < 3:
            continue  # these have no place for an error of the whole
        header, request = decode_request(FRAMES[api_key, version], "/127.0.0.1")
        assert not isinstance(request, Answered)
        response = refuse(request, ERROR)
        assert response is not None
        frame = encode_response(header, response)
        found = set(error_codes(read_response(api_key, version, frame)))

        assert ERROR in found, (version, response)
        assert found <= {ERROR, ErrorCode.NONE}


def test_that_offsets_may_change_is_said_of_each_partition() -> None:
    """Kafka has this error for partitions alone: a client need not know it of a group."""
    asked = OffsetFetch((GroupToFetch("g", (TopicToFetch("t", (0, 2)),)), GroupToFetch("all")))

    some, whole = refuse(asked, ErrorCode.UNSTABLE_OFFSET_COMMIT).groups

    found = [(one.partition_index, one.committed_offset, one.error_code) for one in some.topics[0].partitions]
    assert (some.error_code, found) == (ErrorCode.NONE, [(0, -1, 88), (2, -1, 88)])
    assert whole.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize("api_key", sorted(TOKENS))
def test_the_error_of_tokens_comes_first(api_key: int) -> None:
    for version in versions_of(api_key):
        header, request = decode_request(FRAMES[api_key, version], "/127.0.0.1")
        frame = encode_response(header, refuse(request, ERROR))
        body = frame[8 + (version >= APIS[api_key].flexible_from) :]
        assert int.from_bytes(body[:2], "big") == ERROR


def test_a_fetch_of_a_session_fails_as_a_whole() -> None:
    """A Fetch that names no partition, since its session knows them, has its error at the top."""
    response = refuse(Fetch((), session_id=7, session_epoch=3), ERROR)

    assert response is not None
    assert response.error_code is ERROR  # type: ignore[union-attr]


def test_metadata_keep_their_nodes() -> None:
    """The answer to Metadata has the error at each topic; the nodes stay, or clients would pass it over."""
    node = MetadataBroker(1, "127.0.0.1", 9092)
    topic = MetadataTopic(ErrorCode.NONE, "orders", partitions=(MetadataPartition(ErrorCode.NONE, 0, 1),))
    refused = refuse_topics(MetadataResponse((node,), (topic,)), ErrorCode.LEADER_NOT_AVAILABLE)

    assert refused.brokers == (node,)
    assert [(topic.error_code, topic.partitions) for topic in refused.topics] == [(ErrorCode.LEADER_NOT_AVAILABLE, ())]


def test_entries_of_answers_have_one_form() -> None:
    """A test edits each entry with ``_replace``: all that stands in a response is a named tuple."""
    responses = [kind for module in MESSAGE_MODULES for kind in vars(module).values() if _is_response(kind)]
    entries: dict[type, None] = {}
    for response in responses:
        entries.update(dict.fromkeys(_entries(response)))

    assert len(responses) > 60
    assert {entry for entry in entries if not issubclass(entry, tuple)} == set()


def _is_response(kind: object) -> bool:
    return isinstance(kind, type) and kind.__name__.endswith("Response") and attrs.has(kind)


def _entries(kind: type) -> Iterator[type]:
    """Yield the classes of ours in a class's annotations, at any depth."""
    pending: list[Any] = list(get_type_hints(kind).values())
    seen: set[Any] = set()
    while pending:
        hint = pending.pop()
        if hint in seen:
            continue
        seen.add(hint)
        pending += get_args(hint)
        if isinstance(hint, type) and (attrs.has(hint) or hasattr(hint, "_fields")):
            yield hint
            pending += get_type_hints(hint).values()
