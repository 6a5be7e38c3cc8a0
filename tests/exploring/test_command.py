"""``groupcoord explore``: levels, histories that break a law, and their replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupcoord.cli import main
from tests.mutants.museum import mutant_named
from tests.mutants.plant import plant


def status_of(*words: str) -> int:
    """Return the exit status of the command."""
    with pytest.raises(SystemExit) as ended:
        main(["explore", *words])
    return int(ended.value.code or 0)


def test_a_scope_that_closes(capsys: pytest.CaptureFixture[str]) -> None:
    """A line a level, and at the end that there is no other state."""
    assert status_of("static-1") == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].startswith("s1: classic static; prompt log; commit")
    assert lines[-2].split()[:4] == ["15", "0", "239", "1,144"]
    assert lines[-1] == "closed: there is no other state; every law holds"


def test_a_bug_is_told_kept_and_played_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shortest history is printed, drawn, and kept in a file that replays; then the status is 1."""
    plant(monkeypatch, mutant_named("KAFKA-10284"))
    page = tmp_path / "page.html"

    scope = ("--static", "1", "--faults", "die", "--depth", "4")
    assert status_of(*scope, "--keep", str(tmp_path), "--html", str(page)) == 1
    told = capsys.readouterr().out
    history = tmp_path / "check_members_are_durable.json"
    assert "; broken: check_members_are_durable" in told
    assert f"groupcoord explore --replay {history}" in told
    assert "BROKEN check_members_are_durable" in told
    assert "<svg" in page.read_text("utf-8")
    assert status_of("--replay", str(history)) == 1
    monkeypatch.undo()
    assert status_of("--replay", str(history)) == 0
    assert "every law holds" in capsys.readouterr().out


def test_for_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An object a line: the levels, and what came of it; a scope can be a file."""
    (tmp_path / "scope.toml").write_text('words = ["die"]\n[processes.w]\nprotocol = "share"\n', "utf-8")

    assert status_of(str(tmp_path / "scope.toml"), "--json", "--depth", "2") == 0
    *levels, end = map(json.loads, capsys.readouterr().out.splitlines())

    assert [level["depth"] for level in levels] == [0, 1, 2]
    assert end == {"is_closed": False, "states": levels[-1]["states"], "broken": []}


def test_the_scopes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with what there is in it."""
    assert status_of("--scopes") == 0
    assert "mixed-2          c1: classic, c2: consumer; late log;" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name a scope"),
        (("static-9",), "there is no scope 'static-9'"),
        (("static-1", "--dynamic", "2"), "are for those without a SCOPE"),
        (("--dynamic", "1", "--faults", "rain"), "there is no word 'rain'"),
        (("nowhere.toml",), "nowhere.toml can't be read"),
    ],
)
def test_wrong_use(words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What can't be carried out says why, with status 2."""
    assert status_of(*words) == 2
    assert why in capsys.readouterr().err
