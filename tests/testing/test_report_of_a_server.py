"""Report of a server for a failed test: complete, and short."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from groupcoord import ErrorCode, ManualClock
from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.core.consumer_protocol import (
    Assignment,
    TopicPartition,
    encode_assignment,
)
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    Heartbeat,
    HeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    Node,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    PartitionResult,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsStatus,
    StreamsStatusCode,
    SyncAssignment,
    SyncGroup,
    SyncGroupResponse,
    TaskIds,
    TopicPartitions,
    TopicResult,
    TopicToCommit,
)
from groupcoord.testing import ServerThread
from groupcoord.testing.asserting.report import DOCUMENT, KNOWN_BUGS, describe_answer, describe_request, report_on
from groupcoord.testing.asserting.requests import RequestLog
from groupcoord.testing.faults.rules import APIS_BY_NAME
from groupcoord.testing.machine.modern_members import Kip848Consumer
from groupcoord.wire import RequestHeader, WireResponse
from groupcoord.wire.broker_messages import (
    CreatableTopic,
    CreateTopics,
    Fetch,
    FetchedPartitionData,
    FetchPartition,
    FetchResponse,
    Produce,
    ProducedPartition,
    ProducePartition,
    ProduceResponse,
    TopicNameOrIdEntry,
)
from groupcoord.wire.cluster_messages import ApiVersions, ApiVersionsResponse
from groupcoord.wire.transaction_messages import AddOffsetsToTxn, AddOffsetsToTxnResponse, EndTxn, EndTxnResponse
from tests.tables import as_one_test

START_MS = 1_700_000_000_000
ORDERS_ID = UUID(int=7)
MEMBER = "billing-1-c0bead4f-b631-4cd2"
OFFSETS = TopicToCommit("orders", tuple(OffsetToCommit(number, 10 + number) for number in range(6)))
READ = FetchedPartitionData(0, ErrorCode.NONE, records=(b"12", memoryview(b"3456")))


def name_of(topic_id: UUID) -> str | None:
    return "orders" if topic_id == ORDERS_ID else None


@as_one_test
@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            JoinGroup("g", protocols=(JoinProtocol("range", b""), JoinProtocol("sticky", b""))),
            "g, member without an id, range, sticky",
        ),
        (SyncGroup("g", 3, "m", assignments=(SyncAssignment("m", b""),)), "g, generation 3, member m, for 1 member"),
        (Heartbeat("g", 3, MEMBER), "g, generation 3, member billing-1-c0bead4f-b631…"),
        (LeaveGroup("g", (LeavingMember("", "static"), LeavingMember("m"))), "g, static, m"),
        (ConsumerGroupHeartbeat("g", "m", 5), "g, epoch 5, member m"),
        (StreamsGroupHeartbeat("g", "m", 5), "g, epoch 5, member m"),
        (
            OffsetCommit("g", (OFFSETS,), 3, "m"),
            "g, generation 3: orders-0 at 10, orders-1 at 11, orders-2 at 12, orders-3 at 13 and 2 more",
        ),
        (OffsetFetch(()), "nothing"),
        (FindCoordinator(0, ("g",)), "g"),
        (CreateTopics((CreatableTopic("orders"),)), "orders"),
        (Fetch((TopicNameOrIdEntry(None, ORDERS_ID, (FetchPartition(0, 42, 1),)),)), "orders-0 from 42"),
        (Produce((TopicNameOrIdEntry("orders", ORDERS_ID, (ProducePartition(0, b"1234"),)),)), "orders-0: 4 bytes"),
        (ApiVersions(), ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_requests_in_a_few_words(request_: object, words: str) -> None:
    """A request is a short line: groups, members, offsets; long ids and lists are cut."""
    assert describe_request(request_, name_of) == words


@as_one_test
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (HeartbeatResponse(ErrorCode.NONE), "fine"),
        (
            FindCoordinatorResponse((FoundCoordinator("g", Node(2, "127.0.0.1", 9092), ErrorCode.NONE),)),
            "node 2",
        ),
        (HeartbeatResponse(ErrorCode.REBALANCE_IN_PROGRESS), "REBALANCE_IN_PROGRESS"),
        (
            JoinGroupResponse(ErrorCode.NONE, "m", 3, members=(JoinedMember("m", None, b""),)),
            "generation 3, member m, leads 1 member",
        ),
        (
            SyncGroupResponse(ErrorCode.NONE, assignment=encode_assignment(Assignment((TopicPartition("orders", 1),)))),
            "orders-1",
        ),
        (SyncGroupResponse(ErrorCode.NONE), "no partitions"),
        (SyncGroupResponse(ErrorCode.NONE, assignment=b"?"), "1 byte"),
        (ConsumerGroupHeartbeatResponse(ErrorCode.NONE, member_epoch=4), "epoch 4"),
        (StreamsGroupHeartbeatResponse(ErrorCode.NONE, member_epoch=4), "epoch 4"),
        (
            StreamsGroupHeartbeatResponse(
                ErrorCode.NONE,
                member_epoch=4,
                active_tasks=(TaskIds("0", (0,)), TaskIds("1", (2,))),
                standby_tasks=(TaskIds("0", (3,)),),
                warmup_tasks=(),
                status=(StreamsStatus(StreamsStatusCode.ASSIGNMENT_DELAYED, ""),),
            ),
            "epoch 4, 0_0, 1_2, standby 0_3, ASSIGNMENT_DELAYED",
        ),
        (
            StreamsGroupHeartbeatResponse(
                ErrorCode.NONE, member_epoch=4, active_tasks=(), standby_tasks=(), warmup_tasks=()
            ),
            "epoch 4, no tasks",
        ),
        (
            ConsumerGroupHeartbeatResponse(
                ErrorCode.NONE, member_epoch=4, assignment=(TopicPartitions(ORDERS_ID, (0, 2)),)
            ),
            "epoch 4, orders-0, orders-2",
        ),
        (ConsumerGroupHeartbeatResponse(ErrorCode.NONE, member_epoch=4, assignment=()), "epoch 4, no partitions"),
        (
            OffsetFetchResponse(
                (
                    FetchedGroup(
                        "g",
                        ErrorCode.NONE,
                        (
                            FetchedTopic(
                                "orders",
                                ORDERS_ID,
                                (
                                    FetchedOffset(0, 5, -1, "", ErrorCode.NONE),
                                    FetchedOffset(1, -1, -1, "", ErrorCode.NONE),
                                ),
                            ),
                        ),
                    ),
                )
            ),
            "orders-0 at 5",
        ),
        (FetchResponse(topics=(TopicNameOrIdEntry("orders", ORDERS_ID, (READ,)),)), "6 bytes of records"),
        (
            ProduceResponse(
                (TopicNameOrIdEntry("orders", ORDERS_ID, (ProducedPartition(0, ErrorCode.NONE, base_offset=9),)),)
            ),
            "orders-0 from 9",
        ),
        (
            ProduceResponse(
                (TopicNameOrIdEntry("orders", ORDERS_ID, (ProducedPartition(0, ErrorCode.CORRUPT_MESSAGE),)),)
            ),
            "CORRUPT_MESSAGE",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_answers_in_a_few_words(answer: WireResponse, words: str) -> None:
    """A response is a short line; its errors come first."""
    assert describe_answer(answer, name_of) == words


class Conversation:
    """Requests and answers, a second apart, as a server would have kept them."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.log = RequestLog(self.clock.now_ms)

    def hear(self, message: object, answer: object = None, *, client_id: str = "billing-1", refusal: str = "") -> None:
        header = RequestHeader(APIS_BY_NAME[type(message).__name__].key, 1, 7, client_id)
        number = self.log.came(header, message, "/127.0.0.1", 1, 1)
        if answer is not None:
            self.clock.advance(20)
            self.log.answered(number, answer)
        if refusal:
            self.log.refused(number, refusal)
        self.clock.advance(1_000)

    def report(self) -> list[str]:
        return report_on(None, self.log.requests(), []).splitlines()


