"""Requests about offsets, of any version, with what is usual in them and what is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Body = dict[str, Any]

STRANGE_TOPICS = ("missing", "", "a/b")
UNKNOWN_ID = "11111111-2222-3333-4444-555555555555"
ANY_OFFSET_MAX = 1 << 40


def _places(world: Any) -> dict[str, list[int]]:
    """Return some partitions of topics, most of which exist."""
    draw, places = world.draw, dict[str, list[int]]()
    for name in draw.sample(sorted(world.topics), draw.choice([1, 1, 2])):
        count = world.topics[name]
        places[name] = draw.sample(range(count), draw.randint(1, min(3, count)))
        if draw.random() < 0.04:
            places[name].append(draw.choice([count, 99, -1]))
    if draw.random() < 0.06:
        places[draw.choice(STRANGE_TOPICS)] = [0]
    return places


def _named(world: Any, name: str, *, by_id: bool) -> Body:
    if not by_id:
        return {"name": name}
    return {"topic_id": world.topic_id(name) if name in world.topics else UNKNOWN_ID}


def commit_body(
    world: Any, version: int, group_id: str, identity: Mapping[str, Any], producer_id: int | None = None
) -> Body:
    """Return an OffsetCommit, or a TxnOffsetCommit if there is a producer."""
    draw, in_transaction = world.draw, producer_id is not None
    has_leader_epoch = version >= (2 if in_transaction else 6)
    topics = [
        {
            **_named(world, name, by_id=not in_transaction and version >= 10),
            "partitions": [_partition(world, partition, has_leader_epoch) for partition in found],
        }
        for name, found in _places(world).items()
    ]
    body: Body = {"group_id": group_id, "topics": topics}
    instance_id = identity.get("group_instance_id")
    if in_transaction:
        body |= {"transactional_id": f"t{producer_id}", "producer_id": producer_id, "producer_epoch": 0}
        if version >= 3:
            body |= {"generation_id": identity["generation_id"], "member_id": identity["member_id"]}
            body["group_instance_id"] = instance_id
        return body
    body |= {"generation_id_or_member_epoch": identity["generation_id"], "member_id": identity["member_id"]}
    if version >= 7:
        body["group_instance_id"] = instance_id
    if 2 <= version <= 4:
        body["retention_time"] = draw.choice([-1, -1, 3_000, 20_000, 90_000, 0])
    return body


def _partition(world: Any, partition: int, has_leader_epoch: bool) -> Body:
    draw, limit = world.draw, int(world.config.get("offset.metadata.max.bytes", 4_096))
    metadata = draw.choice(["", "", "m", None, "é", "x" * min(limit, 30)])
    if draw.random() < 0.05:
        metadata = "y" * (limit + 1)
    offset = draw.randrange(ANY_OFFSET_MAX) if draw.random() < 0.95 else draw.choice([0, -1, -5])
    body = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    if has_leader_epoch:
        body["committed_leader_epoch"] = draw.choice([-1, -1, 0, 3])
    return body


def fetch_body(world: Any, version: int, groups: list[str], member_id: str | None, member_epoch: int) -> Body:
    """Return an OffsetFetch."""
    draw, asked = world.draw, list[Body]()
    for group_id in groups:
        topics: list[Body] | None = None
        if version < 2 or draw.random() < 0.6:
            places = _places(world)
            topics = [
                {**_named(world, name, by_id=version >= 10), "partition_indexes": found}
                for name, found in places.items()
            ]
        asked.append({"group_id": group_id, "topics": topics})
        if version >= 9:
            asked[-1] |= {"member_id": member_id, "member_epoch": member_epoch}
    is_stable = draw.random() < 0.4
    if version >= 8:
        return {"groups": asked, "require_stable": is_stable}
    return {**asked[0], **({"require_stable": is_stable} if version == 7 else {})}


def deletion_body(world: Any, group_id: str) -> Body:
    topics = [
        {"name": name, "partitions": [{"partition_index": partition} for partition in found]}
        for name, found in _places(world).items()
    ]
    return {"group_id": group_id, "topics": topics}
