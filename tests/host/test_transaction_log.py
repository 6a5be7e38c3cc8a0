"""The file in which the transaction coordinator keeps its entries: what a crash leaves, what damage does, its size."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from groupcoord.broker.transactions import log as transaction_log
from groupcoord.broker.transactions.log import (
    FILE_NAME,
    ROTTEN_CHANGES,
    FileTransactionLog,
    MemoryTransactionLog,
    TransactionLogError,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / FILE_NAME


def full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def reopen(path: Path) -> dict[str, object]:
    log = FileTransactionLog(path.parent)
    log.close()
    return dict(log.entries)


def write(path: Path, **entries: int) -> None:
    log = FileTransactionLog(path.parent)
    for key, value in entries.items():
        log.put(key, value)
    log.close()


def test_memory() -> None:
    """Entries are set, replaced and removed; removing what isn't there is nothing."""
    log = MemoryTransactionLog()
    log.put("a", 1)
    log.put("a", {"b": 2})
    log.put("c", None)
    assert log.entries == {"a": {"b": 2}}
    log.put("a", None)
    assert log.entries == {}


def test_file(path: Path) -> None:
    """What was put is there when the file is opened again, whatever characters a key has."""
    log = FileTransactionLog(path.parent)
    log.put("näme \n\U0001f600", {"partitions": {"t": [0, 2]}})
    log.put("gone", 1)
    log.put("gone", None)
    log.put("number", 1)
    log.put("number", 2)
    log.close()
    assert reopen(path) == {"näme \n\U0001f600": {"partitions": {"t": [0, 2]}}, "number": 2}


def test_bytes_are_there_at_once(path: Path) -> None:
    """When a change returns, another process could read it: a kill loses nothing."""
    log = FileTransactionLog(path.parent)
    log.put("a", 1)
    assert json.loads(path.read_bytes().splitlines()[-1]) == {"key": "a", "value": 1}
    log.close()


def test_every_torn_tail(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A last line that is cut anywhere is cut off, and said so; all before it stays, and the file can be used."""
    write(path, a=1, b=2)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last + 1, len(whole)):
        path.write_bytes(whole[:end])
        caplog.clear()
        assert reopen(path) == {"a": 1}
        assert f"cut {end - last} bytes" in caplog.text
        write(path, b=2)
        assert path.read_bytes() == whole


@pytest.mark.parametrize("tail", [b"\x00" * 50, b"\x00" * 50 + b"\n", b'{"key": 1', b"{}\n", b"[]\n"])
def test_a_tail_of_rubbish(path: Path, tail: bytes) -> None:
    """What a power failure may leave at the end is cut off, too."""
    write(path, a=1)
    path.write_bytes(path.read_bytes() + tail)
    assert reopen(path) == {"a": 1}


def test_damage_inside(path: Path) -> None:
    """Damage before the end can't come from a crash: it is refused with the number of the line, and left as it is."""
    write(path, a=1, b=2)
    damaged = path.read_bytes().replace(b'"key":"a"', b'"kex":"a"')
    path.write_bytes(damaged)
    with pytest.raises(TransactionLogError, match="line 2"):
        FileTransactionLog(path.parent)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("content", [b'{"format":"groupcoord transactions","version":2}\n', b"hello\n", b"[1]\n"])
def test_another_format(path: Path, content: bytes) -> None:
    """A file of a newer format, or of something else, is refused and left as it is."""
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(TransactionLogError, match=FILE_NAME):
        FileTransactionLog(path.parent)
    assert path.read_bytes() == content


def test_an_empty_file(path: Path) -> None:
    """A file without content is a new one."""
    path.parent.mkdir()
    path.write_bytes(b"")
    assert reopen(path) == {}


def test_it_is_rewritten_when_opened(path: Path) -> None:
    """What is out of date is gone after the next start."""
    write(path, a=1)
    size = path.stat().st_size
    log = FileTransactionLog(path.parent)
    for _ in range(100):
        log.put("a", 1)
    log.close()
    assert path.stat().st_size > size
    assert reopen(path) == {"a": 1}
    assert path.stat().st_size == size


def test_it_does_not_grow_for_ever(path: Path) -> None:
    """While it is open it is rewritten, too, and later changes go to the new file."""
    log = FileTransactionLog(path.parent)
    sizes = []
    for number in range(3 * ROTTEN_CHANGES):
        log.put("a", number)
        sizes.append(os.stat(path).st_size)
    log.close()
    assert max(sizes) < 50 * ROTTEN_CHANGES
    assert reopen(path) == {"a": 3 * ROTTEN_CHANGES - 1}


def test_a_failed_write_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of which only a part could be written is taken back: the next one is readable."""
    log = FileTransactionLog(path.parent)
    log.put("a", 1)
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:5]))
    with pytest.raises(TransactionLogError, match=FILE_NAME):
        log.put("b", 2)
    monkeypatch.undo()
    assert log.entries == {"a": 1}
    log.put("c", 3)
    log.close()
    assert reopen(path) == {"a": 1, "c": 3}


def test_a_write_that_can_not_be_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing more is written until it can be; if the process ends before, the next start cuts it off."""

    def fail(*arguments: object) -> int:
        raise OSError(5, "Input/output error")

    log = FileTransactionLog(path.parent)
    log.put("a", 1)
    monkeypatch.setattr(os, "ftruncate", fail)
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:5]))
    with pytest.raises(TransactionLogError):
        log.put("b", 2)
    monkeypatch.setattr(os, "write", real_write)
    with pytest.raises(TransactionLogError, match="Input/output error"):
        log.put("c", 3)
    monkeypatch.undo()
    torn = path.read_bytes()
    log.put("d", 4)
    log.close()
    assert reopen(path) == {"a": 1, "d": 4}
    path.write_bytes(torn)
    assert reopen(path) == {"a": 1}


