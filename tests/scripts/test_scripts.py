"""Every script prints the recorded lines, and has a description."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tables import as_one_test

from .runner import ScriptError, play

FOLDER = Path(__file__).parent
SCRIPTS = sorted(FOLDER.glob("*.txt"))
SCRIPTS_MIN = 60


@as_one_test
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_prints_what_was_recorded(path: Path, request: pytest.FixtureRequest) -> None:
    """The commands of a script print what stands below them."""
    recorded = path.read_text("utf-8")
    printed = play(recorded)
    if request.config.getoption("--rewrite"):
        path.write_text(printed, "utf-8")
        recorded = printed

    assert printed == recorded


@as_one_test
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_says_what_it_shows(path: Path) -> None:
    """A script begins with what it shows, and names the source of the rule."""
    lines = path.read_text("utf-8").splitlines()
    comment = [line for line in lines[: lines.index("")] if line.startswith("# ")]

    assert len(comment) == lines.index("")
    assert any(line.startswith("# Rule: ") for line in comment[1:])


def test_there_are_enough_scripts() -> None:
    """The deep paths have their scripts."""
    assert len(SCRIPTS) >= SCRIPTS_MIN


def test_another_output_is_noticed() -> None:
    """A recorded output that is not what the commands print makes a difference."""
    script = "# Shows.\n\n> commit orders/0=5\n  log 0: g orders/0=7\n"

    assert play(script) != script
    assert play(play(script)) == play(script)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("> frobnicate\n", "line 1: there is no command 'frobnicate'"),
        ("# x\n> join\n", "line 2: join: "),
        ("> join a wrong=1\n", "line 1: join: got an unexpected keyword argument 'wrong'"),
        ("> fail-append NO_SUCH_ERROR\n", "line 1: fail-append: "),
        ("neither\n", "line 1: neither a command, its output nor a comment"),
    ],
)
def test_mistakes_are_told_with_their_line(script: str, message: str) -> None:
    """A script that can't be understood names the line and the reason."""
    with pytest.raises(ScriptError) as caught:
        play(script)

    assert str(caught.value).startswith(message)
