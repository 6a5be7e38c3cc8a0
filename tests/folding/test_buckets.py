"""Buckets of groups: what is written is read, whole or not at all, and files go when nobody needs them."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from groupcoord.analysis.folding import buckets as state_buckets
from groupcoord.analysis.folding.buckets import (
    COUNT_MAX,
    COUNT_MIN,
    BucketFile,
    BucketFolder,
    Buckets,
    Kept,
    bucket_name,
    first_count,
    outdated,
)


def test_a_bucket_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, however few groups are held at a time; without a file there are none."""
    monkeypatch.setattr(state_buckets, "_ROWS_MAX", 2)
    folder = BucketFolder(fsspec.filesystem("file"), str(tmp_path / "buckets"))
    kept = [Kept(-1, "é", b"1"), Kept(3, "é", b""), Kept(0, "z", bytes(range(256)))]
    with folder.writing("some") as bucket:
        for one in kept:
            bucket.add(one)
    assert (bucket.groups, list(folder.read("some")), list(folder.read(None))) == (3, kept, [])


def test_a_bucket_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """What was begun is gone, and what was there before stays."""
    folder = BucketFolder(fsspec.filesystem("file"), str(tmp_path))
    with folder.writing("some") as bucket:
        bucket.add(Kept(0, "g", b"1"))
    with pytest.raises(ZeroDivisionError), folder.writing("some") as bucket:
        bucket.add(Kept(0, "g", bytes(1 // 0)))
    assert [path.name for path in tmp_path.iterdir()] == ["some"]
    assert list(folder.read("some")) == [Kept(0, "g", b"1")]


class Store(MemoryFileSystem):
    """Takes files as fsspec's S3 does: told to wait, it shows none before it is told that it is complete."""

    protocol = "s3"
    cachable = False

    def _open(self, path: str, mode: str = "rb", *_: object, autocommit: bool = True, **__: object) -> MemoryFile:
        return super()._open(path, mode) if mode == "rb" else MemoryFile(self, self._strip_protocol(path))

    def mv(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("a store copies what is renamed")


def test_a_store_is_told_when_a_file_is_whole() -> None:
    """Nothing is renamed there, nor seen before, and of what fails nothing is ever seen."""
    store = Store()
    folder = BucketFolder(store, "/whole")
    with folder.writing("some") as bucket:
        bucket.add(Kept(0, "g", b"1"))
        assert not store.exists("/whole/some")
    with pytest.raises(ZeroDivisionError), folder.writing("other") as bucket:
        bucket.add(Kept(0, "g", bytes(1 // 0)))
    assert store.find("/whole") == ["/whole/some"]
    assert list(folder.read("some")) == [Kept(0, "g", b"1")]
    store.rm("/whole", recursive=True)


def test_replaced_files_stay_for_some_updates() -> None:
    """A file goes four updates after it was replaced, what was not completed at once; what counts stays."""
    buckets = Buckets(16, {0: BucketFile(9, 1), 1: BucketFile(2, 1)})
    names = [bucket_name(0, 16, written) for written in (1, 6, 8, 9, 10)] + [bucket_name(1, 16, 2)]
    left = f".{bucket_name(1, 16, 9)}.77"
    assert set(outdated([*names, left], buckets, 9, 4)) == {bucket_name(0, 16, 10), left}
    assert set(outdated(names, buckets, 10, 4)) == {bucket_name(0, 16, 1)}
    fewer = [bucket_name(0, 4, 8), bucket_name(1, 4, 3)]
    assert set(outdated([*names[3:4], bucket_name(4, 16, 9), *fewer], buckets, 12, 4)) == set()
    assert set(outdated([*names[3:4], bucket_name(4, 16, 9), *fewer], buckets, 13, 4)) == {*fewer}


def test_there_are_more_buckets_for_more_groups() -> None:
    """Powers of two, from what keeps so many tasks busy up to a bound."""
    assert [first_count(tasks) for tasks in (1, 6, 200, 10**6)] == [COUNT_MIN, 32, 1_024, COUNT_MAX]
    assert [Buckets(16, {0: BucketFile(0, groups)}).wanted_count for groups in (0, 4_096, 4_097, 10**9)] == [
        *(16, 16, 64),
        COUNT_MAX,
    ]
