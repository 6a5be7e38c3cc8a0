"""Programs of share groups that are wrong in one way each, as ``wrong_workers.py`` has them of others.

``python wrong_queue_workers.py WAY …`` runs one; the other arguments are those of the worker.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from confluent_kafka import AcknowledgeType, Message

sys.path.insert(0, __file__.rpartition("/")[0])
from queue_worker import QueueWorker
from worker import is_number
from wrong_workers import name_of

WAYS: dict[str, type[QueueWorker]] = {}
LATE_S = 4.0


def way(kind: type[QueueWorker]) -> type[QueueWorker]:
    WAYS[name_of(kind)] = kind
    return kind


@way
class AcceptsBeforeItWorks(QueueWorker):
    """Accepts records before processing them."""

    def process(self, messages: list[Message]) -> None:
        for message in messages:
            self.consumer.acknowledge(message)
        self.tell()
        time.sleep(0.2)
        for message in filter(is_number, messages):
            self.producer.produce(self.output, message.value())
        self.producer.flush()


@way
class NeverAccepts(QueueWorker):
    """Processes records without accepting them: they are redelivered up to the limit."""

    def process(self, messages: list[Message]) -> None:
        for message in filter(is_number, messages):
            self.producer.produce(self.output, message.value())
        self.producer.flush()
        for message in messages:
            self.consumer.acknowledge(message, AcknowledgeType.RELEASE)
        self.tell()


@way
class RejectsWhatFails(QueueWorker):
    """Gives up a record of which the work fails once, instead of giving it back."""

    def process(self, messages: list[Message]) -> None:
        failed = [message for message in messages if is_number(message) and message.offset() % 10 == 7]
        for message in failed:
            self.consumer.acknowledge(message, AcknowledgeType.REJECT)
        super().process([message for message in messages if message not in failed])
        self.tell()


@way
class LeavesOutWhatItDoesNotKnow(QueueWorker):
    """Accepts all that it was given, whether or not it has done it."""

    def process(self, messages: list[Message]) -> None:
        known = [message for message in messages if message.offset() % 10 != 7]
        for message in messages:
            if message not in known:
                self.consumer.acknowledge(message)
        super().process(known)
        self.tell()


@way
class BooksAgainWhatItCouldNotAccept(QueueWorker):
    """Takes a lock that has run out for work that has failed, and does it again a little later."""

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments)
        self.again: list[tuple[float, bytes]] = []

    def process(self, messages: list[Message]) -> None:
        now_s = time.monotonic()
        for due_s, value in self.again:
            if due_s < now_s:
                self.producer.produce(self.output, value)
        self.again = [(due_s, value) for due_s, value in self.again if due_s >= now_s]
        self.batch = messages
        time.sleep(0.3)  # it works on them
        super().process(messages)

    def tell(self) -> None:
        for place, error in self.consumer.commit_sync(20.0).items():
            if error is not None:
                values = [message.value() for message in self.batch if message.partition() == place.partition]
                self.again += [(time.monotonic() + LATE_S, value) for value in values]


@way
class DoesNotSayThatItLeaves(QueueWorker):
    """Ends without closing its consumer: its records wait for their locks."""

    def close(self) -> None:
        pass


def main(name: str, *arguments: Any) -> None:
    WAYS[name](*arguments).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
