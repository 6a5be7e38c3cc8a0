"""All that share a log agree on how many log partitions it has."""

from __future__ import annotations

import asyncio

import pytest

from groupcoord.cluster.shared_log import LayoutError, NoLogError, agree_on_partition_count, partition_count_of
from groupcoord.cluster.slot_log import LAYOUT_PARTITION, MalformedSlotError, MemorySlotLog, Slot

from .nodes import at_once


class LagsBehind(MemorySlotLog):
    """An engine of which a replica answers that has not heard of the last put."""

    def __init__(self) -> None:
        super().__init__()
        self.lag = 1

    async def read(self, partition: int, from_slot: int) -> list[Slot]:
        self.lag -= 1
        return [] if self.lag >= 0 else await super().read(partition, from_slot)


def test_the_first_one_decides() -> None:
    """Others compare; who believes in another number is refused, and changes nothing."""
    slot_log = MemorySlotLog()
    with pytest.raises(NoLogError):
        at_once(partition_count_of(slot_log))
    for _ in range(2):
        at_once(agree_on_partition_count(slot_log, 12))
    with pytest.raises(LayoutError, match=r"begun with offsets.topic.num.partitions=12, which can't be changed to 50"):
        at_once(agree_on_partition_count(slot_log, 50))
    assert at_once(partition_count_of(slot_log)) == 12


def test_a_reader_that_lags_behind_is_asked_again() -> None:
    """The slot was refused, so it is filled."""
    slot_log = LagsBehind()
    at_once(agree_on_partition_count(slot_log, 12))
    asyncio.run(agree_on_partition_count(slot_log, 12))
    assert slot_log.lag == -1


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"offsets.topic.num.partitions": "x"}', b"\xff"])
def test_something_else_is_refused(payload: bytes) -> None:
    slot_log = MemorySlotLog()
    at_once(slot_log.put(LAYOUT_PARTITION, 0, payload))
    for asked in (partition_count_of(slot_log), agree_on_partition_count(slot_log, 12)):
        with pytest.raises(MalformedSlotError, match="no valid number of log partitions"):
            at_once(asked)
