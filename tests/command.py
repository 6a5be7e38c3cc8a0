"""The ``groupcoord`` command, run in this process: a new process takes most of a second to start."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from groupcoord.cli import make_app

WIDE_AND_PLAIN = {"COLUMNS": "160", "NO_COLOR": "1"}


class Run(NamedTuple):
    """Result of a command line."""

    status: int
    output: str
    error: str


def run_command(*words: str | Path, environment: Mapping[str, str] | None = None) -> Run:
    """Run a command line in this process. Args: words: the arguments of ``groupcoord``. environment: additional
    variables.
    """
    arguments = [str(word) for word in words]
    variables = {**WIDE_AND_PLAIN, **(environment or {})}
    result = CliRunner().invoke(make_app(arguments), arguments, env=variables, catch_exceptions=False)
    return Run(result.exit_code, result.stdout, result.stderr)


analyze = partial(run_command, "analyze")
dump = partial(run_command, "dump")
