"""Whatever happens to groups, and whenever the log is compacted or the machine dies: the log loads to the same state.

The machine of ``tests/laws`` lives on a log in memory that keeps every record. Here, each append goes to segment files
as well, which are compacted in small portions and reopened after crashes at any point of that.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import invariant, rule

from groupcoord import MemoryLogStore
from groupcoord.core.log.log_partition import HardState
from groupcoord.log_store import LogRecord, Ticket
from groupcoord.messages import CompleteTransaction, OffsetCommit, TxnOffsetCommit
from groupcoord.storage.compaction import compactable_logs
from groupcoord.storage.files import segment_path, sync_path
from groupcoord.storage.stores.segments import CompactionSettings, SegmentLogStore
from groupcoord.testing.machine.consumers import PARTITIONS
from groupcoord.testing.machine.state_machine import PRODUCERS
from groupcoord.testing.machine.world import LOG_PARTITIONS
from tests.laws.full_world import GROUPS
from tests.laws.test_coordinator_machine import FullMachine
from tests.storage.dying_disk import DyingDisk, PowerFailure
from tests.storage.storage_logs import RollingStore


class MirroredStore(MemoryLogStore):
    """Log in memory whose records go to segment files, too, which may be compacted."""

    def __init__(self, files: SegmentLogStore) -> None:
        super().__init__()
        self.files = files

    def _write(self, partition: int, records: Any) -> int:
        copies = [LogRecord(record.record, record.timestamp_ms) for record in records]
        base_offset = super()._write(partition, records)
        self.files.end_offset(partition)  # opens it
        self.files.log(partition).end_offset = base_offset  # gaps that another writer left
        assert self.files.append(partition, Ticket(partition, 0), copies) == base_offset
        return base_offset


def state(records: Iterable[LogRecord]) -> dict[str, Any]:
    """Return the hard state that records make, without simple groups that have no offset any more."""
    hard = HardState()
    for record in records:
        hard.apply(record.record, record.offset)
    facts: dict[str, Any] = hard.facts()
    with_offsets = facts["committed"].keys() | {
        group_id for keys in facts["transactions"].values() for group_id, _, _ in keys
    }
    groups = {key: value for key, value in facts["groups"].items() if value or key in with_offsets}
    return {**facts, "groups": groups}


class CompactionMachine(FullMachine):
    """Consumers, producers, an administrator, and a log that is compacted beneath them."""

    memory_log: MirroredStore

    def make_log_store(self) -> MirroredStore:
        self.folder = Path(tempfile.mkdtemp(prefix="groupcoord-compaction-"))
        self.roll_bytes = self.random.choice([1, 300, 1_000])
        self.durable: dict[Path, int] = {}
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(compactable_logs, "sync_path", self.sync)
        self.group_bytes = self.random.choice([1, 1_000, 10**6])
        self.compaction = CompactionSettings(
            min_cleanable_ratio=0.0,
            delete_retention_ms=self.random.choice([0, 10_000, 10**9]),
            min_compaction_lag_ms=self.random.choice([0, 0, 5_000]),
            dedupe_buffer_bytes=self.random.choice([1, 1_000, 10**6]),
        )
        self.memory_log = MirroredStore(self.open_files())
        return self.memory_log

    def sync(self, path: Path) -> None:
        """Note how much of a file is durable."""
        sync_path(path)
        self.durable[path] = path.stat().st_size

    def open_files(self) -> SegmentLogStore:
        """Open the segment files. A segment is full after a few appends, but a single append may be larger."""
        files = RollingStore(
            self.folder,
            roll_bytes=self.roll_bytes,
            segment_bytes=self.group_bytes,
            batch_bytes_max=10**6,
            compaction=self.compaction,
        )
        for partition in range(LOG_PARTITIONS):
            files.end_offset(partition)  # only what is open is compacted
        return files

    @rule(seed=st.integers(0, 2**32), count=st.integers(1, 30))
    def much_is_committed(self, seed: int, count: int) -> None:
        chance = random.Random(seed)
        for _ in range(count):
            group_id, index = chance.choice(GROUPS), chance.randrange(PARTITIONS)
            if chance.random() < 0.4:
                self.submit(OffsetCommit(group_id, self.offsets("orders", index)))
            elif chance.random() < 0.6:
                producer_id = chance.choice(PRODUCERS)
                self.submit(TxnOffsetCommit(group_id, self.offsets("orders", index), producer_id, 0))
            elif chance.random() < 0.7:
                partition = chance.randrange(LOG_PARTITIONS)
                self.submit(CompleteTransaction(partition, chance.choice(PRODUCERS), 0, chance.random() < 0.5))
            else:
                self.somebody_deletes_offsets(group_id, {index})
        if chance.random() < 0.7:  # open transactions hold compaction up
            for producer_id in PRODUCERS:
                for partition in range(LOG_PARTITIONS):
                    self.submit(CompleteTransaction(partition, producer_id, 0, chance.random() < 0.7))

    @rule(budget=st.sampled_from([1, 5, 20, 10**9]))
    def the_log_is_compacted_a_little(self, budget: int) -> None:
        self.memory_log.files.compact_some(self.clock.now_ms(), budget)

    @rule()
    def the_log_is_compacted(self) -> None:
        while self.memory_log.files.compact_some(self.clock.now_ms()):
            pass

    @rule(seed=st.integers(0, 2**32))
    def the_log_is_compacted_again_and_again(self, seed: int) -> None:
        for number in range(4):
            self.much_is_committed(seed + number, 4)
            while self.memory_log.files.compact_some(self.clock.now_ms() + number * 10_000):
                pass

    @rule(steps=st.integers(0, 16), seed=st.integers(0, 2**32))
    def the_machine_dies_while_it_compacts(self, steps: int, seed: int) -> None:
        self.much_is_committed(seed, 10)
        files = self.memory_log.files
        with DyingDisk(steps) as disk:
            try:
                while files.compact_some(self.clock.now_ms(), 20):
                    pass
            except PowerFailure:
                pass
        disk.let_go(files)
        self.memory_log.files = self.open_files()

    @rule(part=st.floats(0, 1))
    def the_power_fails(self, part: float) -> None:
        """Unsynced bytes are lost from any position on: the files load to the state of the rest."""
        for partition in range(LOG_PARTITIONS):
            log, folder = self.memory_log.files.log(partition), self.folder / f"__consumer_offsets-{partition}"
            if not log.segments:
                continue
            active = segment_path(folder, log.segments[-1].base_offset)
            durable = self.durable.get(active, 0)
            with tempfile.TemporaryDirectory() as copy:
                shutil.copytree(folder, Path(copy, folder.name))
                size_bytes = log.segments[-1].size_bytes
                os.truncate(Path(copy, folder.name, active.name), durable + int(part * (size_bytes - durable)))
                with SegmentLogStore(copy) as store:
                    end_offset = store.end_offset(partition)
                    left = [record for record in self.store.read(partition) if record.offset < end_offset]
                    assert state(store.read(partition)) == state(left)

    @rule()
    def the_files_are_opened_anew(self) -> None:
        self.memory_log.files.close()
        self.memory_log.files = self.open_files()

    @invariant()
    def the_files_hold_the_same_state(self) -> None:
        if hasattr(self, "coordinator"):
            for partition in range(LOG_PARTITIONS):
                expected = state(self.store.read(partition))
                assert state(self.memory_log.files.read(partition)) == expected
                assert state(self.memory_log.files.read_last(partition)) == expected

    def teardown(self) -> None:
        try:
            super().teardown()
            self.the_files_hold_the_same_state()
        finally:
            if hasattr(self, "folder"):
                self.patch.undo()
                self.memory_log.files.close()
                shutil.rmtree(self.folder)


TestCompactionMachine = CompactionMachine.TestCase
TestCompactionMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)


@pytest.mark.slow
class TestCompactionMachineForLong(CompactionMachine.TestCase):
    """The same, for ten times as many lives."""

    settings = settings(max_examples=500, stateful_step_count=80, deadline=None)
