"""Mutated logs: a sample of what ``python -m tests.attack logs`` tries, and what it must notice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from groupcoord.storage.stores.segments import SegmentLogStore
from tests.attack.logs import (
    LogFaultError,
    Outcome,
    Truth,
    attack_logs,
    check_log,
    compare,
    find_truth,
    read_copy,
    write_log,
)
from tests.attack.mutated_logs import LogMutator, MutableLog, PieceOfLog, plausible_records
from tests.attack.rig import Result
from tests.samples import seeds

SAMPLE = 40
POOL = plausible_records()


def valid_log(seed: int) -> MutableLog:
    chance = random.Random(seed)
    while True:
        log = LogMutator(chance, POOL).log()
        if len(log.segments) > 1 and all(log.segments.values()):
            return log


def test_a_sample_of_mutated_logs() -> None:
    """Each is loaded whole or refused in one line, by everything that reads logs."""
    result = Result("test", "logs")
    attack_logs(result, SAMPLE, seed=1)
    assert not result.faults, str(result)
    assert result.inputs["logs"] == SAMPLE
    assert result.inputs["loaded"] > SAMPLE / 20
    assert result.inputs["refused"] > SAMPLE / 20


@pytest.mark.parametrize("seed", seeds(5))
def test_valid_logs_are_loaded_whole(tmp_path: Path, seed: int) -> None:
    log = valid_log(seed)
    assert check_log(log, tmp_path) == "loaded"
    assert len(find_truth(tmp_path / "written").records) > 1


def test_a_base_offset_that_the_checksum_does_not_cover(tmp_path: Path) -> None:
    """A changed bit in the base offset of a batch, in a segment before the last, is noticed by every call."""
    log = valid_log(3)
    first = next(iter(log.segments.values()))
    first[0].data = bytes([first[0].data[0] | 0x10]) + first[0].data[1:]
    assert check_log(log, tmp_path) == "refused"


@pytest.mark.parametrize("content", [b"Dear diary,\n" * 40, b"\xff" * 5_000], ids=["text", "ones"])
def test_a_foreign_file_is_not_emptied(tmp_path: Path, content: bytes) -> None:
    """A file of which no batch was ever valid is no torn tail: it is refused, and stays as it is."""
    log = MutableLog({0: [PieceOfLog(content, 0, 0)]})
    assert check_log(log, tmp_path) == "refused"
    for path in tmp_path.rglob("*.log"):
        assert path.read_bytes() == content


def test_lost_records_are_noticed(tmp_path: Path) -> None:
    """The check finds out a store that gives less than there is, or passes damage over."""
    truth = find_truth(write_log(valid_log(1), tmp_path / "log"))
    compare(Outcome(truth.records, "", []), truth)
    with pytest.raises(LogFaultError, match="records are loaded"):
        compare(Outcome(truth.records[1:], "", []), truth)

    cut = valid_log(1)
    last = list(cut.segments.values())[-1]
    last[-1].data = last[-1].data[:-1]
    damaged = find_truth(write_log(cut, tmp_path / "cut"))
    with pytest.raises(LogFaultError, match="nothing is logged"):
        compare(Outcome(damaged.records, "", []), damaged)
    middle = Truth(damaged.records, [(path, damage, size + 1) for path, damage, size in damaged.damage])
    with pytest.raises(LogFaultError, match="in the middle"):
        compare(Outcome(damaged.records, "", []), middle)


def test_a_refusal_by_accident_is_noticed(tmp_path: Path) -> None:
    """An exception without a useful message is a fault, in every way of reading."""

    def stumble(store: SegmentLogStore) -> list[tuple[int, int, bytes | None, bytes | None]]:
        raise KeyError(7)

    with pytest.raises(LogFaultError, match="KeyError"):
        read_copy(write_log(valid_log(1), tmp_path / "log"), tmp_path / "copy", stumble)
