"""Loading: commits that the next ones replace are left out, nothing else is."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from groupcoord.core.log.log_partition import HardState
from groupcoord.core.log.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    GroupTombstone,
    OffsetCommitRecord,
    OffsetTombstone,
    OpaqueRecord,
    Record,
    TransactionMarker,
)
from groupcoord.log_store import LoadedCommits
from groupcoord.storage.log import segment_files
from groupcoord.storage.stores.segments import SegmentLogStore
from tests.samples import seeds
from tests.storage.storage_logs import append
from tests.tables import as_one_test

ID = UUID("9e8a4cbc-b6e6-4127-9645-17433affd7c2")


def plain(
    partition: int, offset: int, *, version: int | None = None, topic_id: UUID = ID, metadata: str = ""
) -> OffsetCommitRecord:
    record = OffsetCommitRecord("g", "t", partition, offset, 1, metadata, 5, value_version=version)
    if version is None:
        record.topic_id = topic_id
    return record


def loaded(directory: Path, *appends: list[Record]) -> list[tuple[int, Record]]:
    with SegmentLogStore(directory, segment_bytes=2_000) as store:
        for records in appends:
            append(store, *records)
        everything = {record.offset: record for record in store.read(3)}
        made: list[tuple[int, Record]] = []
        for found in store.read_last(3):
            if isinstance(found, LoadedCommits):
                made += enumerate(found.record, found.offset)
            else:
                same = everything[found.offset]
                assert (found.encoded(), found.timestamp_ms) == (same.encoded(), same.timestamp_ms)
                made.append((found.offset, found.record))
    for offset, record in made:
        assert record == everything[offset].record
    return made


@as_one_test
@pytest.mark.parametrize("metadata", ["", "m" * 40])
@pytest.mark.parametrize(
    ("version", "topic_id"), [(None, ID), (None, UUID(int=0)), (3, ID)], ids=["v4", "v4 without topic id", "v3"]
)
def test_the_last_commit_of_a_run_stays(tmp_path: Path, version: int | None, topic_id: UUID, metadata: str) -> None:
    """Over batches and segments, of each key the last commit is there, in the order of offsets."""
    appends: list[list[Record]] = [
        [plain(partition, number, version=version, topic_id=topic_id, metadata=metadata) for partition in (2, 0, 1)]
        for number in range(50)
    ]
    assert loaded(tmp_path, *appends) == [(147 + place, record) for place, record in enumerate(appends[-1])]


@as_one_test
@pytest.mark.parametrize(
    "between",
    [
        OffsetTombstone("g", "t", 0),
        OffsetTombstone("g", "other", 0),
        GroupTombstone("g"),
        OffsetCommitRecord("g", "t", 0, 9, 1, "größe", 5, topic_id=ID),
        OffsetCommitRecord("g", "t", 0, 9, 1, "", 5, expire_timestamp_ms=6),
        OffsetCommitRecord("g", "t", 0, 9, producer_id=7, producer_epoch=0),
        TransactionMarker(7, 0, committed=True),
        OpaqueRecord(b"\x00\x63", b"x"),
        OpaqueRecord(bytes.fromhex("0001 0001 67 0001 74 00000000"), bytes.fromhex("0009 00")),
    ],
    ids=lambda record: type(record).__name__,
)
def test_anything_else_ends_a_run(tmp_path: Path, between: Record) -> None:
    """Records before one of another kind are not replaced by those after it."""
    found = loaded(tmp_path, [plain(0, 1)], [plain(0, 2)], [between], [plain(0, 3)], [plain(0, 4)])
    assert [offset for offset, _ in found] == [1, 2, 4]


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ends when it has too many keys."""
    monkeypatch.setattr(segment_files, "RUN_KEYS_MAX", 10)
    found = loaded(tmp_path, *([plain(number, 0)] for number in range(100)), [plain(0, 1)])
    assert [offset for offset, _ in found] == list(range(101))


def test_the_last_record_of_a_consumer_group_stays(tmp_path: Path) -> None:
    """Of records with the same key only the last one is given, at its place, and a commit between them ends the run."""
    epochs: list[Record] = [ConsumerGroupMetadataRecord("g", epoch) for epoch in range(5)]
    target = ConsumerGroupTargetAssignmentMetadataRecord("g", 1, 2)
    found = loaded(tmp_path, [epochs[0], target], [epochs[1]], [plain(0, 1)], [epochs[2]], [epochs[3], epochs[4]])
    assert found == [(1, target), (2, epochs[1]), (3, plain(0, 1)), (6, epochs[4])]


def step_of_groups(source: random.Random, number: int) -> list[Record]:
    group_id, member_id = source.choice("gh"), source.choice("ab")
    records: list[Record] = [
        ConsumerGroupMetadataRecord(group_id, number),
        ConsumerGroupCurrentMemberAssignmentRecord(group_id, member_id, number, number - 1, 0),
        GroupTombstone(group_id, ConsumerGroupMetadataRecord.key),
        GroupTombstone(group_id, ConsumerGroupCurrentMemberAssignmentRecord.key_of(member_id)),
        plain(0, number),
    ]
    return source.choices(records, weights=[3, 3, 2, 2, 1], k=source.randint(1, 3))


def step_of_commits(source: random.Random, number: int) -> list[Record]:
    if source.random() < 0.1:
        return [
            source.choice([OffsetTombstone("g", "t", 1), OffsetCommitRecord("g", "t", 2, 9, 1, "metadata", 5)]),
        ]
    first, metadata = source.choice([0, 1, 10 * number]), source.choice(["", "m", "größe"])
    return [plain(first + place, number, metadata=metadata) for place in range(source.randint(1, 9))]


@pytest.mark.parametrize("keys_max", [1, 4, 50_000])
@pytest.mark.parametrize("step", [step_of_groups, step_of_commits])
@pytest.mark.parametrize("seed", seeds(10))
def test_any_mixture_loads_to_the_same_state(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys_max: int,
    step: Callable[[random.Random, int], list[Record]],
    seed: int,
) -> None:
    """A load makes of a log what its records make, whether few or many keys are new, and however runs end."""
    monkeypatch.setattr(segment_files, "RUN_KEYS_MAX", keys_max)
    source = random.Random(seed)
    with SegmentLogStore(tmp_path, segment_bytes=2_000) as store:
        for number in range(120):
            append(store, *step(source, number))
        states = [HardState(), HardState()]
        for state, found in zip(states, (store.read(3), store.read_last(3)), strict=True):
            for entry in found:
                state.apply(entry.record, entry.offset)
    assert states[0].facts() == states[1].facts()
