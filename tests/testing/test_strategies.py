"""The published strategies make what clients could send, and refuse arguments that make no sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.errors import InvalidArgument

from groupcoord import ErrorCode, GroupCoordinator, ManualClock, messages, testing
from groupcoord.broker.topics.registry import check_topic_name
from groupcoord.core.consumer_protocol import subscribed_topics
from groupcoord.core.share_partition.in_flight import Acknowledgement, check_acknowledgements
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    Request,
    ShareGroupHeartbeat,
    StreamsGroupHeartbeat,
)
from groupcoord.testing.registration import NAMES
from groupcoord.wire.share_messages import FIRST_EPOCH, ShareAcknowledge, ShareFetch
from tests.tables import as_one_test

ORDERS = st.just("orders")


def answered_without(request: Request, *refusals: ErrorCode) -> bool:
    """Return whether a new coordinator answers a request, or lets it wait, without any of these errors."""
    coordinator = GroupCoordinator(clock=ManualClock(1_700_000_000_000))
    coordinator.load_all()
    coordinator.submit(request, "token")
    coordinator.check()
    replies = coordinator.take_replies()
    return len(replies) == 1 - len(coordinator.waiting_tokens()) and not any(
        getattr(reply.response, "error_code", None) in refusals for reply in replies
    )


@given(testing.requests())
@settings(deadline=None)
def test_requests_are_answered(request: Request) -> None:
    """Every request is answered or waits, and none is out of the bounds that a coordinator checks first."""
    assert answered_without(
        request, ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_REQUEST
    )


@given(testing.requests(group_ids=ORDERS, topic_names=st.just("t")))
@settings(deadline=None)
def test_arguments_reach_every_kind_of_request(request: Request) -> None:
    """Every request with a group or a topic has the given ones."""
    groups = getattr(request, "groups", None)
    ids = getattr(request, "group_ids", None) or getattr(request, "keys", None) or ()
    assert {getattr(request, "group_id", "orders"), *ids} <= {"orders"}
    assert all(group.group_id == "orders" for group in groups or ())
    topics = [*getattr(request, "topics", ()), *(topic for group in groups or () for topic in group.topics or ())]
    assert all(topic.name == "t" for topic in topics)


@as_one_test
@pytest.mark.parametrize("kind", sorted(NAMES, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_hypothesis_knows_our_requests(kind: type[Any]) -> None:
    """``st.from_type`` makes requests of every kind, and what it prints is Python that makes the same one."""

    @settings(max_examples=10, database=None)
    @given(st.from_type(kind))
    def check(request: object) -> None:
        assert type(request) is kind
        assert eval(repr(request), {**vars(messages), "UUID": UUID}) == request

    check()


@given(st.from_type(JoinGroup))
def test_joins_by_type_are_valid(request: JoinGroup) -> None:
    """Without the registration, ``from_type`` would make session time-outs of any size."""
    assert 6_000 <= request.session_timeout_ms <= 1_800_000
    assert request.protocols


@given(testing.consumer_group_heartbeats(group_ids=ORDERS, assignors=["range"], topic_names=st.just("t")))
def test_heartbeats_of_consumer_groups_are_ones_that_clients_send(request: ConsumerGroupHeartbeat) -> None:
    """A join has all fields and owns nothing; a temporary leave is static; arguments are respected."""
    assert request.server_assignor in (None, "range")
    assert set(request.subscribed_topic_names or ()) <= {"t"}
    if request.member_epoch == 0:
        assert request.topic_partitions == ()
        assert request.subscribed_topic_names is not None
        assert request.rebalance_timeout_ms >= 0
    elif request.member_epoch < 0:
        assert request.topic_partitions is None
        assert request.member_epoch == -1 or request.instance_id is not None


@given(testing.share_group_heartbeats(group_ids=ORDERS, topic_names=st.just("t")))
@settings(deadline=None)
def test_heartbeats_of_share_groups_are_ones_that_clients_send(request: ShareGroupHeartbeat) -> None:
    assert answered_without(request, ErrorCode.INVALID_REQUEST)
    assert request.group_id == "orders"
    assert set(request.subscribed_topic_names or ()) <= {"t"}


@given(
    testing.alter_share_group_offsets_requests(group_ids=ORDERS)
    | testing.delete_share_group_offsets_requests(group_ids=ORDERS)
    | testing.describe_share_group_offsets_requests(group_ids=ORDERS)
    | testing.share_group_describe_requests(group_ids=ORDERS)
)
@settings(deadline=None)
def test_requests_about_share_groups_are_answered(request: Request) -> None:
    """Any administration request about a missing group has a response other than a form error."""
    assert answered_without(request, ErrorCode.INVALID_REQUEST)


@given(testing.share_fetch_requests(group_ids=ORDERS) | testing.share_acknowledge_requests(group_ids=ORDERS))
def test_what_is_said_of_records_has_the_right_form(request: ShareFetch | ShareAcknowledge) -> None:
    """Batches are consecutive, with types that the request may have; a new session acknowledges nothing."""
    for topic in request.topics:
        for partition in topic.partitions:
            said = [Acknowledgement(*batch) for batch in partition.acknowledgement_batches]
            check_acknowledgements(said, may_renew=request.is_renew_ack)
            assert not said or request.share_session_epoch != FIRST_EPOCH


@given(testing.streams_group_heartbeats(group_ids=ORDERS, topic_names=st.just("t")))
@settings(deadline=None)
def test_heartbeats_of_streams_groups_are_ones_that_clients_send(request: StreamsGroupHeartbeat) -> None:
    """A join brings its topology and no tasks, all lists of tasks come or none; no coordinator finds fault with it."""
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    assert len({each is None for each in tasks}) == 1
    assert (request.topology is not None) == (request.member_epoch == 0)
    if request.member_epoch == 0:
        assert tasks == ((), (), ())
    assert answered_without(request, ErrorCode.INVALID_REQUEST, ErrorCode.STREAMS_INVALID_TOPOLOGY)


@given(testing.topic_names(max_size=249))
def test_topic_names_are_legal(name: str) -> None:
    """Kafka takes every one of them."""
    check_topic_name(name)


@given(testing.member_ids(prefixes=st.just("client")))
def test_member_ids_are_those_of_brokers(member_id: str) -> None:
    prefix, _, rest = member_id.partition("-")

    assert prefix == "client"
    assert str(UUID(rest)) == rest
    assert UUID(rest).version == 4


@given(testing.subscriptions())
def test_subscriptions_can_be_read(metadata: bytes) -> None:
    assert subscribed_topics([metadata]) is not None


@given(testing.protocols(names=["b", "a"], metadata=st.just(b"m"), max_size=2))
def test_protocols_are_distinct(protocols: tuple[Any, ...]) -> None:
    """Names are distinct, and among the given ones."""
    names = [protocol.name for protocol in protocols]

    assert names
    assert len(names) == len(set(names))
    assert set(names) <= {"a", "b"}
    assert {protocol.metadata for protocol in protocols} == {b"m"}


@given(testing.commit_requests(member_ids=st.just("m"), generation_ids=st.just(5), offsets=st.just(7), max_size=1))
def test_commits_are_as_asked_for(request: OffsetCommit) -> None:
    assert (request.member_id, request.generation_id) == ("m", 5)
    ((partition,),) = (topic.partitions for topic in request.topics)
    assert partition.committed_offset == 7


@given(testing.leave_requests(instance_ids=st.none(), member_ids=st.just("m"), max_size=1))
def test_departures_are_as_asked_for(request: LeaveGroup) -> None:
    ((member),) = request.members

    assert (member.member_id, member.group_instance_id) == ("m", None)


@as_one_test
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: testing.join_requests(group_ids="orders"), "group_ids='orders' must be a strategy"),  # type: ignore[arg-type]
        (lambda: testing.heartbeats(generation_ids=5), "generation_ids=5 must be a strategy"),  # type: ignore[arg-type]
        (lambda: testing.commit_requests(group_ids=None, offsets=[1]), "offsets=.* must be a strategy"),  # type: ignore[arg-type]
        (lambda: testing.commit_requests(group_ids="g"), "group_ids='g' must be a strategy"),  # type: ignore[arg-type]
        (lambda: testing.group_ids(min_size=3, max_size=2), "max_size=2 must be a whole number from 3 to 8191"),
        (lambda: testing.group_ids(max_size=9_000), "max_size=9000 must be a whole number from 1 to 8191"),
        (lambda: testing.topic_names(max_size=250), "max_size=250 must be a whole number from 1 to 249"),
        (lambda: testing.generation_ids(min_value=-2), "min_value=-2 must be a whole number from -1"),
        (lambda: testing.leave_requests(max_size=0), "max_size=0 must be a whole number from 1"),
        (lambda: testing.fetch_requests(max_size=True), "max_size=True must be a whole number from 1"),
        (lambda: testing.protocols(names="range"), "names='range' must be a collection"),
        (lambda: testing.protocols(names=[]), r"names=\[\] must be a collection"),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], object], message: str) -> None:
    """A value where a strategy belongs, or a size that can't be, is refused at once, by its name."""
    with pytest.raises(InvalidArgument, match=message):
        make()


def test_unknown_names_are_unknown() -> None:
    """Other names raise AttributeError, as in any module."""
    with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
        testing.no_such_thing  # noqa: B018
