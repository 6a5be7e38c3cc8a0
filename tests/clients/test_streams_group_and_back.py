"""A streams group lives on while a real broker and ``groupcoord serve`` take turns on one directory and one port."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from tests.ports import free_port
from tests.processes import ServerProcess, wait_until
from tests.storage.real_broker import ask, format_directory, java, needs_kafka, running, wait_for_groups

GROUP, LOG_PARTITIONS, PARTITION_COUNT, SETTLED_S = "application", 3, 6, 60.0
TOPICS = ("lines", "counts")
SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 0,
    "group.streams.num.standby.replicas": 1,
}
KINDS = ("active_tasks", "standby_tasks", "warmup_tasks")
NOTHING_NEW: dict[str, Any] = {
    **dict.fromkeys(("instance_id", "rack_id", "topology", "process_id", "user_endpoint", "client_tags")),
    **dict.fromkeys((*KINDS, "task_offsets", "task_end_offsets")),
    "rebalance_timeout": -1,
    "endpoint_information_epoch": 0,
    "shutdown_application": False,
}
TOPOLOGY = {
    "epoch": 0,
    "subtopologies": [
        {
            "subtopology_id": "0",
            "source_topics": ["lines"],
            "source_topic_regex": [],
            "state_changelog_topics": [
                {"name": "counts", "partitions": 0, "replication_factor": 0, "topic_configs": []}
            ],
            "repartition_sink_topics": [],
            "repartition_source_topics": [],
            "copartition_groups": [],
        }
    ],
}

pytestmark = [pytest.mark.slow, *needs_kafka, pytest.mark.usefixtures("client_libraries")]


class Thread:
    """Thread of an application, which runs its assigned tasks. Attributes: epoch: its member epoch. runs: its tasks by
    kind. told: the number of assignments received.
    """

    def __init__(self, member_id: str, instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = self.told = 0
        self.runs: dict[str, list[Any]] = {kind: [] for kind in KINDS}

    def beat(self, client: Client, **more: Any) -> None:
        """Send a heartbeat with the running tasks, and apply the response."""
        body = NOTHING_NEW | {"group_id": GROUP, "member_id": self.member_id, "instance_id": self.instance_id}
        answer = ask(client, "StreamsGroupHeartbeat", 1, {**body, "member_epoch": self.epoch, **self.runs, **more})
        assert answer["error_code"] == "NONE", answer
        self.epoch = answer["member_epoch"]
        if answer["active_tasks"] is not None:
            self.told += 1
            self.runs = {kind: answer[kind] for kind in KINDS}

    def join(self, client: Client) -> None:
        process_id = f"process-{self.member_id}"
        self.beat(client, topology=TOPOLOGY, rebalance_timeout=60_000, process_id=process_id, client_tags=[])


def described(client: Client) -> Any:
    """Return what StreamsGroupDescribe says of the group, members in the order of their ids.

    Its topology is left out: partitions of internal topics are told from when something is written after a start.
    """
    body = {"group_ids": [GROUP], "include_authorized_operations": False, "include_topology_description": False}
    (group,) = ask(client, "StreamsGroupDescribe", 1, body)["groups"]
    return group | {"members": sorted(group["members"], key=lambda member: str(member["member_id"])), "topology": None}


def settle(client: Client, threads: list[Thread]) -> Any:
    """Send heartbeats of all members until the group is stable; return its description."""

    def is_stable() -> bool:
        for thread in threads:
            thread.beat(client)
        return bool(described(client)["group_state"] == "Stable")

    wait_until(is_stable, SETTLED_S, "the group is stable")
    return described(client)


def tasks(threads: list[Thread]) -> Mapping[str, list[int]]:
    return {
        kind: sorted(partition for thread in threads for ids in thread.runs[kind] for partition in ids["partitions"])
        for kind in KINDS
    }


def create_topics(client: Client) -> list[UUID]:
    wanted = [
        {"name": name, "num_partitions": PARTITION_COUNT, "replication_factor": 1, "assignments": [], "configs": []}
        for name in TOPICS
    ]
    answer = ask(client, "CreateTopics", 7, {"topics": wanted, "timeout": 10_000, "validate_only": False})
    ids = {topic["name"]: UUID(str(topic["topic_id"])) for topic in answer["topics"]}
    return [ids[name] for name in TOPICS]


def test_a_broker_and_a_server_in_turn(tmp_path: Path) -> None:
    """Each opens what the other has left and describes the same; members go on with their tasks, and nothing moves.

    Then somebody joins or leaves, which the one that serves then takes further, and every task is run once.
    """
    directory, properties, log = tmp_path / "data", tmp_path / "server.properties", tmp_path / "broker.log"
    port = free_port()
    format_directory(directory, properties, port, LOG_PARTITIONS, "".join(f"{k}={v}\n" for k, v in SETTINGS.items()))
    broker = java("kafka.Kafka", str(properties))
    every = list(range(PARTITION_COUNT))
    threads = [Thread("a"), Thread("b", "static")]
    with running(broker, port, log) as client:
        wait_for_groups(client, [GROUP])
        lines, counts = create_topics(client)
        for thread in threads:
            thread.join(client)
        before = settle(client, threads)
    assert tasks(threads) == {"active_tasks": every, "standby_tasks": every, "warmup_tasks": []}

    registry = TopicRegistry(directory, new_id=iter([lines, uuid4(), counts]).__next__)
    for name in TOPICS:
        registry.ensure(name, PARTITION_COUNT)
    settings = {**SETTINGS, "offsets.topic.num.partitions": LOG_PARTITIONS}
    with ServerProcess(directory, port=port, settings=settings):
        client = Client(SocketServer("127.0.0.1", port), "test")
        told = [thread.told for thread in threads]
        assert settle(client, threads) == before
        assert [thread.told for thread in threads] == told
        threads.append(Thread("c"))
        threads[-1].join(client)
        before = settle(client, threads)
        client.close()
    assert tasks(threads) == {"active_tasks": every, "standby_tasks": every, "warmup_tasks": []}

    with running(broker, port, log) as client:
        wait_for_groups(client, [GROUP])
        told = [thread.told for thread in threads]
        assert settle(client, threads) == before
        assert [thread.told for thread in threads] == told
        threads.pop(0).beat(client, member_epoch=-1, **dict.fromkeys(KINDS))
        settle(client, threads)
    assert tasks(threads) == {"active_tasks": every, "standby_tasks": every, "warmup_tasks": []}
    assert "ERROR" not in log.read_text()
