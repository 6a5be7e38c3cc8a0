"""Consumers and producers of kafka-python, aiokafka and confluent-kafka behind one interface each.

Options have the names of kafka-python. Nothing of groupcoord is imported, so results come from the libraries alone.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, Self

WAIT_S = 60.0
NOT_IN_AIOKAFKA = ("retries", "reconnect_backoff_max_ms")


class Record(NamedTuple):
    partition: int
    offset: int
    value: bytes


class Closing:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError


class Consumer(Protocol):
    """Consumer of one topic that commits nothing by itself; its methods raise the errors of the library.

    Attributes:
        owned: partitions that its group has assigned; a new set with each rebalance.
    """

    owned: set[int]

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def assign(self, offsets: Mapping[int, int | None]) -> None:
        """Assign itself partitions with the offsets to read from, None for the committed one."""

    def poll(self, seconds: float) -> list[Record]: ...

    def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commit offsets with metadata, and wait for the response."""

    def committed(self, partition: int) -> int | None: ...

    def close(self) -> None:
        """Leave the group."""


class KafkaPythonConsumer(Closing):
    library = "kafka"

    def __init__(self, bootstrap: str, group_id: str, topic: str, *, subscribes: bool = False, **options: Any) -> None:
        module = importlib.import_module(self.library)
        assignors = importlib.import_module(f"{self.library}.coordinator.assignors.range")
        self.owned: set[int] = set()
        self._topic, self._subscribes = topic, subscribes
        self._partition, self._committed = module.TopicPartition, module.OffsetAndMetadata
        self._consumer = self._open(
            module,
            bootstrap_servers=bootstrap,
            group_id=group_id,
            enable_auto_commit=False,
            partition_assignment_strategy=[assignors.RangePartitionAssignor],
            **options,
        )
        if subscribes:
            self._call(self._consumer.subscribe, [topic], None, self._listener(module.ConsumerRebalanceListener))
            self._subscribed()

    def _open(self, module: Any, **options: Any) -> Any:
        return module.KafkaConsumer(**options)

    def _subscribed(self) -> None:
        # Else 3.0.12 joins again when it hears of the partitions, and forgets that if it outlasts one poll.
        self._consumer.partitions_for_topic(self._topic)

    def _call(self, act: Callable[..., Any], *arguments: Any) -> Any:
        return act(*arguments)

    def _listener(self, base: Any) -> Any:
        def assigned(_: object, partitions: Iterable[Any]) -> None:
            self.owned = {found.partition for found in partitions}

        def revoked(_: object, partitions: Iterable[Any]) -> None:
            self.owned = set()

        return type("Listener", (base,), {"on_partitions_assigned": assigned, "on_partitions_revoked": revoked})()

    def assign(self, offsets: Mapping[int, int | None]) -> None:
        self._call(self._consumer.assign, [self._partition(self._topic, partition) for partition in offsets])
        for partition, offset in offsets.items():
            if offset is not None:
                self._call(self._consumer.seek, self._partition(self._topic, partition), offset)

    def poll(self, seconds: float) -> list[Record]:
        return self._records(self._consumer.poll(timeout_ms=seconds * 1000))

    def _records(self, found: Mapping[Any, Iterable[Any]]) -> list[Record]:
        return [Record(record.partition, record.offset, record.value) for part in found.values() for record in part]

    def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        named = {self._partition(self._topic, p): self._position(*position) for p, position in offsets.items()}
        self._call(self._consumer.commit, named)

    def _position(self, offset: int, metadata: str) -> Any:
        return self._committed(offset, metadata, -1)

    def committed(self, partition: int) -> int | None:
        found: int | None = self._call(self._consumer.committed, self._partition(self._topic, partition))
        return found

    def close(self) -> None:
        self._consumer.close()


