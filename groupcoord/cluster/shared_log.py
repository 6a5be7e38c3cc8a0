"""Shared log as a whole: its number of log partitions, and copies as segment files.

The number decides to which log partition a group belongs. Replicas with different numbers would serve the same groups
and miss each other's commits. So the first replica stores the number in a slot, and all later ones compare.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from groupcoord.cluster.slot_log import LAYOUT_PARTITION, MalformedSlotError, Slot, SlotLog, contents
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.errors import GroupcoordError

PARTITIONS = "offsets.topic.num.partitions"
AGAIN_S = 0.1


class NoLogError(GroupcoordError):
    """No replica has ever shared this log."""


class LayoutError(GroupcoordError, ValueError):
    """A log has another number of log partitions than a replica."""


async def agree_on_partition_count(slot_log: SlotLog, partition_count: int) -> None:
    """Store the number of log partitions if the log has none, or compare.

    Raises:
        LayoutError: the log has another number.
        SlotLogError: the engine failed.
        MalformedSlotError: the slot does not hold a number.
    """
    # Of several first replicas one fills the slot.
    if await slot_log.put(LAYOUT_PARTITION, 0, json.dumps({PARTITIONS: partition_count}).encode()) is None:
        return
    while (found := await _said(slot_log)) is None:
        await asyncio.sleep(AGAIN_S)  # a lagging replica of the engine has answered
    if found != partition_count:
        raise LayoutError(f"the log was begun with {PARTITIONS}={found}, which can't be changed to {partition_count}")


async def partition_count_of(slot_log: SlotLog) -> int:
    """Return the number of log partitions of a log.

    Raises:
        NoLogError: no replica has ever shared this log.
        SlotLogError: the engine failed.
        MalformedSlotError: the slot does not hold a number.
    """
    found = await _said(slot_log)
    if found is None:
        raise NoLogError("no replica has ever shared this log")
    return found


async def _said(slot_log: SlotLog) -> int | None:
    slots = await slot_log.read(LAYOUT_PARTITION, 0)
    if not slots:
        return None
    try:
        count = json.loads(slots[0].payload)[PARTITIONS]
    except (ValueError, TypeError, KeyError):
        count = None
    if not isinstance(count, int) or count < 1:
        raise MalformedSlotError("the log has no valid number of log partitions")
    return count


async def copy_log(slot_log: SlotLog, folder: Path) -> int:
    """Write a shared log as folders ``__consumer_offsets-N`` with one segment each, while its owners keep writing.

    Each log partition is copied as of some moment. ``groupcoord dump``, ``groupcoord analyze`` and the ``--data-dir``
    of a server read the folder.

    Args:
        slot_log: the engine; open.
        folder: the target; each log partition with records gets a folder in it.

    Returns:
        The number of bytes written.

    Raises:
        NoLogError: no replica has ever shared this log.
        SlotLogError: the engine failed.
        MalformedSlotError: a slot does not hold a message.
        OSError: a file can't be written.
    """
    size_bytes = 0
    for partition in range(await partition_count_of(slot_log)):
        chunks, appends = contents(await _read_all(slot_log, partition))
        # The first chunk is the next offset.
        content = b"".join((*chunks[1:], *appends))
        if content:
            inner = folder / f"{OFFSETS_TOPIC}-{partition}"
            # Fails if it exists: two copies must not be mixed.
            inner.mkdir(parents=True)
            size_bytes += (inner / f"{0:020}.log").write_bytes(content)
    return size_bytes


async def _read_all(slot_log: SlotLog, partition: int) -> list[Slot]:
    slots: list[Slot] = []
    while found := await slot_log.read(partition, slots[-1].number + 1 if slots else 0):
        if slots and found[0].number != slots[-1].number + 1:
            slots = []  # a snapshot replaces these and the purged ones
        else:
            slots += found
    return slots
