"""``groupcoord serve --cluster`` as its users run it: three processes over an engine, killed under real clients."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from groupcoord.conformance.sockets import FreePorts
from tests.clients.conftest import client_libraries as client_libraries, left_sockets as left_sockets
from tests.host.serving import Serving, serve
from tests.host.test_serve_command import refused
from tests.tables import as_one_test

pytestmark = [
    pytest.mark.ci,
    pytest.mark.usefixtures("client_libraries", "left_sockets"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

TOPIC, PARTITIONS = "orders", 12
DEADLINE_S = 60.0
SECRET = "secret"
NODES = (1, 2, 3)


class Nodes:
    """Three nodes that share a log.

    Attributes:
        bootstrap: the addresses of all that were ever started.
    """

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._arguments = ("--cluster", url, "--set", f"offsets.topic.num.partitions={PARTITIONS}")
        self._stack = stack
        self._serving: dict[int, Serving] = {}
        for node_id in NODES:
            self.start(node_id)

    def start(self, node_id: int) -> None:
        """Run a node, on the port that it had before."""
        before = self._serving.get(node_id)
        port = ("--port", str(before.port)) if before else ()
        arguments = (*self._arguments, "--node-id", str(node_id), "--topic", f"{TOPIC}:3", *port)
        self._serving[node_id] = self._stack.enter_context(serve(*arguments))

    def kill(self, node_id: int) -> None:
        self._serving[node_id].stop(signal.SIGKILL)

    def stop(self, node_id: int) -> None:
        """Stop a node gracefully."""
        status, errors = self._serving[node_id].stop()
        assert (status, "ERROR" in errors, "Traceback" in errors) == (0, False, False), errors

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{serving.port}" for serving in self._serving.values())

    def port(self, node_id: int) -> int:
        """Return where a node listens."""
        return self._serving[node_id].port


@pytest.fixture(scope="module", params=["postgres", "three_nats"])
def url(request: pytest.FixtureRequest) -> str:
    """URL of an engine; the name of a log follows after #."""
    found: str = request.getfixturevalue(request.param).url_with(SECRET)
    return found


@pytest.fixture(scope="module")
def nodes(url: str) -> Iterator[Nodes]:
    """Three nodes for all tests of this module, which run in order."""
    with ExitStack() as stack:
        yield Nodes(f"{url}#brokers", stack)


class Committer(threading.Thread):
    """Commits ever higher offsets of one partition as the only member of a group, and knows what was acknowledged."""

    def __init__(self, open_member: Callable[[str, str], tuple[Any, Any]], bootstrap: str, group: str) -> None:
        super().__init__()
        self.group = group
        self.acknowledged = -1
        self.ends = threading.Event()
        self._open_member = open_member
        self._addresses = bootstrap

    def run(self) -> None:
        commit, close = self._open_member(self._addresses, self.group)
        for offset in range(1_000_000):
            if self.ends.is_set():
                break
            if commit(offset):
                self.acknowledged = offset
        close()

    def wait_for_more(self) -> float:
        """Wait until something else is acknowledged, and return how long that took, in seconds."""
        since_s, before = time.monotonic(), self.acknowledged
        while self.acknowledged == before:
            assert time.monotonic() < since_s + DEADLINE_S, f"{self.group}: nothing is acknowledged after {before}"
            time.sleep(0.01)
        return time.monotonic() - since_s


def confluent_member(protocol: str) -> Callable[[str, str], tuple[Any, Any]]:
    """Return what opens a consumer of librdkafka that speaks a protocol of groups."""

    def open_member(bootstrap: str, group: str) -> tuple[Any, Any]:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        quiet = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        consumer = Consumer({**quiet, "group.id": group, "group.protocol": protocol, "enable.auto.commit": False})
        consumer.subscribe([TOPIC])

        def commit(offset: int) -> bool:
            consumer.poll(0.02)
            if not consumer.assignment():
                return False
            try:
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
            except KafkaException:
                return False
            return True

        return commit, consumer.close

    return open_member


