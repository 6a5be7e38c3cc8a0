"""Copies of a log that replicas share: segment files that others read."""

from __future__ import annotations

from pathlib import Path

from groupcoord import Config, GroupCoordinator
from groupcoord.clock import ManualClock
from groupcoord.cluster.shared_log import copy_log
from groupcoord.cluster.slot_log import MemorySlotLog, Slot
from groupcoord.messages import GroupToFetch, OffsetFetch
from groupcoord.storage.stores.segments import SegmentLogStore

from .nodes import PARTITIONS, Node, at_once, commit


class PurgedMeanwhile(MemorySlotLog):
    """Engine whose first slots are purged after they were read, as when an owner writes a snapshot."""

    def __init__(self) -> None:
        super().__init__(read_max=5)
        self.purges: list[tuple[int, int]] = []

    async def read(self, partition: int, from_slot: int) -> list[Slot]:
        found = await super().read(partition, from_slot)
        while self.purges:
            await super().purge(*self.purges.pop())
        return found


def test_a_coordinator_loads_a_copy(tmp_path: Path) -> None:
    """It has the snapshot and later appends of each log partition."""
    node = Node("a", MemorySlotLog(), ManualClock(), snapshot_bytes_min=5_000)
    node.run()
    for offset in range(100):
        for group_id in ("0", "1", "2"):
            node.core.submit(commit(group_id, offset))
            node.work()
    size_bytes = at_once(copy_log(node.slot_log, tmp_path))
    files = list(tmp_path.glob("__consumer_offsets-*/*.log"))
    assert files
    assert sum(file.stat().st_size for file in files) == size_bytes
    store = SegmentLogStore(tmp_path)
    restored = GroupCoordinator(
        config=Config(offsets_topic_num_partitions=PARTITIONS), log_store=store, clock=ManualClock()
    )
    restored.load_all()
    for group_id in ("0", "1", "2"):
        (group,) = restored.call(OffsetFetch((GroupToFetch(group_id),))).groups
        assert group.topics[0].partitions[0].committed_offset == 99
    store.close()


def test_what_is_purged_while_it_is_copied_is_in_the_snapshot(tmp_path: Path) -> None:
    """The copy starts again with the remaining slots."""
    slot_log = PurgedMeanwhile()
    node = Node("a", slot_log, ManualClock())
    node.run()
    partition = node.core.partition_of("g")
    for offset in range(20):
        node.core.submit(commit("g", offset))
        node.work()
    node.store._snapshot_bytes_min = 0
    node.sharing.snapshot(partition)
    operations = node.store.next_operations()
    for _ in range(3):  # all but the purge
        for index, operation in operations:
            node.store.done(index, operation, at_once(slot_log.put(index, operation.slot, operation.payload)))  # type: ignore[union-attr]
        operations = node.store.next_operations()
    ((_, purge),) = operations
    slot_log.purges.append((partition, purge.before_slot))  # type: ignore[union-attr]
    copied = at_once(copy_log(slot_log, tmp_path / "copy"))
    assert 0 < copied < 200, "one batch of the snapshot"
