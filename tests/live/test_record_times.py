"""Age of the next record by its timestamp, found behind markers and in compressed batches, or unknown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from groupcoord.analysis.live.cluster import KafkaCluster, Patience, connection
from groupcoord.analysis.live.offsets import next_record_ms, offsets_retention_minutes
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.errors import ErrorCode
from groupcoord.testing import ServerThread

from .test_log_in import PLAIN, USERS, address_with, log_in
from .test_reading import closing_cluster

ORDERS, ENDED = TopicPartition("orders", 0), TopicPartition("orders", 1)
END = 100


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    """A server with a compressed batch of ten records, one a second from 1,000 s on, between transactions."""
    settings = {"log.retention.ms": "-1", "offsets.retention.minutes": "90"}
    with ServerThread(topics={"orders": 2}, settings=settings) as server:
        producer = Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "transactional.id": "t",
                "compression.type": "gzip",
                "linger.ms": 200,
            }
        )
        producer.init_transactions(10)
        for partition, count in ((0, 10), (0, 1), (1, 1)):
            producer.begin_transaction()
            for number in range(count):
                producer.produce("orders", b"x" * 100, partition=partition, timestamp=1_000_000 + 1_000 * number)
            producer.commit_transaction(10)
        yield server


@pytest.fixture(scope="module")
def cluster(server: ServerThread) -> Iterator[KafkaCluster]:
    """A connection to it."""
    with closing_cluster(server) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("partition", "offset", "end", "expected_ms"),
    [
        (ORDERS, 0, END, 1_000_000),
        (ORDERS, 7, END, 1_007_000),  # amid a batch
        (ORDERS, 10, END, 1_000_000),  # a marker; the next record is behind it
        (ORDERS, 10, 11, None),  # and not before the end
        (ENDED, 1, 2, None),  # nothing but a marker
        (ENDED, 7, END, None),  # not in the log
        (TopicPartition("nothing", 0), 0, END, None),
    ],
)
def test_the_next_record_is_found(
    cluster: KafkaCluster, partition: TopicPartition, offset: int, end: int, expected_ms: int | None
) -> None:
    """The first one at the offset or behind; None where there is none."""
    assert next_record_ms(cluster, Patience(50, 10), partition, offset, end) == expected_ms


def test_what_may_not_be_read_is_not_told(server: ServerThread, cluster: KafkaCluster) -> None:
    """Without READ on the topic, or without a response, lag in time falls back to other sources."""
    for error in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        with server.fail_next("Fetch", error.name, times=None):
            assert next_record_ms(cluster, Patience(50, 10), ORDERS, 0, END) is None


def test_brokers_tell_how_long_offsets_are_kept(cluster: KafkaCluster, patience: Patience, tmp_path: Path) -> None:
    """To who may describe their settings; others learn nothing, and no error stops them."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with ServerThread(settings=settings, users=USERS) as guarded:
        told = {}
        for user in USERS:
            address = address_with(tmp_path, guarded.bootstrap, log_in(PLAIN, "PLAIN", USERS[user], user))
            with connection(address) as (other, _):
                told[user] = offsets_retention_minutes(other, patience)

    assert offsets_retention_minutes(cluster, patience) == 90
    assert told == {"admin": 10_080, "alice": None}
