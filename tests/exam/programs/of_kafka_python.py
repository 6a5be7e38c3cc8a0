"""The consumer and the producer of kafka-python's README, put together: each record is booked, offsets go by default.

``python of_kafka_python.py BOOTSTRAP GROUP TOPIC OUTPUT``
"""

from __future__ import annotations

import signal
import sys

from kafka import KafkaConsumer, KafkaProducer


def main(bootstrap: str, group: str, topic: str, output: str) -> None:
    """Book records until SIGTERM comes."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    consumer = KafkaConsumer(topic, group_id=group, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        for message in consumer:
            producer.send(output, message.value).get(timeout=60)
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
