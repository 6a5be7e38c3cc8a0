"""Log files: found, divided into ranges and read, with changes meanwhile reported."""

from __future__ import annotations

import asyncio
import shutil
from itertools import pairwise
from pathlib import Path

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem

from groupcoord.analysis.decode.files import INTERRUPTED, cut_ranges, find_segments, is_unchanged, rows_of_files
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.errors import InputError


def test_a_file_that_is_gone_is_told(broker_log: Path, tmp_path: Path) -> None:
    """A segment that a broker deletes after it was found is a row, and doesn't stop the rest."""
    shutil.copytree(broker_log, tmp_path / "data")
    (files,) = find_segments([tmp_path / "data"], partitions=frozenset({4, 6}))
    (ranges,) = cut_ranges(files.ranges())
    Path(files.segments[0].path).unlink()
    batches = rows_of_files(files.file_system, ranges, RowSettings())
    told = [row for batch in batches for row in batch.to_pylist() if row["kind"] != "record"]

    assert told[0]["kind"] == "corrupt"
    assert (told[0]["problem"], told[0]["log_partition"]) == ("the file is gone", 4)
    assert told[-1]["kind"] == "read"


def test_what_compaction_left_is_told(broker_log: Path, tmp_path: Path) -> None:
    """A file of an interrupted compaction is reported in a row, and not read."""
    shutil.copytree(broker_log / "__consumer_offsets-4", tmp_path / "__consumer_offsets-4")
    (segment,) = (tmp_path / "__consumer_offsets-4").glob("*.log")
    shutil.copy(segment, segment.with_suffix(".log.swap"))
    (files,) = find_segments([tmp_path])
    (ranges,) = cut_ranges(files.ranges())
    batches = rows_of_files(files.file_system, ranges, RowSettings())
    told = [row for batch in batches for row in batch.to_pylist() if row["kind"] != "record"]

    assert [(row["kind"], row["size_bytes"]) for row in told] == [("read", 5_117), ("corrupt", 5_117)]
    assert (told[1]["file"], told[1]["problem"]) == (f"{segment}.swap", INTERRUPTED)


def test_files_are_cut_into_tasks(broker_log: Path) -> None:
    """Large files are cut, small ones put together, and every byte is in one range."""
    (files,) = find_segments([broker_log])
    tasks = cut_ranges(files.ranges(), 65_536)
    spans: dict[str, list[tuple[int, int]]] = {}
    for task in tasks:
        assert sum(one.byte_range.end - one.byte_range.start for one in task) <= 100_000
        for segment, byte_range in task:
            spans.setdefault(segment.path, []).append((byte_range.start, byte_range.end))

    assert 5 < len(tasks) < len(files.segments) + 4
    for segment in files.segments:
        own = spans[segment.path]
        assert (own[0][0], own[-1][1]) == (0, segment.size_bytes)
        assert all(before[1] == after[0] for before, after in pairwise(own))


class Waiting(AsyncFileSystem):
    """Store with five log partitions that answers for a folder when all folders were requested."""

    protocol = "waiting"
    async_impl = True
    folders = tuple(f"/data/__consumer_offsets-{number}" for number in range(5))

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self._asked: set[str] = set()

    async def _info(self, path: str, **_: object) -> dict[str, object]:
        return {"name": path, "type": "directory", "size": 0}

    async def _ls(self, path: str, detail: bool = True, **_: object) -> list[dict[str, object]]:
        if path not in self.folders:
            return [{"name": name, "type": "directory", "size": 0} for name in self.folders]
        self._asked.add(path)
        async with asyncio.timeout(30):
            while len(self._asked) < len(self.folders):
                await asyncio.sleep(0)
        return [{"name": f"{path}/{0:020d}.log", "type": "file", "size": 7}]


def test_folders_are_listed_side_by_side() -> None:
    """A store far away takes the time of one answer for all log partitions, which stay in order."""
    fsspec.register_implementation("waiting", Waiting, clobber=True)
    (files,) = find_segments(["waiting:///data"])
    assert [segment.partition for segment in files.segments] == [0, 1, 2, 3, 4]


def test_of_several_directories_some_may_have_no_log_partitions(broker_log: Path, tmp_path: Path) -> None:
    """For instance those of workers with one coordinator; if none has any, the first is reported."""
    for name in ("empty", "also"):
        (tmp_path / name).mkdir()
    assert find_segments([tmp_path / "empty", broker_log, tmp_path / "also"]) == find_segments([broker_log])
    with pytest.raises(InputError, match="empty holds no segment files"):
        find_segments([tmp_path / "empty", tmp_path / "also"])


def test_linked_folders_and_segments_are_found(tmp_path: Path) -> None:
    path = tmp_path / "there" / "__consumer_offsets-4" / f"{0:020d}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(12))
    linked = tmp_path / "linked"
    (linked / "__consumer_offsets-5").mkdir(parents=True)
    (linked / "__consumer_offsets-4").symlink_to(path.parent)
    (linked / "__consumer_offsets-5" / path.name).symlink_to(path)
    (found,) = find_segments([linked])
    assert [(one.partition, one.size_bytes) for one in found.segments] == [(4, 12), (5, 12)]
    assert all(is_unchanged(found.file_system, segment) for segment in found.segments)
