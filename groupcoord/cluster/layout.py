"""How many log partitions there are: all that share a log must agree, and the log itself says it.

The number decides in which log partition a group is. With another one a replica would serve groups that others serve
elsewhere, and miss what they have committed. So the first replica that there ever was fills a slot with it, and all
that come later compare.
"""

from __future__ import annotations

import asyncio
import json

from groupcoord.cluster.slot_log import LAYOUT_PARTITION, SlotLog
from groupcoord.cluster.slot_messages import MalformedSlotError
from groupcoord.errors import GroupcoordError

PARTITIONS = "offsets.topic.num.partitions"
AGAIN_S = 0.1


class NoLogError(GroupcoordError):
    """No replica has ever shared this log."""


class LayoutError(GroupcoordError, ValueError):
    """A log has another number of log partitions than a replica."""


async def agree_on_partition_count(slot_log: SlotLog, partition_count: int) -> None:
    """Say how many log partitions there are if nobody has, or compare.

    Args:
        slot_log: the engine; open.
        partition_count: what this process believes.

    Raises:
        LayoutError: others believe in another number.
        SlotLogError: the engine can't be asked.
        MalformedSlotError: the log says something else.
    """
    if await slot_log.put(LAYOUT_PARTITION, 0, json.dumps({PARTITIONS: partition_count}).encode()) is None:
        return
    while (found := await _said(slot_log)) is None:
        await asyncio.sleep(AGAIN_S)  # a replica of the engine that lags behind has answered
    if found != partition_count:
        raise LayoutError(f"the log was begun with {PARTITIONS}={found}, which can't be changed to {partition_count}")


async def partition_count_of(slot_log: SlotLog) -> int:
    """Return how many log partitions a log has.

    Raises:
        NoLogError: no replica has ever been there.
        SlotLogError: the engine can't be asked.
        MalformedSlotError: the log says something else.
    """
    found = await _said(slot_log)
    if found is None:
        raise NoLogError("no replica has ever shared this log")
    return found


async def _said(slot_log: SlotLog) -> int | None:
    """Return what the log says; None: nothing, as far as the engine tells."""
    slots = await slot_log.read(LAYOUT_PARTITION, 0)
    if not slots:
        return None
    try:
        count = json.loads(slots[0].payload)[PARTITIONS]
    except (ValueError, TypeError, KeyError):
        count = None
    if not isinstance(count, int) or count < 1:
        raise MalformedSlotError("the log does not say how many log partitions it has")
    return count
