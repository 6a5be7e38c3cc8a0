"""One member of a consumer group: a process that works with a real Kafka client library and tells what happens to it.

It imports a client library and nothing of groupcoord: what it says comes from the library alone. The one argument is a
JSON object, see :class:`Options`. The member subscribes to one topic and acts as if it read records from it: now and
then it moves each of its partitions ahead by ``partition + 1`` and commits, always from the offset that the group
committed last. On stdout it writes a JSON object per line, each with an ``event``:

- ``owned``: ``offsets``, for each partition it owns from now on, where it starts;
- ``committed``: ``offsets``, by partition, after the broker has acknowledged them;
- ``paused``: all that was committed has been said, and nothing will be until it goes on;
- ``failed``: ``reason``, when a commit failed; it goes on;
- ``left``: it has left the group.

It reads lines from stdin: ``pause`` and ``resume``. When stdin ends, it leaves the group and ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

LONGEST_POLL_MS = 50
LEAVING_S = 8.0


@dataclass(frozen=True)
class Options:
    """What a member shall do.

    Attributes:
        library: a key of :data:`CLIENTS`.
        bootstrap: ``HOST:PORT`` of a broker.
        group_id: the group to join.
        topic: the topic to subscribe to.
        client_id: the member's name.
        session_timeout_ms: after this time without a heartbeat the group goes on without it.
        commit_interval_ms: time between two commits.
    """

    library: str
    bootstrap: str
    group_id: str
    topic: str
    client_id: str
    session_timeout_ms: int = 2_000
    commit_interval_ms: int = 200

    @property
    def heartbeat_interval_ms(self) -> int:
        return self.session_timeout_ms // 5

    @property
    def poll_ms(self) -> int:
        """How long to let the library work at a time."""
        return min(self.commit_interval_ms, LONGEST_POLL_MS)


class Client(Protocol):
    """What the libraries have in common. All run the eager range assignor, so that they can share a group."""

    owned: set[int]
    """The partitions of the current assignment; a new set with each rebalance."""

    def poll(self) -> None:
        """Let the library work for a moment."""

    def committed(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return what the group has committed, 0 for a partition without an offset."""

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit and wait for the acknowledgement; raise whatever the library raises."""

    def close(self) -> None:
        """Leave the group."""


class KafkaPythonClient:
    """kafka-python."""

    def __init__(self, options: Options) -> None:
        import kafka  # type: ignore[import-not-found, import-untyped, unused-ignore]
        from kafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-not-found, import-untyped, unused-ignore]

        self.owned: set[int] = set()
        self._topic = options.topic
        self._poll_ms = options.poll_ms
        self._kafka = kafka
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=options.bootstrap,
            client_id=options.client_id,
            group_id=options.group_id,
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            reconnect_backoff_max_ms=200,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self._consumer.subscribe([options.topic], listener=_listener(kafka.ConsumerRebalanceListener, self))
        # Else kafka-python 3.0.12 joins again when it hears of them, and forgets that if it outlasts one poll.
        self._consumer.partitions_for_topic(options.topic)

    def poll(self) -> None:
        self._consumer.poll(timeout_ms=self._poll_ms)

    def committed(self, partitions: Iterable[int]) -> dict[int, int]:
        named = {partition: self._kafka.TopicPartition(self._topic, partition) for partition in partitions}
        return {partition: self._consumer.committed(name) or 0 for partition, name in named.items()}

    def commit(self, offsets: Mapping[int, int]) -> None:
        named = {self._kafka.TopicPartition(self._topic, partition): offset for partition, offset in offsets.items()}
        self._consumer.commit({name: self._kafka.OffsetAndMetadata(offset, "", -1) for name, offset in named.items()})

    def close(self) -> None:
        self._consumer.close()


class AiokafkaClient:
    """aiokafka, whose event loop runs whenever it is called."""

    def __init__(self, options: Options) -> None:
        import aiokafka  # type: ignore[import-not-found, import-untyped, unused-ignore]
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-not-found, import-untyped, unused-ignore]

        self.owned: set[int] = set()
        self._topic = options.topic
        self._poll_ms = options.poll_ms
        self._aiokafka = aiokafka
        self._runner = asyncio.Runner()
        self._runner.run(self._start(options, RangePartitionAssignor))

    async def _start(self, options: Options, assignor: Any) -> None:
        self._consumer = self._aiokafka.AIOKafkaConsumer(
            bootstrap_servers=options.bootstrap,
            client_id=options.client_id,
            group_id=options.group_id,
            partition_assignment_strategy=[assignor],
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self._consumer.subscribe([options.topic], listener=_listener(self._aiokafka.ConsumerRebalanceListener, self))
        await self._consumer.start()

    def poll(self) -> None:
        self._runner.run(self._consumer.getmany(timeout_ms=self._poll_ms))

    def committed(self, partitions: Iterable[int]) -> dict[int, int]:
        return self._runner.run(self._committed(partitions))

    async def _committed(self, partitions: Iterable[int]) -> dict[int, int]:
        named = {partition: self._aiokafka.TopicPartition(self._topic, partition) for partition in partitions}
        return {partition: await self._consumer.committed(name) or 0 for partition, name in named.items()}

    def commit(self, offsets: Mapping[int, int]) -> None:
        named = {self._aiokafka.TopicPartition(self._topic, p): offset for p, offset in offsets.items()}
        self._runner.run(self._consumer.commit(named))

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class ConfluentKafkaClient:
    """confluent-kafka, which is librdkafka."""

    def __init__(self, options: Options) -> None:
        import confluent_kafka  # type: ignore[import-not-found, import-untyped, unused-ignore]

        self.owned: set[int] = set()
        self._topic = options.topic
        self._poll_ms = options.poll_ms
        self._confluent_kafka = confluent_kafka
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "client.id": options.client_id,
                "group.id": options.group_id,
                "partition.assignment.strategy": "range",
                "session.timeout.ms": options.session_timeout_ms,
                "heartbeat.interval.ms": options.heartbeat_interval_ms,
                "reconnect.backoff.max.ms": 200,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(
            [options.topic],
            on_assign=lambda consumer, partitions: _assigned(self, partitions),
            on_revoke=lambda consumer, partitions: _revoked(self),
        )

    def poll(self) -> None:
        self._consumer.poll(self._poll_ms / 1000)

    def committed(self, partitions: Iterable[int]) -> dict[int, int]:
        named = [self._confluent_kafka.TopicPartition(self._topic, partition) for partition in partitions]
        return {found.partition: max(found.offset, 0) for found in self._consumer.committed(named)}

    def commit(self, offsets: Mapping[int, int]) -> None:
        named = [self._confluent_kafka.TopicPartition(self._topic, p, offset) for p, offset in offsets.items()]
        for done in self._consumer.commit(offsets=named, asynchronous=False):
            if done.error is not None:
                raise self._confluent_kafka.KafkaException(done.error)

    def close(self) -> None:
        self._consumer.close()


CLIENTS: dict[str, Callable[[Options], Client]] = {
    "kafka-python": KafkaPythonClient,
    "aiokafka": AiokafkaClient,
    "confluent-kafka": ConfluentKafkaClient,
}


def _listener(base: Any, client: Client) -> Any:
    class Listener(base):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            _assigned(client, assigned)

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            _revoked(client)

    return Listener()


def _assigned(client: Client, partitions: Iterable[Any]) -> None:
    client.owned = {partition.partition for partition in partitions}


def _revoked(client: Client) -> None:
    client.owned = set()


class Member:
    """The member's work: own, commit, tell."""

    def __init__(self, client: Client, commit_interval_ms: int) -> None:
        self._client = client
        self._commit_interval_s = commit_interval_ms / 1000
        self._next_commit_s = 0.0
        self._owned: set[int] | None = None
        self._offsets: dict[int, int] = {}
        self._is_paused = False
        self.pause_wanted = False
        self.stop_wanted = False

    def run(self) -> None:
        """Work until told to stop, then leave."""
        while not self.stop_wanted:
            self._client.poll()
            try:
                self._work()
            except Exception as error:  # each library has its own family of errors, and all are worth another try
                # The broker may or may not have taken it: ask again before going on.
                self._owned = None
                tell("failed", reason=f"{type(error).__name__}: {error}")
        self._client.close()
        tell("left")

    def obey(self, lines: Iterable[str]) -> None:
        """Take commands until their end; then end the process, in the midst of its work if it can't leave in time."""
        for line in lines:
            self.pause_wanted = line.strip() == "pause"
        self.stop_wanted = True
        time.sleep(LEAVING_S)
        os._exit(1)

    def _work(self) -> None:
        if self._client.owned is not self._owned:
            owned = self._client.owned
            self._offsets = self._client.committed(owned)
            self._owned = owned
            tell("owned", offsets=self._offsets)
        if self.pause_wanted != self._is_paused:
            self._is_paused = self.pause_wanted
            if self._is_paused:
                tell("paused")
        if self._offsets and not self._is_paused and time.monotonic() >= self._next_commit_s:
            offsets = {partition: offset + partition + 1 for partition, offset in self._offsets.items()}
            self._client.commit(offsets)
            self._offsets = offsets
            self._next_commit_s = time.monotonic() + self._commit_interval_s
            tell("committed", offsets=offsets)


def tell(event: str, **fields: Any) -> None:
    """Write one line of JSON to stdout."""
    print(json.dumps({"event": event, **fields}), flush=True)


def main(argument: str) -> None:
    """Run a member as told by a JSON object with the fields of :class:`Options`."""
    options = Options(**json.loads(argument))
    member = Member(CLIENTS[options.library](options), options.commit_interval_ms)
    threading.Thread(target=member.obey, args=(sys.stdin,), daemon=True).start()
    member.run()


if __name__ == "__main__":
    main(sys.argv[1])
