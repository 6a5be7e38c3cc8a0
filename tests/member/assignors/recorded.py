"""Groups, and what the Java client's assignors answered for them; see ``tests/member/data/README.md``."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from groupcoord.core.consumer_protocol import Assignment, Subscription, TopicPartition, partitions_by_topic
from groupcoord.core.javacompat import hash_bucket, string_hash
from groupcoord.member.assignors import Cluster, ClusterTopic

DATA = Path(__file__).parents[1] / "data"
Record = dict[str, Any]
Shape = dict[str, list[tuple[str, list[int]]]]


@cache
def records(name: str) -> tuple[Record, ...]:
    """Return the recorded groups of an assignor, or those that are ``disputed``."""
    with lzma.open(DATA / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def cluster_of(record: Record) -> Cluster:
    topics = {}
    for name, topic in record["topics"].items():
        racks = topic["replica_racks"]
        topics[name] = ClusterTopic(topic["partitions"], None if racks is None else tuple(tuple(one) for one in racks))
    return Cluster(topics)


def subscriptions_of(record: Record) -> dict[str, Subscription]:
    return {member["member_id"]: _subscription(record["assignor"], member) for member in record["members"]}


def _subscription(assignor: str, member: Record) -> Subscription:
    user_data_hex = member.get("user_data_hex")
    owned = member["owned_partitions"] if assignor == "cooperative-sticky" else {}
    return Subscription(
        topics=tuple(member["topics"]),
        user_data=None if user_data_hex is None else bytes.fromhex(user_data_hex),
        owned_partitions=tuple(TopicPartition(topic, number) for topic, numbers in owned.items() for number in numbers),
        generation_id=member["generation_id"],
        rack_id=member["rack"],
        group_instance_id=member["instance_id"],
    )


def expected_shape(record: Record) -> Shape | None:
    """Return the recorded answer, order included; None if the assignor threw."""
    if record["assignment"] is None:
        return None
    return {member_id: list(topics.items()) for member_id, topics in record["assignment"].items()}


def shape_of(assignments: Mapping[str, Assignment]) -> Shape:
    return {
        member_id: list(partitions_by_topic(assignment.partitions).items())
        for member_id, assignment in assignments.items()
    }


def hangs_on_hash_order(record: Record) -> bool:
    """Return whether the recorded result may differ with other hash codes."""
    return "set" in record.get("sensitive", {}).values()


def has_overfull_bucket(record: Record) -> bool:
    """Return whether more than eight member ids share a bucket: Java then iterates over it in the order of a tree."""
    member_ids = [member["member_id"] for member in record["members"]]
    buckets = 16
    while len(member_ids) > buckets * 3 // 4:
        buckets *= 2
    places = [hash_bucket(string_hash(member_id), buckets) for member_id in member_ids]
    return any(places.count(place) > 8 for place in set(places))
