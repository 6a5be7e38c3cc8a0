"""The file in which the transaction coordinator keeps its entries: what a crash leaves, what damage does, its size."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from groupcoord.host.transaction_log import (
    FILE_NAME,
    ROTTEN_CHANGES,
    FileTransactionLog,
    MemoryTransactionLog,
    TransactionLogError,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / FILE_NAME


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
    """Then nothing more is written, so that the damage stays at the end; the next start cuts it off."""

    def fail(*arguments: object) -> int:
        raise OSError(5, "Input/output error")

    log = FileTransactionLog(path.parent)
    log.put("a", 1)
    monkeypatch.setattr(os, "ftruncate", fail)
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:5]))
    with pytest.raises(TransactionLogError):
        log.put("b", 2)
    monkeypatch.undo()
    with pytest.raises(TransactionLogError, match="closed"):
        log.put("c", 3)
    assert reopen(path) == {"a": 1}


def test_it_can_not_be_opened(path: Path) -> None:
    """A directory that can't be made is an error that names the file."""
    path.parent.write_text("a file")
    with pytest.raises(TransactionLogError, match=FILE_NAME):
        FileTransactionLog(path.parent)
