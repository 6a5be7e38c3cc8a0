"""Execution of the operations of a log partition's owner on an engine."""

from __future__ import annotations

from groupcoord.cluster.slot_log import Slot, SlotLog
from groupcoord.cluster.slot_writer import Operation, Purge, Put


async def carry_out(slot_log: SlotLog, partition: int, operation: Operation) -> int | list[Slot] | None:
    """Execute an operation and return the result that :meth:`~groupcoord.cluster.slot_writer.SlotWriter.done` takes.

    Args:
        slot_log: the engine.
        partition: the log partition.
        operation: the operation.

    Raises:
        SlotLogError: the outcome is unknown.
    """
    if isinstance(operation, Put):
        return await slot_log.put(partition, operation.slot, operation.payload)
    if isinstance(operation, Purge):
        await slot_log.purge(partition, operation.before_slot)
        return None
    return await slot_log.read(partition, operation.from_slot)
