"""The README's examples work as printed. Only the port and the environment's folder differ here."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from groupcoord.conformance.sockets import FreePorts
from tests.pytest_runs import WITHOUT_HYPOTHESIS, run_pytest

from .markdown import ROOT, Block, blocks

README = ROOT / "README.md"
PYTHON_BLOCKS = blocks(README, "python")
PORT = "9092"
START_TIMEOUT_S = 30
TIMEOUT_S = 60


def expected_output(block: Block) -> str:
    """Return the output that the README shows for a block."""
    sequence = blocks(README)
    following = sequence[sequence.index(block) + 1]
    assert following.language == "text", f"line {block.line}: the README doesn't show what this prints"
    return following.code


def run_block(block: Block, tmp_path: Path, port: str = PORT) -> str:
    program = tmp_path / "example.py"
    program.write_text(block.code.replace(PORT, port), "utf-8")
    done = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )

    assert done.returncode == 0, f"README, line {block.line}: {done.stderr}"
    return done.stdout


def shell_words(containing: str) -> list[str]:
    """Return the words of the README's command that contains ``containing``, for this Python's environment."""
    (command,) = (block.code for block in blocks(README, "sh") if containing in block.code)
    words = shlex.split(command)
    assert words[0] == ".venv/bin/groupcoord"
    return [sys.executable, "-c", "from groupcoord.cli import main; main()", *words[1:]]


@contextmanager
def served(port: str, cwd: Path) -> Iterator[None]:
    """Run the README's server on another port."""
    words = [port if word == PORT else word for word in shell_words("groupcoord serve")]
    assert port in words
    process = subprocess.Popen(
        words,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "listening" in line, line
        yield
    finally:
        process.terminate()
        process.communicate(timeout=START_TIMEOUT_S)


FIXTURE = "groupcoord_server"
STAND_ALONE = [block for block in PYTHON_BLOCKS if PORT not in block.code and FIXTURE not in block.code]


@pytest.mark.parametrize("block", STAND_ALONE, ids=lambda block: block.heading)
def test_examples_print_what_is_printed(block: Block, tmp_path: Path) -> None:
    """An example is a whole program, and its output is the one below it."""
    assert run_block(block, tmp_path) == expected_output(block)


@pytest.mark.ci
def test_the_first_example_passes(tmp_path: Path) -> None:
    """The fixture example, a test with a broker, passes under pytest as printed."""
    assert FIXTURE in PYTHON_BLOCKS[0].code
    path = tmp_path / "test_page.py"
    path.write_text(PYTHON_BLOCKS[0].code, "utf-8")
    status, output = run_pytest(path, *WITHOUT_HYPOTHESIS, cwd=tmp_path)

    assert status == 0, output
    assert "1 passed" in output


@pytest.mark.ci
@pytest.mark.parametrize(
    ("command", "changed", "made"),
    [
        ("groupcoord analyze", {}, "results/report.html"),
        ("groupcoord simulate", {"20": "1"}, "simulation.html"),
    ],
)
def test_pages_are_made_as_shown(tmp_path: Path, command: str, changed: dict[str, str], made: str) -> None:
    """The commands above the pictures make a page; of the simulation's seeds one is enough here."""
    for folder in ("tests", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    words = [changed.get(word, word) for word in shell_words(command)]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / made).read_text("utf-8").startswith("<!doctype html>")


def test_a_client_joins_the_server(tmp_path: Path) -> None:
    (block,) = (block for block in PYTHON_BLOCKS if PORT in block.code)
    ports = FreePorts()
    with served(str(ports.first), tmp_path):
        printed = run_block(block, tmp_path, str(ports.first))
    ports.give_back()

    assert printed == expected_output(block)


@pytest.mark.ci
def test_conformance_passes_as_shown(tmp_path: Path) -> None:
    """The conformance command of the README runs and finds no difference."""
    done = subprocess.run(
        shell_words("groupcoord conformance"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout


@pytest.mark.ci
def test_an_exhibit_plays_as_shown(tmp_path: Path) -> None:
    """The museum's command of the README plays an exhibit, and its page has a step behind another and a broken law."""
    done = subprocess.run(
        shell_words("groupcoord museum"), cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    page = (tmp_path / "museum.html").read_text("utf-8")

    assert done.returncode == 0, done.stdout + done.stderr
    assert page.count('<details name="steps-KAFKA-16147">') == 5
    assert "m1 is stable and has 0, 1, 2, 3" in page
    assert "Broken: check" in page
    assert "<script" not in page


def test_set_up_takes_one_line_each() -> None:
    """The two commands for a fresh machine make their own environment, and the extras they install exist."""
    set_up = [block.code for block in blocks(README, "sh") if "pip install" in block.code]

    assert len(set_up) == 2
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for command, extra, program in zip(set_up, ("demo", "test"), ("groupcoord demo", "pytest"), strict=True):
        assert command.count("\n") == 1
        steps = command.strip().split(" && ")
        assert steps[0] == "python3 -m venv .venv"
        assert steps[1].startswith(".venv/bin/pip install ")
        assert f"'.[{extra}]'" in steps[1]
        assert extra in extras
        assert steps[2] == f".venv/bin/{program}"