def kafka_python_member(bootstrap: str, group: str) -> tuple[Any, Any]:
    from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
    from kafka.errors import KafkaError

    options: dict[str, Any] = {"enable_auto_commit": False, "retry_backoff_ms": 50, "reconnect_backoff_max_ms": 200}
    consumer = KafkaConsumer(TOPIC, bootstrap_servers=bootstrap.split(","), group_id=group, **options)

    def commit(offset: int) -> bool:
        try:
            consumer.poll(timeout_ms=20)
            if not consumer.assignment():
                return False
            consumer.commit({TopicPartition(TOPIC, 0): OffsetAndMetadata(offset, "", -1)})
        except KafkaError:
            return False
        return True

    return commit, consumer.close


MEMBERS = {
    "classic-of-librdkafka": confluent_member("classic"),
    "consumer-of-librdkafka": confluent_member("consumer"),
    "kafka-python": kafka_python_member,
}


def coordinators(bootstrap: str, groups: list[str]) -> dict[str, int]:
    """Return which node coordinates each group; librdkafka waits for one that is dead, if a node still names it."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # which must live as long as its futures
        described = admin.describe_consumer_groups(groups, request_timeout=DEADLINE_S / 10)
        try:
            return {group: future.result(DEADLINE_S).coordinator.id for group, future in described.items()}
        except KafkaException:
            assert time.monotonic() < deadline_s


def committed(bootstrap: str, group: str) -> int:
    """Return the committed offset, retrying while the group moves back to a restarted node."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    deadline_s = time.monotonic() + DEADLINE_S
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group})) as consumer:
        while True:
            try:
                return int(consumer.committed([TopicPartition(TOPIC, 0)], DEADLINE_S)[0].offset)
            except KafkaException:
                assert time.monotonic() < deadline_s


def test_groups_outlive_their_nodes(nodes: Nodes) -> None:
    """Each owner of a group is killed under commits of three kinds of members, and comes back: they go on, and nothing
    that was acknowledged is lost."""
    committers = [Committer(open_member, nodes.bootstrap, f"of-{name}") for name, open_member in MEMBERS.items()]
    for committer in committers:
        committer.start()
    try:
        for victim in committers:
            for committer in committers:
                committer.wait_for_more()
            (node_id,) = coordinators(nodes.bootstrap, [victim.group]).values()
            nodes.kill(node_id)
            for committer in committers:
                committer.wait_for_more()
            assert coordinators(nodes.bootstrap, [victim.group]) != {victim.group: node_id}
            nodes.start(node_id)
    finally:
        for committer in committers:
            committer.ends.set()
        for committer in committers:
            committer.join(DEADLINE_S)
    for committer in committers:
        assert committed(nodes.bootstrap, committer.group) >= committer.acknowledged


def test_who_ends_in_order_hands_over(nodes: Nodes) -> None:
    """SIGTERM ends a node with status 0; Metadata lists the others at once, and the node again after a restart."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})

    def wait_for(node_ids: set[int]) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while {node.id for node in admin.describe_cluster().result(DEADLINE_S).nodes} != node_ids:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)

    wait_for({1, 2, 3})
    nodes.stop(2)
    wait_for({1, 3})
    nodes.start(2)
    wait_for({1, 2, 3})


def test_topics_are_of_all_nodes(nodes: Nodes) -> None:
    """A topic that was made by a client of one node is there for clients of another, with its settings, and is gone
    when one of them deletes it; nothing can be produced."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

    one, other = (AdminClient({"bootstrap.servers": f"127.0.0.1:{nodes.port(node_id)}"}) for node_id in (1, 3))
    wanted = NewTopic("made", 4, replication_factor=3, config={"retention.ms": "1000"})
    one.create_topics([wanted])["made"].result(DEADLINE_S)
    deadline_s = time.monotonic() + DEADLINE_S
    while "made" not in other.list_topics(timeout=DEADLINE_S).topics:
        assert time.monotonic() < deadline_s
    resource = ConfigResource(ResourceType.TOPIC, "made")
    assert other.describe_configs([resource])[resource].result(DEADLINE_S)["retention.ms"].value == "1000"
    refusals: list[Any] = []
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    producer.produce("made", b"x", on_delivery=lambda error, message: refusals.append(error.name()))
    producer.flush(DEADLINE_S)
    assert refusals == ["POLICY_VIOLATION"]
    other.delete_topics(["made"])["made"].result(DEADLINE_S)
    while "made" in one.list_topics(timeout=DEADLINE_S).topics:
        assert time.monotonic() < deadline_s + DEADLINE_S


