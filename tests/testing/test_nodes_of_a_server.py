"""Several nodes in one server: who answers what, and what becomes of it when leaders and coordinators move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupcoord.broker.broker import Broker
from groupcoord.broker.work import Answer, Job, do_in_place, do_whole
from groupcoord.config import Config
from groupcoord.coordinator import GroupCoordinator, LoadError
from groupcoord.core.javacompat import partition_for
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    CoordinatorType,
    FindCoordinator,
    GroupToFetch,
    Heartbeat,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    TopicToCommit,
)
from groupcoord.core.router.authorization import UNRESTRICTED
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.host.node_servers import NoSuchNodeError
from groupcoord.testing import ServerThread
from groupcoord.testing.faults.control import NoSuchPartitionError
from groupcoord.wire.broker_messages import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitions,
    CreatePartitionsTopic,
    CreateTopics,
    Fetch,
    FetchPartition,
    LeaderEpochPartition,
    Metadata,
    OffsetForLeaderEpoch,
    Produce,
    ProducePartition,
    TopicEntry,
    TopicNameOrIdEntry,
)
from groupcoord.wire.cluster_messages import (
    AlterPartitionReassignments,
    DescribeCluster,
    ElectionType,
    ElectLeaders,
    PartitionToReassign,
)
from groupcoord.wire.transaction_messages import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribeTransactions,
    EndTxn,
    InitProducerId,
    ListTransactions,
    PartitionsToAdd,
)
from tests.broker.data_world import batch

COMMIT = OffsetCommit("g", (TopicToCommit("orders", (OffsetToCommit(0, 7),)),))


class Asker:
    """Asks one node without a client."""

    client_host = "/127.0.0.1"
    principal = "User:ANONYMOUS"
    permissions = UNRESTRICTED
    is_trusted = False
    nodes = None

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.answers: list[Any] = []

    def submit(self, request: Any, token: Any = None) -> None:
        self.broker.submit(request, token or self, self.principal)

    def answer(self, response: Any) -> None:
        if response is not None:
            self.answers.append(response)

    def answer_when_done(self, work: Any, awaited: object) -> None:
        if isinstance(awaited, Job):
            do_in_place(awaited)
        self.answer(do_whole(work))


def ask(server: ServerThread, node: int, request: Any) -> Any:
    def asked(control: Any) -> Any:
        broker: Broker = control._servers.running[node].broker
        asker = Asker(broker)
        broker.handle(asker, request)  # type: ignore[arg-type]
        broker.deliver_replies()
        return asker.answers[0]

    return server.control(asked)


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread(topics={"orders": 3}, nodes=3) as running:
        yield running


def fetch(epoch: int = -1, index: int = 0) -> Fetch:
    partition = FetchPartition(index, 0, 10_000, epoch)
    return Fetch((TopicNameOrIdEntry("orders", ZERO_UUID, (partition,)),), max_wait_ms=0)


def produce() -> Produce:
    return Produce((TopicNameOrIdEntry("orders", ZERO_UUID, (ProducePartition(0, batch(b"x")),)),))


def test_all_nodes_describe_the_same_cluster(server: ServerThread) -> None:
    """Each node gives the same brokers, controller, leaders, replicas and in-sync replicas."""
    answers = [ask(server, node, Metadata(None)) for node in (1, 2, 3)]
    described = [ask(server, node, DescribeCluster()) for node in (1, 2, 3)]

    assert answers[0] == answers[1] == answers[2]
    assert [broker.node_id for broker in answers[0].brokers] == [1, 2, 3]
    assert f"{answers[0].brokers[0].host}:{answers[0].brokers[0].port}" == server.bootstrap.split(",")[0]
    orders = next(topic for topic in answers[0].topics if topic.name == "orders")
    assert [(p.leader_id, p.replica_nodes, p.isr_nodes) for p in orders.partitions] == [
        (1, (1, 2, 3), (1, 2, 3)),
        (2, (2, 3, 1), (2, 3, 1)),
        (3, (3, 1, 2), (3, 1, 2)),
    ]
    assert {(answer.controller_id, len(answer.brokers)) for answer in described} == {(1, 3)}


def test_the_others_say_who_coordinates(server: ServerThread) -> None:
    coordinator = server.coordinator("g")
    answers = {node: ask(server, node, Heartbeat("g", 1, "m")).error_code for node in (1, 2, 3)}
    fetched = {node: ask(server, node, OffsetFetch((GroupToFetch("g"),))).groups[0].error_code for node in (1, 2, 3)}
    found = {
        ask(server, node, FindCoordinator(CoordinatorType.GROUP, ("g",))).coordinators[0].node.node_id
        for node in (1, 2, 3)
    }

    others = [node for node in (1, 2, 3) if node != coordinator]
    assert answers[coordinator] is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetched[coordinator] is ErrorCode.NONE
    assert {answers[node] for node in others} == {fetched[node] for node in others} == {ErrorCode.NOT_COORDINATOR}
    assert found == {coordinator}


def test_a_leader_moves_with_a_new_epoch(server: ServerThread) -> None:
    """The new leader has all records; a client with the old epoch is fenced, and gets the end of the old epoch."""
    ask(server, 1, produce())
    assert server.move_leader("orders", to=3) == server.leader("orders") == 3
    ask(server, 3, produce())

    def partition_of(answer: Any) -> Any:
        return answer.topics[0].partitions[0]

    assert partition_of(ask(server, 3, fetch(1))).high_watermark == 2
    answer = ask(server, 3, fetch(0))
    assert partition_of(answer)[1] is ErrorCode.FENCED_LEADER_EPOCH
    ((node_id, host, port, _),) = answer.node_endpoints  # KIP-951
    assert (node_id, f"{host}:{port}") == (3, server.bootstrap.split(",")[2])
    assert partition_of(ask(server, 3, fetch(2))).error_code is ErrorCode.UNKNOWN_LEADER_EPOCH
    asked = OffsetForLeaderEpoch((TopicEntry("orders", (LeaderEpochPartition(0, 0, 1),)),))
    assert partition_of(ask(server, 3, asked))[2:] == (0, 1)
    assert [record.value for record in server.records("orders")] == [b"x", b"x"]


def test_preferred_leaders_are_elected(server: ServerThread) -> None:
    """ElectLeaders brings partitions back to the first of their replicas, if that runs."""
    server.move_leader("orders", 1, to=1)
    request = ElectLeaders((TopicEntry("orders", (0, 1)),), ElectionType.PREFERRED)
    first, second = ask(server, 3, request).replica_election_results[0].partitions
    assert first.error_code is ErrorCode.ELECTION_NOT_NEEDED
    assert second.error_code is ErrorCode.NONE
    assert server.leader("orders", 1) == 2


def test_a_leader_is_elected_although_its_coordinator_can_not_load(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The election succeeds, as in Kafka; the new leader loads the log partition again later."""
    preferred = server.leader("__consumer_offsets", 0)
    server.move_leader("__consumer_offsets", 0, to=1 + preferred % 3)

    def fail(*_: object) -> None:
        raise LoadError({0: OSError("unreadable")})

    monkeypatch.setattr(GroupCoordinator, "load", fail)
    request = ElectLeaders((TopicEntry("__consumer_offsets", (0,)),), ElectionType.PREFERRED)
    ((elected,),) = (topic.partitions for topic in ask(server, 3, request).replica_election_results)
    assert elected.error_code is ErrorCode.NONE
    assert server.leader("__consumer_offsets", 0) == preferred


