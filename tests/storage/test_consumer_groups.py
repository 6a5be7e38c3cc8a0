"""Segment files with consumer groups that real brokers wrote: whatever a store does with them, they say the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from groupcoord import Config, GroupCoordinator, LogRecord, ManualClock, Ticket
from groupcoord.core.log.hard_state import HardState
from groupcoord.core.log.records import OpaqueRecord
from groupcoord.laws import check_bytes, check_hard_state_is_the_log, check_snapshot_rebuilds
from groupcoord.messages import ConsumerGroupDescribe, ListGroups
from groupcoord.storage.stores.segments import CompactionSettings, SegmentLogStore
from tests.records.broker_segment import segment_bytes

LATER_MS = 1_800_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> SegmentLogStore:
    """A store with the segment in its first log partition, which compacts whatever it may."""
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
    """What a load is given instead of everything makes the same."""
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
