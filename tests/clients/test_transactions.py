"""A real transactional producer: confluent-kafka commits offsets in transactions, and the server is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from groupcoord.testing.server import ServerThread
from tests.clients.fleet import DEADLINE_S, TOPIC, open_server
from tests.processes import wait_until

pytestmark = pytest.mark.usefixtures("client_libraries")


@contextmanager
def open_consumer(server: ServerThread, group_id: str) -> Iterator[Any]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group_id,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def open_producer(server: ServerThread, transactional_id: str) -> Any:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": transactional_id,
            # Otherwise librdkafka drops its only broker while that is away, yet sends to the dropped one what is for
            # the group coordinator, and nothing comes of it.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
    )
    producer.init_transactions(DEADLINE_S)
    return producer


def send_offsets(producer: Any, consumer: Any, offsets: dict[int, int]) -> None:
    """Put offsets into the transaction."""
    from confluent_kafka import TopicPartition

    positions = [TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), DEADLINE_S)


def committed(consumer: Any) -> dict[int, int]:
    """Return the committed offsets of partitions 0 to 2 that are there."""
    from confluent_kafka import TopicPartition

    found = consumer.committed([TopicPartition(TOPIC, partition) for partition in range(3)], DEADLINE_S)
    return {position.partition: position.offset for position in found if position.offset >= 0}


def test_commit_and_abort(server: ServerThread) -> None:
    """Offsets of a committed transaction are there, those of an aborted one never were."""
    producer = open_producer(server, "writer")
    with open_consumer(server, "commit-and-abort") as consumer:
        producer.begin_transaction()
        send_offsets(producer, consumer, {0: 10, 1: 11})
        producer.commit_transaction(DEADLINE_S)
        assert committed(consumer) == {0: 10, 1: 11}
        producer.begin_transaction()
        send_offsets(producer, consumer, {0: 20, 2: 22})
        producer.abort_transaction(DEADLINE_S)
        assert committed(consumer) == {0: 10, 1: 11}
        producer.begin_transaction()
        send_offsets(producer, consumer, {0: 30})
        producer.commit_transaction(DEADLINE_S)
        assert committed(consumer) == {0: 30, 1: 11}


def test_with_the_generation_of_a_member(server: ServerThread) -> None:
    """A member of the group commits in a transaction with its own generation (KIP-447)."""
    producer = open_producer(server, "member-writer")
    with open_consumer(server, "a-member") as consumer:
        consumer.subscribe([TOPIC])
        wait_until(lambda: bool(consumer.poll(0.1) or consumer.assignment()), DEADLINE_S, "partitions are assigned")
        producer.begin_transaction()
        send_offsets(producer, consumer, {0: 5})
        producer.commit_transaction(DEADLINE_S)
        assert committed(consumer) == {0: 5}


def test_a_second_producer_fences_the_first(server: ServerThread) -> None:
    """The first one's transaction is aborted, and it can't commit."""
    from confluent_kafka import KafkaException

    first = open_producer(server, "twins")
    with open_consumer(server, "fenced") as consumer:
        first.begin_transaction()
        send_offsets(first, consumer, {0: 1})
        second = open_producer(server, "twins")
        with pytest.raises(KafkaException) as caught:
            first.commit_transaction(DEADLINE_S)
        assert caught.value.args[0].name() == "_FENCED"
        second.begin_transaction()
        send_offsets(second, consumer, {1: 2})
        second.commit_transaction(DEADLINE_S)
        assert committed(consumer) == {1: 2}


@pytest.mark.parametrize("commits", [True, False])
def test_the_server_is_killed(tmp_path: Path, commits: bool) -> None:
    """A transaction that was open when the server was killed continues after the restart, and ends as its producer
    requests.
    """
    server = open_server(tmp_path)
    try:
        producer = open_producer(server, "writer")
        with open_consumer(server, "killed") as consumer:
            producer.begin_transaction()
            send_offsets(producer, consumer, {0: 10})
            port = server.port
            server.kill()
            server = open_server(tmp_path, port)
            send_offsets(producer, consumer, {1: 11})
            if commits:
                producer.commit_transaction(DEADLINE_S)
            else:
                producer.abort_transaction(DEADLINE_S)
            assert committed(consumer) == ({0: 10, 1: 11} if commits else {})
    finally:
        server.kill()