def test_a_node_crashes_and_comes_back(server: ServerThread) -> None:
    """Others lead and coordinate what it did; back again it leads nothing, and nothing is lost."""
    server.produce("orders", ["a", "b", "c"])
    server.crash(node=2)
    assert server.nodes == (1, 3)
    assert [server.leader("orders", index) for index in range(3)] == [1, 3, 3]
    answer = ask(server, 1, Metadata(None))
    assert [broker.node_id for broker in answer.brokers] == [1, 3]
    orders = next(topic for topic in answer.topics if topic.name == "orders")
    assert [partition.offline_replicas for partition in orders.partitions] == [(2,), (2,), (2,)]
    server.restart(node=2)
    assert server.nodes == (1, 2, 3)
    assert server.leader("orders", 1) == 3
    assert sorted(record.value for record in server.records("orders")) == [b"a", b"b", b"c"]


def test_all_nodes_crash_one_after_the_other(server: ServerThread) -> None:
    """While no node runs there are no responses; the first one restarted leads everything, with all records."""
    server.produce("orders", ["a"], partition=0)
    for node in (1, 2, 3):
        server.crash(node=node)
    assert server.nodes == ()
    with pytest.raises(NoSuchNodeError, match="no node runs"):
        server.leader("orders")
    server.restart(node=2)
    assert [server.leader("orders", index) for index in range(3)] == [2, 2, 2]
    assert [record.value for record in server.records("orders")] == [b"a"]
    server.restart()
    assert server.nodes == (1, 2, 3)


