"""Copies of a log that replicas share, as segment files: for backups, and for programs that read Kafka's."""

from __future__ import annotations

from pathlib import Path

from groupcoord.cluster.layout import partition_count_of
from groupcoord.cluster.slot_log import Slot, SlotLog
from groupcoord.cluster.slot_messages import contents
from groupcoord.core.log.records import OFFSETS_TOPIC


async def copy_log(slot_log: SlotLog, folder: Path) -> int:
    """Write what a log comes to as folders ``__consumer_offsets-N`` with a segment each. Owners go on meanwhile.

    Each log partition is copied as it is at some moment. ``groupcoord dump`` and ``groupcoord analyze`` read the
    folder, and so does a server's ``--data-dir``.

    Args:
        slot_log: the engine; open.
        folder: where; log partitions that have something get a folder of their own in it.

    Returns:
        How many bytes were written.

    Raises:
        NoLogError: no replica has ever shared this log.
        SlotLogError: the engine can't be asked.
        MalformedSlotError: a slot holds something else.
        OSError: it can't be written.
    """
    size_bytes = 0
    for partition in range(await partition_count_of(slot_log)):
        chunks, appends = contents(await _read_all(slot_log, partition))
        content = b"".join((*chunks[1:], *appends))
        if content:
            inner = folder / f"{OFFSETS_TOPIC}-{partition}"
            inner.mkdir(parents=True)
            size_bytes += (inner / f"{0:020}.log").write_bytes(content)
    return size_bytes


async def _read_all(slot_log: SlotLog, partition: int) -> list[Slot]:
    slots: list[Slot] = []
    while found := await slot_log.read(partition, slots[-1].number + 1 if slots else 0):
        if slots and found[0].number != slots[-1].number + 1:
            slots = []  # what was to come was purged: a snapshot stands for it, and what was read
        else:
            slots += found
    return slots
