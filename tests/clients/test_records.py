"""Producers and consumers of three libraries: what one of them produces is consumed, exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from groupcoord.messages import GroupToFetch, OffsetFetch
from groupcoord.testing import ServerThread

pytestmark = pytest.mark.usefixtures("client_libraries")

LONGEST_S = 60.0
VALUES = [b"value-%d" % number for number in range(2_000)]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    topics = {f"{kind}-{library}": 3 for kind in ("plain", "txn") for library in ("confluent", "aiokafka", "python")}
    with ServerThread(topics=topics) as server:
        yield server


def produce_with_confluent(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "lz4"})
    for value in VALUES:
        producer.produce(topic, value, key=value[-2:])
    assert producer.flush(LONGEST_S) == 0


def produce_with_aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            await asyncio.gather(*[await producer.send(topic, value, key=value[-2:]) for value in VALUES])

    asyncio.run(produce())


def produce_with_kafka_python(bootstrap: str, topic: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    sent = [producer.send(topic, value, key=value[-2:]) for value in VALUES]
    producer.flush()
    assert all(future.succeeded() for future in sent)
    producer.close()


def consume_with_confluent(bootstrap: str, topic: str, count: int) -> list[bytes]:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    values: list[bytes] = []
    until_s = time.monotonic() + LONGEST_S
    while len(values) < count and time.monotonic() < until_s:
        values += [message.value() for message in consumer.consume(500, 0.2)]
    consumer.close()
    return values


def consume_with_aiokafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer

    async def consume() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"g-{topic}",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        values: list[bytes] = []
        async with consumer:
            while len(values) < count:
                values.append((await asyncio.wait_for(consumer.getone(), LONGEST_S)).value)
        return values

    return asyncio.run(consume())


def consume_with_kafka_python(bootstrap: str, topic: str, count: int) -> list[bytes]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"g-{topic}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    values = []
    for message in consumer:
        values.append(message.value)
        if len(values) == count:
            break
    consumer.close()
    return values


@pytest.mark.parametrize(
    ("produce", "consume", "topic"),
    [
        pytest.param(produce_with_confluent, consume_with_aiokafka, "plain-confluent", id="confluent to aiokafka"),
        pytest.param(produce_with_aiokafka, consume_with_kafka_python, "plain-aiokafka", id="aiokafka to python"),
        pytest.param(produce_with_kafka_python, consume_with_confluent, "plain-python", id="python to confluent"),
    ],
)
def test_a_group_reads_everything_once(server: ServerThread, produce: object, consume: object, topic: str) -> None:
    """Compressed or not, idempotent or not: each value comes once, and in the order of its partition."""
    produce(server.bootstrap, topic)  # type: ignore[operator]
    values = consume(server.bootstrap, topic, len(VALUES))  # type: ignore[operator]
    assert sorted(values) == sorted(VALUES)
    by_key: dict[bytes, list[int]] = {}
    for value in values:
        by_key.setdefault(value[-2:], []).append(int(value.split(b"-")[1]))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_transactions_of_librdkafka(server: ServerThread) -> None:
    """What was aborted is not read; what was committed is, across partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "confluent"})
    producer.init_transactions(LONGEST_S)
    for number, committed in enumerate((True, False, True)):
        producer.begin_transaction()
        for value in range(30):
            producer.produce("txn-confluent", b"%d-%d" % (number, value))
        (producer.commit_transaction if committed else producer.abort_transaction)(LONGEST_S)
    values = consume_with_confluent(server.bootstrap, "txn-confluent", 60)
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
                        await producer.send_offsets_to_transaction({TopicPartition("plain-python", 0): offset}, "g")
                        if fails:
                            raise KeyError
                except KeyError:
                    pass
            async with producer.transaction():
                await producer.send_and_wait("txn-aiokafka", b"last", partition=0)

    asyncio.run(produce())
    assert consume_with_aiokafka(server.bootstrap, "txn-aiokafka", 2) == [b"5", b"last"]
    response = server.run(lambda broker: broker.coordinator.call(OffsetFetch((GroupToFetch("g"),))))
    (committed,) = response.groups[0].topics[0].partitions
    assert (committed.partition_index, committed.committed_offset) == (0, 5)
