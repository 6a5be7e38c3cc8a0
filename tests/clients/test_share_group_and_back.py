"""A share group on a real broker and ``groupcoord serve`` in turn, with one directory and one port."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.core.log.records import SHARE_STATE_TOPIC
from groupcoord.records.batches import encode_batch
from tests.ports import free_port
from tests.processes import ServerProcess
from tests.storage.real_broker import ANSWER_MS, ask, format_directory, java, needs_kafka, running, wait_for_groups

GROUP, TOPIC, RECORDS, LOG_PARTITIONS = "workers", "jobs", 10, 3
SETTINGS = {
    "offsets.topic.num.partitions": LOG_PARTITIONS,
    "share.coordinator.state.topic.num.partitions": LOG_PARTITIONS,
}
OF_ONE_BROKER = {
    "share.coordinator.state.topic.num.partitions": LOG_PARTITIONS,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}
ACCEPT, RELEASE = 1, 2
PATIENCE_S = 60.0

pytestmark = [pytest.mark.slow, *needs_kafka]


class Worker:
    """Share consumer of the only partition, with its own connection."""

    def __init__(self, port: int, topic_id: str) -> None:
        self.client = Client(SocketServer("127.0.0.1", port), "worker")
        self._epoch = 0
        self._topic_id = topic_id

    def fetch(self) -> dict[int, int]:
        """Take all that there is, once there is something; return how often each record was delivered."""
        until_s = time.monotonic() + PATIENCE_S
        while not (found := self._fetch()):
            assert time.monotonic() < until_s, "there is nothing"
        return found

    def _fetch(self) -> dict[int, int]:
        partitions = [{"partition_index": 0, "acknowledgement_batches": []}]
        body = {
            "group_id": GROUP,
            "member_id": "worker",
            "share_session_epoch": self._epoch,
            "max_wait": 5_000,
            "min_bytes": 1,
            "max_bytes": 2**20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [{"topic_id": self._topic_id, "partitions": partitions}],
            "forgotten_topics_data": [],
        }
        self._epoch += 1
        answer = ask(self.client, "ShareFetch", 2, body)
        assert answer["error_code"] == "NONE", answer
        return {
            offset: acquired["delivery_count"]
            for topic in answer["responses"]
            for partition in topic["partitions"]
            for acquired in partition["acquired_records"]
            for offset in range(acquired["first_offset"], acquired["last_offset"] + 1)
        }

    def acknowledge(self, **types: int) -> None:
        """Acknowledge records: ``o3=ACCEPT``."""
        self.begin_acknowledging(**types)
        answer = self.client.receive(ANSWER_MS)
        assert answer["responses"][0]["partitions"][0]["error_code"] == "NONE", answer

    def begin_acknowledging(self, **types: int) -> None:
        """Send an acknowledgement without waiting for the response."""
        batches = [
            {"first_offset": int(name[1:]), "last_offset": int(name[1:]), "acknowledge_types": [kind]}
            for name, kind in types.items()
        ]
        partitions = [{"partition_index": 0, "acknowledgement_batches": batches}]
        body = {
            "group_id": GROUP,
            "member_id": "worker",
            "share_session_epoch": self._epoch,
            "is_renew_ack": False,
            "topics": [{"topic_id": self._topic_id, "partitions": partitions}],
        }
        self._epoch += 1
        self.client.send("ShareAcknowledge", 2, body)

    def lag(self) -> int:
        """Return how many records are left."""
        asked = {"group_id": GROUP, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}
        (group,) = ask(self.client, "DescribeShareGroupOffsets", 1, {"groups": [asked]})["groups"]
        lag: int = group["topics"][0]["partitions"][0]["lag"]
        return lag


def prepare(client: Client) -> str:
    """Create the topic with its records, and let the group stand at their beginning; return the topic's id."""
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    created = ask(client, "CreateTopics", 7, {"topics": [topic], "timeout": 10_000, "validate_only": False})
    records = {"hex": encode_batch(0, [(None, b"job", 1_700_000_000_000)] * RECORDS).hex()}
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}]
    ask(client, "Produce", 9, {"transactional_id": None, "acks": -1, "timeout": 10_000, "topic_data": data})
    altered: Any = {"error_code": ""}
    wanted = [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}]
    while altered["error_code"] != "NONE" or altered["responses"][0]["partitions"][0]["error_code"] != "NONE":
        altered = ask(client, "AlterShareGroupOffsets", 0, {"group_id": GROUP, "topics": wanted})
    return str(created["topics"][0]["topic_id"])


def broker_id_of(directory: Path, topic: str) -> UUID:
    """Return the id under which a broker has a topic."""
    lines = (directory / f"{topic}-0" / "partition.metadata").read_text().splitlines()
    text = next(line.removeprefix("topic_id: ") for line in lines if line.startswith("topic_id: "))
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def test_a_broker_and_a_server_in_turn(tmp_path: Path) -> None:
    """What was accepted at one comes from neither again, and the rest goes on with its delivery counts.

    The server is killed before it has answered the last acknowledgement, which may count or not.
    """
    directory, properties, log = tmp_path / "data", tmp_path / "server.properties", tmp_path / "broker.log"
    port = free_port()
    format_directory(
        directory, properties, port, LOG_PARTITIONS, "".join(f"{k}={v}\n" for k, v in OF_ONE_BROKER.items())
    )
    broker = java("kafka.Kafka", str(properties))
    with running(broker, port, log) as client:
        wait_for_groups(client, [GROUP])
        topic_id = prepare(client)
        worker = Worker(port, topic_id)
        assert worker.fetch() == dict.fromkeys(range(RECORDS), 1)
        worker.acknowledge(o0=ACCEPT, o1=RELEASE, o2=ACCEPT, o3=ACCEPT)
        assert worker.lag() == RECORDS - 3
        state_id = broker_id_of(directory, SHARE_STATE_TOPIC)
        worker.client.close()
    with TopicRegistry(directory).edit() as edit:
        edit.create(TOPIC, 1, UUID(topic_id))
        edit.create(SHARE_STATE_TOPIC, LOG_PARTITIONS, state_id)
    with ServerProcess(directory, port=port, settings=SETTINGS):
        worker = Worker(port, topic_id)
        assert worker.lag() == RECORDS - 3
        found = worker.fetch()
        assert sorted(found) == [1, *range(4, RECORDS)]
        assert found[1] == 2
        worker.acknowledge(o1=RELEASE, o4=ACCEPT, o5=ACCEPT)
        assert worker.lag() == RECORDS - 5
        worker.begin_acknowledging(o6=ACCEPT)
    worker.client.close()
    with running(broker, port, log):
        worker = Worker(port, topic_id)
        left = worker.lag()
        again = worker.fetch()
        assert sorted(again) in ([1, *range(6, RECORDS)], [1, *range(7, RECORDS)])
        assert left == len(again)
        assert again[1] == 3
        worker.acknowledge(**{f"o{offset}": ACCEPT for offset in again})
        assert worker.lag() == 0
        worker.client.close()
    assert "ERROR" not in log.read_text()
