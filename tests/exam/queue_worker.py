"""A right program of a share group to be examined, by confluent-kafka's share consumer: it accepts what it has booked.

``python queue_worker.py BOOTSTRAP GROUP TOPIC OUTPUT INSTANCE PROTOCOL``, as the exam tells it.
"""

from __future__ import annotations

import signal
import sys

from confluent_kafka import AcknowledgeType, KafkaException, Message, Producer, ShareConsumer

sys.path.insert(0, __file__.rpartition("/")[0])
from worker import is_number, login


class QueueWorker:
    """One instance. What others may do otherwise is a method each.

    Args:
        bootstrap, group, topic, output, instance: what the exam tells.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, output: str, instance: str, _protocol: str) -> None:
        self.output, self.is_over = output, False
        usual = {"bootstrap.servers": bootstrap, "client.id": instance, "reconnect.backoff.max.ms": 500, **login()}
        self.producer = Producer({**usual, "linger.ms": 5})
        self.consumer = ShareConsumer({**usual, "group.id": group, "share.acknowledgement.mode": "explicit"})
        self.consumer.subscribe([topic])
        signal.signal(signal.SIGTERM, self.end)

    def end(self, *_: object) -> None:
        self.is_over = True

    def run(self) -> None:
        while not self.is_over:
            try:
                self.process([message for message in self.consumer.poll(0.2) if message.error() is None])
            except KafkaException as error:
                print("trouble:", error, flush=True)
        self.close()

    def process(self, messages: list[Message]) -> None:
        """Book records, and accept those that are booked; what can't be read is rejected."""
        if not messages:
            return
        for message in messages:
            if is_number(message):
                self.producer.produce(self.output, message.value())
        self.producer.flush()
        for message in messages:
            self.consumer.acknowledge(message, AcknowledgeType.ACCEPT if is_number(message) else AcknowledgeType.REJECT)
        self.tell()

    def tell(self) -> None:
        """Acknowledge records; those with an expired lock are processed again by their next owner."""
        for place, error in self.consumer.commit_sync(20.0).items():
            if error is not None:
                print("not accepted:", place, error, flush=True)

    def close(self) -> None:
        self.consumer.close()


if __name__ == "__main__":
    QueueWorker(*sys.argv[1:]).run()
