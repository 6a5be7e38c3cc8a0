"""``groupcoord analyze`` as a user runs it, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from groupcoord.cli import make_app


class Run(NamedTuple):
    """What came of a command line."""

    status: int
    output: str
    error: str


def run(*words: str | Path) -> Run:
    """Run ``groupcoord analyze`` in this process."""
    arguments = ["analyze", *map(str, words)]
    result = CliRunner().invoke(make_app(arguments), arguments, catch_exceptions=False)
    return Run(result.exit_code, result.stdout, result.stderr)
