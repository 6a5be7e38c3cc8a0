"""A consumer with confluent-kafka that tells its partitions: ``assigned T-0 T-1``, ``revoked T-0``, ``lost T-1``.

Arguments: HOST:PORT GROUP TOPIC STRATEGY, the last ``consumer`` for a consumer group (KIP-848). It leaves the group at
SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from typing import Any

import confluent_kafka


def tell(word: str, partitions: Iterable[Any]) -> None:
    """Print one line."""
    print(word, *(f"{partition.topic}-{partition.partition}" for partition in partitions), flush=True)


def main(bootstrap: str, group: str, topic: str, strategy: str) -> None:
    """Consume until told to stop."""
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    protocol = {
        "group.protocol": "classic",
        "partition.assignment.strategy": strategy,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 300,
    }
    if strategy == "consumer":
        protocol = {"group.protocol": "consumer"}
    consumer = confluent_kafka.Consumer(
        {
            **protocol,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "librdkafka",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: tell("assigned", partitions),
        on_revoke=lambda _, partitions: tell("revoked", partitions),
        on_lost=lambda _, partitions: tell("lost", partitions),
    )
    while not stopped:
        consumer.poll(0.05)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
