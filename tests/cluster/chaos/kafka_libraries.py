"""Libraries for Kafka, with which clients ask nodes of a cluster: each follows the coordinator by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .libraries import ANSWER_S, Open

TOPIC = "positions"


def _bootstrap(ways: dict[int, int]) -> list[str]:
    return [f"127.0.0.1:{way}" for way in ways.values()]


def _number(error: Any) -> int:
    """Return the number of an error of kafka-python; 0: it has none."""
    return int(getattr(error, "errno", 0) or 0)


class ConfluentLibrary:
    """A consumer of librdkafka that is no member."""

    def __init__(self, group: str, ways: dict[int, int], refused: Callable[[int], None]) -> None:
        from confluent_kafka import Consumer

        self._refused = refused
        self._answers: dict[tuple[int, int], Any] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": ",".join(_bootstrap(ways)),
                "group.id": group,
                "enable.auto.commit": False,
                "socket.timeout.ms": int(ANSWER_S * 1_000),
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "on_commit": self._committed,
            }
        )

    def _committed(self, error: Any, partitions: list[Any]) -> None:
        for one in partitions:
            self._answers[one.partition, one.offset] = error or one.error

    def commit(self, shard: int, position: int) -> bool:
        """Commit; late responses to earlier requests do not count."""
        from confluent_kafka import KafkaException, TopicPartition

        self._answers.clear()
        end_s = time.monotonic() + ANSWER_S
        try:
            self._consumer.commit(offsets=[TopicPartition(TOPIC, shard, position)], asynchronous=True)
            while (shard, position) not in self._answers and time.monotonic() < end_s:
                self._consumer.poll(0.05)
        except KafkaException as error:
            self._refused(abs(error.args[0].code()))
            return False
        if (shard, position) not in self._answers:
            return False
        refusal = self._answers[shard, position]
        if refusal is not None:
            self._refused(abs(refusal.code()))
        return refusal is None

    def position(self, shard: int) -> int | None:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            (found,) = self._consumer.committed([TopicPartition(TOPIC, shard)], ANSWER_S)
            if found.error is not None:
                raise KafkaException(found.error)
        except KafkaException as error:
            self._refused(abs(error.args[0].code()))
            return None
        return max(found.offset, -1)


class KafkaPythonLibrary:
    """A consumer of kafka-python that is no member."""

    def __init__(self, group: str, ways: dict[int, int], refused: Callable[[int], None]) -> None:
        from kafka import KafkaConsumer

        self._refused = refused
        self._given_up: set[int] = set()
        while True:
            try:
                self._consumer = KafkaConsumer(
                    bootstrap_servers=_bootstrap(ways),
                    group_id=group,
                    enable_auto_commit=False,
                    request_timeout_ms=int(ANSWER_S * 1_000),
                    retry_backoff_ms=50,
                    reconnect_backoff_max_ms=500,
                    bootstrap_timeout_ms=int(ANSWER_S * 1_000),
                    api_version=(2, 8),  # else it guesses an old one when a way has nobody at its end
                )
                return
            except Exception:  # nobody is there yet
                refused(0)

    def commit(self, shard: int, position: int) -> bool:
        from kafka import OffsetAndMetadata, TopicPartition
        from kafka.errors import KafkaError

        offsets = {TopicPartition(TOPIC, shard): OffsetAndMetadata(position, "", -1)}
        try:
            self._consumer.commit(offsets, timeout_ms=int(ANSWER_S * 1_000))
        except KafkaError as error:
            self._refused(_number(error))
            return False
        return True

    def position(self, shard: int) -> int | None:
        from kafka import TopicPartition
        from kafka.errors import KafkaError

        one = TopicPartition(TOPIC, shard)
        try:
            found = self._consumer.committed(one, timeout_ms=int(ANSWER_S * 1_000))
            if shard in self._given_up:
                # What comes is the answer to what was asked then, which kafka-python has kept, however old it is.
                self._given_up.discard(shard)
                found = self._consumer.committed(one, timeout_ms=int(ANSWER_S * 1_000))
        except KafkaError as error:
            self._given_up.add(shard)
            self._refused(_number(error))
            return None
        return -1 if found is None else int(found)


KAFKA_LIBRARIES: dict[str, Open] = {"confluent-kafka": ConfluentLibrary, "kafka-python": KafkaPythonLibrary}
