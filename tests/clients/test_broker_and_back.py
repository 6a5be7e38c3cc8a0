"""A consumer group lives on while a real broker and ``groupcoord serve`` take turns on one directory and one port."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from tests.clients.beside import Consumer
from tests.clients.test_live_consumer_groups import (
    OFFSET,
    PARTITION_COUNT,
    TOPIC,
    assert_untroubled,
    is_stable,
    moves,
    share,
    starting,
    wait_for,
)
from tests.ports import free_port
from tests.processes import ServerProcess, committed_offsets
from tests.storage.real_broker import ask, format_directory, java, needs_kafka, running, wait_for_groups

GROUP, LOG_PARTITIONS = "live", 3
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
}

pytestmark = [pytest.mark.slow, *needs_kafka, pytest.mark.usefixtures("client_libraries")]


def describe(port: int) -> Any:
    """Return the group by ConsumerGroupDescribe, members sorted by id."""
    client = Client(SocketServer("127.0.0.1", port), "test")
    try:
        body = {"group_ids": [GROUP], "include_authorized_operations": False}
        (group,) = ask(client, "ConsumerGroupDescribe", 1, body)["groups"]
    finally:
        client.close()
    return group | {"members": sorted(group["members"], key=lambda member: str(member["member_id"]))}


def create_topic(client: Client) -> UUID:
    topic = {
        "name": TOPIC,
        "num_partitions": PARTITION_COUNT,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    answer = ask(client, "CreateTopics", 7, {"topics": [topic], "timeout": 10_000, "validate_only": False})
    return UUID(str(answer["topics"][0]["topic_id"]))


def live_on(port: int, members: list[Consumer], before: Any) -> None:
    """Check that the group is what it was, that its members are as untroubled, and that their commits are there."""
    wait_for(lambda: is_stable(port, GROUP), "the group is stable", members)
    assert describe(port) == before
    assert has_committed(port)
    assert_untroubled(*members)


def test_a_broker_and_a_server_in_turn(tmp_path: Path) -> None:
    """Each opens what the other has left, its members go on as if nothing was, and both describe the same group.

    The server has to be told the ids of the broker's topics, by which the records of consumer groups name them.
    """
    directory, properties, log = tmp_path / "data", tmp_path / "server.properties", tmp_path / "broker.log"
    port = free_port()
    format_directory(directory, properties, port, LOG_PARTITIONS, "".join(f"{k}={v}\n" for k, v in SETTINGS.items()))
    broker = java("kafka.Kafka", str(properties))
    with ExitStack() as stack:
        start = stack.enter_context(starting(f"127.0.0.1:{port}", GROUP))
        with running(broker, port, log) as client:
            wait_for_groups(client, [GROUP])
            ids = [create_topic(client), uuid4()]
            members = [start("librdkafka"), start("librdkafka", "consumer", "static")]
            share(*members)
            wait_for(lambda: has_committed(port), "all offsets are committed", members)
            live_on(port, members, describe(port))
            before, moved = describe(port), moves(members)
        TopicRegistry(directory, new_id=iter(ids).__next__).ensure(TOPIC, PARTITION_COUNT)
        server = ServerProcess(
            directory, port=port, settings={**SETTINGS, "offsets.topic.num.partitions": LOG_PARTITIONS}
        )
        stack.callback(server.kill)
        live_on(port, members, before)
        assert moves(members) == moved
        members.append(start("librdkafka"))
        share(*members)
        wait_for(lambda: is_stable(port, GROUP), "the group is stable", members)
        before, moved = describe(port), moves(members)
        server.kill()
        with running(broker, port, log):
            live_on(port, members, before)
            assert moves(members) == moved
            members.pop().stop()
            share(*members)
            wait_for(lambda: is_stable(port, GROUP), "the group is stable", members)
            assert_untroubled(*members)
    assert "ERROR" not in log.read_text()


def has_committed(port: int) -> bool:
    """Return whether every partition has a committed offset."""
    return committed_offsets(port, GROUP, TOPIC) == dict.fromkeys(range(PARTITION_COUNT), OFFSET)
