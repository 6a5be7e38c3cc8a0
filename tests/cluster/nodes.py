"""Replica without an event loop: the test sets its heartbeats, the engine's answers and the clock."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine
from typing import Any, TypeVar

from groupcoord import Config, GroupCoordinator
from groupcoord.clock import ManualClock
from groupcoord.cluster.membership import Membership
from groupcoord.cluster.replica import Sharing, carry_out
from groupcoord.cluster.shared_log import agree_on_partition_count
from groupcoord.cluster.slot_log import Beat, MemorySlotLog
from groupcoord.cluster.slot_store import SNAPSHOT_BYTES_MIN, SlotStore, Taken
from groupcoord.messages import OffsetCommit, OffsetToCommit, TopicToCommit

T = TypeVar("T")

PARTITIONS = 3
_numbers = itertools.count()


def new_tag() -> bytes:
    return next(_numbers).to_bytes(16, "big")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine comes to that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits")


def commit(group_id: str, offset: int) -> OffsetCommit:
    return OffsetCommit(group_id, (TopicToCommit("t", (OffsetToCommit(0, offset),)),))


class Node:
    """Replica on an engine in memory, with the common clock."""

    def __init__(
        self, name: str, slot_log: MemorySlotLog, clock: ManualClock, snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN
    ) -> None:
        self.name = name
        self.slot_log = slot_log
        self.clock = clock
        at_once(agree_on_partition_count(slot_log, PARTITIONS))
        self.store = SlotStore(new_tag, snapshot_bytes_min=snapshot_bytes_min)
        config = Config(offsets_topic_num_partitions=PARTITIONS)
        self.core = GroupCoordinator(config=config, clock=clock, log_store=self.store)
        self.sharing = Sharing(self.core, self.store, Membership(name, PARTITIONS), f"host-{name}")

    def beat(self) -> list[Taken]:
        """Beat, and be answered at once."""
        began_ms, beats = self.begin_beat()
        return self.end_beat(beats, began_ms)

    def begin_beat(self) -> tuple[int, list[Beat]]:
        self.core.tick()
        self.slot_log.now_ms = self.clock.now_ms()
        return self.clock.now_ms(), at_once(self.slot_log.beat(self.name, self.sharing.announcement()))

    def end_beat(self, beats: list[Beat], began_ms: int) -> list[Taken]:
        to_load = self.sharing.heard(beats, began_ms)
        for partition, epoch in to_load:
            self.core.load(partition, epoch)
        return to_load

    def leave(self) -> None:
        """End in order."""
        self.sharing.give_all_up()
        at_once(self.slot_log.beat(self.name, self.sharing.announcement(leaves=True)))

    def work(self) -> None:
        """Run all pending work of the store."""
        while operations := self.store.next_operations():
            for partition, operation in operations:
                self.store.done(partition, operation, at_once(carry_out(self.slot_log, partition, operation)))
                self.sharing.settle()
                self.sharing.snapshot(partition)

    def run(self) -> None:
        """Beat and work until everything that is to be taken over is served."""
        for _ in range(3):
            self.beat()
            self.work()
