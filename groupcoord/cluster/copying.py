"""Copies of a shared log as segment files, for backups and for programs that read Kafka's format."""

from __future__ import annotations

from pathlib import Path

from groupcoord.cluster.layout import partition_count_of
from groupcoord.cluster.slot_log import Slot, SlotLog
from groupcoord.cluster.slot_messages import contents
from groupcoord.core.log.records import OFFSETS_TOPIC


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
            slots = []  # the next slots were purged: a snapshot replaces them and those read so far
        else:
            slots += found
    return slots
