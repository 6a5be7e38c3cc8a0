"""The page about testing: its code runs as printed and finds the planted bug, and its tests pass under pytest."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.pytest_runs import run_pytest

from .markdown import DOCS, ROOT, blocks, run_block

pytestmark = pytest.mark.ci

PAGE = DOCS / "testing.md"
STORY_LINES_MAX = 15
MEMORY = Path("/dev/shm")
"""Where there is such a folder, files in it are spared the disk: the page makes hundreds of small databases."""


@pytest.fixture
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in the checkout, as the page requires."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    if MEMORY.is_dir():
        monkeypatch.setattr(tempfile, "tempdir", str(MEMORY))


@pytest.mark.usefixtures("in_the_checkout")
def test_code_runs_as_printed() -> None:
    """The blocks run in order as one session and print what the page shows.

    How short Hypothesis makes a story depends on its version: the planted bug must be found, and the story be short.
    """
    session: dict[str, object] = {"__name__": "__page__"}
    sequence = blocks(PAGE)
    stories = 0
    for block, following in zip(sequence, [*sequence[1:], None], strict=True):
        if block.language == "python":
            printed = run_block(PAGE, block, session)
            shown = following.code if following is not None and following.language == "text" else ""
            if "process_is_killed" in shown:
                stories += 1
                assert printed.splitlines()[:3] == shown.splitlines()[:3]
                assert "process_is_killed" in printed
                assert len(printed.splitlines()) <= STORY_LINES_MAX
            else:
                assert printed == shown
    assert stories == 1


def test_the_fixtures_examples_pass(tmp_path: Path) -> None:
    """The tests with a real client run under pytest, away from this checkout's settings."""
    pytest.importorskip("confluent_kafka")
    tests = [block.code for block in blocks(PAGE, "python") if "(groupcoord_server" in block.code]
    assert len(tests) == 7
    path = tmp_path / "test_page.py"
    path.write_text("\n\n".join(tests), "utf-8")
    status, output = run_pytest(path, cwd=tmp_path)

    assert status == 0, output
    assert "7 passed" in output
