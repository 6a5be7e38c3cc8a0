"""pytest in a separate process, without the settings of this checkout: for tests of tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 60
WITHOUT_HYPOTHESIS = ("-p", "no:hypothesispytest")
"""Options for tests that don't need that plugin, which takes most of the time of a short run."""


def run_pytest(path: Path, *options: str, cwd: Path, timeout_s: float = TIMEOUT_S) -> tuple[int, str]:
    """Run a file of tests in a folder; return the exit status, and what was written: to stdout last.

    Args:
        path: the file.
        options: of pytest, besides.
        cwd: the folder.
        timeout_s: how long that may take, in seconds.

    Raises:
        AssertionError: it takes longer; with what was written until then.
    """
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *options, str(path)]
    try:
        done = subprocess.run(words, cwd=cwd, capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as late:
        written = ((late.stderr or b"") + (late.stdout or b"")).decode()
        raise AssertionError(f"pytest has not ended after {timeout_s} s\n{written}") from None
    return done.returncode, (done.stderr + done.stdout).decode()
