"""Logs that a real Kafka 4.4.0 broker wrote under real clients: they load to what the broker and its clients knew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from groupcoord import Config, GroupCoordinator, LogRecord, ManualClock, Ticket
from groupcoord.core.log.records import OpaqueRecord
from groupcoord.messages import DescribeGroups, GroupToFetch, ListGroups, OffsetFetch
from groupcoord.storage.stores.segments import CompactionSettings, SegmentLogStore

LOGS = Path(__file__).with_name("broker_logs")
TRUTH: dict[str, Any] = json.loads((LOGS / "truth.json").read_text("utf-8"))
LOG_PARTITIONS = 8
UNKNOWN_TO_CLIENTS = {"connect-cluster"}
"""Groups whose chosen protocol the broker's administration client does not tell."""


@pytest.fixture(params=["as it is", "compacted"])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> GroupCoordinator:
    """A coordinator on a copy of the logs."""
    directory = tmp_path / "data"
    shutil.copytree(LOGS, directory)
    store = SegmentLogStore(directory, segment_bytes=3_000, compaction=CompactionSettings(0.0, 0))
    if request.param == "compacted":
        for partition in store.partitions():
            # What is written to is not compacted: begin a new segment.
            store.append(partition, Ticket(partition, 0), [LogRecord(OpaqueRecord(b"\x00\x63", b""), 0)])
        before = sum(path.stat().st_size for path in directory.glob("*/*.log"))
        while store.compact_some(TRUTH["stopped_ms"]):
            pass
        assert sum(path.stat().st_size for path in directory.glob("*/*.log")) < before / 2
    made = GroupCoordinator(
        config=Config(offsets_topic_num_partitions=LOG_PARTITIONS),
        clock=ManualClock(TRUTH["stopped_ms"]),
        log_store=store,
    )
    made.load_all()
    made.check()
    return made


def test_committed_offsets(coordinator: GroupCoordinator) -> None:
    """Every group has exactly the offsets that the broker listed, with leader epochs and metadata."""
    for group_id, expected in TRUTH["groups"].items():
        (group,) = coordinator.call(OffsetFetch((GroupToFetch(group_id),))).groups  # type: ignore[union-attr]
        found = {
            f"{topic.name}:{one.partition_index}": [
                one.committed_offset,
                None if one.committed_leader_epoch == -1 else one.committed_leader_epoch,
                one.metadata,
            ]
            for topic in group.topics
            for one in topic.partitions
        }
        assert found == expected["offsets"], group_id


def test_groups_and_members(coordinator: GroupCoordinator) -> None:
    """The same groups exist, in the same states, with the same members; deleted ones are gone."""
    listed = {group.group_id for group in coordinator.call(ListGroups()).groups}  # type: ignore[union-attr]
    assert listed == TRUTH["groups"].keys()
    assert not listed & set(TRUTH["deleted"])
    for group_id, expected in TRUTH["groups"].items():
        (group,) = coordinator.call(DescribeGroups((group_id,))).groups  # type: ignore[union-attr]
        assert (group.protocol_type, group.group_state) == (expected["protocol_type"], expected["state"]), group_id
        members = [[member.member_id, member.client_id, member.group_instance_id] for member in group.members]
        assert sorted(members) == sorted(expected["members"]), group_id
        if group_id not in UNKNOWN_TO_CLIENTS:
            assert group.protocol_data == expected["assignor"], group_id


def test_generations(coordinator: GroupCoordinator) -> None:
    """No group is in an older generation than the newest that a client was told."""
    assert len(TRUTH["generations"]) >= 5
    for group_id, generation_id in TRUTH["generations"].items():
        partition = coordinator.partition(coordinator.partition_of(group_id))
        assert partition is not None
        assert partition.groups[group_id].generation_id >= generation_id, group_id
