"""The member in one group with librdkafka's and Java's consumers: leader and follower, eager, cooperative, KIP-848."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from groupcoord.testing.server import ServerThread
from tests.clients.beside import CONSUMER, Consumer, running
from tests.clients.fleet import PARTITION_COUNT, TOPIC
from tests.ports import free_port
from tests.processes import ProcessError, committed_offsets, wait_until
from tests.storage.real_broker import HAS_KAFKA, format_directory, java

DEADLINE_S = 40.0
EVERYTHING = set(range(PARTITION_COUNT))
STRATEGIES = ("range", "cooperative-sticky", CONSUMER)
SETTINGS = """
group.initial.rebalance.delay.ms=500
group.consumer.min.heartbeat.interval.ms=300
group.consumer.heartbeat.interval.ms=300
"""

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("client_libraries")]


def wait_for(condition: Callable[[], bool], expected: str, *consumers: Consumer) -> None:
    """Wait for a condition; otherwise fail with the consumers' output."""
    try:
        wait_until(condition, DEADLINE_S, expected)
    except ProcessError as error:
        raise AssertionError("\n\n".join([str(error), *map(str, consumers)])) from error


def share(first: Consumer, second: Consumer) -> bool:
    """Return whether the two own all partitions, each some, and none both."""
    return bool(first.owned and second.owned) and first.owned ^ second.owned == EVERYTHING


def live_together(kinds: tuple[str, str], bootstrap: str, port: int, group: str, strategy: str) -> None:
    """One joins and leads, the other joins and follows; the member's commits arrive; then the other is alone."""
    with running(kinds[0], bootstrap, group, TOPIC, strategy) as first:
        wait_for(lambda: first.owned == EVERYTHING, "the first has all partitions", first)
        with running(kinds[1], bootstrap, group, TOPIC, strategy) as second:
            wait_for(lambda: share(first, second), "the two share the partitions", first, second)
            ours = first if kinds[0] == "ours" else second
            other = second if ours is first else first
            wait_for(lambda: any(line.startswith("Joined(") for line in ours.lines), "it tells who leads", ours)
            assert (
                f"is_leader={ours is first and strategy != CONSUMER}"
                in [line for line in ours.lines if line.startswith("Joined(")][-1]
            )
            kept = first.owned
            revoked = [partition for lot in first.said("revoked") for partition in lot]
            if strategy in ("cooperative-sticky", CONSUMER):
                assert not kept & set(revoked), f"what it keeps is never revoked:\n{first}"
                assert second.owned == set(revoked)
            else:
                assert set(revoked) >= EVERYTHING
            mine = ours.owned
            wait_for(lambda: mine <= committed(port, group).keys(), "the member's positions are committed", ours)
            ours.stop()
            assert ours.lines[-1] == "Closed()", ours
            wait_for(lambda: other.owned == EVERYTHING, "the other has all partitions", other)
            assert not [line for line in ours.lines if line.startswith("Failed(")], ours


def committed(port: int, group: str) -> dict[int, int]:
    return {p: offset for p, offset in committed_offsets(port, group, TOPIC).items() if offset >= 0}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kinds", [("ours", "librdkafka"), ("librdkafka", "ours")], ids="-".join)
def test_beside_librdkafka(server: ServerThread, kinds: tuple[str, str], strategy: str) -> None:
    """On ``groupcoord serve``, the member and librdkafka share a group, with either leader, and a consumer group."""
    live_together(kinds, server.bootstrap, server.port, f"beside-{'-'.join(kinds)}-{strategy}", strategy)


# ---------------------------------------------------------------- on a real broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real broker with the topic."""
    directory = tmp_path_factory.mktemp("kafka")
    port, properties = free_port(), directory / "server.properties"
    format_directory(directory / "data", properties, port, 3, SETTINGS)
    command = java("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "kafka.Kafka", str(properties))
    process = subprocess.Popen(command, start_new_session=True)
    try:
        create_topic(f"127.0.0.1:{port}")
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def create_topic(bootstrap: str) -> None:
    """Wait for the broker, and create the topic."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def is_created() -> bool:
        try:
            admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT, 1)], request_timeout=5)[TOPIC].result(5)
        except (KafkaException, TimeoutError):
            return False
        return True

    wait_until(is_created, 60, "the broker creates the topic")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_KAFKA, reason="there is no java, or there are no jars of Kafka 4")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "kinds", [("ours", "java"), ("java", "ours"), ("ours", "librdkafka"), ("librdkafka", "ours")], ids="-".join
)
def test_on_a_real_broker(broker: int, kinds: tuple[str, str], strategy: str, tmp_path: Path) -> None:
    """On Kafka 4.4, the member shares a group with Java's consumer and with librdkafka's."""
    live_together(kinds, f"127.0.0.1:{broker}", broker, f"beside-{'-'.join(kinds)}-{strategy}", strategy)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_KAFKA, reason="there is no java, or there are no jars of Kafka 4")
@pytest.mark.parametrize("strategy", [*STRATEGIES, "sticky", "roundrobin"])
@pytest.mark.parametrize("kinds", [("ours", "java"), ("java", "ours")], ids="-".join)
def test_beside_java(server: ServerThread, kinds: tuple[str, str], strategy: str) -> None:
    """On ``groupcoord serve``, the member shares a group with Java's consumer, with each assignor."""
    live_together(kinds, server.bootstrap, server.port, f"beside-{'-'.join(kinds)}-{strategy}", strategy)
