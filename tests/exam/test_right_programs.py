"""A right program of each protocol passes the whole exam; ``python -m tests.exam.rounds`` does it again and again."""

from __future__ import annotations

import pytest

from groupcoord.testing.exams.examination import in_lines

from .rounds import RIGHT, play_rounds


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RIGHT if name != "exactly-once"])
def test_a_right_program_passes(name: str) -> None:
    failed = [result for _, result in play_rounds([name], rounds=1, jobs=2) if not result.is_passed]
    assert not failed, "\n".join(line for result in failed for line in [result.scenario.name, *in_lines(result)])
