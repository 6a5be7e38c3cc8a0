"""Assignors and target assignments compared with recordings of Kafka 4.4.0, order included."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from groupcoord.core.groups.base.assignor import Assignor, SubscriptionType, changed_targets
from groupcoord.core.groups.consumer.assignors import RangeAssignor, UniformAssignor
from groupcoord.core.groups.share.simple_assignor import SimpleAssignor
from groupcoord.core.topics import Topic

from .recorded import Record, Shape, expected_shape, group_of, kafka_uuid, records, shape_of, without_order

ASSIGNORS: dict[str, Assignor] = {
    "range": RangeAssignor(),
    "uniform": UniformAssignor(),
    "simple": SimpleAssignor(),  # of share groups
}
GROUPS = {"range": 210, "uniform": 350, "simple": 240}


def answer(record: Record) -> Shape:
    """Return our assignor's result."""
    return shape_of(record, ASSIGNORS[record["assignor"]].assign(group_of(record)))


@pytest.mark.parametrize("name", GROUPS)
def test_everybody_gets_what_kafka_gave(name: str) -> None:
    """Each recorded group is tested, and each member gets the recorded partitions."""
    different = [
        record["id"]
        for record in records(name)
        if without_order(answer(record)) != without_order(expected_shape(record))
    ]

    assert len(records(name)) == GROUPS[name]
    assert not different


@pytest.mark.parametrize("name", ["range", "uniform"])
def test_what_is_written_anew_has_the_recorded_order(name: str) -> None:
    """Topics and partitions of changed targets are in the recorded order. Kafka sizes the maps of the range assignor by
    all subscribed names, also of missing topics; for such groups only the assigned partitions are compared.
    """
    compared = 0
    for record in records(name):
        before = {member["member_id"]: member for member in record["members"]}
        got = answer(record)
        for member_id, expected in expected_shape(record).items():
            member = before[member_id]
            is_unchanged = without_order({member_id: list(member["assigned"].items())}) == without_order(
                {member_id: expected}
            )
            if not is_unchanged and not (name == "range" and "missing" in member["topics"]):
                assert got[member_id] == expected, (record["id"], member_id)
                compared += 1

    assert compared > 300


def test_quiet_rounds_change_nothing() -> None:
    """In a round without events the uniform assignor gives everybody the very mapping that it had."""
    quiet = [record for record in records("uniform") if record.get("events") == []]
    for record in quiet:
        group = group_of(record)
        if group.topics:
            assignment = UniformAssignor().assign(group)
            for member_id, member in group.members.items():
                assert assignment[member_id] is member.assigned, record["id"]

    assert len(quiet) >= 5


def test_targets_are_written_as_in_kafka() -> None:
    """The same members get the same targets, in Kafka's order of records, topics and partitions.

    The order of topics is not compared where the range assignor meets names without a topic, for which Kafka's maps
    have room.
    """
    for record in records("targets"):
        members: dict[str, Any] = {
            member_id: SimpleNamespace(
                subscribed_topic_names=member["topics"],
                subscribed_topic_regex=member["regex"],
                instance_id=member["instance_id"],
                rack_id=None,
            )
            for member_id, member in record["members"].items()
        }
        topics = record["topics"]
        changed = changed_targets(
            ASSIGNORS[record["assignor"]],
            members,
            arrivals=[member_id for member_id in members if member_id != record["newcomer"]],
            newcomer_id=record["newcomer"],
            targets={
                member_id: {kafka_uuid(topic_id): tuple(found) for topic_id, found in member["target"].items()}
                for member_id, member in record["members"].items()
                if member["target"] is not None
            },
            subscriptions=SubscriptionType(record["subscription_type"]),
            resolved=record["resolved"],
            topics={name: Topic(name, kafka_uuid(topic["id"]), topic["partitions"]) for name, topic in topics.items()},
        )
        expected = [
            (member_id, [(kafka_uuid(topic_id), tuple(found)) for topic_id, found in target.items()])
            for member_id, target in record["changed"]
        ]
        got = [(member_id, list(target.items())) for member_id, target in changed.items()]
        names = {name for member in record["members"].values() for name in member["topics"]}
        if record["assignor"] == "range" and not names <= topics.keys():
            got, expected = ([(m, sorted(found)) for m, found in targets] for targets in (got, expected))
        assert got == expected, record["id"]

    assert len(records("targets")) == 553
