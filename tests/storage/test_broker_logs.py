"""Logs that real Kafka brokers wrote load to what the broker and its clients knew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from groupcoord import Config, GroupCoordinator, LogRecord, ManualClock, Ticket
from groupcoord.core.log.log_partition import HardState
from groupcoord.core.log.records import OpaqueRecord
from groupcoord.laws import check_bytes, check_hard_state_is_the_log, check_snapshot_rebuilds
from groupcoord.messages import ConsumerGroupDescribe, DescribeGroups, GroupToFetch, ListGroups, OffsetFetch
from groupcoord.storage.stores.segments import CompactionSettings, SegmentLogStore
from tests.records.broker_segment import segment_bytes

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
    """No group is in an older generation than the newest one that a client received."""
    assert len(TRUTH["generations"]) >= 5
    for group_id, generation_id in TRUTH["generations"].items():
        partition = coordinator.partition(coordinator.partition_of(group_id))
        assert partition is not None
        assert partition.groups[group_id].generation_id >= generation_id, group_id


# ---------------------------------------------------------------- consumer groups


LATER_MS = 1_800_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> SegmentLogStore:
    """A store with the segment in its first log partition, and compaction as early as possible."""
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(segment_bytes())
    return SegmentLogStore(tmp_path, segment_bytes=3_000, compaction=CompactionSettings(0.0, 0))


def compact(store: SegmentLogStore, now_ms: int = LATER_MS) -> None:
    """Compact the segment: what is written to is not compacted, so begin a new one."""
    store.append(0, Ticket(0, 0), [LogRecord(OpaqueRecord(b"\x00\x63", bytes(2_000)), now_ms)])
    while store.compact_some(now_ms):
        pass


def facts(records: Iterable[Any]) -> dict[str, Any]:
    hard = HardState()
    for entry in records:
        hard.apply(entry.record, entry.offset)
    return hard.facts()


def test_compaction_keeps_the_last_record_of_each_key(store: SegmentLogStore) -> None:
    before = {entry.offset: entry for entry in store.read(0)}
    compact(store, LATER_MS)
    assert facts(store.read(0)) == facts(before.values())
    compact(store, LATER_MS + 1)  # now tombstones go as well
    left = [entry for entry in store.read(0) if not isinstance(entry.record, OpaqueRecord)]

    assert facts(left) == facts(before.values())
    assert len(left) == 11
    assert all(entry.encoded() == before[entry.offset].encoded() for entry in left)
    check_bytes(store, 0)


def test_quick_loading_is_loading(store: SegmentLogStore) -> None:
    """The shortened input of a load gives the same state."""
    assert facts(store.read_last(0)) == facts(store.read(0))


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_coordinator_loads_them(store: SegmentLogStore, is_compacted: bool) -> None:
    """Classic and consumer groups come to life as the log has them, with a static member that has left for a while."""
    if is_compacted:
        compact(store)
    coordinator = GroupCoordinator(
        config=Config(offsets_topic_num_partitions=1), clock=ManualClock(LATER_MS), log_store=store
    )
    coordinator.load_all()

    coordinator.check()
    check_hard_state_is_the_log(coordinator)
    check_snapshot_rebuilds(coordinator)
    listed = {group.group_id: (group.group_type, group.group_state) for group in coordinator.call(ListGroups()).groups}
    assert listed == {
        "modern": ("consumer", "Assigning"),
        "moves": ("classic", "Empty"),
        "regex": ("consumer", "Empty"),
    }
    modern, regex = coordinator.call(ConsumerGroupDescribe(("modern", "regex"))).groups
    assert (modern.group_epoch, modern.assignment_epoch) == (9, 8)
    assert [(member.instance_id, member.member_epoch) for member in modern.members] == [("static-2", -2)]
    assert (regex.group_epoch, regex.assignment_epoch, regex.members) == (8, 8, ())
