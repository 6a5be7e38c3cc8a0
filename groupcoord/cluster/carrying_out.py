"""What an owner of a log partition wants to have done, done by an engine."""

from __future__ import annotations

import logging

from groupcoord.cluster.slot_log import Slot, SlotLog, SlotLogError
from groupcoord.cluster.slot_writer import UNKNOWN, Operation, Purge, Put, Unknown

logger = logging.getLogger("groupcoord")


async def carry_out(slot_log: SlotLog, partition: int, operation: Operation) -> int | list[Slot] | Unknown | None:
    """Have an engine do something, and return what :meth:`~groupcoord.cluster.slot_writer.SlotWriter.done` wants.

    Args:
        slot_log: the engine.
        partition: the log partition.
        operation: what is to be done.
    """
    try:
        if isinstance(operation, Put):
            return await slot_log.put(partition, operation.slot, operation.payload)
        if isinstance(operation, Purge):
            await slot_log.purge(partition, operation.before_slot)
            return None
        return await slot_log.read(partition, operation.from_slot)
    except SlotLogError as error:
        logger.warning("log partition %d: nobody knows what came of an operation: %s", partition, error)
        return UNKNOWN
