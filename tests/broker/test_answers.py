"""Requests that the host answers without the coordinator: topic administration and metadata."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from uuid import UUID

import pytest

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.cluster.metadata import Features, answer_api_versions, answer_metadata
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.work import do_whole
from groupcoord.config import Config, GroupType
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.messages import AUTHORIZED_OPERATIONS_OMITTED, Node
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitions,
    CreatePartitionsTopic,
    CreateTopics,
    DeleteTopics,
    Metadata,
    TopicReference,
)
from groupcoord.wire.cluster_messages import ApiVersions
from groupcoord.wire.registry import APIS
from tests.broker.data_world import topic_requests

NODE = Node(1, "broker.example", 9093)
ALONE = Leadership((NODE,))
CONFIG = Config(num_partitions=4)
NO_ID = UUID(int=0)
OTHER_ID = UUID(int=99)


@pytest.fixture
def topics() -> TopicRegistry:
    registry = TopicRegistry(new_id=iter(UUID(int=number) for number in range(1, 50)).__next__)
    with registry.edit() as edit:
        edit.create("one", 1)
        edit.create("two", 2)
        edit.create("d.t", 1)
        edit.create(OFFSETS_TOPIC, 50)
    return registry


# ---------------------------------------------------------------- CreateTopics


def create(registry: TopicRegistry, *wanted: CreatableTopic, validate_only: bool = False) -> list[tuple[str, str]]:
    request = CreateTopics(wanted, validate_only=validate_only)
    response = do_whole(topic_requests(registry, CONFIG).create(request))
    return [(topic.name, topic.error_code.name) for topic in response.topics]


def test_validate_only_creates_nothing(topics: TopicRegistry) -> None:
    """The answer is the same, but the topic does not exist afterwards."""
    assert create(topics, CreatableTopic("a", 3, 1), validate_only=True) == [("a", "NONE")]
    assert topics.get("a") is None


def layout(*broker_ids: tuple[int, ...], first: int = 0) -> tuple[CreatableReplicaAssignment, ...]:
    return tuple(CreatableReplicaAssignment(first + index, ids) for index, ids in enumerate(broker_ids))


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (CreatableTopic("one", 1, 1), "TOPIC_ALREADY_EXISTS"),
        (CreatableTopic(OFFSETS_TOPIC, 1, 1), "TOPIC_ALREADY_EXISTS"),
        (CreatableTopic("d_t", 1, 1), "INVALID_TOPIC_EXCEPTION"),
        (CreatableTopic("bad name", 0, 0), "INVALID_TOPIC_EXCEPTION"),
        (CreatableTopic("a", 0, 1), "INVALID_PARTITIONS"),
        (CreatableTopic("a", -2, 1), "INVALID_PARTITIONS"),
        (CreatableTopic("a", 0, 0), "INVALID_REPLICATION_FACTOR"),
        (CreatableTopic("a", 0, 7), "INVALID_PARTITIONS"),
        (CreatableTopic("a", 1, 2), "INVALID_REPLICATION_FACTOR"),
        (CreatableTopic("a", 1, -2), "INVALID_REPLICATION_FACTOR"),
        (CreatableTopic("a", 20_000, 1), "POLICY_VIOLATION"),
        (CreatableTopic("one", 20_000, 1), "POLICY_VIOLATION"),
        (CreatableTopic("a", 0, 5, configs=(CreatableTopicConfig("nope", "1"),)), "INVALID_CONFIG"),
        (CreatableTopic("a", 1, 1, configs=(CreatableTopicConfig("retention.ms", None),)), "INVALID_CONFIG"),
        (CreatableTopic("a", 1, 1, configs=(CreatableTopicConfig("retention.ms", "-2"),)), "INVALID_CONFIG"),
        (CreatableTopic("a", 1, 1, configs=(CreatableTopicConfig("retention.ms", "1"),)), "NONE"),
        (CreatableTopic("a", assignments=layout((1,), (1,))), "NONE"),
        (CreatableTopic("a", 2, -1, layout((1,), (1,))), "INVALID_REQUEST"),
        (CreatableTopic("a", -1, 1, layout((1,))), "INVALID_REQUEST"),
        (CreatableTopic("a", assignments=layout((1,), first=1)), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatableTopic("a", assignments=layout((2,))), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatableTopic("a", assignments=layout(())), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatableTopic("a", assignments=layout((1, 1))), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatableTopic("a", assignments=layout((1,)) + layout((1,))), "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_create_as_recorded(topics: TopicRegistry, topic: CreatableTopic, error: str) -> None:
    """Each refusal has the code that Kafka 4.4 answered, and refusing changes nothing."""
    before = list(topics)
    assert create(topics, topic) == [(topic.name, error)]
    assert (list(topics) == before) == (error != "NONE")


def test_more_replicas_than_nodes_are_refused_in_kafka_s_words(topics: TopicRegistry) -> None:
    """``kafka-topics`` prints them."""
    request = CreateTopics((CreatableTopic("a", 1, 3),), 1_000)
    (answer,) = do_whole(topic_requests(topics).create(request)).topics
    assert answer.error_message == (
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
        "only 1 broker(s) are registered or some brokers have all their log directories cordoned."
    )


def test_a_request_with_too_many_partitions_is_refused_whole(topics: TopicRegistry) -> None:
    """More than 10,000 partitions in one request: no topic of it is made."""
    wanted = [CreatableTopic("x", 6_000, 1), CreatableTopic("y", 6_000, 1)]
    assert create(topics, *wanted) == [("x", "POLICY_VIOLATION"), ("y", "POLICY_VIOLATION")]


def test_a_full_disk_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the topics can't be written, clients see KAFKA_STORAGE_ERROR and the log has the reason."""
    registry = TopicRegistry(tmp_path)
    registry.ensure(OFFSETS_TOPIC, 50)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with caplog.at_level(logging.ERROR, "groupcoord.host"):
        assert create(registry, CreatableTopic("a", 1, 1)) == [("a", "KAFKA_STORAGE_ERROR")]
    assert "No space left" in caplog.text
    assert registry.get("a") is None


