"""librdkafka's consumers of KIP-848 (``group.protocol=consumer``): the coordinator assigns, and they live on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from groupcoord.testing.server import ServerThread
from tests.clients.fleet import DEADLINE_S
from tests.processes import ServerProcess

TOPIC, PARTITION_COUNT = "orders", 6
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "group.consumer.min.session.timeout.ms": 3_000,
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.assignment.interval.ms": 0,
}
HALF = PARTITION_COUNT // 2

pytestmark = pytest.mark.usefixtures("client_libraries")


@contextmanager
def consumer(bootstrap: str, group_id: str, subscription: str = TOPIC, **settings: str) -> Iterator[Any]:
    from confluent_kafka import Consumer

    opened = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, "group.protocol": "consumer", **settings})
    try:
        opened.subscribe([subscription])
        yield opened
    finally:
        opened.close()


def poll_until(consumers: list[Any], is_done: Callable[[], bool]) -> None:
    """Poll consumers until a condition holds."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_done():
        assert time.monotonic() < deadline_s, [len(opened.assignment()) for opened in consumers]
        for opened in consumers:
            opened.poll(0.02)


def partitions(opened: Any) -> set[int]:
    """Return what a consumer has been assigned."""
    return {assigned.partition for assigned in opened.assignment()}


def serving(**settings: str) -> ServerThread:
    """Start a server with the topic."""
    return ServerThread(topics={TOPIC: PARTITION_COUNT}, settings={**SETTINGS, **settings})


def test_members_come_and_go() -> None:
    """One has everything, two have half each, and the one that stays has everything again; offsets outlast it all."""
    from confluent_kafka import TopicPartition

    with serving() as server, ExitStack() as stack:
        first = stack.enter_context(consumer(server.bootstrap, "come-and-go"))
        poll_until([first], lambda: len(partitions(first)) == PARTITION_COUNT)
        with consumer(server.bootstrap, "come-and-go") as second:
            both = [first, second]
            poll_until(both, lambda: [len(partitions(opened)) for opened in both] == [HALF, HALF])
            assert not partitions(first) & partitions(second)
            committed = [TopicPartition(TOPIC, partition, 5) for partition in partitions(second)]
            second.commit(offsets=committed, asynchronous=False)
        poll_until([first], lambda: len(partitions(first)) == PARTITION_COUNT)
        assert {offset.offset for offset in first.committed(committed, timeout=DEADLINE_S)} == {5}


def test_a_regular_expression() -> None:
    """A member that subscribes to an expression gets the partitions of the topics that match."""
    with serving() as server, consumer(server.bootstrap, "expression", "^ord.*") as opened:
        poll_until([opened], lambda: len(partitions(opened)) == PARTITION_COUNT)


def test_an_assignor_of_ones_own() -> None:
    """Members that ask for it by its name get what it gives."""
    assignors = "uniform,tests.core.own_assignors:Deal"
    with serving(group_consumer_assignors=assignors) as server, ExitStack() as stack:
        wanted = {"group.remote.assignor": "deal"}
        both = [stack.enter_context(consumer(server.bootstrap, "dealt", **wanted)) for _ in range(2)]
        poll_until(both, lambda: sorted(sorted(partitions(opened)) for opened in both) == [[0, 2, 4], [1, 3, 5]])


def test_a_server_that_is_killed(tmp_path: Path) -> None:
    """Members go on with what they have when the server is killed and comes back, a static one among them."""

    def start(port: int = 0) -> ServerProcess:
        return ServerProcess(tmp_path, port=port, topics={TOPIC: PARTITION_COUNT}, settings=SETTINGS)

    with start() as server, ExitStack() as stack:
        first = stack.enter_context(consumer(server.bootstrap, "killed"))
        static = stack.enter_context(consumer(server.bootstrap, "killed", **{"group.instance.id": "static"}))
        both = [first, static]
        poll_until(both, lambda: [len(partitions(opened)) for opened in both] == [HALF, HALF])
        before = [partitions(opened) for opened in both]
        server.kill()
        with start(server.port) as revived, consumer(revived.bootstrap, "killed") as third:
            three = [*both, third]
            poll_until(three, lambda: all(len(partitions(opened)) == PARTITION_COUNT // 3 for opened in three))
            assert all(partitions(opened) <= had for opened, had in zip(both, before, strict=True))