def test_a_closed_log(path: Path) -> None:
    """After closing it, nothing can be put."""
    log = FileTransactionLog(path.parent)
    log.close()
    with pytest.raises(TransactionLogError, match="closed"):
        log.put("a", 1)


def test_nothing_is_written_when_nothing_is_out_of_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting again takes no room on the disk, so a full one can't keep a server from it."""
    write(path, a=1, b=2)
    before = path.stat()
    monkeypatch.setattr(os, "write", full_disk)
    monkeypatch.setattr(transaction_log, "replace_file", full_disk)
    assert reopen(path) == {"a": 1, "b": 2}
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_new_file_needs_no_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first change writes the line that names the format; a full disk refuses that change, not the start."""
    monkeypatch.setattr(os, "write", full_disk)
    log = FileTransactionLog(path.parent)
    with pytest.raises(TransactionLogError, match="No space left"):
        log.put("a", 1)
    monkeypatch.undo()
    log.put("b", 2)
    log.close()
    assert path.read_bytes().startswith(b'{"format":"groupcoord transactions","version":1}\n')
    assert reopen(path) == {"b": 2}


def test_a_torn_tail_is_cut_on_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting takes no room either."""
    write(path, a=1)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key":"b"')
    monkeypatch.setattr(os, "write", full_disk)
    monkeypatch.setattr(transaction_log, "replace_file", full_disk)
    assert reopen(path) == {"a": 1}
    assert path.read_bytes() == whole


def test_a_file_that_can_not_be_rewritten_is_used_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When there is no room for the new file at the start, one line says so and the old one takes the changes."""
    write(path, a=1)
    write(path, a=2)
    size = path.stat().st_size
    monkeypatch.setattr(os, "fsync", full_disk)
    log = FileTransactionLog(path.parent)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{path}: can't be rewritten without what is out of date: ")
    assert list(path.parent.iterdir()) == [path]
    log.put("b", 3)
    log.close()
    assert path.stat().st_size > size
    assert reopen(path) == {"a": 2, "b": 3}


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.truncate(path, 60)], ids=["deleted", "shortened"])
def test_a_file_that_is_deleted_is_written_anew(
    path: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is acknowledged into a file that is gone: all entries are put into a new one, and that is said."""
    log = FileTransactionLog(path.parent)
    log.put("a", 1)
    harm(path)
    log.put("b", 2)
    assert "was deleted or changed while it was open" in caplog.text
    log.put("c", 3)
    log.close()
    assert reopen(path) == {"a": 1, "b": 2, "c": 3}


def test_a_directory_that_is_deleted_refuses_changes(path: Path) -> None:
    """Where no new file can be made a change is refused, until there is a place for it."""
    log = FileTransactionLog(path.parent)
    log.put("a", 1)
    shutil.rmtree(path.parent)
    with pytest.raises(TransactionLogError, match=FILE_NAME):
        log.put("b", 2)
    path.parent.mkdir()
    log.put("c", 3)
    log.close()
    assert reopen(path) == {"a": 1, "c": 3}


def test_it_can_not_be_opened(path: Path) -> None:
    """A directory that can't be made is an error that names the file."""
    path.parent.write_text("a file")
    with pytest.raises(TransactionLogError, match=FILE_NAME):
        FileTransactionLog(path.parent)
