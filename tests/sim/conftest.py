"""Fixtures of the simulator's tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from groupcoord import cli

Simulate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Simulate:
    """Run the command; returns exit status, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main(["simulate", *words])
        output = capsys.readouterr()
        return int(caught.value.code or 0), output.out, output.err

    return run
