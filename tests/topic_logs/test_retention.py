"""Old records go: by age, by size, a segment at a time, in memory as on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from groupcoord.storage.log.memory_log import PartitionLog
from groupcoord.storage.log.settings import LogMemory, TopicLogSettings
from tests.topic_logs.batches import NOW_MS, produced
from tests.topic_logs.disk import MEMORY_BYTES, Disk

MINUTE_MS = 60_000
SEGMENTS_OF_TWO = evolve(TopicLogSettings(), segment_bytes=2_200, retention_ms=-1)
"""Two of the batches below fit into a segment."""


@pytest.fixture(params=["memory", "disk"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> PartitionLog:
    return PartitionLog(LogMemory(MEMORY_BYTES)) if request.param == "memory" else Disk(tmp_path).log()


def fill(log: PartitionLog, settings: TopicLogSettings, count: int) -> int:
    """Append batches of a kilobyte, a minute apart; return the size of one."""
    for number in range(count):
        batch = produced(b"x" * 1_000, at_ms=NOW_MS + number * MINUTE_MS)
        log.append(batch, settings, NOW_MS + number * MINUTE_MS)
    return len(batch.data)


def test_records_go_when_all_of_their_segment_are_too_old(log: PartitionLog) -> None:
    """The largest timestamp of a segment counts, and the last segment goes like any other; producers go on behind."""
    settings = evolve(SEGMENTS_OF_TWO, retention_ms=10 * MINUTE_MS)
    fill(log, settings, 5)
    starts = []
    for minutes in (10, 11, 12, 13, 14, 15, 100):
        log.retain(settings, NOW_MS + minutes * MINUTE_MS)
        starts.append(log.start_offset)
    assert starts == [0, 0, 2, 2, 4, 5, 5]
    assert log.append(produced(b"y"), settings, NOW_MS).base_offset == 5
    assert log.read(5, 6, 1, takes_first=True).size_bytes


def test_records_go_when_the_log_is_too_large(log: PartitionLog) -> None:
    """As many of the oldest segments as leave enough behind."""
    size = fill(log, SEGMENTS_OF_TWO, 7)
    starts = []
    for kept in (7, 5.1, 5, 3.1, 1.1, 1, 0):
        log.retain(evolve(SEGMENTS_OF_TWO, retention_bytes=int(kept * size)), NOW_MS)
        starts.append(log.start_offset)
    assert starts == [0, 0, 2, 2, 4, 6, 7]


def test_other_policies_delete_nothing(log: PartitionLog) -> None:
    """Without ``delete`` in ``cleanup.policy`` records stay, and without limits, too."""
    fill(log, SEGMENTS_OF_TWO, 5)
    strict = evolve(SEGMENTS_OF_TWO, retention_ms=0, retention_bytes=0)
    assert log.retain(SEGMENTS_OF_TWO, NOW_MS + 1_000 * MINUTE_MS) == 0
    assert log.retain(evolve(strict, is_deleted=False), NOW_MS + 1_000 * MINUTE_MS) == 0
    assert log.retain(strict, NOW_MS + 1_000 * MINUTE_MS) > 0


def test_old_segments_are_full(log: PartitionLog) -> None:
    """A batch that is younger than the first of the segment by more than ``segment.ms`` begins the next."""
    settings = evolve(SEGMENTS_OF_TWO, segment_bytes=1 << 30, segment_ms=2 * MINUTE_MS, retention_bytes=0)
    size = fill(log, settings, 7)
    assert [len(group) for group in log.groups()] == [1, 1, 1]
    assert log.retain(evolve(settings, retention_bytes=4 * size), NOW_MS) == 3 * size


def test_deletion_outlives_a_kill(tmp_path: Path) -> None:
    """Deleted records and their files stay deleted."""
    disk = Disk(tmp_path)
    size = fill(disk.log(), SEGMENTS_OF_TWO, 6)
    disk.log().retain(evolve(SEGMENTS_OF_TWO, retention_bytes=2 * size), NOW_MS)
    disk.kill()
    assert (disk.log().start_offset, disk.log().end_offset) == (4, 6)
    assert len(list(disk.folder().glob("*.log"))) == 1
