"""``groupcoord explore``: levels, histories that break a law, and their replay."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from groupcoord import cli
from tests.command import run_command
from tests.plants import plant

explore = partial(run_command, "explore")


def test_a_scope_that_closes() -> None:
    """A line a level, and at the end that there is no other state."""
    done = explore("static-1")
    lines = done.output.splitlines()

    assert done.status == 0
    assert lines[0].startswith("s1: classic static; prompt log; commit")
    assert lines[-2].split()[:4] == ["15", "0", "239", "1,144"]
    assert lines[-1] == "closed: there is no other state; every law holds"


def test_a_bug_is_told_kept_and_played_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The shortest history is printed, drawn, and kept in a file that replays; then the status is 1."""
    plant(monkeypatch, "KAFKA-10284")
    page = tmp_path / "page.html"

    scope = ("--static", "1", "--faults", "die", "--depth", "4")
    status, told, _ = explore(*scope, "--keep", tmp_path, "--html", page)
    assert status == 1
    history = tmp_path / "check_members_are_durable.json"
    assert "; broken: check_members_are_durable" in told
    assert f"groupcoord explore --replay {history}" in told
    assert "BROKEN check_members_are_durable" in told
    assert "<svg" in page.read_text("utf-8")
    assert explore("--replay", history).status == 1
    monkeypatch.undo()
    replayed = explore("--replay", history)
    assert replayed.status == 0
    assert "every law holds" in replayed.output


def test_for_programs(tmp_path: Path) -> None:
    """An object a line: the levels, and what came of it; a scope can be a file."""
    (tmp_path / "scope.toml").write_text('words = ["die"]\n[processes.w]\nprotocol = "share"\n', "utf-8")

    done = explore(tmp_path / "scope.toml", "--json", "--depth", "2")
    *levels, end = map(json.loads, done.output.splitlines())

    assert done.status == 0
    assert [level["depth"] for level in levels] == [0, 1, 2]
    assert end == {"is_closed": False, "states": levels[-1]["states"], "broken": []}


def test_the_scopes_are_listed() -> None:
    """Each with what there is in it."""
    done = explore("--scopes")
    assert done.status == 0
    assert "mixed-2          c1: classic, c2: consumer; late log;" in done.output


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
def test_wrong_use(words: tuple[str, ...], why: str) -> None:
    """Impossible arguments give the reason and status 2."""
    done = explore(*words)
    assert done.status == 2
    assert why in done.error


@pytest.mark.parametrize(
    "line",
    [
        "processes = 3",
        "processes.a = 3",
        "processes.a.protocol = 3",
        "processes.a.rebalance_timeout_ms = 'x'",
        "processes.a.rebalance_timeout_ms = -1",
        "log_is_late = 'no'",
        "settings = 3",
        "topics.t = -1",
        "topics.t = 3000000",
        "group_id = 3",
        "step_ms = -1",
        "step_ms = true",
        "words = 'crash'",
        "also = [1]",
    ],
)
def test_values_of_another_type_are_refused(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2 and a line that names the value."""
    path = tmp_path / "scope.toml"
    path.write_text(line)
    with pytest.raises(SystemExit) as ended:
        cli.main(["explore", str(path), "--depth", "1"])
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told.startswith("groupcoord explore: ")
    assert line.split(".")[0].split(" =")[0] in told or "process a: " in told
