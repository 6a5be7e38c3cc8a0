"""A program to be examined that writes each record once: records and offsets in one transaction, by confluent-kafka.

``python transactional_worker.py BOOTSTRAP GROUP TOPIC OUTPUT INSTANCE PROTOCOL``, as the exam tells it.
"""

from __future__ import annotations

import os
import sys
import threading

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

sys.path.insert(0, __file__.rpartition("/")[0])
from worker import Worker

STUCK_S = 8.0
CLOSE_WITHIN_S = 3.0


class TransactionalWorker(Worker):
    """Books what it was given in a transaction; if that comes to nothing, it goes back to what was committed."""

    def __init__(self, bootstrap: str, group: str, topic: str, output: str, instance: str, protocol: str) -> None:
        super().__init__(bootstrap, group, topic, output, instance, protocol)
        self.settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{group}-{instance}"}
        self.begin()

    def begin(self) -> None:
        """Take its transactional id, which ends what was left of a transaction before."""
        self.producer = Producer({**self.settings, "transaction.timeout.ms": 10_000, "reconnect.backoff.max.ms": 500})
        while True:
            try:
                self.producer.init_transactions(30.0)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    def process(self, messages: list[Message]) -> None:
        if not messages:
            return
        try:
            self.producer.begin_transaction()
            for message in messages:
                if self.is_readable(message):
                    self.producer.produce(self.output, message.value())
            ends = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
            offsets = [TopicPartition(topic, index, offset) for (topic, index), offset in ends.items()]
            self.send_offsets(offsets)
            self.end_transaction()
        except KafkaException as error:
            print("not booked:", error, flush=True)
            self.give_up(error.args[0])

    def send_offsets(self, offsets: list[TopicPartition]) -> None:
        """Add offsets to the transaction; this may block without end, see docs/client-bugs.md."""
        watchdog = threading.Timer(STUCK_S, self.give_way)
        watchdog.start()
        try:
            self.producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), 20.0)
        finally:
            watchdog.cancel()

    def give_way(self) -> None:
        """Leave the group, if that can be had, and end: who comes next ends the transaction by its id."""
        self.is_over = True
        leaving = threading.Thread(target=self.close, daemon=True)
        leaving.start()
        leaving.join(CLOSE_WITHIN_S)
        os._exit(1)

    def end_transaction(self) -> None:
        """Commit, and ask again for as long as the answer is not known."""
        while True:
            try:
                self.producer.commit_transaction(20.0)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    def give_up(self, error: KafkaError) -> None:
        """Abort what was booked, with another producer if this one is no good any more, and read it again."""
        try:
            if error.fatal():
                self.begin()
            else:
                self.producer.abort_transaction(20.0)
        except KafkaException:
            self.begin()
        try:
            for place in self.asked_for(self.consumer.assignment()):
                self.consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
        except KafkaException as failed:
            print("starts again:", failed, flush=True)
            self.close()  # it does not know where it stands, and others need not wait for its session
            sys.exit(1)


if __name__ == "__main__":
    TransactionalWorker(*sys.argv[1:]).run()