def test_portions_of_a_request_keep_the_order(topics: TopicRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated names come last, in Kafka's order."""
    wanted = [CreatableTopic(name, 4_000, 1) for name in ("b", "z", "a", "b", "z", "c")]
    at_once = create(topics, *wanted, validate_only=True)
    monkeypatch.setattr("groupcoord.broker.topics.create_topics.TOPICS_AT_ONCE", 1)
    assert [name for name, _ in at_once] == ["a", "c", "b", "z"]
    assert create(topics, *wanted) == at_once


# ---------------------------------------------------------------- CreatePartitions


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (CreatePartitionsTopic("two", 5), "NONE"),
        (CreatePartitionsTopic("two", 2), "INVALID_PARTITIONS"),
        (CreatePartitionsTopic("two", 1), "INVALID_PARTITIONS"),
        (CreatePartitionsTopic("two", -1), "INVALID_PARTITIONS"),
        (CreatePartitionsTopic("nope", 5), "UNKNOWN_TOPIC_OR_PARTITION"),
        (CreatePartitionsTopic("nope", 20_000), "UNKNOWN_TOPIC_OR_PARTITION"),
        (CreatePartitionsTopic("two", 20_000), "POLICY_VIOLATION"),
        (CreatePartitionsTopic("two", 3, ((1,),)), "NONE"),
        (CreatePartitionsTopic("two", 4, ((1,),)), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatePartitionsTopic("two", 3, ()), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatePartitionsTopic("two", 3, ((2,),)), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatePartitionsTopic("two", 3, ((),)), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatePartitionsTopic("two", 3, ((1, 1),)), "INVALID_REPLICA_ASSIGNMENT"),
        (CreatePartitionsTopic(OFFSETS_TOPIC, 100), "INVALID_REQUEST"),
    ],
)
def test_add_partitions_as_recorded(topics: TopicRegistry, topic: CreatePartitionsTopic, error: str) -> None:
    """Each answer has the code that Kafka 4.4 gave; only the offsets topic is ours alone and keeps its partitions."""
    before = list(topics)
    (result,) = do_whole(topic_requests(topics).create_partitions(CreatePartitions((topic,)))).results
    assert (result.name, result.error_code.name) == (topic.name, error)
    if error == "NONE":
        assert topics.partition_count(topic.name) == topic.count
    else:
        assert list(topics) == before


def test_add_partitions_to_one_topic_twice(topics: TopicRegistry) -> None:
    """A name sent twice is refused with one entry."""
    request = CreatePartitions((CreatePartitionsTopic("two", 3), CreatePartitionsTopic("two", 4)))
    (result,) = do_whole(topic_requests(topics).create_partitions(request)).results
    assert result.error_code is ErrorCode.INVALID_REQUEST


# ---------------------------------------------------------------- DeleteTopics


