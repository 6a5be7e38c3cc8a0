"""A sweep of retention that finds very much writes it in appends of bearable size."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from groupcoord import Config, GroupCoordinator, LogRecord, ManualClock, MemoryLogStore, Ticket
from groupcoord.core.log.records import GroupTombstone, OffsetTombstone
from groupcoord.core.offsets import retention
from groupcoord.messages import ListGroups, OffsetCommit, OffsetToCommit, TopicToCommit


class CountingStore(MemoryLogStore):
    """Notes how many records each append has."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        self.sizes.append(len(records))
        return super().append(partition, ticket, records)


@pytest.mark.parametrize("offset_counts", [[1, 1, 1], [3, 3], [4, 1], [10], [2, 10, 1]])
def test_no_append_of_a_sweep_is_too_large(monkeypatch: pytest.MonkeyPatch, offset_counts: list[int]) -> None:
    """Every offset and group expires in one sweep, with at most the limit in one append, groups last."""
    monkeypatch.setattr(retention, "MAX_RECORDS_PER_APPEND", 4)
    config = Config(
        offsets_topic_num_partitions=1, offsets_retention_minutes=1, offsets_retention_check_interval_ms=60_000
    )
    clock, store = ManualClock(), CountingStore()
    coordinator = GroupCoordinator(config=config, clock=clock, log_store=store)
    coordinator.load_all()
    for number, count in enumerate(offset_counts):
        offsets = tuple(OffsetToCommit(index, 1) for index in range(count))
        coordinator.call(OffsetCommit(f"group-{number}", (TopicToCommit("t", offsets),)))
    store.sizes.clear()
    clock.advance(60_000)
    coordinator.tick()
    coordinator.check()
    records = [entry.record for entry in store.read(0)][sum(offset_counts) :]
    assert max(store.sizes) <= 4
    assert sum(isinstance(record, OffsetTombstone) for record in records) == sum(offset_counts)
    assert [r.group_id for r in records if isinstance(r, GroupTombstone)] == [
        f"group-{n}" for n in range(len(offset_counts))
    ]
    assert coordinator.call(ListGroups()).groups == ()
