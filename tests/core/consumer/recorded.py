"""Groups and what Kafka's assignors answered for them; see ``tests/core/consumer/data/README.md``."""

from __future__ import annotations

import base64
import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from groupcoord.core.groups.base.assignor import GroupAssignment, GroupSpec, MemberSpec, SubscriptionType
from groupcoord.core.javacompat import hash_map_order
from groupcoord.core.topics import Topic

DATA = Path(__file__).with_name("data")
Record = dict[str, Any]
Shape = dict[str, list[tuple[str, list[int]]]]


@cache
def records(name: str) -> tuple[Record, ...]:
    """Return the recorded lines of a file."""
    with lzma.open(DATA / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def kafka_uuid(text: str) -> UUID:
    """Return the id that Kafka writes as this text."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def kafka_uuid_text(topic_id: UUID) -> str:
    """Return the text that Kafka writes for an id."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def group_of(record: Record) -> GroupSpec:
    """Return a recorded group as an assignor gets it."""
    ids = {name: kafka_uuid(topic["id"]) for name, topic in record["topics"].items()}
    existing = {name: topic for name, topic in record["topics"].items() if not topic.get("gone")}
    members = {}
    for member in record["members"]:
        members[member["member_id"]] = MemberSpec(
            topic_ids=tuple(ids[name] for name in hash_map_order(member["topics"]) if name in existing),
            assigned={ids[name]: tuple(partitions) for name, partitions in member["assigned"].items()},
            instance_id=member["instance_id"],
            rack_id=member["rack"],
        )
    topics = {
        ids[name]: Topic(name, ids[name], topic["partitions"], tuple(tuple(racks) for racks in topic.get("racks", ())))
        for name, topic in existing.items()
    }
    kind = SubscriptionType(record["subscription_type"])
    assignable = record.get("assignable")
    if assignable is not None:
        assignable = {ids[name]: frozenset(partitions) for name, partitions in assignable.items()}
    return GroupSpec(members, kind, topics, tuple(hash_map_order(members)), assignable)


def expected_shape(record: Record) -> Shape:
    """Return the recorded answer, order of topics and partitions included."""
    return {member_id: list(topics.items()) for member_id, topics in record["assignment"].items() if topics}


def shape_of(record: Record, assignment: GroupAssignment) -> Shape:
    """Return an answer in the same form."""
    names = {kafka_uuid(topic["id"]): name for name, topic in record["topics"].items()}
    return {
        member_id: [(names[topic_id], list(partitions)) for topic_id, partitions in assigned.items()]
        for member_id, assigned in assignment.items()
        if assigned
    }


def without_order(shape: Shape) -> dict[str, dict[str, list[int]]]:
    return {member_id: {name: sorted(numbers) for name, numbers in topics} for member_id, topics in shape.items()}