@pytest.mark.parametrize(
    ("references", "answers"),
    [
        ([("nope", NO_ID)], [("nope", NO_ID, "UNKNOWN_TOPIC_OR_PARTITION")]),
        ([(None, OTHER_ID)], [(None, OTHER_ID, "UNKNOWN_TOPIC_ID")]),
        ([(None, NO_ID)], [(None, NO_ID, "INVALID_REQUEST")]),
        ([(None, NO_ID)] * 3, [(None, NO_ID, "INVALID_REQUEST")] * 3),
        ([("nope", OTHER_ID)] * 2, [("nope", OTHER_ID, "INVALID_REQUEST")] * 2),
        (
            [("nope", OTHER_ID), ("nope", NO_ID)],
            [("nope", OTHER_ID, "INVALID_REQUEST"), ("nope", NO_ID, "UNKNOWN_TOPIC_OR_PARTITION")],
        ),
        ([("one", UUID(int=1))], [("one", UUID(int=1), "INVALID_REQUEST")]),
        ([("one", NO_ID), ("one", NO_ID)], [("one", NO_ID, "INVALID_REQUEST")]),
        ([(None, UUID(int=1)), (None, UUID(int=1))], [(None, UUID(int=1), "INVALID_REQUEST")]),
        ([(None, UUID(int=1)), ("one", NO_ID)], [("one", UUID(int=1), "INVALID_REQUEST")]),
        ([(OFFSETS_TOPIC, NO_ID)], [(OFFSETS_TOPIC, UUID(int=4), "INVALID_REQUEST")]),
    ],
)
def test_delete_refuses(
    topics: TopicRegistry, references: list[tuple[str | None, UUID]], answers: list[tuple[str | None, UUID, str]]
) -> None:
    """Each refusal is as Kafka 4.4 answered; only the offsets topic is protected here."""
    before = list(topics)
    request = DeleteTopics(tuple(TopicReference(*reference) for reference in references))
    response = do_whole(topic_requests(topics).delete(request))
    assert [(topic.name, topic.topic_id, topic.error_code.name) for topic in response.responses] == answers
    assert list(topics) == before


# ---------------------------------------------------------------- Metadata, ApiVersions


def test_authorized_operations(topics: TopicRegistry) -> None:
    """They are listed if requested: all operations, since there is no authorizer."""
    plain = do_whole(answer_metadata(Metadata((TopicReference("one"),)), ALONE, topics))
    assert (
        plain.cluster_authorized_operations
        == plain.topics[0].topic_authorized_operations
        == AUTHORIZED_OPERATIONS_OMITTED
    )
    asked = do_whole(
        answer_metadata(Metadata((TopicReference("one"), TopicReference("nope")), True, True, True), ALONE, topics)
    )
    assert asked.cluster_authorized_operations == 8096
    assert [topic.topic_authorized_operations for topic in asked.topics] == [3576, 3576]


@pytest.mark.parametrize("protocol", [GroupType.CONSUMER, GroupType.SHARE, GroupType.STREAMS])
def test_apis_of_a_disabled_protocol_are_not_listed(protocol: GroupType) -> None:
    features = Features()
    features.left_out = frozenset({protocol})
    listed, left = (answer_api_versions(ApiVersions(), NODE, "me", each).api_keys for each in (None, features))
    word = "Share" if protocol is GroupType.SHARE else f"{protocol.name.title()}Group"
    assert {APIS[api.api_key].name for api in set(listed) - set(left)} == {
        APIS[api.api_key].name for api in listed if word in APIS[api.api_key].name
    }


def test_api_versions() -> None:
    """Produce has the versions of a 4.4 broker; unsupported versions and wrong clusters are refused."""
    listed = answer_api_versions(ApiVersions(), NODE, "me").api_keys
    assert listed[0] == (0, 0, 13)
    unknown = answer_api_versions(ApiVersions(unsupported_version=True), NODE, "me")
    assert unknown.error_code is ErrorCode.UNSUPPORTED_VERSION
    assert [api.api_key for api in unknown.api_keys] == [18]
    assert answer_api_versions(ApiVersions(cluster_id="me", node_id=1), NODE, "me").error_code is ErrorCode.NONE
    for cluster_id, node_id in (("me", 2), ("other", 1)):
        other = answer_api_versions(ApiVersions(cluster_id=cluster_id, node_id=node_id), NODE, "me")
        assert other.error_code is ErrorCode.REBOOTSTRAP_REQUIRED
