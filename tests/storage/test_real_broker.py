"""A real Kafka broker serves groupcoord's log: offsets, groups, members, open transactions; compacted or not. Needs
Java and the jars of Kafka 4.4, in ``KAFKA_LIBS`` or ``~/.cache/groupcoord-kafka/libs``. ``docs/records.md`` describes
the same by hand.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from groupcoord import Config, GroupCoordinator, ManualClock
from groupcoord.conformance.client import Client
from groupcoord.messages import (
    CompleteTransaction,
    DeleteGroups,
    JoinGroup,
    JoinProtocol,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    SyncAssignment,
    SyncGroup,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
)
from groupcoord.storage.stores.segments import CompactionSettings, SegmentLogStore
from tests.storage.real_broker import ask, format_directory, java, needs_kafka, running, wait_for_groups

LOG_PARTITIONS = 3
GROUPS = [
    "simple",
    "static",
    "team",
    "solo",
    "transactional",
    "open",
    "gone",
    "empty-ü",
    *(f"many-{n}" for n in range(30)),
]

pytestmark = [pytest.mark.slow, *needs_kafka]


def answers(client: Client) -> dict[str, Any]:
    """Return a server's responses about the groups, sorted."""
    result: dict[str, Any] = {}
    for stable in (False, True):
        body = {"groups": [{"group_id": g, "topics": None} for g in GROUPS], "require_stable": stable}
        named = {"name": "orders", "partition_indexes": [0, 1, 2, 3]}
        body_named = {"groups": [{"group_id": g, "topics": [named]} for g in GROUPS], "require_stable": stable}
        result[f"fetch {stable}"] = in_order(ask(client, "OffsetFetch", 8, body))
        result[f"fetch named {stable}"] = in_order(ask(client, "OffsetFetch", 8, body_named))
    result["describe"] = in_order(
        ask(client, "DescribeGroups", 5, {"groups": GROUPS, "include_authorized_operations": False})
    )
    result["list"] = in_order(ask(client, "ListGroups", 5, {"states_filter": [], "types_filter": []}))
    return result


def in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: in_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((in_order(item) for item in value), key=repr)
    return value


def live(coordinator: GroupCoordinator, clock: ManualClock) -> None:
    """Make groups of every kind."""

    def commit(group_id: str, partition: int, offset: int, metadata: str = "") -> TopicToCommit:
        topics = (TopicToCommit("orders", (OffsetToCommit(partition, offset, 5, metadata),)),)
        coordinator.call(OffsetCommit(group_id, topics))
        return topics[0]

    def join(group_id: str, instance_ids: list[str | None]) -> None:
        for number, instance_id in enumerate(instance_ids):
            protocols = (JoinProtocol("range", b"subscription"), JoinProtocol("sticky", b"other"))
            request = JoinGroup(
                group_id,
                protocols=protocols,
                group_instance_id=instance_id,
                client_id=f"c{number}",
                client_host="/127.0.0.1",
                requires_known_member_id=False,
            )
            coordinator.submit(request, number)
        clock.advance(3_000)
        coordinator.tick()
        joined = [reply.response for reply in coordinator.take_replies()]
        shares = tuple(SyncAssignment(one.member_id, one.member_id.encode()) for one in joined)
        for one in joined:
            coordinator.submit(
                SyncGroup(group_id, one.generation_id, one.member_id, assignments=shares if one.members else ())
            )
        coordinator.take_replies()

    for round_number in range(40):
        for group_id in GROUPS[8:]:
            commit(group_id, round_number % 4, round_number)
        clock.advance(10)
    commit("simple", 0, 42, "läuft")
    join("static", ["i1", "i2"])
    join("team", [None, None, None])
    join("solo", [None])
    commit("gone", 0, 1)
    coordinator.call(DeleteGroups(("gone",)))
    commit("empty-ü", 0, 7)
    coordinator.call(OffsetDelete("empty-ü", (TopicToDelete("orders", (0,)),)))
    commit("empty-ü", 1, 8)
    for number, committed in ((0, True), (1, False), (2, True)):
        topics = (TopicToCommit("orders", (OffsetToCommit(number, 100 + number),)),)
        coordinator.call(TxnOffsetCommit("transactional", topics, 7, 3))
        partition = coordinator.partition_of("transactional")
        coordinator.call(CompleteTransaction(partition, 7, 3, committed))
    for group_id in GROUPS[8:]:
        commit(group_id, 1, 1_000)
    coordinator.call(TxnOffsetCommit("open", (TopicToCommit("orders", (OffsetToCommit(3, 5),)),), 8, 0))
    commit("open", 2, 9)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_real_broker_serves_what_groupcoord_wrote(tmp_path: Path, compacted: bool) -> None:
    """The broker, started on a directory that groupcoord wrote into, answers like ``groupcoord serve`` does on it."""
    port = 29_100 + 10 * compacted
    directory, log = tmp_path / "kafka", tmp_path / "broker.log"
    properties = tmp_path / "server.properties"
    format_directory(directory, properties, port, LOG_PARTITIONS)
    with running(java("kafka.Kafka", str(properties)), port, log) as client:
        wait_for_groups(client, GROUPS)
    assert (directory / "__consumer_offsets-0" / "partition.metadata").exists()

    clock = ManualClock(int(time.time() * 1000) - 60_000)
    settings = CompactionSettings(min_cleanable_ratio=0.0, delete_retention_ms=0)
    with SegmentLogStore(directory, segment_bytes=3_000, compaction=settings) as store:
        coordinator = GroupCoordinator(
            config=Config(offsets_topic_num_partitions=LOG_PARTITIONS), clock=clock, log_store=store
        )
        coordinator.load_all()
        live(coordinator, clock)
        before = sum(path.stat().st_size for path in directory.glob("__consumer_offsets-*/*.log"))
        while compacted and store.compact_some(clock.now_ms()):
            pass
        after = sum(path.stat().st_size for path in directory.glob("__consumer_offsets-*/*.log"))
        assert (after < before / 2) == compacted
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)

    serve = [sys.executable, "-c", "from groupcoord.cli import main; main()", "serve"]
    serve += [
        "--port",
        str(port + 2),
        "--data-dir",
        str(copy),
        "--set",
        f"offsets.topic.num.partitions={LOG_PARTITIONS}",
    ]
    with running(serve, port + 2, tmp_path / "serve.log") as client:
        ours = answers(client)
    with running(java("kafka.Kafka", str(properties)), port, log) as client:
        wait_for_groups(client, GROUPS)
        theirs = answers(client)
    assert theirs == ours
    assert "ERROR" not in log.read_text()
