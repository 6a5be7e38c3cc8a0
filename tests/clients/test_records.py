"""Producers and consumers of three libraries: what one of them produces is consumed, exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from groupcoord.messages import GroupToFetch, OffsetFetch
from groupcoord.testing import ServerThread
from tests.clients.libraries import CONSUMERS, PRODUCERS

pytestmark = pytest.mark.usefixtures("client_libraries")

LONGEST_S = 60.0
VALUES = [b"value-%d" % number for number in range(2_000)]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    topics = {f"{kind}-{library}": 3 for kind in ("plain", "txn") for library in PRODUCERS}
    with ServerThread(topics=topics) as server:
        yield server


def consume(library: str, bootstrap: str, topic: str, count: int) -> list[bytes]:
    options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    values: list[bytes] = []
    until_s = time.monotonic() + LONGEST_S
    with CONSUMERS[library](bootstrap, f"g-{topic}", topic, subscribes=True, **options) as consumer:
        while len(values) < count and time.monotonic() < until_s:
            values += [record.value for record in consumer.poll(0.2)]
    return values


@pytest.mark.parametrize(
    ("producer", "options", "consumer"),
    [
        ("confluent-kafka", {"enable_idempotence": True, "compression_type": "lz4"}, "aiokafka"),
        ("aiokafka", {"enable_idempotence": True}, "kafka-python"),
        ("kafka-python", {"compression_type": "gzip"}, "confluent-kafka"),
    ],
)
def test_a_group_reads_everything_once(
    server: ServerThread, producer: str, options: dict[str, Any], consumer: str
) -> None:
    """Compressed or not, idempotent or not: each value comes once, and in the order of its partition."""
    topic = f"plain-{producer}"
    with PRODUCERS[producer](server.bootstrap, topic, **options) as opened:
        opened.send(VALUES)
    values = consume(consumer, server.bootstrap, topic, len(VALUES))
    assert sorted(values) == sorted(VALUES)
    by_key: dict[bytes, list[int]] = {}
    for value in values:
        by_key.setdefault(value[-2:], []).append(int(value.split(b"-")[1]))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_transactions_of_librdkafka(server: ServerThread) -> None:
    """Aborted records are not read; committed ones are, across partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "confluent"})
    producer.init_transactions(LONGEST_S)
    for number, committed in enumerate((True, False, True)):
        producer.begin_transaction()
        for value in range(30):
            producer.produce("txn-confluent-kafka", b"%d-%d" % (number, value))
        (producer.commit_transaction if committed else producer.abort_transaction)(LONGEST_S)
    values = consume("confluent-kafka", server.bootstrap, "txn-confluent-kafka", 60)
    assert sorted(values) == sorted(b"%d-%d" % (number, value) for number in (0, 2) for value in range(30))


def test_transactions_of_aiokafka(server: ServerThread) -> None:
    """Read, process, write: records and the group's offsets are committed together, or neither is."""
    from aiokafka import AIOKafkaProducer, TopicPartition

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id="aiokafka") as producer:
            for offset, fails in ((5, False), (9, True)):
                try:
                    async with producer.transaction():
                        await producer.send_and_wait("txn-aiokafka", b"%d" % offset, partition=0)
                        await producer.send_offsets_to_transaction({TopicPartition("plain-aiokafka", 0): offset}, "g")
                        if fails:
                            raise KeyError
                except KeyError:
                    pass
            async with producer.transaction():
                await producer.send_and_wait("txn-aiokafka", b"last", partition=0)

    asyncio.run(produce())
    assert consume("aiokafka", server.bootstrap, "txn-aiokafka", 2) == [b"5", b"last"]
    response = server.run(lambda broker: broker.coordinator.call(OffsetFetch((GroupToFetch("g"),))))
    (committed,) = response.groups[0].topics[0].partitions
    assert (committed.partition_index, committed.committed_offset) == (0, 5)
