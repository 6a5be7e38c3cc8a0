"""The page about testing a consumer service: its tests pass under pytest as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pytest_runs import WITHOUT_HYPOTHESIS, run_pytest

from .markdown import DOCS, blocks

PAGE = DOCS / "consumers.md"
TIMEOUT_S = 400
TEST_LINES_MAX = 12


@pytest.mark.ci
def test_its_tests_pass(tmp_path: Path) -> None:
    """Services with three clients pass the printed tests, in one file outside the checkout."""
    code = "\n\n".join(block.code for block in blocks(PAGE, "python"))
    count = len(re.findall(r"^def test_", code, re.MULTILINE))
    path = tmp_path / "test_page.py"
    path.write_text(code, "utf-8")
    status, output = run_pytest(path, *WITHOUT_HYPOTHESIS, cwd=tmp_path, timeout_s=TIMEOUT_S)

    assert status == 0, output
    assert f"{count} passed" in output
    assert count == 6


def test_ten_lines_are_about_ten() -> None:
    """Tests called ten lines have at most a dozen, without empty lines and the service."""
    for block in blocks(PAGE, "python"):
        if block.heading.startswith("Ten lines"):
            test = block.code.partition("@pytest.mark")[2].splitlines()[1:]
            assert len([line for line in test if line.strip()]) <= TEST_LINES_MAX
