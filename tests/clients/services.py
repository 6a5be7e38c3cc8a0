"""Services that send records and book them with a client library, while a test lets the server change."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

TOPIC, GROUP = "orders", "billing"
COUNT = 60
DEADLINE_S = 60.0


class Service:
    """Sends records and books them, with some client library, until told to end.

    Attributes:
        acknowledged: the values that were acknowledged.
        booked: the values that were consumed, with those that came twice.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.acknowledged: list[bytes] = []
        self.booked: list[bytes] = []
        self.ends = threading.Event()

    def wait_for(self, count: int) -> None:
        """Wait until so many records are booked."""
        deadline_s = time.monotonic() + DEADLINE_S
        while len(set(self.booked)) < count:
            assert time.monotonic() < deadline_s, f"{len(set(self.booked))} of {count} are booked"
            time.sleep(0.02)


def values() -> Iterator[bytes]:
    for number in range(COUNT):
        yield b"%d" % number


def run_kafka_python(service: Service) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=service.bootstrap, acks="all", retries=50, retry_backoff_ms=50)
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "retry_backoff_ms": 50}
    consumer = KafkaConsumer(TOPIC, bootstrap_servers=service.bootstrap, group_id=GROUP, **options)
    consumer.partitions_for_topic(TOPIC)  # else 3.0.12 joins twice, and may forget the second time between short polls
    left = values()
    while not service.ends.is_set():
        value = next(left, None)
        if value is not None:
            producer.send(TOPIC, value).get(DEADLINE_S)
            service.acknowledged.append(value)
        for records in consumer.poll(timeout_ms=20).values():
            service.booked += [record.value for record in records]
            consumer.commit()
    consumer.close()
    producer.close()


def run_confluent_kafka(service: Service) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer

    quiet = {"bootstrap.servers": service.bootstrap, "log_level": 0, "retry.backoff.ms": 50}
    producer = Producer({**quiet, "acks": "all", "reconnect.backoff.max.ms": 200})
    settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**quiet, **settings, "reconnect.backoff.max.ms": 200})
    consumer.subscribe([TOPIC])
    left = values()

    def delivered(error: object, message: Any) -> None:
        assert error is None
        service.acknowledged.append(message.value())

    while not service.ends.is_set():
        value = next(left, None)
        if value is not None:
            producer.produce(TOPIC, value, on_delivery=delivered)
            producer.flush(DEADLINE_S)
        message = consumer.poll(0.02)
        if message is not None and message.error() is None:
            service.booked.append(message.value())
            try:
                consumer.commit(message, asynchronous=False)
            except KafkaException:
                continue  # the group has moved on; what isn't committed comes again
    consumer.close()


def run_aiokafka(service: Service) -> None:
    asyncio.run(serve_with_aiokafka(service))


async def serve_with_aiokafka(service: Service) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError

    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "retry_backoff_ms": 50}
    producer = AIOKafkaProducer(bootstrap_servers=service.bootstrap, acks="all", retry_backoff_ms=50)
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=service.bootstrap, group_id=GROUP, **options)
    left = values()
    async with producer, consumer:
        while not service.ends.is_set():
            value = next(left, None)
            if value is not None:
                await producer.send_and_wait(TOPIC, value)
                service.acknowledged.append(value)
            for records in (await consumer.getmany(timeout_ms=20)).values():
                service.booked += [record.value for record in records]
                try:
                    await consumer.commit()
                except KafkaError:
                    continue  # the group has moved on; what isn't committed comes again


RUNS: tuple[Callable[[Service], None], ...] = (run_kafka_python, run_confluent_kafka, run_aiokafka)
