"""How batches of states merge: per offset the later attempt wins, and neighbours that are alike become one.

Source: ``PersisterStateBatchCombiner`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from groupcoord.core.share_state.records import StateBatch


def merge_batches(
    known: Iterable[StateBatch], changed: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Return the batches that two lists of them are together.

    Where they overlap, the one with the higher delivery count holds, and at equal counts the one with the higher state:
    what is accepted beats what is available, and a second delivery beats the end of the first.

    Args:
        known: what there was.
        changed: what comes to it.
        start_offset: what lies before it is left out; below 0: nothing is.
    """
    pending = sorted(_cut([*known, *changed], start_offset))
    merged: list[StateBatch] = []
    open_batches: list[tuple[int, int, int]] = []  # by what wins: -count, -state, last offset
    position = index = 0
    while open_batches or index < len(pending):
        if not open_batches:
            position = pending[index].first_offset
        while index < len(pending) and pending[index].first_offset == position:
            batch = pending[index]
            heappush(open_batches, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            index += 1
        count, state, last = open_batches[0]
        if last < position:
            heappop(open_batches)
            continue
        end = last if index == len(pending) else min(last, pending[index].first_offset - 1)
        _add(merged, StateBatch(position, end, -state, -count))
        position = end + 1
    return tuple(merged)


def _cut(batches: list[StateBatch], start_offset: int) -> list[StateBatch]:
    if start_offset < 0:
        return batches
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def _add(merged: list[StateBatch], batch: StateBatch) -> None:
    """Put a batch at the end, or let it be part of the last one, if it follows that and is like it."""
    last = merged[-1] if merged else None
    if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
        merged[-1] = last._replace(last_offset=batch.last_offset)
    else:
        merged.append(batch)