def test_a_crash_of_all_is_over_with_a_restart(tmp_path: Path) -> None:
    """On disk, too: all nodes come back on their ports, with what was written and epochs that go on."""
    with ServerThread(topics={"orders": 1}, nodes=2, data_dir=tmp_path) as server:
        bootstrap = server.bootstrap
        server.produce("orders", ["a"])
        server.move_leader("orders", to=2)
        server.produce("orders", ["b"])
        server.crash()
        server.restart()
        assert server.bootstrap == bootstrap
        assert server.leader("orders") == 2
        server.stop()
    with ServerThread(nodes=2, data_dir=tmp_path) as again:
        assert [record.value for record in again.records("orders")] == [b"a", b"b"]
        answer = ask(again, 1, Metadata(None))
        orders = next(topic for topic in answer.topics if topic.name == "orders")
        assert orders.partitions[0].leader_epoch == 1


def test_transactions_have_a_coordinator(server: ServerThread) -> None:
    """One node coordinates a transactional id; the others answer NOT_COORDINATOR, and it can move with an open
    transaction.
    """
    coordinator = server.transaction_coordinator("tx")
    found = ask(server, 1, FindCoordinator(CoordinatorType.TRANSACTION, ("tx",))).coordinators[0].node.node_id
    assert found == coordinator
    other = next(node for node in (1, 2, 3) if node != coordinator)
    wanted = PartitionsToAdd("tx", 0, 0, (TopicEntry("orders", (0,)),))
    begins = ask(server, coordinator, InitProducerId("tx", 60_000))
    producer = (begins.producer_id, begins.producer_epoch)
    requests = (
        InitProducerId("tx", 60_000),
        AddOffsetsToTxn("tx", *producer, "g"),
        EndTxn("tx", *producer, True),
    )
    refused = {ask(server, other, request).error_code for request in requests}
    assert refused == {ErrorCode.NOT_COORDINATOR}
    assert ask(server, other, AddPartitionsToTxn((wanted,))).results[0].topics[0].partitions[0].error_code == 16
    assert (
        ask(server, other, DescribeTransactions(("tx",))).transaction_states[0].error_code is ErrorCode.NOT_COORDINATOR
    )
    assert ask(server, other, ListTransactions()).transaction_states == ()

    assert ask(server, coordinator, requests[1]).error_code is ErrorCode.NONE
    assert server.move_transaction_coordinator("tx", to=other) == other
    assert ask(server, other, requests[2]).error_code is ErrorCode.NONE
    described = ask(server, other, DescribeTransactions(("tx",))).transaction_states[0]
    assert described.transaction_state == "CompleteCommit"


def test_faults_of_one_node(server: ServerThread) -> None:
    """A rule with ``node`` applies to requests at this node; requests have their node."""
    from confluent_kafka.admin import AdminClient

    fault = server.fail_next("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", times=None, node=2)
    third = server.bootstrap.split(",")[2]
    admin = AdminClient({"bootstrap.servers": third, "socket.timeout.ms": 5000})
    assert "orders" in admin.list_topics(timeout=10).topics
    assert fault.count == len(server.requests.where("Metadata", node=2))
    assert len(server.requests.where("Metadata", node=3)) > 0
    for request in server.requests.where("Metadata", node=3):
        assert {topic.error_code for topic in request.answer.topics} <= {ErrorCode.NONE}
    with pytest.raises(NoSuchNodeError, match="there is no node 9; there are 1, 2, 3"):
        server.delay("Heartbeat", 10, node=9)


