"""What an owner of a log partition wants to have done, done by an engine."""

from __future__ import annotations

from groupcoord.cluster.slot_log import Slot, SlotLog
from groupcoord.cluster.slot_writer import Operation, Purge, Put


async def carry_out(slot_log: SlotLog, partition: int, operation: Operation) -> int | list[Slot] | None:
    """Have an engine do something, and return what :meth:`~groupcoord.cluster.slot_writer.SlotWriter.done` wants.

    Args:
        slot_log: the engine.
        partition: the log partition.
        operation: what is to be done.

    Raises:
        SlotLogError: nobody knows what came of it.
    """
    if isinstance(operation, Put):
        return await slot_log.put(partition, operation.slot, operation.payload)
    if isinstance(operation, Purge):
        await slot_log.purge(partition, operation.before_slot)
        return None
    return await slot_log.read(partition, operation.from_slot)
