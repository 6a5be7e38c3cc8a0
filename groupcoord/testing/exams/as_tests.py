"""The exam in pytest: one test for each scenario, for a command or a function.

``python -m groupcoord.testing.exams.as_tests FOLDER MODULE NAME …`` calls such a function in its own process.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from groupcoord.testing.exams.examination import Result, baseline_of, in_lines, play, scenarios_for
from groupcoord.testing.exams.scenarios import Scenario
from groupcoord.testing.exams.stage import LOGIN_PLACEHOLDERS, PLACEHOLDERS, Plan


def command_for(function: Callable[..., Any]) -> list[str]:
    """Return the command that calls a function in its own process."""
    name, taken = getattr(function, "__qualname__", ""), inspect.signature(function).parameters
    if not name.isidentifier():
        raise ValueError(f"{name or function!r} must be a function at the top of a file, so that others can call it")
    if unknown := [key for key in taken if key not in PLACEHOLDERS + LOGIN_PLACEHOLDERS]:
        raise ValueError(
            f"{name}() takes {unknown[0]!r}; an instance is given {', '.join(PLACEHOLDERS + LOGIN_PLACEHOLDERS)}"
        )
    path = Path(inspect.getfile(function)).resolve()
    module = path.stem if function.__module__ == "__main__" else function.__module__
    folder = str(path.parents[module.count(".")]).replace("{", "{{").replace("}", "}}")
    return [sys.executable, "-m", __name__, folder, module, name, *(f"{key}={{{key}}}" for key in taken)]


def main(folder: str, module: str, name: str, *values: str) -> None:
    sys.path.insert(0, folder)
    getattr(import_module(module), name)(**dict(value.split("=", 1) for value in values))


if __name__ == "__main__":
    main(*sys.argv[1:])


def exam(
    program: Sequence[str] | Callable[..., Any], *, only: Sequence[str] = (), **options: Any
) -> Callable[[Scenario], None]:
    """Return a test with one case per scenario: ``test_my_service = exam([...], protocol="consumer")``.

    Args:
        program: the command with placeholders; or a function at module level, which runs in its own process with the
            parameters it has of ``bootstrap``, ``group``, ``topic``, ``output``, ``instance`` and ``protocol``.
        only: regular expressions searched in the names of scenarios.
        options: arguments of :class:`~groupcoord.testing.exams.Plan`.

    Raises:
        ValueError: the plan is invalid.
    """
    import pytest

    plan = Plan(command_for(program) if callable(program) else program, **options)
    results: list[Result] = []

    @pytest.mark.parametrize("scenario", scenarios_for(plan, only), ids=lambda scenario: scenario.name)
    def test(scenario: Scenario) -> None:
        """The program breaks no law in this scenario."""
        if results and not results[0].has_begun:
            pytest.skip(f"begins like {results[0].scenario.name}, which failed before anything went wrong")
        result = play(plan, scenario)
        results.append(result)
        if not result.is_passed:
            pytest.fail("\n".join([scenario.why, *in_lines(result, baseline_of(results))]), pytrace=False)

    return test