def test_transactions_are_refused_at_once(nodes: Nodes) -> None:
    """A transactional producer learns that this is not to be had before it has begun, by an error that is final."""
    from confluent_kafka import KafkaException, Producer

    producer = Producer({"bootstrap.servers": nodes.bootstrap, "transactional.id": "x", "log_level": 0})
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(DEADLINE_S)
    assert raised.value.args[0].name() == "_UNSUPPORTED_FEATURE"


@as_one_test
@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (["--cluster", "postgresql://nowhere"], 2, "--cluster needs --node-id"),
        (["--node-id", "1"], 2, "--cluster needs --node-id"),
        (
            ["--cluster", "mysql://nowhere", "--node-id", "1"],
            2,
            "--cluster takes postgresql://…, postgres://…, nats://…",
        ),
        (["--cluster", "nats://nowhere?replicas=2", "--node-id", "1"], 2, "replicas=2 must be 1, 3 or 5"),
        (["--cluster", "nats://u:secret@127.0.0.1:1", "--node-id", "1"], 1, "nats://127.0.0.1:1: no server of NATS"),
        (["--cluster", "postgresql://nowhere#A B", "--node-id", "1"], 2, "'A B' is no name of a table"),
        (["--cluster", "postgresql://nowhere", "--node-id", "1", "--data-dir", "x"], 2, "leave out --data-dir"),
        (["--cluster", "postgresql://nowhere", "--node-id", "1", "--nodes", "2"], 2, "--cluster is for one node"),
        (["--cluster", "postgresql://u:secret@127.0.0.1:1/d", "--node-id", "1"], 1, "postgresql://127.0.0.1:1/d: "),
    ],
)
def test_what_a_node_can_not_do(arguments: list[str], status: int, named: str) -> None:
    """It is refused with one line that has the reason, and no password."""
    found, errors = refused("--port", "0", *arguments)
    assert (found, errors.count("\n"), "secret" in errors) == (status, 1, False), errors
    assert named in errors


def test_what_the_others_have_otherwise_is_refused(url: str, nodes: Nodes) -> None:
    """The number of log partitions is fixed, and each node has a unique id; one line has the reason."""
    cluster = ("--port", "0", "--cluster", f"{url}#brokers")
    status, errors = refused(*cluster, "--node-id", "4", "--set", "offsets.topic.num.partitions=7")
    assert (status, "is 12 here and can't become 7" in errors) == (1, True)
    status, errors = refused(*cluster, "--node-id", "3")
    assert (status, f"node 3 runs already at 127.0.0.1:{nodes.port(3)}" in errors) == (1, True)


def test_metrics_tell_of_a_node_and_of_its_share(url: str) -> None:
    """Its page has the owner of each log partition, and the usual metrics."""
    ports = FreePorts()
    arguments = ("--set", "offsets.topic.num.partitions=2", "--node-id", "1", "--metrics", str(ports.first))
    deadline_s, page = time.monotonic() + DEADLINE_S, ""
    with serve("--cluster", f"{url}#measured", *arguments):
        while page.count("groupcoord_replica_owner{") < 2 or "groupcoord_replica_may_answer 1.0" not in page:
            assert time.monotonic() < deadline_s, page
            time.sleep(0.05)
            with suppress(URLError), urlopen(f"http://127.0.0.1:{ports.first}/metrics") as answer:
                page = answer.read().decode()
    ports.give_back()
    assert "kafka_server_group_coordinator_metrics_num_partitions{state=" in page
