"""What is read by hand, for speed, is read as Kafka's own definitions say it: the same request, or none."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_writer

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.wire import ProtocolError, RequestHeader
from groupcoord.wire.broker_messages import (
    Fetch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    Produce,
    ProducePartition,
    ProduceTopic,
)
from groupcoord.wire.by_schema import decoder_of
from groupcoord.wire.registry import APIS
from tests.tables import as_one_test
from tests.wire.kio_client import entity, versions_of
from tests.wire.sample_requests import BODIES

PRODUCE, FETCH = 0, 1
API_VERSIONS = [(api_key, version) for api_key in (PRODUCE, FETCH) for version in versions_of(api_key)]

Values = Mapping[str, Any]


def produce_of(values: Values, header: RequestHeader, client_host: str) -> Produce:
    """Return the request that the fields of a version make."""
    version = header.api_version
    topics = tuple(
        ProduceTopic(
            topic.get("name"),
            topic.get("topic_id", ZERO_UUID),
            tuple(ProducePartition(one["index"], one["records"]) for one in topic["partition_data"]),
        )
        for topic in values["topic_data"]
    )
    return Produce(topics, values["acks"], values["transactional_id"], version >= 7, version >= 11, version >= 12)


def fetch_of(values: Values, header: RequestHeader, client_host: str) -> Fetch:
    """Return the request that the fields of a version make."""
    replica_state = values.get("replica_state", values)
    return Fetch(
        tuple(
            FetchTopic(
                topic.get("topic"),
                topic.get("topic_id", ZERO_UUID),
                tuple(
                    FetchPartition(
                        one["partition"],
                        one["fetch_offset"],
                        one["partition_max_bytes"],
                        one.get("current_leader_epoch", -1),
                        one.get("last_fetched_epoch", -1),
                        one.get("log_start_offset", -1),
                    )
                    for one in topic["partitions"]
                ),
            )
            for topic in values["topics"]
        ),
        max_wait_ms=values["max_wait_ms"],
        min_bytes=values["min_bytes"],
        max_bytes=values["max_bytes"],
        isolation_level=values["isolation_level"],
        session_id=values.get("session_id", 0),
        session_epoch=values.get("session_epoch", -1),
        forgotten_topics=tuple(
            ForgottenTopic(topic.get("topic"), topic.get("topic_id", ZERO_UUID), topic["partitions"])
            for topic in values.get("forgotten_topics_data", ())
        ),
        replica_id=replica_state.get("replica_id", -1),
        cluster_id=values.get("cluster_id"),
        rack_id=values.get("rack_id", ""),
    )


def read(decode: Callable[..., Any], api: tuple[int, int], body: bytes) -> Any:
    """Return the request; None if it is none."""
    try:
        return decode(body, 0, RequestHeader(*api, 7), "/127.0.0.1")
    except (ProtocolError, struct.error, IndexError):
        return None


def both(api: tuple[int, int], body: bytes) -> tuple[Any, Any]:
    """Return what is read by hand, and what is read by the definitions."""
    by_definition = decoder_of(load_request_schema(*api), produce_of if api[0] == PRODUCE else fetch_of)
    return read(APIS[api[0]].make_decoder(api[1]), api, body), read(by_definition, api, body)


def body_of(api: tuple[int, int], *, is_tagged: bool = True) -> bytes:
    """Write a body by kio, with or without tagged fields."""
    request = load_request_schema(*api)
    out = io.BytesIO()
    entity_writer(request)(out, entity(request, BODIES[api[0]] if is_tagged else untagged(BODIES[api[0]])))
    return out.getvalue()


def untagged(values: Any) -> Any:
    """Leave the fields out that stand in tagged fields."""
    if isinstance(values, dict):
        names = ("cluster_id", "replica_state", "replica_directory_id", "high_watermark")
        return {name: untagged(value) for name, value in values.items() if name not in names}
    return [untagged(value) for value in values] if isinstance(values, list) else values


TAGGED = [
    b"\x01\x05\x02ab",  # nobody knows it
    b"\x01\x00\x10" + bytes(range(16)),
    b"\x01\x00\x03" + bytes(range(16)),  # a known one, of a wrong size
    b"\x02\x00\x00" + bytes(16) + b"\x01\x00" + bytes(8),
    b"\x01\x00\x08\x07cluster",
    b"\x02\x01\x0d" + bytes(range(12)) + b"\x00\x07\x01x",
    b"\xff\xff\xff\xff\x0f",
]
"""In place of the zero that says that there are no tagged fields."""

LENGTHS = [
    b"\x00",
    b"\x80\x00",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xed\xa0\x80",
]

changes = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["set", "insert", "delete"]), st.integers(0, 300), st.binary(min_size=1, max_size=6)),
        st.tuples(st.sampled_from(["set", "insert"]), st.integers(0, 300), st.sampled_from(LENGTHS)),
        st.tuples(st.just("tag"), st.integers(0, 300), st.sampled_from(TAGGED)),
        st.tuples(st.just("cut"), st.integers(0, 300), st.just(b"")),
    ),
    max_size=4,
)


def changed(body: bytes, kind: str, place: int, content: bytes) -> bytes:
    """Return a body with one change."""
    position = place % (len(body) + 1)
    if kind == "cut":
        return body[:position]
    if kind == "tag":
        zeros = [index for index, byte in enumerate(body) if byte == 0] or [0]
        position = zeros[place % len(zeros)]
        return body[:position] + content + body[position + 1 :]
    tail = position if kind == "insert" else position + len(content)
    return body[:position] + (b"" if kind == "delete" else content) + body[tail:]


@as_one_test
@pytest.mark.parametrize("api", API_VERSIONS)
def test_samples_and_all_beginnings_of_them(api: tuple[int, int]) -> None:
    """A whole body is the same request; one that is cut is none, to the one as to the other."""
    body = body_of(api)
    by_hand, by_definition = both(api, body)
    assert by_hand == by_definition
    assert by_hand is not None
    for length in range(len(body)):
        assert both(api, body[:length]) == (None, None)


@as_one_test
@pytest.mark.parametrize("api", API_VERSIONS)
@pytest.mark.parametrize("content", TAGGED)
def test_tagged_fields_anywhere(api: tuple[int, int], content: bytes) -> None:
    """Known or not, of a right or a wrong size: at every place where there could be any, and at many where not."""
    body = body_of(api, is_tagged=False)
    for position in [index for index, byte in enumerate(body) if byte == 0]:
        by_hand, by_definition = both(api, body[:position] + content + body[position + 1 :])
        assert by_hand == by_definition, position


@settings(max_examples=500, deadline=None)
@given(api=st.sampled_from(API_VERSIONS), is_tagged=st.booleans(), made=changes)
def test_mutations(api: tuple[int, int], is_tagged: bool, made: list[tuple[str, int, bytes]]) -> None:
    """Whatever becomes of a body, both say the same of it."""
    body = body_of(api, is_tagged=is_tagged)
    for change in made:
        body = changed(body, *change)
    by_hand, by_definition = both(api, body)
    assert by_hand == by_definition


@settings(max_examples=300, deadline=None)
@given(api=st.sampled_from(API_VERSIONS), body=st.binary(max_size=120))
def test_random_bodies(api: tuple[int, int], body: bytes) -> None:
    """Any bytes at all."""
    by_hand, by_definition = both(api, body)
    assert by_hand == by_definition