def test_what_brings_news_is_told_and_the_rest_is_counted() -> None:
    """Heartbeats and empty fetches are counted; errors, records, and what got no answer are lines, with their times."""
    told = Conversation()
    for _ in range(3):
        told.hear(Heartbeat("g", 1, "m"), HeartbeatResponse(ErrorCode.NONE))
        told.hear(Fetch(()), FetchResponse())
        told.hear(ConsumerGroupHeartbeat("g", "m", 1), ConsumerGroupHeartbeatResponse(ErrorCode.NONE, member_epoch=1))
    told.hear(Heartbeat("g", 1, "m"), HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID))
    told.hear(Fetch(()), FetchResponse(topics=(TopicNameOrIdEntry("orders", ORDERS_ID, (READ,)),)))
    told.hear(JoinGroup("g"), refusal="the connection was closed before")
    told.hear(ConsumerGroupHeartbeat("g", "m", 0), ConsumerGroupHeartbeatResponse(ErrorCode.NONE, member_epoch=1))
    told.hear(LeaveGroup("g", ()))

    assert told.report() == [
        "the server has stopped",
        "client 'billing-1': 14 requests on 1 connection",
        "  9.180 s  Heartbeat g, generation 1, member m -> UNKNOWN_MEMBER_ID (after 20 ms)",
        "  10.200 s  Fetch nothing -> 6 bytes of records (after 20 ms)",
        "  11.220 s  JoinGroup g, member without an id, -> no answer: the connection was closed before",
        "  12.220 s  ConsumerGroupHeartbeat g, epoch 0, member m -> epoch 1 (after 20 ms)",
        "  13.240 s  LeaveGroup g, nothing -> waits for its answer",
        "  routine: 3 Heartbeat, 3 Fetch, 3 ConsumerGroupHeartbeat, the last at 8.160 s",
    ]


