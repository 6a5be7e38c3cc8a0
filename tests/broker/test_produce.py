"""Produce to topics that hold no records: refused everywhere, with an error that ends the producer's attempt."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord import ErrorCode
from groupcoord.broker.records.produce import NO_DATA
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.wire.broker_messages import Produce, ProducePartition, TopicNameOrIdEntry
from tests.broker.data_world import DataWorld

NO_ID, TOPIC_ID, OTHER_ID = UUID(int=0), UUID(int=2), UUID(int=99)


@pytest.fixture
def world() -> DataWorld:
    return DataWorld(records_enable=False)


def named(name: str, *partition_indexes: int) -> TopicNameOrIdEntry[ProducePartition]:
    return TopicNameOrIdEntry(name, NO_ID, tuple(ProducePartition(index, b"") for index in partition_indexes))


def by_id(topic_id: UUID, *partition_indexes: int) -> TopicNameOrIdEntry[ProducePartition]:
    return TopicNameOrIdEntry(None, topic_id, tuple(ProducePartition(index, b"") for index in partition_indexes))


@pytest.mark.parametrize(
    ("asked", "acks", "errors"),
    [
        ([named("two", 1)], -1, ["POLICY_VIOLATION"]),
        ([by_id(TOPIC_ID, 0)], -1, ["POLICY_VIOLATION"]),
        ([named("two", 2, -1)], -1, ["UNKNOWN_TOPIC_OR_PARTITION"] * 2),
        ([by_id(TOPIC_ID, 2)], -1, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        ([named("bad name", 0)], -1, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        ([by_id(OTHER_ID, 0)], -1, ["UNKNOWN_TOPIC_ID"]),
        ([named("two", 0)], 2, ["INVALID_REQUIRED_ACKS"]),
        ([named("nope", 0)], 2, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        ([named(OFFSETS_TOPIC, 0)], -1, ["INVALID_TOPIC_EXCEPTION"]),
        ([named(OFFSETS_TOPIC, 77)], -1, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        ([named("nope", 0), named("two", 0)], -1, ["UNKNOWN_TOPIC_OR_PARTITION", "POLICY_VIOLATION"]),
    ],
)
def test_errors(
    world: DataWorld, asked: list[TopicNameOrIdEntry[ProducePartition]], acks: int, errors: list[str]
) -> None:
    """All but the refusal of the records itself is as recorded from Kafka 4.4."""
    answered = world.ask(Produce(tuple(asked), acks)).topics
    assert [(topic.name, topic.topic_id) for topic in answered] == [(topic.name, topic.topic_id) for topic in asked]
    partitions = [partition for topic in answered for partition in topic.partitions]
    assert [partition.partition_index for partition in partitions] == [
        index for topic in asked for index, _ in topic.partitions
    ]
    assert [partition.error_code.name for partition in partitions] == errors
    for partition in partitions:
        assert (partition.error_message == NO_DATA) == (partition.error_code is ErrorCode.POLICY_VIOLATION)


def test_repetitions(world: DataWorld) -> None:
    """A partition or topic named twice is answered once, one without partitions not at all, as recorded."""
    request = Produce((named("two", 0, 0), named("nope"), named("two", 1)))
    (topic,) = world.ask(request).topics
    assert [partition.partition_index for partition in topic.partitions] == [0, 1]
