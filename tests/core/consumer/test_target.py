"""Target assignments: written for whom something changes, as Kafka's coordinator writes them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from groupcoord.core.groups.base.assignor import changed_targets, subscription_type
from groupcoord.core.groups.base.topics import Topic, subscribed_names
from groupcoord.core.groups.consumer.assignors import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    Partitions,
    RangeAssignor,
    SubscriptionType,
    UniformAssignor,
)
from tests.tables import as_one_test

from .recorded import Record, kafka_uuid, records

ASSIGNORS: dict[str, Assignor] = {"range": RangeAssignor(), "uniform": UniformAssignor()}
T, U = (Topic(name, UUID(int=number), 3) for number, name in ((1, "t"), (2, "u")))
TOPICS = {"t": T, "u": U}


@frozen
class Member:
    """What a member tells of itself."""

    subscribed_topic_names: Collection[str] = ("t",)
    subscribed_topic_regex: str | None = None
    instance_id: str | None = None
    rack_id: str | None = None


# ---------------------------------------------------------------- what Kafka's coordinator wrote


def partitions_of(recorded: dict[str, list[int]]) -> dict[UUID, tuple[int, ...]]:
    """Return recorded partitions."""
    return {kafka_uuid(topic_id): tuple(partitions) for topic_id, partitions in recorded.items()}


def written(record: Record) -> list[tuple[str, list[tuple[UUID, tuple[int, ...]]]]]:
    """Return what our coordinator would write in a recorded case."""
    members = {
        member_id: Member(member["topics"], member["regex"], member["instance_id"])
        for member_id, member in record["members"].items()
    }
    changed = changed_targets(
        ASSIGNORS[record["assignor"]],
        members,
        arrivals=[member_id for member_id in members if member_id != record["newcomer"]],
        newcomer_id=record["newcomer"],
        targets={
            member_id: partitions_of(member["target"])
            for member_id, member in record["members"].items()
            if member["target"] is not None
        },
        subscriptions=SubscriptionType(record["subscription_type"]),
        resolved=record["resolved"],
        topics={
            name: Topic(name, kafka_uuid(topic["id"]), topic["partitions"]) for name, topic in record["topics"].items()
        },
    )
    return [(member_id, list(partitions.items())) for member_id, partitions in changed.items()]


def test_targets_are_written_as_in_kafka() -> None:
    """In 553 computations of random groups the same members get the same targets, in the same order of records.

    So do the topics and partitions in a record, unless the range assignor is told of names that are no topics: Kafka's
    tables have room for these too.
    """
    for record in records("targets"):
        expected = [(member_id, list(partitions_of(found).items())) for member_id, found in record["changed"]]
        got = written(record)
        names = {name for member in record["members"].values() for name in member["topics"]}
        if record["assignor"] == "range" and not names <= record["topics"].keys():
            got, expected = ([(m, sorted(found)) for m, found in targets] for targets in (got, expected))
        assert got == expected, record["id"]

    assert len(records("targets")) == 553


# ---------------------------------------------------------------- rules


def targets_of(assignor: Assignor, members: dict[str, Member], **changes: Any) -> dict[str, Partitions]:
    """Work out targets of members that came in the order of their ids."""
    by_name: dict[str, int] = {}
    by_expression: dict[str, int] = {}
    for member in members.values():
        for name in member.subscribed_topic_names:
            by_name[name] = by_name.get(name, 0) + 1
        if member.subscribed_topic_regex:
            by_expression[member.subscribed_topic_regex] = by_expression.get(member.subscribed_topic_regex, 0) + 1
    newcomer_id = changes.get("newcomer_id")
    arguments: dict[str, Any] = {
        "arrivals": sorted(member_id for member_id in members if member_id != newcomer_id),
        "newcomer_id": None,
        "targets": {},
        "subscriptions": subscription_type(len(members), by_name, by_expression),
        "resolved": {},
        "topics": TOPICS,
    }
    return changed_targets(assignor, members, **(arguments | changes))


def test_an_assignor_sees_the_whole_group() -> None:
    """It is told ids, racks, instances, topics that exist, and what everybody had; who is left out has nothing."""
    seen: list[GroupSpec] = []

    class Seeing:
        name = "seeing"

        def assign(self, group: GroupSpec) -> GroupAssignment:
            seen.append(group)
            return {}

    members = {"a": Member(("t", "missing"), None, "i", "r"), "b": Member(("u",))}
    had: dict[str, Partitions] = {"a": {T.topic_id: (0,)}}
    assert targets_of(Seeing(), members, targets=had) == {"a": {}, "b": {}}

    (group,) = seen
    assert group.subscription_type is SubscriptionType.HETEROGENEOUS
    assert group.topics == {T.topic_id: T, U.topic_id: U}
    assert sorted(group.visiting_order) == ["a", "b"]
    spec = group.members["a"]
    assert (spec.topic_ids, spec.assigned, spec.instance_id, spec.rack_id) == ((T.topic_id,), had["a"], "i", "r")


@as_one_test
@pytest.mark.parametrize(
    ("count", "by_name", "by_expression", "is_equal"),
    [
        (2, {}, {}, True),
        (2, {"t": 2, "u": 2}, {}, True),
        (2, {"t": 2, "u": 1}, {}, False),
        (2, {}, {"t.*": 2}, True),
        (2, {}, {"t.*": 1}, False),
        (2, {}, {"t.*": 1, "u.*": 1}, False),
        (2, {"t": 2}, {"t.*": 2}, False),
        (1, {"t": 1}, {"t.*": 1}, False),
    ],
)
def test_when_subscriptions_are_equal(
    count: int, by_name: dict[str, int], by_expression: dict[str, int], is_equal: bool
) -> None:
    """All the same names, or all the same expression; both together never are."""
    kind = SubscriptionType.HOMOGENEOUS if is_equal else SubscriptionType.HETEROGENEOUS

    assert subscription_type(count, by_name, by_expression) is kind


names = st.lists(st.sampled_from(["t", "u", "AaBB", "BBAa", "AaAa", "topic-10", "é"]), unique=True)


@settings(max_examples=100)
@given(given_names=names, matched=names, data=st.data())
def test_the_order_of_names_is_no_history(given_names: list[str], matched: list[str], data: st.DataObject) -> None:
    """However they are told, the names of a subscription come once each, in the same order."""
    found = subscribed_names(given_names, "x", {"x": matched})

    assert sorted(found) == sorted({*given_names, *matched})
    shuffled = data.draw(st.permutations(given_names)), data.draw(st.permutations(matched))
    assert subscribed_names(shuffled[0], "x", {"x": shuffled[1]}) == found
    assert subscribed_names(given_names, "", {"": matched}) == subscribed_names(given_names, None, {})
    assert set(subscribed_names(given_names, "not resolved", {})) == set(given_names)