class AiokafkaConsumer(KafkaPythonConsumer):
    """Its event loop runs during each call only."""

    library = "aiokafka"

    def _open(self, module: Any, **options: Any) -> Any:
        self._runner = asyncio.Runner()

        async def start() -> Any:
            consumer = module.AIOKafkaConsumer(**_for_aiokafka(options))
            await consumer.start()
            return consumer

        return self._runner.run(start())

    def _subscribed(self) -> None:
        """Unlike kafka-python it joins with what it knows."""

    def _call(self, act: Callable[..., Any], *arguments: Any) -> Any:
        async def call() -> Any:
            result = act(*arguments)
            return await result if inspect.isawaitable(result) else result

        return self._runner.run(call())

    def poll(self, seconds: float) -> list[Record]:
        return self._records(self._runner.run(self._consumer.getmany(timeout_ms=int(seconds * 1000))))

    def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        if not self._subscribes:
            # It commits only what it is assigned, and assigned partitions need an offset to read from.
            self.assign(dict.fromkeys(offsets, 0))
        super().commit(offsets)

    def _position(self, offset: int, metadata: str) -> Any:
        return self._committed(offset, metadata)

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class ConfluentKafkaConsumer(Closing):
    def __init__(self, bootstrap: str, group_id: str, topic: str, *, subscribes: bool = False, **options: Any) -> None:
        import confluent_kafka

        self.owned: set[int] = set()
        self._topic, self._library = topic, confluent_kafka
        if options.get("auto_offset_reset") == "none":
            options["auto_offset_reset"] = "error"
        named = _for_confluent(bootstrap, {"group_id": group_id, "enable_auto_commit": False, **options})
        self._consumer = confluent_kafka.Consumer(named | {"partition.assignment.strategy": "range"})
        if subscribes:
            self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: object, partitions: Iterable[Any]) -> None:
        self.owned = {found.partition for found in partitions}

    def _revoked(self, _: object, partitions: Iterable[Any]) -> None:
        self.owned = set()

    def assign(self, offsets: Mapping[int, int | None]) -> None:
        partition, unset = self._library.TopicPartition, self._library.OFFSET_INVALID
        self._consumer.assign(
            [partition(self._topic, p, unset if offset is None else offset) for p, offset in offsets.items()]
        )

    def poll(self, seconds: float) -> list[Record]:
        message = self._consumer.poll(seconds)
        if message is None:
            return []
        if message.error() is not None:
            raise self._library.KafkaException(message.error())
        return [Record(message.partition(), message.offset(), message.value())]

    def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        named = [self._library.TopicPartition(self._topic, p, *position) for p, position in offsets.items()]
        for done in self._consumer.commit(offsets=named, asynchronous=False):
            if done.error is not None:
                raise self._library.KafkaException(done.error)

    def committed(self, partition: int) -> int | None:
        (found,) = self._consumer.committed([self._library.TopicPartition(self._topic, partition)], timeout=WAIT_S)
        return None if found.offset == self._library.OFFSET_INVALID else int(found.offset)

    def close(self) -> None:
        self._consumer.close()


class Producer(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def send(self, values: Iterable[bytes]) -> None:
        """Send records with the last two bytes as keys and wait for all; raise the library's error of the first."""


class KafkaPythonProducer(Closing):
    def __init__(self, bootstrap: str, topic: str, **options: Any) -> None:
        import kafka

        self._topic = topic
        self._producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, **options)

    def send(self, values: Iterable[bytes]) -> None:
        for future in [self._producer.send(self._topic, value, key=value[-2:]) for value in values]:
            future.get(WAIT_S)

    def close(self) -> None:
        self._producer.close(timeout=1)


class AiokafkaProducer(Closing):
    def __init__(self, bootstrap: str, topic: str, **options: Any) -> None:
        import aiokafka

        self._topic = topic
        self._runner = asyncio.Runner()

        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, **_for_aiokafka(options))
            await producer.start()
            return producer

        self._producer = self._runner.run(start())

    def send(self, values: Iterable[bytes]) -> None:
        async def send_all() -> None:
            sent = [await self._producer.send(self._topic, value, key=value[-2:]) for value in values]
            await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)

        self._runner.run(send_all())

    def close(self) -> None:
        self._runner.run(self._producer.stop())
        self._runner.close()


class ConfluentKafkaProducer(Closing):
    def __init__(self, bootstrap: str, topic: str, **options: Any) -> None:
        import confluent_kafka

        self._topic, self._error = topic, confluent_kafka.KafkaException
        self._producer = confluent_kafka.Producer(_for_confluent(bootstrap, options))

    def send(self, values: Iterable[bytes]) -> None:
        errors: list[Any] = []
        for value in values:
            self._producer.produce(
                self._topic, value, key=value[-2:], on_delivery=lambda error, _: errors.append(error)
            )
        assert self._producer.flush(WAIT_S) == 0
        for error in filter(None, errors):
            raise self._error(error)

    def close(self) -> None:
        """librdkafka's producers have nothing to close."""


CONSUMERS: dict[str, Callable[..., Consumer]] = {
    "kafka-python": KafkaPythonConsumer,
    "aiokafka": AiokafkaConsumer,
    "confluent-kafka": ConfluentKafkaConsumer,
}
PRODUCERS: dict[str, Callable[..., Producer]] = {
    "kafka-python": KafkaPythonProducer,
    "aiokafka": AiokafkaProducer,
    "confluent-kafka": ConfluentKafkaProducer,
}


def _for_aiokafka(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in NOT_IN_AIOKAFKA}


def _for_confluent(bootstrap: str, options: Mapping[str, Any]) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return {"bootstrap.servers": bootstrap, "log_level": 0, **named}