OF_GROUP = (FetchedGroup("g", ErrorCode.NOT_COORDINATOR, ()),)
BEATS = [(Heartbeat("g", 1, "m"), HeartbeatResponse(ErrorCode.NONE))] * 11
AWAY = TopicResult("orders", ORDERS_ID, (PartitionResult(0, ErrorCode.COORDINATOR_NOT_AVAILABLE),))
CUT_OFF = (OffsetCommit("g", ()), None)
REFUSED = (OffsetCommit("g", ()), OffsetCommitResponse((AWAY,)))
ASKED = (OffsetFetch(()), OffsetFetchResponse(OF_GROUP))
ADDED = (AddOffsetsToTxn("t", 1, 0, "g"), AddOffsetsToTxnResponse(ErrorCode.NONE))
ENDED = (EndTxn("t", 1, 0, committed=True), EndTxnResponse(ErrorCode.NONE))


@as_one_test
@pytest.mark.parametrize(
    ("exchanges", "bug"),
    [
        ([ASKED, *BEATS], "librdkafka #5586: A partition is assigned"),
        ([ASKED, (OffsetFetch(()), OffsetFetchResponse(())), *BEATS], ""),
        ([(OffsetFetch(()), OffsetFetchResponse(())), *BEATS], ""),
        ([ADDED, *BEATS], "librdkafka #5456: The end of a transaction"),
        ([ADDED, *BEATS, ENDED], "librdkafka #5456: The end of a transaction"),
        ([ADDED, *BEATS[:3], ENDED, *BEATS], ""),
        ([REFUSED, *[(Fetch(()), FetchResponse())] * 10], "librdkafka: A commit blocks"),
        ([REFUSED, *BEATS], ""),
        ([CUT_OFF, *[(Fetch(()), FetchResponse())] * 10], "librdkafka: A commit blocks"),
    ],
)
def test_symptoms_of_known_client_bugs_are_named(exchanges: list[tuple[object, object | None]], bug: str) -> None:
    """A client of that library that goes silent where others go on is pointed to the section about that."""
    for software, expected in (("confluent-kafka-python", bug), ("apache-kafka-java", "")):
        told = Conversation()
        version = "2.16.1-rdkafka-2.16.0" if software.startswith("confluent") else "4.4.0"
        told.hear(ApiVersions(software, version), ApiVersionsResponse(ErrorCode.NONE, ()))
        for message, answer in exchanges:
            told.hear(message, answer, refusal="" if answer is not None else "the connection was closed before")
        named = [line for line in told.report() if "known bug" in line]
        assert [line.startswith(f"client 'billing-1' looks like a known bug, {expected}") for line in named] == (
            [True] if expected else []
        )


def test_known_client_bugs_are_in_the_documentation() -> None:
    headings = [
        line[3:]
        for line in (Path(__file__).parents[2] / DOCUMENT).read_text("utf-8").splitlines()
        if line.startswith("## ")
    ]
    assert set(headings) >= {bug.heading for bug in KNOWN_BUGS}


def test_faults_are_told() -> None:
    """The report has the active faults: rules with their clients and counts, the log, nodes."""
    with ServerThread(topics=["orders"], nodes=2) as server:
        server.fail_next("OffsetCommit", "NOT_COORDINATOR", times=2, where={"group_id": "billing"}, node=1)
        server.delay("Heartbeat", 500, after=True)
        server.hold("Fetch", where=lambda call: False)
        server.drop_next("JoinGroup")
        server.disconnect_next("SyncGroup")
        server.on("Metadata", print)
        server.fail_next_append("KAFKA_STORAGE_ERROR")
        server.hold_appends()
        server.crash(node=2)
        lines = server.report().splitlines()
        server.clear_faults()
        server.restart(node=2)
        assert server.report().count("on purpose") == 0

    assert lines[:8] == [
        "on purpose: OffsetCommit fails with NOT_COORDINATOR at node 1 where group_id='billing' (met 0 of 2)",
        "on purpose: Heartbeat is delayed by 500 ms after it was handled (met 0)",
        "on purpose: Fetch is held where <lambda>() returns true (met 0)",
        "on purpose: JoinGroup is never answered (met 0 of 1)",
        "on purpose: SyncGroup is disconnected (met 0 of 1)",
        "on purpose: Metadata meets print() (met 0)",
        "on purpose: appends are held (holds 0)",
        "on purpose: the next append fails with KAFKA_STORAGE_ERROR",
    ]
    assert lines[8] == "and 1 more faults"


