"""A program to be examined, as its kind is usually written with confluent-kafka: it books records, and commits.

``python worker.py BOOTSTRAP GROUP TOPIC OUTPUT INSTANCE PROTOCOL``, as the exam tells it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, ClassVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

BATCH = 20
ASK_WITHIN_S = 1.0
"""Short: who asks for longer does not learn meanwhile that its partitions are another's by now, and works on them."""
ASK_AGAIN_S = 0.2


def login() -> dict[str, str]:
    """Return librdkafka's settings of connection and log-in from the exam's environment."""
    keys = {
        "security.protocol": "EXAM_SECURITY_PROTOCOL",
        "ssl.ca.location": "EXAM_CA",
        "sasl.mechanism": "EXAM_MECHANISM",
        "sasl.username": "EXAM_USER",
        "sasl.password": "EXAM_PASSWORD",
    }
    return {key: value for key, name in keys.items() if (value := os.environ.get(name))}


def is_number(message: Message) -> bool:
    """Return whether a record is a number such as ``2-17``."""
    partition, _, offset = message.value().decode().partition("-")
    return partition.isdecimal() and offset.isdecimal()


class Worker:
    """One instance. What others may do otherwise is a method each.

    Args:
        bootstrap, group, topic, output, instance, protocol: what the exam tells.
    """

    PRODUCER: ClassVar[dict[str, Any]] = {}
    CONSUMER: ClassVar[dict[str, Any]] = {}
    COMMIT_EVERY_S: ClassVar[float] = 0.3
    FIRST_OFFSET: ClassVar[int] = OFFSET_BEGINNING

    def __init__(self, bootstrap: str, group: str, topic: str, output: str, instance: str, protocol: str) -> None:
        self.output, self.is_over = output, False
        self.done: dict[tuple[str, int], int] = {}
        usual = {"bootstrap.servers": bootstrap, "client.id": instance, "reconnect.backoff.max.ms": 500, **login()}
        self.producer = Producer({**usual, "linger.ms": 5, **self.PRODUCER})
        settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        settings |= {"retry.backoff.ms": 1_000, "retry.backoff.max.ms": 2_000}  # see docs/client-bugs.md
        settings["group.protocol"] = protocol
        if protocol == "classic":
            settings["partition.assignment.strategy"] = "cooperative-sticky"
        self.consumer = Consumer({**usual, **settings, **self.CONSUMER})
        self.consumer.subscribe([topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)
        signal.signal(signal.SIGTERM, self.end)

    def end(self, *_: object) -> None:
        self.is_over = True

    def run(self) -> None:
        committed_s = time.monotonic()
        while not self.is_over:
            messages = self.consumer.consume(BATCH, timeout=0.1)
            self.process([message for message in messages if message.error() is None])
            if time.monotonic() - committed_s > self.COMMIT_EVERY_S:
                self.commit()
                committed_s = time.monotonic()
        self.commit()
        self.close()

    def process(self, messages: list[Message]) -> None:
        for message in messages:
            if self.is_readable(message):
                self.producer.produce(self.output, message.value())
        self.flush()
        for message in messages:
            self.done[message.topic(), message.partition()] = message.offset() + 1

    def is_readable(self, message: Message) -> bool:
        return is_number(message)

    def flush(self) -> None:
        self.producer.flush()

    def offsets(self) -> list[TopicPartition]:
        return [TopicPartition(topic, index, offset) for (topic, index), offset in self.done.items()]

    def commit(self) -> None:
        """Commit what is done; what can't be committed now is tried again with the next."""
        if not self.done:
            return
        try:
            self.consumer.commit(offsets=self.offsets(), asynchronous=False)
        except KafkaException as error:
            print("not committed:", error, flush=True)
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self.done.clear()  # one that is made again has other records
        else:
            self.committed()

    def committed(self) -> None:
        self.done.clear()

    def close(self) -> None:
        self.consumer.close()

    # ------------------------------------------------------------ partitions

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Go on where the group was; librdkafka would ask only once for that, see docs/client-bugs.md."""
        places = self.asked_for(partitions)
        for place in places:
            place.offset = place.offset if place.offset >= 0 else self.FIRST_OFFSET
        consumer.incremental_assign(places or partitions)

    def asked_for(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the committed offsets of partitions when they arrive; none if the program ends before."""
        while partitions and not self.is_over:
            try:
                places = self.consumer.committed(partitions, ASK_WITHIN_S)
            except KafkaException as error:
                print("not told what is committed:", error, flush=True)
            else:
                if not any(place.error for place in places):
                    return places
            time.sleep(ASK_AGAIN_S)
        return []

    def revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.commit()
        self.forget(partitions)

    def lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.forget(partitions)

    def forget(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.done.pop((partition.topic, partition.partition), None)


if __name__ == "__main__":
    Worker(*sys.argv[1:]).run()
