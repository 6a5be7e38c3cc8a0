"""APIs of KIP-848: what a client writes is read, and what is written is what a broker of Kafka 4.4.0 sent."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupcoord.core.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedPartitions,
    MemberType,
    TopicPartitions,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, decode_request, encode_response, encode_response_parts
from tests.tables import as_one_test
from tests.wire.kio_client import CORRELATION_ID, read_response, request_frame, versions_of
from tests.wire.sample_requests import BODIES, OTHER_TOPIC_ID, TOPIC_ID

HOST = "/127.0.0.1"
RECORDED_TOPIC_ID = UUID("d2d55311-5d17-476a-8775-56ff006d3a16")


def decode(api_key: int, version: int, client_host: str = HOST, **changes: Any) -> Any:
    return decode_request(request_frame(api_key, version, BODIES[api_key] | changes), client_host)[1]


def encode(api_key: int, version: int, response: Any, correlation_id: int = CORRELATION_ID) -> bytes:
    return encode_response(RequestHeader(api_key, version, correlation_id), response)


# ---------------------------------------------------------------- ConsumerGroupHeartbeat


@pytest.mark.parametrize("version", versions_of(68))
def test_heartbeat(version: int) -> None:
    """Every field; the regular expression comes with version 1, from which on a member brings its own id."""
    assert decode(68, version) == ConsumerGroupHeartbeat(
        "group",
        "member",
        12,
        instance_id="instance",
        rack_id="rack",
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=("orders", "größe"),
        subscribed_topic_regex="b.*" if version >= 1 else None,
        server_assignor="range",
        topic_partitions=(TopicPartitions(TOPIC_ID, (3, 0)), TopicPartitions(OTHER_TOPIC_ID, ())),
        client_id="client",
        client_host=HOST,
        requires_member_id=version >= 1,
    )


@pytest.mark.parametrize("version", versions_of(68))
def test_what_did_not_change_is_not_empty(version: int) -> None:
    """Null stays None, empty stays empty: the one is as last time, the other is nothing at all."""
    texts = ("instance_id", "rack_id", "subscribed_topic_regex", "server_assignor")
    arrays = ("subscribed_topic_names", "topic_partitions")
    nothing = decode(68, version, **dict.fromkeys((*texts, *arrays)))
    empty = decode(68, version, **dict.fromkeys(texts, ""), **dict.fromkeys(arrays, ()))
    known = [text for text in texts if version >= 1 or text != "subscribed_topic_regex"]
    assert [getattr(nothing, name) for name in (*texts, *arrays)] == [None] * 6
    assert [getattr(empty, name) for name in known] == [""] * len(known)
    assert [getattr(empty, name) for name in arrays] == [(), ()]


def test_heartbeats_that_are_alike_are_read_once() -> None:
    """A short heartbeat that came before is the same object again; one from elsewhere is not."""
    first = decode(68, 1)
    assert decode(68, 1) is first
    elsewhere = decode(68, 1, client_host="/10.0.0.1")
    assert elsewhere is not first
    assert elsewhere.client_host == "/10.0.0.1"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(2**31), 2**31 - 1)
partitions = st.lists(numbers, max_size=5).map(tuple)
topics = st.lists(st.builds(TopicPartitions, st.uuids(), partitions), max_size=4).map(tuple)
heartbeats = st.builds(
    ConsumerGroupHeartbeat,
    texts,
    texts,
    numbers,
    st.none() | texts,
    st.none() | texts,
    numbers,
    st.none() | st.lists(texts, max_size=4).map(tuple),
    st.none() | texts,
    st.none() | texts,
    st.none() | topics,
    st.just("client"),
    st.just(HOST),
)


@settings(deadline=None)
@given(heartbeats)
def test_any_heartbeat_of_a_client(request: ConsumerGroupHeartbeat) -> None:
    """Whatever a client writes is what is read."""
    topic_partitions = request.topic_partitions
    body = {
        "group_id": request.group_id,
        "member_id": request.member_id,
        "member_epoch": request.member_epoch,
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout": request.rebalance_timeout_ms,
        "subscribed_topic_names": request.subscribed_topic_names,
        "subscribed_topic_regex": request.subscribed_topic_regex,
        "server_assignor": request.server_assignor,
        "topic_partitions": topic_partitions and [topic._asdict() for topic in topic_partitions],
    }
    if topic_partitions == ():
        body["topic_partitions"] = ()
    assert decode_request(request_frame(68, 1, body), HOST)[1] == request


heartbeat_responses = st.builds(
    ConsumerGroupHeartbeatResponse,
    st.sampled_from([code for code in ErrorCode if code <= ErrorCode.SHARE_SESSION_LIMIT_REACHED]),  # kio knows these
    st.none() | texts,
    st.none() | texts,
    numbers,
    st.integers(0, 2**31 - 1),
    st.none() | topics,
)


@settings(deadline=None)
@given(heartbeat_responses, st.sampled_from(versions_of(68)))
def test_any_answer_to_a_heartbeat(response: ConsumerGroupHeartbeatResponse, version: int) -> None:
    """A client reads what was written; null and empty assignments are told apart."""
    assignment = response.assignment
    assert read_response(68, version, encode(68, version, response)) == {
        "throttle_time": 0,
        "error_code": response.error_code,
        "error_message": response.error_message,
        "member_id": response.member_id,
        "member_epoch": response.member_epoch,
        "heartbeat_interval": response.heartbeat_interval_ms,
        "assignment": None
        if assignment is None
        else {
            "topic_partitions": [
                {"topic_id": topic_id if topic_id.int else None, "partitions": list(partitions)}
                for topic_id, partitions in assignment
            ]
        },
    }


@as_one_test
@pytest.mark.parametrize(
    ("response", "frame"),
    [
        (
            ConsumerGroupHeartbeatResponse(
                ErrorCode.NONE, None, "m", 2, 5_000, (TopicPartitions(RECORDED_TOPIC_ID, (0, 1)),)
            ),
            "00000034 00000001 00 00000000 0000 00 026d 00000002 00001388 01 02 d2d553115d17476a877556ff006d3a16 "
            "03 00000000 00000001 00 00 00",
        ),
        (
            ConsumerGroupHeartbeatResponse(ErrorCode.NONE, None, "m", 2, 5_000),
            "00000018 00000001 00 00000000 0000 00 026d 00000002 00001388 ff 00",
        ),
        (
            ConsumerGroupHeartbeatResponse(ErrorCode.NONE, None, "m", 2, 5_000, ()),
            "0000001a 00000001 00 00000000 0000 00 026d 00000002 00001388 01 01 00 00",
        ),
        (
            ConsumerGroupHeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID, "Member x is not a member of group raw."),
            "0000003d 00000001 00 00000000 0019 27 4d656d6265722078206973206e6f742061206d656d626572206f6620"
            "67726f7570207261772e 00 00000000 00000000 ff 00",
        ),
    ],
    ids=["assignment", "unchanged", "nothing", "error"],
)
@pytest.mark.parametrize("version", versions_of(68))
def test_answers_of_a_broker_to_heartbeats(version: int, response: ConsumerGroupHeartbeatResponse, frame: str) -> None:
    """The bytes are those that a broker sent, which are the same in both versions."""
    assert encode(68, version, response, 1).hex() == frame.replace(" ", "")


# ---------------------------------------------------------------- ConsumerGroupDescribe


@pytest.mark.parametrize("version", versions_of(69))
def test_describe(version: int) -> None:
    """Group ids in their order, and whether to say what is allowed on them."""
    assert decode(69, version) == ConsumerGroupDescribe(("group", ""), True)
    assert decode(69, version, group_ids=(), include_authorized_operations=False) == ConsumerGroupDescribe(())


def member(**changes: Any) -> DescribedConsumerMember:
    shares = (DescribedPartitions(RECORDED_TOPIC_ID, "t", (0, 1)),)
    values: dict[str, Any] = {
        "member_id": "m",
        "instance_id": None,
        "rack_id": None,
        "member_epoch": 2,
        "client_id": "c",
        "client_host": HOST,
        "subscribed_topic_names": ("t",),
        "subscribed_topic_regex": "",
        "assignment": shares,
        "target_assignment": shares,
    }
    return DescribedConsumerMember(**values | changes)


RECORDED_GROUPS = (
    DescribedConsumerGroup(
        "raw",
        group_state="Stable",
        group_epoch=2,
        assignment_epoch=2,
        assignor_name="uniform",
        members=(member(),),
        authorized_operations=3_400,
    ),
    DescribedConsumerGroup(
        "raw2",
        group_state="Stable",
        group_epoch=2,
        assignment_epoch=2,
        assignor_name="uniform",
        members=(
            member(
                instance_id="i",
                rack_id="r",
                subscribed_topic_names=("nope",),
                assignment=(),
                target_assignment=(),
            ),
        ),
        authorized_operations=3_400,
    ),
    DescribedConsumerGroup("nope", ErrorCode.GROUP_ID_NOT_FOUND, "Group nope not found."),
)

RECORDED_DESCRIPTIONS = {
    0: "000000fa 00000001 00 00000000 04 "
    "0000 00 04726177 07537461626c65 00000002 00000002 08756e69666f726d 02 "
    "026d 00 00 00000002 0263 0b2f3132372e302e302e31 020274 01 "
    "02d2d553115d17476a877556ff006d3a16 0274 03 00000000 00000001 00 00 "
    "02d2d553115d17476a877556ff006d3a16 0274 03 00000000 00000001 00 00 00 00000d48 00 "
    "0000 00 0572617732 07537461626c65 00000002 00000002 08756e69666f726d 02 "
    "026d 0269 0272 00000002 0263 0b2f3132372e302e302e31 02056e6f7065 01 01 00 01 00 00 00000d48 00 "
    "0045 1647726f7570206e6f7065206e6f7420666f756e642e 056e6f7065 01 00000000 00000000 01 01 80000000 00 00",
    1: "000000fc 00000001 00 00000000 04 "
    "0000 00 04726177 07537461626c65 00000002 00000002 08756e69666f726d 02 "
    "026d 00 00 00000002 0263 0b2f3132372e302e302e31 020274 01 "
    "02d2d553115d17476a877556ff006d3a16 0274 03 00000000 00000001 00 00 "
    "02d2d553115d17476a877556ff006d3a16 0274 03 00000000 00000001 00 00 01 00 00000d48 00 "
    "0000 00 0572617732 07537461626c65 00000002 00000002 08756e69666f726d 02 "
    "026d 0269 0272 00000002 0263 0b2f3132372e302e302e31 02056e6f7065 01 01 00 01 00 01 00 00000d48 00 "
    "0045 1647726f7570206e6f7065206e6f7420666f756e642e 056e6f7065 01 00000000 00000000 01 01 80000000 00 00",
}


@pytest.mark.parametrize("version", RECORDED_DESCRIPTIONS)
def test_descriptions_of_a_broker(version: int) -> None:
    """The bytes are those that a broker sent, also in parts; which protocol a member speaks comes with version 1."""
    response, expected = ConsumerGroupDescribeResponse(RECORDED_GROUPS), RECORDED_DESCRIPTIONS[version]
    assert encode(69, version, response, 1).hex() == expected.replace(" ", "")
    parts = encode_response_parts(RequestHeader(69, version, 1), response)
    assert b"".join(parts).hex() == expected.replace(" ", "")


@pytest.mark.parametrize("member_type", MemberType)
def test_types_of_members(member_type: MemberType) -> None:
    """A member of the classic protocol is told apart, and one of which it isn't known."""
    group = DescribedConsumerGroup("g", members=(member(member_type=member_type, subscribed_topic_regex=None),))
    described = read_response(69, 1, encode(69, 1, ConsumerGroupDescribeResponse((group,))))
    (shown,) = described["groups"][0]["members"]
    assert shown["member_type"] == member_type
    assert shown["subscribed_topic_regex"] is None
