"""Choice of random mutants (``python -m tests.mutation``)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray")

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from tests.mutation import mutations_of

SOURCE = """\
def more(number: int | None, by: float = 1.5) -> float | None:
    if number is None or by > 2:
        return None
    return number + by
"""


def test_annotations_are_not_changed(tmp_path: Path) -> None:
    """Every mutant changes what the code does: defaults and bodies, but no type annotation."""
    path = tmp_path / "more.py"
    path.write_text(SOURCE)

    by_place = mutations_of(path)

    assert {SOURCE.splitlines()[line - 1][first:last] for _, (line, first), (_, last) in by_place} >= {"+", ">", "or"}
    for spec in (spec for specs in by_place.values() for spec in specs):
        mutant = mutate_code(SOURCE, get_operator(spec.operator_name)(), spec.occurrence)
        assert mutant != SOURCE
        assert all(text in mutant for text in ("number: int | None", "by: float =", "-> float | None:"))
