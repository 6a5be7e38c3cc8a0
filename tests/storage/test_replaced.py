"""Records that a custom store may delete: a log loads to the same state without them, whatever follows."""

from __future__ import annotations

import random

import pytest

from groupcoord.core.log.log_partition import HardState
from groupcoord.core.log.records import GroupTombstone, OffsetCommitRecord, OffsetTombstone, Record, TransactionMarker
from groupcoord.log_store import LogRecord
from groupcoord.storage.compaction import replaced_offsets
from groupcoord.testing.contracts import logs_and_clocks as log_store_contract
from tests.samples import seeds
from tests.tables import as_one_test

COMMIT, ABORT = TransactionMarker(7, 0, committed=True), TransactionMarker(7, 0, committed=False)


def offset(value: int, partition: int = 0, producer_id: int = -1) -> OffsetCommitRecord:
    """Return a commit of one partition."""
    return OffsetCommitRecord("g", "t", partition, value, producer_id=producer_id, producer_epoch=min(producer_id, 0))


def log(*records: Record) -> list[LogRecord]:
    return [LogRecord(record, 1, place) for place, record in enumerate(records)]


GONE = OffsetTombstone("g", "t", 0)
END = GroupTombstone("the log ends here")


@as_one_test
@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([offset(1), offset(2), offset(3, 1), offset(4)], [0, 1], id="the last of a key stays"),
        pytest.param([offset(1), GONE, END], [0, 1], id="a tombstone goes with what it deletes"),
        pytest.param([offset(1), GONE], [0], id="the last record of the log stays"),
        pytest.param([offset(1), offset(2, 0, 7), ABORT, END], [1, 2], id="an aborted transaction replaces nothing"),
        pytest.param([offset(1), offset(2, 0, 7), COMMIT, END], [0], id="a committed one does, and keeps its marker"),
        pytest.param([offset(1, 0, 7), offset(2), COMMIT, END], [0, 2], id="the marker goes when nothing is left"),
        pytest.param([offset(1), offset(2, 1, 7), offset(3)], [], id="an open transaction holds what follows it"),
        pytest.param([COMMIT, END], [0], id="a marker of nothing goes"),
    ],
)
def test_rules(records: list[Record], expected: list[int]) -> None:
    """Of each key the last record that counts stays, and markers as long as records of theirs do."""
    assert replaced_offsets(log(*records)) == expected


@as_one_test
@pytest.mark.parametrize("seed", seeds(40))
def test_random_histories(seed: int) -> None:
    """After any deletion, the rest with any later appends loads to the state of the whole log."""
    source = random.Random(seed)
    records = [record for _ in range(60) for record in log_store_contract._step_of_history(source)]
    whole = log(*records)
    length = source.randint(1, len(whole))
    replaced = replaced_offsets(whole[:length])
    deleted = set(replaced[: source.choice([len(replaced), source.randint(0, len(replaced))])])

    for end in range(length, len(whole) + 1):
        states = (HardState(), HardState())
        for record in whole[:end]:
            states[0].apply(record.record, record.offset)
            if record.offset not in deleted:
                states[1].apply(record.record, record.offset)
        found, expected = (log_store_contract._facts(state) for state in states)
        assert found == expected
