"""Cluster administration beyond the recorded conversations, and its permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupcoord import ErrorCode
from groupcoord.broker.cluster.administration import answer_describe_log_dirs
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.work import do_whole
from groupcoord.clock import ManualClock
from groupcoord.config import Config
from groupcoord.core.router.authorization import CLUSTER
from groupcoord.wire.cluster_messages import DescribeLogDirs
from tests.broker.data_world import batch
from tests.broker.rules import TOPIC, Rules
from tests.broker.wire_world import Body, WireWorld

OFFSETS = "__consumer_offsets"


def names(topics: Any, key: str = "name") -> list[str]:
    return sorted(topic[key] for topic in topics)


def produce(world: WireWorld, records: bytes) -> None:
    partition = {"index": 0, "records": records}
    topic = {"name": "t", "partition_data": (partition,)}
    world.ask(0, 8, {"transactional_id": None, "acks": -1, "timeout": 0, "topic_data": (topic,)})


# ---------------------------------------------------------------- all there is


def test_messages_are_those_of_kafka(world: WireWorld) -> None:
    """As Apache Kafka 4.4.0 has them: of elections that aren't needed, and of producers of what there isn't."""
    elections = {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout": 0}
    ((election,),) = (topic["partition_result"] for topic in world.ask(43, 2, elections)["replica_election_results"])
    assert election["error_message"] == "Leader election not needed for topic partition."

    asked = [{"name": name, "partition_indexes": [99]} for name in ("nothing", "t", "a!")]
    producers = world.ask(61, 0, {"topics": asked})["topics"]
    assert [(part["error_code"], part["error_message"]) for topic in producers for part in topic["partitions"]] == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a!' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
    ]


def test_all_topics_are_described_from_the_cursor_on(world: WireWorld) -> None:
    cursor = {"topic_name": "s", "partition_index": 1}
    answer = world.ask(75, 0, {"topics": (), "response_partition_limit": 2, "cursor": cursor})

    assert [(topic["name"], len(topic["partitions"])) for topic in answer["topics"]] == [("t", 2)]
    assert answer["next_cursor"] == {"topic_name": "t", "partition_index": 2}


def test_log_dirs_tell_how_large_logs_are(world: WireWorld) -> None:
    """Sizes are those of the batches, of the log of offsets too; and memory has no volume."""
    records = batch(b"value", at_ms=world.clock.now_ms())
    produce(world, records)
    (folder,) = world.ask(35, 4, {"topics": None})["results"]
    sizes = {
        (topic["name"], partition["partition_index"]): partition["partition_size"]
        for topic in folder["topics"]
        for partition in topic["partitions"]
    }

    assert (folder["log_dir"], folder["total_bytes"], folder["usable_bytes"]) == ("memory", -1, -1)
    assert {name for name, _ in sizes} == {"t", "u", "__consumer_offsets"}
    assert sizes.pop(("t", 0)) == len(records)
    assert set(sizes.values()) == {0}


def test_log_dirs_tell_the_volume_of_a_data_directory(tmp_path: Path) -> None:
    """A data directory is one log dir, with the size of its volume."""
    data = TopicData(Config(records_enable=False), ManualClock(0), TopicRegistry(tmp_path))
    (folder,) = do_whole(answer_describe_log_dirs(DescribeLogDirs(None), data)).results

    assert folder.log_dir == str(tmp_path)
    assert folder.total_bytes > folder.usable_bytes > 0


# ---------------------------------------------------------------- who may ask

WITHOUT_PERMISSION: dict[str, tuple[int, int, str, Body, Body]] = {
    "DescribeLogDirs": (35, 3, "DESCRIBE", {"topics": None}, {"results": []}),
    "ElectLeaders": (
        *(43, 2, "ALTER"),
        {"election_type": 9, "topic_partitions": ({"topic": "t", "partitions": (0,)},), "timeout": 0},
        {
            "replica_election_results": [
                {"topic": "t", "partition_result": [{"partition_id": 0, "error_code": 31, "error_message": "…"}]}
            ]
        },
    ),
    "AlterPartitionReassignments": (
        *(45, 0, "ALTER"),
        {
            "timeout": 0,
            "topics": ({"name": "t", "partitions": ({"partition_index": 0, "replicas": (1,)},)},),
        },
        {
            "error_message": "…",
            "responses": [
                {"name": "t", "partitions": [{"partition_index": 0, "error_code": 31, "error_message": "…"}]}
            ],
        },
    ),
    "ListPartitionReassignments": (
        *(46, 0, "DESCRIBE"),
        {"timeout": 0, "topics": None},
        {"error_message": "…", "topics": []},
    ),
    "DescribeClientQuotas": (
        *(48, 1, "DESCRIBE_CONFIGS"),
        {"components": ({"entity_type": "nope", "match_type": 9, "match": None},), "strict": False},
        {"error_message": "…", "entries": None},
    ),
    "DescribeQuorum": (
        *(55, 2, "DESCRIBE"),
        {"topics": ({"topic_name": "nope", "partitions": ()},)},
        {"error_message": "…", "topics": [], "nodes": []},
    ),
    "ListConfigResources": (74, 1, "DESCRIBE_CONFIGS", {"resource_types": (99,)}, {"config_resources": []}),
}


@pytest.mark.parametrize("name", WITHOUT_PERMISSION)
def test_whoever_may_not_ask_is_told_so_before_anything_else(world: WireWorld, rules: Rules, name: str) -> None:
    """CLUSTER_AUTHORIZATION_FAILED precedes all other errors; sources: ``KafkaApis``, and the error responses of the
    requests.
    """
    api_key, version, operation, body, rest = WITHOUT_PERMISSION[name]
    rules.deny(operation, CLUSTER)
    answer = _without_texts(world.ask(api_key, version, body))

    assert answer.pop("error_code") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer == rest


def _without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "…" if key == "error_message" and item else _without_texts(item)
            for key, item in value.items()
            if key != "throttle_time"
        }
    return [_without_texts(item) for item in value] if isinstance(value, list | tuple) else value


def test_operations_on_the_cluster_are_told_to_those_who_may_describe_it(world: WireWorld, rules: Rules) -> None:
    """The others learn of none; the brokers everybody learns."""
    body = {"include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False}
    rules.deny("ALTER", CLUSTER)
    allowed = world.ask(60, 2, body)
    rules.deny("DESCRIBE", CLUSTER)
    denied = world.ask(60, 2, body)

    assert allowed["cluster_authorized_operations"] == 8096 - (1 << 7)
    assert denied["cluster_authorized_operations"] == 0
    assert allowed["brokers"] == denied["brokers"]


def test_topics_that_may_not_be_described_come_last_or_not_at_all(world: WireWorld, rules: Rules) -> None:
    """Denied topics do not reveal whether they exist; in a list of all topics they are omitted."""
    rules.deny("DESCRIBE", TOPIC, "t", "nope")
    body = {"response_partition_limit": 9, "cursor": None}
    named = world.ask(75, 0, body | {"topics": tuple({"name": name} for name in ("t", "nope", "u"))})
    everything = world.ask(75, 0, body | {"topics": ()})

    assert [(topic["name"], ErrorCode(topic["error_code"]).name) for topic in named["topics"]] == [
        ("u", "NONE"),
        ("nope", "TOPIC_AUTHORIZATION_FAILED"),
        ("t", "TOPIC_AUTHORIZATION_FAILED"),
    ]
    assert names(everything["topics"]) == [OFFSETS, "u"]