def test_the_report_stays_short() -> None:
    """Of many requests the last are listed, with the number of earlier ones; long lines are cut."""
    told = Conversation()
    for _ in range(30):
        told.hear(LeaveGroup("g" * 500, ()), client_id="first")
    for number in range(12):
        told.hear(LeaveGroup("g", ()), client_id=f"client-{number}")
    told.hear(LeaveGroup("g" * 500, ()), client_id="first")
    lines = told.report()

    assert lines[1:3] == ["client 'first': 31 requests on 1 connection", "  … 19 before"]
    assert lines[-1] == "and 5 more clients with older requests"
    assert max(map(len, lines)) == 180
    assert len(lines) < 40


def test_groups_are_told_with_members_and_progress(caplog: pytest.LogCaptureFixture) -> None:
    """While a server runs its report has its warnings, and each group with its members and what it has committed."""
    offsets = (TopicToCommit("orders", (OffsetToCommit(0, 2),)), TopicToCommit("bills", (OffsetToCommit(0, 2),)))
    member = Kip848Consumer("a", "modern")
    with ServerThread(topics=["bills", "orders"]) as server:
        assert server.report() == "no groups\nno requests"
        server.produce("orders", ["x"] * 5)
        server.run(lambda broker: broker.coordinator.call(OffsetCommit("plain", offsets)))
        server.run(lambda broker: broker.coordinator.call(member.join_request()))
        server.run(lambda broker: logging.getLogger("groupcoord.host").warning("the disk is %s", "full"))
        logging.getLogger("groupcoord.host").warning("of another server")
        report = server.report()
    logging.getLogger("groupcoord.host").warning("after the end")

    assert report.splitlines() == [
        "warning: the disk is full",
        "group modern (consumer): Stable, epoch 2, 1 member",
        "  a-own-id (client 'a' at ): orders-0",
        "group plain (classic): Empty, generation 0, 0 members",
        "  committed: bills-0 at 2 of 0, orders-0 at 2 of 5",
        "no requests",
    ]
    assert server.report().splitlines() == ["warning: the disk is full", "the server has stopped", "no requests"]
    assert len(caplog.messages) == 3


def test_many_groups_and_members_are_counted() -> None:
    with ServerThread(topics=["orders"]) as server:
        for number in range(10):
            join = Kip848Consumer(f"m{number}", "big").join_request()
            server.run(lambda broker, join=join: broker.coordinator.call(join))
            other = Kip848Consumer("a", f"small-{number}").join_request()
            server.run(lambda broker, other=other: broker.coordinator.call(other))
        lines = server.report().splitlines()

    assert "  and 2 more members" in lines
    assert "and 3 more groups" in lines


def test_of_several_nodes_it_is_told_who_was_asked() -> None:
    """Each line names the node that the request came to, and what is counted is counted by node; afterwards, too."""
    beat = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    with ServerThread(topics=["orders"], nodes=2) as server:
        ports = [int(address.rpartition(":")[2]) for address in server.bootstrap.split(",")]
        for node_id in (2, 1, 2):
            with closing(Client(SocketServer("127.0.0.1", ports[node_id - 1]), "billing-1")) as client:
                client.send("ApiVersions", 0, {})
                client.receive(5_000)
                client.send("Heartbeat", 4, beat)
                client.receive(5_000)
        reports = [server.report()]
        owner = server.coordinator("g")
    reports.append(server.report())

    for report in reports:
        lines = report.splitlines()
        asked = [line.split("  ")[2:] for line in lines if "Heartbeat" in line]
        refused = [f"Heartbeat g, generation 1, member m -> {_refusal(node_id == owner)}" for node_id in (2, 1, 2)]
        assert [[line[0], line[1].partition(" (after")[0]] for line in asked] == [
            [f"node {node_id}", refusal] for node_id, refusal in zip((2, 1, 2), refused, strict=True)
        ]
        assert "routine: 2 ApiVersions to node 2, 1 ApiVersions to node 1, the last at " in lines[-1]


def _refusal(is_owner: bool) -> str:
    return ErrorCode.UNKNOWN_MEMBER_ID.name if is_owner else ErrorCode.NOT_COORDINATOR.name
