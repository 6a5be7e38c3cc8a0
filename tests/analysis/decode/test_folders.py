"""Folders read before: only possible changes are looked up, and each change is found."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from groupcoord.analysis.decode.files import SETTLED_NS, Folders, SegmentFile, find_segments
from groupcoord.analysis.pipeline.sources import LogSource

LONG_AGO_NS = 1_700_000_000_000_000_000


def segment(folder: Path, base_offset: int, size_bytes: int = 10) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{base_offset:020d}.log"
    path.write_bytes(bytes(size_bytes))
    path.with_suffix(".index").touch()
    return path


def settle(folder: Path, changes: int = 0) -> None:
    """Set the modification times of a folder and its files far back, in ascending order."""
    for path in (folder, *folder.glob("*/")):
        os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS + changes))


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Count the system calls: listings of folders and states of files."""
    asked: list[str] = []
    scandir, stat = os.scandir, os.stat
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", lambda path: asked.append(f"list {path}") or scandir(path))
        patched.setattr(os, "stat", lambda path, **how: asked.append(f"stat {path}") or stat(path, **how))
        yield asked


def test_a_look_again_asks_for_what_can_have_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log partition with a hundred segments a second look asks for the folder's time and the last segment."""
    folders = [tmp_path / f"__consumer_offsets-{number}" for number in range(3)]
    for folder in folders:
        for number in range(100):
            last = segment(folder, number * 1_000)
    settle(tmp_path)
    source = LogSource([tmp_path])
    found = source.find(may_be_empty=False)
    with last.open("ab") as file:
        file.write(bytes(5))
    with counted(monkeypatch) as asked:
        (grown,) = source.find(may_be_empty=False)

    expected = {f"stat {folder}" for folder in folders} | {f"stat {folder / last.name}" for folder in folders}
    assert not [one for one in asked if one.startswith("list")]
    assert set(asked) == expected | {f"stat {tmp_path}"}
    assert [one.size_bytes for one in grown.segments] == [10] * 299 + [15]
    assert grown.segments[:-1] == found[0].segments[:-1]


def test_every_change_is_found(tmp_path: Path) -> None:
    """After any change of a log directory by a broker, a second look equals a first one."""
    first = tmp_path / "__consumer_offsets-1"
    segments = [segment(first, base_offset) for base_offset in (0, 10, 20)]
    folders = Folders()

    def append() -> None:
        with segments[-1].open("ab") as file:
            file.write(bytes(7))

    def compact() -> None:
        swap = segments[0].with_suffix(".log.swap")
        swap.write_bytes(bytes(3))
        swap.rename(segments[0])

    def truncate() -> None:
        segments.pop().unlink()
        with segments[-1].open("ab") as file:
            file.truncate(4)

    changes = [
        append,
        lambda: segments.append(segment(first, 30)),
        append,
        compact,
        lambda: segments[1].with_suffix(".log.swap").write_bytes(bytes(3)) and None,
        lambda: segments[1].with_suffix(".log.swap").rename(segments[1]) and None,
        lambda: segments.pop(0).unlink(),
        lambda: segment(tmp_path / "__consumer_offsets-0", 0) and None,
        truncate,
        append,
        lambda: segments.append(segment(first, 40)),
        lambda: first.rename(tmp_path / "__consumer_offsets-1.of-before-delete") and None,
    ]
    known: list[list[SegmentFile]] = []
    for number, change in enumerate([lambda: None, *changes]):
        change()
        settle(tmp_path, number)
        (again,) = find_segments([tmp_path], may_be_empty=True, folders=folders)
        assert again == find_segments([tmp_path], may_be_empty=True)[0], number
        known.append(again.segments)
    assert all(before != after for before, after in pairwise(known))


def test_a_folder_that_has_just_changed_is_listed_again(tmp_path: Path) -> None:
    """Two changes within the resolution of the file system's clock are both found."""
    folder = tmp_path / "__consumer_offsets-1"
    segment(folder, 0)
    now_ns = LONG_AGO_NS + SETTLED_NS
    folders = Folders(lambda: now_ns)
    looked = []
    for base_offset in (10, 20):
        segment(folder, base_offset)
        os.utime(folder, ns=(LONG_AGO_NS, LONG_AGO_NS))
        (found,) = folders.look(LocalFileSystem(), [str(folder)])
        looked.append([Path(one.path).name for one in found.segments])
    assert [len(names) for names in looked] == [2, 3]


def test_where_the_last_name_is_not_the_last_offset_every_file_is_asked_for(tmp_path: Path) -> None:
    """Names that Kafka does not give have no order, so any of the files may have grown."""
    tail = tmp_path / "10.log"
    for path in (tmp_path / "9.log", tail):
        path.write_bytes(b"one")
    settle(tmp_path)
    folders = Folders()
    for expected in (3, 6):
        (found,) = folders.look(LocalFileSystem(), [str(tmp_path)])
        assert [one.size_bytes for one in found.segments] == [expected, 3]
        tail.write_bytes(b"onetwo")


def test_what_was_found_stays_in_its_process(tmp_path: Path) -> None:
    """A reader that Spark sends to its workers doesn't carry the names of all files."""
    segment(tmp_path / "__consumer_offsets-1", 0)
    settle(tmp_path)
    folders = Folders(time.time_ns)
    (found,) = find_segments([tmp_path], folders=folders)
    assert len(found.segments) == 1
    assert pickle.dumps(folders) == pickle.dumps(Folders())


def test_linked_folders_and_segments_are_found(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    path = segment(there / "__consumer_offsets-4", 0, 12)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "__consumer_offsets-4").symlink_to(path.parent)
    (linked / "__consumer_offsets-5").mkdir()
    (linked / "__consumer_offsets-5" / path.name).symlink_to(path)
    (found,) = find_segments([linked])
    assert [(one.partition, one.size_bytes) for one in found.segments] == [(4, 12), (5, 12)]