@pytest.mark.parametrize(
    ("word", "error", "message"),
    [
        (lambda server: server.move_leader("orders", to=9), NoSuchNodeError, "there is no node 9; there are 1, 2, 3"),
        (lambda server: server.move_leader("orders", to=1), NoSuchNodeError, "leads orders-0 already"),
        (lambda server: server.move_leader("none"), NoSuchPartitionError, "there is no partition none-0"),
        (lambda server: server.move_leader("orders", 7), NoSuchPartitionError, "there is no partition orders-7"),
        (lambda server: server.crash(node=9), NoSuchNodeError, "there is no node 9"),
        (lambda server: server.restart(node=9), NoSuchNodeError, "there is no node 9"),
    ],
)
def test_what_can_not_be_moved_is_said(
    server: ServerThread, word: Callable[[ServerThread], object], error: type[Exception], message: str
) -> None:
    """Unknown nodes and partitions, and moves to the present place, are refused with a reason."""
    with pytest.raises(error, match=message):
        word(server)


@pytest.mark.parametrize(
    ("options", "host", "port"),
    [
        ({"advertised_port": 9094}, "127.0.0.1", 9094),
        ({"settings": {"advertised.listeners": "PLAINTEXT://kafka.example:9095"}}, "kafka.example", 9095),
        ({"settings": {"listeners": "PLAINTEXT://127.0.0.1:0"}, "advertised_port": 9094}, "127.0.0.1", 9094),
    ],
)
def test_clients_are_told_another_address(options: dict[str, Any], host: str, port: int) -> None:
    """The address of a proxy is advertised; ``port`` and ``bootstrap`` are where the server listens."""
    admin = pytest.importorskip("confluent_kafka.admin")
    with ServerThread(nodes=2, **options) as server:
        told = admin.AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=10).brokers
        brokers = [(told[node].host, told[node].port) for node in sorted(told)]

        assert brokers == [(host, port), (host, port + 1)]
        assert str(server.port) in server.bootstrap
        assert server.port not in (port, port + 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"advertised_port": 0}, "advertised_port must be a number from 1 to 65535, not 0"),
        (
            {
                "advertised_port": 9094,
                "settings": {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"},
            },
            "advertised_port is for one listener",
        ),
        ({"settings": {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}}, "nonroutable meta-address 0.0.0.0"),
    ],
)
def test_an_address_that_can_not_be_advertised_is_refused(options: dict[str, Any], message: str) -> None:
    """Kafka refuses 0.0.0.0 in the same words."""
    with pytest.raises((ValueError, GroupcoordError), match=message):
        ServerThread(**options)


@pytest.mark.parametrize("nodes", [0, -1, 101, "3", True])
def test_there_is_a_sensible_number_of_nodes(nodes: Any) -> None:
    with pytest.raises(ValueError, match="nodes must be a number from 1 to 100"):
        ServerThread(nodes=nodes)


def test_clients_of_a_listener_are_told_its_nodes() -> None:
    """With log-in, too, each node has a port of each listener, and clients learn those of the listener they came by."""
    from confluent_kafka.admin import AdminClient

    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    with ServerThread(nodes=2, settings=settings, users={"alice": "alice-secret"}) as server:
        for listener, client in (("SASL_PLAINTEXT", {**login, "sasl.password": "alice-secret"}), ("PLAINTEXT", {})):
            bootstrap = server.bootstrap_of(listener)
            admin = AdminClient({"bootstrap.servers": bootstrap, **client})
            brokers = admin.list_topics(timeout=30).brokers.values()
            assert sorted(f"{broker.host}:{broker.port}" for broker in brokers) == sorted(bootstrap.split(","))


def test_appends_that_are_held_do_not_survive_a_move(server: ServerThread) -> None:
    """A coordinator that gives a group up has its appends refused: what comes later goes to its successor."""
    with server.hold_appends() as held:
        server.control(lambda control: control.coordinating("g").coordinator.submit(COMMIT, Answer()))
        assert held.count == 1
        server.move_coordinator("g")
        assert held.count == 0
    assert server.committed("g") == {}


def create(server: ServerThread, name: str, *assignments: tuple[int, ...]) -> Any:
    topic = CreatableTopic(
        name, -1, -1, assignments=tuple(map(CreatableReplicaAssignment._make, enumerate(assignments)))
    )
    (created,) = ask(server, 1, CreateTopics((topic,))).topics
    return created


def described(server: ServerThread, name: str, node: int = 1) -> list[tuple[int, int, tuple[int, ...]]]:
    topics = ask(server, node, Metadata(None)).topics
    partitions = next(topic for topic in topics if topic.name == name).partitions
    return [(partition.leader_id, partition.leader_epoch, partition.replica_nodes) for partition in partitions]


