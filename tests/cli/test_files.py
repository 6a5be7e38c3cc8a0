"""Files that commands read and that are none, no text, or nested without end: a line on stderr and a status."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from groupcoord import cli
from groupcoord.config.files import read_text

COMMANDS: dict[str, tuple[str, ...]] = {
    "a scenario": ("simulate", "FILE"),
    "a scope": ("explore", "FILE"),
    "a history": ("explore", "--replay", "FILE"),
    "a transcript": ("conformance", "FILE"),
    "settings of launched servers": ("conformance", "--launch", "x {port}", "--launch-settings", "FILE"),
    "expected failures": ("conformance", "--expect-failures", "FILE"),
    "a run to compare with": ("conformance", "--compare", "FILE", "--compare", "FILE"),
    "properties of a client": ("lag", "--command-config", "FILE"),
    "passwords": ("serve", "--set", "sasl.users.file=FILE", "--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0"),
    "topics in a data directory": ("serve", "--data-dir", "DIRECTORY", "--port", "0"),
}
LINES = {"properties of a client", "expected failures", "passwords"}
"""What is read by lines, and so not nested."""
JSON = dict.fromkeys(("a history", "a transcript", "a run to compare with"), "given.json")
NAMES = JSON | {"topics in a data directory": "topics.json"}


def fifo(path: Path) -> None:
    """Make a FIFO without a writer."""
    os.mkfifo(path)


def nested(path: Path) -> None:
    path.write_text(("" if path.suffix == ".json" else "a = ") + "[" * 100_000)


def binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00" * 100)


@pytest.mark.parametrize("make", [fifo, nested, binary])
@pytest.mark.parametrize("what", COMMANDS)
def test_a_line_says_what_is_wrong(
    what: str, make: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, no hang: the file and the reason."""
    if make is nested and what in LINES:
        pytest.skip("has no nesting")
    words = COMMANDS[what]
    path = tmp_path / NAMES.get(what, "given.toml")
    make(path)
    with pytest.raises(SystemExit) as ended:
        cli.main([word.replace("FILE", str(path)).replace("DIRECTORY", str(tmp_path)) for word in words])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (1 if "DIRECTORY" in words else 2, "")
    assert path.name in printed.err
    assert printed.err.startswith(f"groupcoord {words[0]}: ")
    assert len(printed.err.splitlines()) == 1


def test_what_a_shell_passes_is_read() -> None:
    """``<(command)`` is a pipe below /dev, which has a writer."""
    reading, writing = os.pipe()
    os.write(writing, "grün".encode())
    os.close(writing)
    assert read_text(f"/dev/fd/{reading}") == "grün"
    os.close(reading)
