"""Programs that are wrong in one way each: the worker, and what somebody has forgotten, or not known, about it.

``python wrong_workers.py WAY …`` runs one; the other arguments are those of the worker.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any, ClassVar

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, TopicPartition

sys.path.insert(0, __file__.rpartition("/")[0])
from worker import Worker

LATE_S = 6.0
WAYS: dict[str, type[Worker]] = {}


def name_of(kind: type) -> str:
    """Return the name of a way: ``CommitsFirst`` is ``commits-first``."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).lstrip("-")


def way(kind: type[Worker]) -> type[Worker]:
    WAYS[name_of(kind)] = kind
    return kind


@way
class CommitsBeforeItWorks(Worker):
    """Commits what it was given, and works on it then."""

    def process(self, messages: list[Message]) -> None:
        for message in messages:
            self.done[message.topic(), message.partition()] = message.offset() + 1
        self.commit()
        time.sleep(0.2)
        super().process(messages)
        self.done.clear()


@way
class NeverCommits(Worker):
    """Has automatic commits switched off, and does not commit."""

    def commit(self) -> None:
        pass


@way
class DoesNotFlush(Worker):
    """Takes what it has handed to its producer for written."""

    PRODUCER: ClassVar[dict[str, Any]] = {"linger.ms": 700}

    def flush(self) -> None:
        pass


@way
class DoesNotFlushOnRevoke(Worker):
    """Waits for its producer before it commits, and not where its partitions are taken from it."""

    PRODUCER: ClassVar[dict[str, Any]] = {"linger.ms": 2_000}
    COMMIT_EVERY_S = 1.7
    """No multiple of half the heartbeat interval: partitions would always be revoked right after a commit."""
    is_revoked = False

    def flush(self) -> None:
        pass

    def commit(self) -> None:
        if not self.is_revoked:
            self.producer.flush()
        super().commit()

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.is_revoked = True
        super().revoked(consumer, partitions)
        self.is_revoked = False


@way
class SwallowsErrors(Worker):
    """Does not ask its producer whether what it has handed over was written, or given up."""

    PRODUCER: ClassVar[dict[str, Any]] = {"message.timeout.ms": 1_000, "linger.ms": 500}

    def flush(self) -> None:
        time.sleep(0.4)  # it mostly has something in hand when brokers die
        super().flush()


@way
class StartsAtTheEnd(Worker):
    """Misses earlier records, since auto.offset.reset is not set."""

    FIRST_OFFSET = OFFSET_END

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments)
        time.sleep(3.0)  # takes its time to start, and records come meanwhile


@way
class SkipsTheBatch(Worker):
    """Leaves out all that came with a record that it can't read."""

    def process(self, messages: list[Message]) -> None:
        if all(map(self.is_readable, messages)):
            super().process(messages)
        elif messages:
            for message in messages:
                self.done[message.topic(), message.partition()] = message.offset() + 1


@way
class DiesOfWhatItCannotRead(Worker):
    """Ends at a record that it can't read, and again when it is started again."""

    def is_readable(self, message: Message) -> bool:
        if not super().is_readable(message):
            raise ValueError(message.value())
        return True


@way
class LeavesWithoutAWord(Worker):
    """Ends without closing its consumer: the others wait for its session."""

    def close(self) -> None:
        pass


@way
class DoesNotEnd(Worker):
    """Ignores the signal to end."""

    def end(self, *_: object) -> None:
        pass


@way
class WorksOnWhatItLost(Worker):
    """Processes its queue, whoever owns the partitions by then."""

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments)
        self.queue: deque[tuple[float, Message]] = deque()

    def process(self, messages: list[Message]) -> None:
        now_s = time.monotonic()
        self.queue.extend((now_s, message) for message in messages)
        due = []
        while self.queue and self.queue[0][0] < now_s - LATE_S:
            due.append(self.queue.popleft()[1])
        super().process(due)

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        given = {(place.topic, place.partition) for place in partitions}
        self.queue = deque(one for one in self.queue if (one[1].topic(), one[1].partition()) not in given)
        super().assigned(consumer, partitions)

    def commit(self) -> None:
        own = {(place.topic, place.partition) for place in self.consumer.assignment()}
        self.done = {place: offset for place, offset in self.done.items() if place in own}
        super().commit()


@way
class BlocksForTooLong(Worker):
    """Takes longer for a record than max.poll.interval.ms."""

    CONSUMER: ClassVar[dict[str, Any]] = {"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000}

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments)
        self.easy = 40 if arguments[4] == "worker1" else 1_000_000

    def process(self, messages: list[Message]) -> None:
        self.easy -= len(messages)
        if self.easy < 0:
            self.easy = 1_000_000
            time.sleep(12.0)
        super().process(messages)


@way
class CommitsWhatItLost(Worker):
    """Does not forget how far it was in partitions that are another's by now."""

    def revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.commit()

    def forget(self, partitions: list[TopicPartition]) -> None:
        pass

    def committed(self) -> None:
        pass


@way
class StartsOver(Worker):
    """Goes back to the first record whenever it is given a partition."""

    COMMIT_EVERY_S = 0.0

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign([TopicPartition(place.topic, place.partition, 0) for place in partitions])


@way
class RetriesForEver(Worker):
    """Retries a commit until it succeeds, whatever the error."""

    def commit(self) -> None:
        while self.done and not self.is_over:
            try:
                self.consumer.commit(offsets=self.offsets(), asynchronous=False)
            except KafkaException:
                time.sleep(0.2)
            else:
                self.done.clear()


@way
class StandsStillAfterAnError(Worker):
    """Ends its loop at the first error, and its process lives on."""

    def commit(self) -> None:
        if self.done:
            try:
                self.consumer.commit(offsets=self.offsets(), asynchronous=False)
            except KafkaException:
                while not self.is_over:
                    time.sleep(0.1)
            self.done.clear()


@way
class PromisesTooMuch(Worker):
    """Correct at-least-once program that claims to write each record once."""

    COMMIT_EVERY_S = 1.5


def main(name: str, *arguments: Any) -> None:
    WAYS[name](*arguments).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