def test_manual_assignments_are_kept(tmp_path: Path) -> None:
    """Of new topics and of new partitions, over a restart; new partitions get as many replicas as the first has."""
    with ServerThread(nodes=3, data_dir=tmp_path) as server:
        created = create(server, "billed", (3, 1), (2, 3))
        assert (created.error_code, created.replication_factor) == (ErrorCode.NONE, 2)
        for count, assignments in ((3, ((3, 2),)), (4, None)):
            more = CreatePartitionsTopic("billed", count, assignments)
            assert ask(server, 1, CreatePartitions((more,))).results[0].error_code is ErrorCode.NONE
    with ServerThread(nodes=3, data_dir=tmp_path) as server:
        assert described(server, "billed") == [(3, 0, (3, 1)), (2, 0, (2, 3)), (3, 0, (3, 2)), (1, 0, (1, 2))]
    with ServerThread(nodes=2, data_dir=tmp_path) as server:  # what nodes that are gone had, others can lead
        assert described(server, "billed") == [(1, 0, (1,)), (2, 0, (2,)), (2, 0, (2,)), (1, 0, (1, 2))]


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        (((1, 2), (3,)), "a partition with 1 replica(s), but this is not consistent with previous partitions"),
        (((1, 9),), "includes broker 9, but no such broker is registered."),
        (((2, 3), (2,)), "a partition with 1 replica(s)"),
        (((3,),), "All brokers specified in the manual partition assignment for partition 0 are fenced"),
    ],
)
def test_assignments_that_can_not_be(server: ServerThread, assignments: Any, reason: str) -> None:
    """As recorded: replicas of an unknown node, of different numbers, or on nodes that don't run."""
    server.crash(node=3)
    refused = create(server, "billed", *assignments)
    assert refused.error_code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reason in refused.error_message


def test_the_coordinator_of_a_group_is_reassigned(server: ServerThread) -> None:
    """A group continues at the node of its partition of ``__consumer_offsets``."""
    assert ask(server, server.coordinator("g"), COMMIT).topics[0].partitions[0].error_code is ErrorCode.NONE
    for node in (1, 2, 3):
        index = partition_for("g", Config().offsets_topic_num_partitions)
        topic = TopicEntry("__consumer_offsets", (PartitionToReassign(index, (node,)),))
        answer = ask(server, 1, AlterPartitionReassignments((topic,)))
        assert answer.responses[0].partitions[0].error_code is ErrorCode.NONE
        assert server.coordinator("g") == node
        assert server.committed("g") == {("orders", 0): 7}


def test_partitions_are_reassigned_to_nodes_that_run(server: ServerThread) -> None:
    """Not to others, nor to another number of replicas where that is not allowed."""

    def reassign(*replicas: int, **changes: Any) -> Any:
        topic = TopicEntry("orders", (PartitionToReassign(0, replicas),))
        result = ask(server, 1, AlterPartitionReassignments((topic,), **changes)).responses[0].partitions[0]
        return result.error_code, result.error_message

    server.crash(node=3)
    assert reassign(3)[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(1, allow_replication_factor_change=False) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 3 to 1",
    )


def test_a_partition_without_a_replica_that_runs(server: ServerThread) -> None:
    """It has no leader, and Metadata shows that, until one runs again."""
    create(server, "billed", (2,))
    server.produce("billed", ["a"])
    with pytest.raises(NoSuchNodeError, match="node 1 is no replica of billed-0"):
        server.move_leader("billed", to=1)
    server.crash(node=2)
    assert described(server, "billed") == [(-1, 1, (2,))]
    wanted = Produce((TopicNameOrIdEntry("billed", ZERO_UUID, (ProducePartition(0, batch(b"x")),)),))
    partition = ask(server, 1, wanted).topics[0].partitions[0]
    assert (partition.error_code, partition.current_leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, (-1, 1))
    for election, error_code in (
        (ElectionType.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (ElectionType.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        request = ElectLeaders((TopicEntry("billed", (0,)),), election)
        assert ask(server, 1, request).replica_election_results[0].partitions[0].error_code is error_code
    server.restart(node=2)
    assert described(server, "billed") == [(2, 2, (2,))]
    assert [record.value for record in server.records("billed")] == [b"a"]
