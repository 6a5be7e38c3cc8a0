"""Sample sizes and seeds: a fifth by default, all cases in CI, all examples at night, seeds by ``GROUPCOORD_SEED``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.conftest import chooses
from tests.pytest_runs import run_pytest
from tests.samples import VARIABLE, examples

EXAMPLES = 50


@given(st.booleans())
@settings(max_examples=EXAMPLES)
def test_random_ones_are_sampled_by_themselves(value: bool) -> None:
    """A random test runs its share of the examples without a setting of its own."""
    wrapped: Any = test_random_ones_are_sampled_by_themselves
    assert wrapped._hypothesis_internal_use_settings.max_examples == examples(EXAMPLES)


@pytest.mark.parametrize(
    ("chosen", "marks"),
    [
        ("not (slow or ci)", set()),
        ("slow", {"slow"}),
        ("ci and not slow", {"ci"}),
        ("ci or slow", {"ci", "slow"}),
        ("", {"ci", "slow"}),
    ],
)
def test_marks_decide_the_size(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: Any, chosen: str, marks: set[str]
) -> None:
    """Tables are whole where ``ci`` is selected, random tests where ``slow`` is."""
    monkeypatch.setattr(pytestconfig.option, "markexpr", chosen)
    assert {mark for mark in ("ci", "slow") if chooses(pytestconfig, mark)} == marks


RANDOM_TESTS = """
import pytest
from hypothesis import given, strategies as st
from tests.samples import seeds

@pytest.mark.parametrize("seed", seeds(2))
@given(number=st.integers())
def test_draws(seed, number):
    with open("drawn", "a") as file:
        print(seed, number, file=file)

def test_fails():
    raise AssertionError
"""


def test_seeds_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a seed each run draws the same; a random seed is printed, also with failures, and repeats it."""
    test, drawn_file = tmp_path / "test_draws.py", tmp_path / "drawn"
    test.write_text(RANDOM_TESTS)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    drawn: dict[str, str] = {}

    def run(seed: str) -> str:
        drawn_file.write_text("")
        monkeypatch.setenv(VARIABLE, seed) if seed else monkeypatch.delenv(VARIABLE, raising=False)
        _, printed = run_pytest(test, "-p", "tests.conftest", "-n", "0", cwd=tmp_path)
        now = drawn_file.read_text()
        assert drawn.setdefault(seed, now) == now
        assert "1 failed, 2 passed" in printed
        return printed

    assert VARIABLE not in run("") + run("")
    seed = run("random").partition("\n")[0].removeprefix(f"{VARIABLE}=")
    printed = run(seed)
    assert printed.startswith(f"{VARIABLE}={seed}\n")
    assert f"repeat with {VARIABLE}={seed}" in printed
    assert [cases.split()[0] for cases in drawn.values()] == ["0", seed, seed]
    assert drawn["random"] == drawn[seed]
    assert len({frozenset(line.split()[1] for line in cases.splitlines()) for cases in drawn.values()}) == 2
