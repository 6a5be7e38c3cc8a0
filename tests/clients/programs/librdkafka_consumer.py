"""A consumer with confluent-kafka that tells its partitions: ``assigned T-0 T-1``, ``revoked T-0``, ``lost T-1``.

Before each of these lines it tells the time.

Arguments: HOST:PORT GROUP TOPIC STRATEGY [OFFSET [INSTANCE]]. TOPIC is an expression if it begins with ^, STRATEGY the
name of an assignor, or ``consumer`` for a consumer group (KIP-848), OFFSET what it commits for each partition that it
gets. It leaves the group at SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

import confluent_kafka


def tell(word: str, partitions: Iterable[Any]) -> None:
    """Print the time, and one line."""
    print("at", time.time_ns() // 1_000_000)
    print(word, *(f"{partition.topic}-{partition.partition}" for partition in partitions), flush=True)


def commit(consumer: Any, offset: int) -> bool:
    offsets = [confluent_kafka.TopicPartition(held.topic, held.partition, offset) for held in consumer.assignment()]
    if not offsets:
        return True
    try:
        refused = [
            done.error for done in consumer.commit(offsets=offsets, asynchronous=False) if done.error is not None
        ]
    except confluent_kafka.KafkaException as error:
        refused = [error]
    print(*(["refused", *refused] if refused else ["committed"]), flush=True)
    return not refused


def main(bootstrap: str, group: str, topic: str, strategy: str, offset: str = "", instance: str = "") -> None:
    """Consume until stdin ends."""
    stopped: list[bool] = []
    new: list[Any] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    own: dict[str, Any] = {"group.protocol": "consumer"}
    if strategy != "consumer":
        own = {"partition.assignment.strategy": strategy, "session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
    if instance:
        own["group.instance.id"] = instance

    def on_assign(_: Any, partitions: list[Any]) -> None:
        tell("assigned", partitions)
        new.extend(partitions)

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "librdkafka",
            **own,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=on_assign,
        on_revoke=lambda _, partitions: tell("revoked", partitions),
        on_lost=lambda _, partitions: tell("lost", partitions),
    )
    while not stopped:
        consumer.poll(0.05)
        if offset and new and commit(consumer, int(offset)):
            new.clear()
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
