"""Rules for faults, applied to requests before they are handled and to responses before they are sent."""

from __future__ import annotations

import pytest
from attrs import evolve

from groupcoord.core.messages import HeartbeatResponse, JoinGroupResponse, OffsetToCommit, TopicToCommit
from groupcoord.errors import ErrorCode
from groupcoord.testing.faults import Call, Rule, Rules
from groupcoord.testing.faults.rules import error_named
from tests.broker.driving import drain, feed, wire_frame
from tests.broker.kafka_bytes import api_versions, produce
from tests.broker.wire_world import COMMIT, HEARTBEAT, LEADER, Body, WireWorld

METADATA_BODY: Body = {
    "topics": ({"name": "t", "topic_id": None}, {"name": "new", "topic_id": None}),
    "allow_auto_topic_creation": True,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
FETCH_OFFSETS: Body = {"group_id": "g", "topics": None, "require_stable": False}


class FaultyWorld(WireWorld):
    """A world with rules."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = Rules()
        self.rules.follow(self.broker)

    def add(self, rule: Rule) -> Rule:
        self.rules.add(rule)
        return rule

    def fail_next(self, api: str, error: ErrorCode, times: int = 1, *, after: bool = False) -> Rule:
        return self.add(Rule(api, lambda call: call.fail(error), times=times, after=after))

    def commit(self, **fields: object) -> list[int]:
        answer = self.ask(8, 9, COMMIT | fields)
        return [partition["error_code"] for topic in answer["topics"] for partition in topic["partitions"]]

    def committed(self) -> list[int]:
        return [
            partition["committed_offset"]
            for topic in self.ask(9, 7, FETCH_OFFSETS)["topics"]
            for partition in topic["partitions"]
        ]


@pytest.fixture
def world() -> FaultyWorld:
    return FaultyWorld()


# ---------------------------------------------------------------- errors


def test_an_answer_that_fails_comes_too_late(world: FaultyWorld) -> None:
    """With ``after`` the client gets an error though the offset is committed, like a lost response."""
    world.fail_next("OffsetCommit", ErrorCode.REQUEST_TIMED_OUT, after=True)

    assert world.commit() == [ErrorCode.REQUEST_TIMED_OUT]
    assert world.committed() == [7]


def test_errors_come_in_the_order_in_which_they_were_asked_for(world: FaultyWorld) -> None:
    world.fail_next("OffsetCommit", ErrorCode.NOT_COORDINATOR, times=2)
    world.fail_next("OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    assert [world.commit() for _ in range(4)] == [[16], [16], [14], [0]]


def test_metadata_fail_without_creating_topics(world: FaultyWorld) -> None:
    for after in (False, True):
        world.fail_next("Metadata", ErrorCode.LEADER_NOT_AVAILABLE, after=after)
        answer = world.ask(
            3, 9, METADATA_BODY if not after else METADATA_BODY | {"topics": METADATA_BODY["topics"][:1]}
        )

        assert {topic["error_code"] for topic in answer["topics"]} == {ErrorCode.LEADER_NOT_AVAILABLE}
        assert [broker["node_id"] for broker in answer["brokers"]] == [1]
        assert world.broker.topics.get("new") is None


def test_who_wants_no_answer_is_disconnected(world: FaultyWorld) -> None:
    """A producer with acks=0 learns of an error as from a broker: its connection closes."""
    world.fail_next("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    connection = world.broker.connect("/127.0.0.1")
    feed(connection, produce(1, 0, 0))

    assert connection.closing is not None


# ---------------------------------------------------------------- functions


def test_a_function_sees_requests_and_answers(world: FaultyWorld) -> None:
    """It gets client, API and version, and, afterwards, the response."""
    world.reach("stable")
    seen: list[Call] = []
    for after in (False, True):
        world.add(Rule("Heartbeat", seen.append, after=after))
    assert world.ask(12, 4, HEARTBEAT)["error_code"] == 0

    call, answered = seen
    assert (call.api, call.version, call.client_host, call.node_id) == ("Heartbeat", 4, "/127.0.0.1", 1)
    assert call.request.member_id == LEADER
    assert call.group_ids == ("g",)
    assert answered.response == HeartbeatResponse(ErrorCode.NONE)
    assert "Heartbeat 4" in repr(answered)


def test_a_function_changes_requests_and_answers(world: FaultyWorld) -> None:
    """Its replacement of the request is handled, and its replacement of the response sent."""

    def commit_99(call: Call) -> None:
        call.request = evolve(call.request, topics=(TopicToCommit("t", (OffsetToCommit(0, 99),)),))

    world.add(Rule("OffsetCommit", commit_99))
    world.commit()
    assert world.committed() == [99]

    def rebalances(call: Call) -> None:
        call.response = HeartbeatResponse(ErrorCode.REBALANCE_IN_PROGRESS)

    world.add(Rule("Heartbeat", rebalances, after=True))
    assert world.ask(12, 4, HEARTBEAT)["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS


def test_what_a_function_does_to_a_request_stays_with_it(world: FaultyWorld) -> None:
    """Equal bytes are decoded again, also if the function writes into the request."""
    world.reach("stable")

    def spoil(call: Call) -> None:
        call.request.member_id = "somebody"

    world.add(Rule("Heartbeat", spoil, times=1))

    assert world.ask(12, 4, HEARTBEAT)["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.ask(12, 4, HEARTBEAT)["error_code"] == ErrorCode.NONE


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda call: call.answer(JoinGroupResponse(ErrorCode.NONE)), "answered with a HeartbeatResponse"),
        (lambda call: setattr(call, "request", None), "can't become a NoneType"),
        (lambda call: call.delay(-1), "the duration must not be negative"),
    ],
)
def test_a_mistake_in_a_function_is_said(world: FaultyWorld, wrong: object, message: str) -> None:
    """An answer to another API, a request of another API and time that goes back are the test's mistakes."""
    world.add(Rule("Heartbeat", wrong))  # type: ignore[arg-type]
    world.ask(12, 4, HEARTBEAT)

    assert message in str(world.rules.take_error())


# ---------------------------------------------------------------- time, silence and ends


@pytest.mark.parametrize("after", [False, True])
def test_delays_pass_on_the_servers_clock(world: FaultyWorld, after: bool) -> None:
    """A delayed commit is handled, or answered, when its time has come; what is behind it waits as well."""
    world.add(Rule("OffsetCommit", lambda call: call.delay(500), after=after, times=1))
    connection = world.broker.connect("/127.0.0.1")
    feed(connection, wire_frame(8, 9, COMMIT) + api_versions(7))

    assert world.broker.next_deadline_ms() == world.clock.now_ms() + 500
    assert world.committed() == ([7] if after else [])
    world.tick(499)
    assert drain(connection) == b""
    world.tick(1)
    world.broker.handle_waiting()
    assert drain(connection)[4:8] == bytes.fromhex("01020304")
    assert world.committed() == [7]
    assert world.broker.interceptor is None


def test_delay_and_error_go_together(world: FaultyWorld) -> None:
    world.add(Rule("OffsetCommit", lambda call: call.delay(500)))
    world.fail_next("OffsetCommit", ErrorCode.NOT_COORDINATOR)
    sent = world.send(8, 9, COMMIT)
    assert sent.receive() is None
    world.tick(500)
    answer = sent.receive()

    assert answer is not None
    assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.NOT_COORDINATOR
    assert world.committed() == []


def test_who_is_gone_is_not_answered(world: FaultyWorld) -> None:
    """A connection that closes while its request waits is forgotten, and the request is never handled."""
    rule = world.add(Rule("OffsetCommit", None))
    world.add(Rule("OffsetFetch", lambda call: call.delay(500)))
    for sent in (world.send(8, 9, COMMIT), world.send(9, 7, FETCH_OFFSETS)):
        sent.connection.close()

    assert rule.held == []
    assert world.broker.next_deadline_ms() != world.clock.now_ms() + 500
    world.rules.clear()
    assert world.committed() == []


def test_a_request_can_be_dropped(world: FaultyWorld) -> None:
    """It is never answered, nor any request behind it; the connection stays open."""
    world.add(Rule("OffsetCommit", Call.drop, times=1))
    connection = world.broker.connect("/127.0.0.1")
    feed(connection, wire_frame(8, 9, COMMIT) + api_versions(7))

    assert drain(connection) == b""
    assert connection.closing is None
    assert connection.is_waiting


def test_a_connection_can_be_closed(world: FaultyWorld) -> None:
    """The connection ends, after its request was handled if the rule has ``after``."""
    for after in (False, True):
        world.add(Rule("OffsetCommit", Call.disconnect, times=1, after=after))
        sent = world.send(8, 9, COMMIT)
        assert sent.connection.closing is not None
        assert world.committed() == ([7] if after else [])


# ---------------------------------------------------------------- which requests


@pytest.mark.parametrize(
    ("where", "is_met"),
    [
        ({"group_id": "g"}, True),
        ({"group_id": "h"}, False),
        ({"topic": "t", "member_id": ""}, True),
        ({"topic": "u"}, False),
        ({"version": 9, "client_host": "/127.0.0.1"}, True),
        ({"client_id": "somebody"}, False),
        (lambda call: call.request.generation_id == -1, True),
    ],
)
def test_rules_are_for_some_requests(world: FaultyWorld, where: object, is_met: bool) -> None:
    """A mapping compares fields of the request, its groups and topics included; a function may inspect all of it."""
    rule = world.add(Rule("OffsetCommit", lambda call: None, where=where))  # type: ignore[arg-type]
    world.commit()

    assert rule.count == is_met


def test_groups_and_topics_are_found_in_requests_of_every_form(world: FaultyWorld) -> None:
    """OffsetFetch names groups within a list, DescribeGroups names nothing else; topics may have ids."""
    seen: list[Call] = []
    for api in ("OffsetFetch", "DescribeGroups", "Fetch"):
        world.add(Rule(api, seen.append))
    world.ask(9, 7, FETCH_OFFSETS | {"topics": ({"name": "t", "partition_indexes": (0,)},)})
    world.ask(15, 5, {"groups": ("g", "h"), "include_authorized_operations": False})

    assert [call.group_ids for call in seen] == [("g",), ("g", "h")]
    assert [call.topics for call in seen] == [("t",), ()]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rule("Heartbeat", Call.drop, times=0), "at least 1"),
        (lambda: error_named(ErrorCode.NONE), "NONE is no error"),
    ],
)
def test_what_there_is_not_is_said(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_nobody_asks_without_a_rule(world: FaultyWorld) -> None:
    """The broker has an interceptor while there is a rule, and none before and after: then nothing is slower."""
    assert world.broker.interceptor is None
    rule = world.fail_next("OffsetCommit", ErrorCode.NOT_COORDINATOR)
    assert world.broker.interceptor is not None
    world.commit()
    assert world.broker.interceptor is None
    world.rules.remove(rule)
    assert world.rules.all() == []
