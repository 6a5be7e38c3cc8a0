"""The consumer and the producer of confluent-kafka's README, put together: each record is booked, offsets by default.

``python of_confluent_kafka.py BOOTSTRAP GROUP TOPIC OUTPUT PROTOCOL``
"""

from __future__ import annotations

import signal
import sys

from confluent_kafka import Consumer, Producer


def main(bootstrap: str, group: str, topic: str, output: str, protocol: str) -> None:
    """Book records until SIGTERM comes."""
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        while True:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                print("Consumer error:", message.error(), flush=True)
                continue
            producer.produce(output, message.value())
            producer.flush()
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
