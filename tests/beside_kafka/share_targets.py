"""Targets of share groups that hang on the order in which members came, where their ids share a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

from attrs import evolve

from groupcoord.core.groups.base.assignor import GroupAssignment, GroupSpec
from groupcoord.core.groups.share.simple_assignor import SimpleAssignor
from groupcoord.core.javacompat import hash_map_order
from tests.beside_kafka.clients import long_id

TARGET = 13
WHERE_TARGETS_SHOW = (
    *("ShareGroupHeartbeat.assignment", "record 13 ", "record 14 ", "which records"),
    "the place of an append",  # behind one with more targets
)

Target = dict[str, tuple[int, ...]]
"""Partitions by topic id."""


class WitnessedAssignor:
    """Assignor of share groups that records its input."""

    name = SimpleAssignor.name

    def __init__(self) -> None:
        self.asked: list[GroupSpec] = []

    def assign(self, group: GroupSpec) -> GroupAssignment:
        self.asked.append(group)
        return SimpleAssignor().assign(group)


def comes_of_another_order(group: GroupSpec, records: list[Any]) -> bool:
    """Return whether members in another order would have these targets."""
    written = {
        record["key"]["data"]["memberId"]: _target_of(record["value"]["data"])
        for record in records
        if record["key"]["type"] == TARGET and record["value"] is not None
    }
    if not written.keys() <= set(group.members):
        return False
    wanted = {member_id: written.get(member_id, _plain(member.assigned)) for member_id, member in group.members.items()}
    orders = {tuple(hash_map_order(arrivals)) for arrivals in permutations(group.visiting_order)}
    return any(_outcome(evolve(group, visiting_order=order)) == wanted for order in orders - {group.visiting_order})


def _outcome(group: GroupSpec) -> dict[str, Target]:
    assignment = SimpleAssignor().assign(group)
    return {member_id: _plain(assignment.get(member_id, {})) for member_id in group.members}


def _plain(assigned: Mapping[Any, Any]) -> Target:
    return {str(topic_id): tuple(sorted(partitions)) for topic_id, partitions in assigned.items()}


def _target_of(value: Any) -> Target:
    return {long_id(topic["topicId"]): tuple(sorted(topic["partitions"])) for topic in value["topicPartitions"]}
