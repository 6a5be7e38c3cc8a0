"""Simple consumers of three libraries behind one face: they assign themselves partitions and commit without a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from tests.clients.fleet import DEADLINE_S


class SimpleConsumer(Protocol):
    """A consumer with self-assigned partitions of one topic."""

    def read_from(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on."""

    def read_from_committed(self, partitions: list[int]) -> None:
        """Read these partitions from where the group has committed; without an offset, fail."""

    def poll(self, seconds: float) -> int:
        """Let it read; return how many records came, or raise what the library says."""

    def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commit offsets with metadata."""

    def committed(self, partition: int) -> int | None:
        """Return the committed offset of a partition, None if there is none."""


@contextmanager
def kafka_python(bootstrap: str, group_id: str, topic: str) -> Iterator[SimpleConsumer]:
    import kafka

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group_id, enable_auto_commit=False, auto_offset_reset="none"
    )

    class Face:
        def read_from(self, offsets: Mapping[int, int]) -> None:
            consumer.assign([kafka.TopicPartition(topic, partition) for partition in offsets])
            for partition, offset in offsets.items():
                consumer.seek(kafka.TopicPartition(topic, partition), offset)

        def read_from_committed(self, partitions: list[int]) -> None:
            consumer.assign([kafka.TopicPartition(topic, partition) for partition in partitions])

        def poll(self, seconds: float) -> int:
            return sum(map(len, consumer.poll(timeout_ms=seconds * 1000).values()))

        def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
            consumer.commit(
                {
                    kafka.TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, metadata, -1)
                    for partition, (offset, metadata) in offsets.items()
                }
            )

        def committed(self, partition: int) -> int | None:
            found: int | None = consumer.committed(kafka.TopicPartition(topic, partition))
            return found

    try:
        yield Face()
    finally:
        consumer.close()


@contextmanager
def aiokafka(bootstrap: str, group_id: str, topic: str) -> Iterator[SimpleConsumer]:
    import aiokafka

    with asyncio.Runner() as runner:

        async def start() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap, group_id=group_id, enable_auto_commit=False, auto_offset_reset="none"
            )
            await consumer.start()
            return consumer

        consumer = runner.run(start())

        async def assign(offsets: Mapping[int, int | None]) -> None:
            consumer.assign([aiokafka.TopicPartition(topic, partition) for partition in offsets])
            for partition, offset in offsets.items():
                if offset is not None:
                    consumer.seek(aiokafka.TopicPartition(topic, partition), offset)

        class Face:
            def read_from(self, offsets: Mapping[int, int]) -> None:
                runner.run(assign(offsets))

            def read_from_committed(self, partitions: list[int]) -> None:
                runner.run(assign(dict.fromkeys(partitions)))

            def poll(self, seconds: float) -> int:
                records = runner.run(consumer.getmany(timeout_ms=int(seconds * 1000)))
                return sum(map(len, records.values()))

            def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
                # It commits only what it is assigned, and assigned partitions need an offset to read from.
                runner.run(assign(dict.fromkeys(offsets, 0)))
                named = {aiokafka.TopicPartition(topic, partition): value for partition, value in offsets.items()}
                runner.run(consumer.commit(named))

            def committed(self, partition: int) -> int | None:
                found: int | None = runner.run(consumer.committed(aiokafka.TopicPartition(topic, partition)))
                return found

        try:
            yield Face()
        finally:
            runner.run(consumer.stop())


@contextmanager
def confluent_kafka(bootstrap: str, group_id: str, topic: str) -> Iterator[SimpleConsumer]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )

    class Face:
        def read_from(self, offsets: Mapping[int, int]) -> None:
            consumer.assign([confluent_kafka.TopicPartition(topic, p, offset) for p, offset in offsets.items()])

        def read_from_committed(self, partitions: list[int]) -> None:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition) for partition in partitions])

        def poll(self, seconds: float) -> int:
            message = consumer.poll(seconds)
            if message is not None and message.error() is not None:
                raise confluent_kafka.KafkaException(message.error())
            return 0 if message is None else 1

        def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
            named = [
                confluent_kafka.TopicPartition(topic, partition, offset, metadata)
                for partition, (offset, metadata) in offsets.items()
            ]
            for done in consumer.commit(offsets=named, asynchronous=False):
                assert done.error is None, done.error

        def committed(self, partition: int) -> int | None:
            named = [confluent_kafka.TopicPartition(topic, partition)]
            (found,) = consumer.committed(named, timeout=DEADLINE_S)
            return None if found.offset == confluent_kafka.OFFSET_INVALID else int(found.offset)

    try:
        yield Face()
    finally:
        consumer.close()


OPEN: dict[str, Callable[[str, str, str], AbstractContextManager[SimpleConsumer]]] = {
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "confluent-kafka": confluent_kafka,
}
