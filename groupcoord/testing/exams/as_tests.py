"""The exam in pytest: one test for each scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from groupcoord.testing.exams.call import command_for
from groupcoord.testing.exams.examination import Result, play, scenarios_for
from groupcoord.testing.exams.report import baseline_of, in_lines
from groupcoord.testing.exams.scenarios import Scenario
from groupcoord.testing.exams.stage import Plan


def exam(
    program: Sequence[str] | Callable[..., Any], *, only: Sequence[str] = (), **options: Any
) -> Callable[[Scenario], None]:
    """Return a test that pytest runs once for each scenario: ``test_my_service = exam([...], protocol="consumer")``.

    Args:
        program: the words of the command, with placeholders; or a function at the top of a file, which is called in a
            process of its own with those of ``bootstrap``, ``group``, ``topic``, ``output``, ``instance`` and
            ``protocol`` that it takes.
        only: regular expressions: scenarios whose names match one of them somewhere.
        options: of the :class:`~groupcoord.testing.exams.Plan`.

    Raises:
        ValueError: the plan can't be carried out.
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
