"""The command line as a whole: its version, its completion, and what it prints where no terminal is."""

from __future__ import annotations

import ast
import io
import logging
import os
import re
import subprocess
import sys
import time
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import TextColumn
from rich.table import Table
from rich.text import Text

import groupcoord
from groupcoord import cli
from groupcoord.cli import console, messages
from groupcoord.cli.dump import pages

LONG = ", ".join(["a group id that is longer than any terminal is wide"] * 6)


def run(*words: str, **environment: str) -> str:
    command = [sys.executable, "-m", "groupcoord", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return done.stdout


def test_version() -> None:
    """The version is that of the package, also for who has no script but Python."""
    assert run("--version") == f"groupcoord {groupcoord.__version__}\n"


@pytest.mark.parametrize(
    ("line", "found"), [("groupcoord ser", {"serve"}), ("groupcoord simulate --see", {"--seed", "--seeds"})]
)
def test_completion(line: str, found: set[str]) -> None:
    """A shell completes commands, and the options of a command, whose module is then loaded."""
    words = len(line.split()) - 1
    printed = run(_GROUPCOORD_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(words))
    assert set(printed.split()) == found


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [("nats://127.0.0.1:1", "nats", "cluster"), ("postgresql://127.0.0.1:1/x", "psycopg", "postgres")],
)
def test_the_extra_of_a_missing_package_is_named(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server over an engine without its client library prints the extra to install, and exits with 2."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["serve", "--cluster", url, "--node-id", "1", "--port", "0"])
    assert exit_.value.code == cli.USAGE_ERROR
    assert capsys.readouterr().err == (
        f"groupcoord: {package} is not installed; try: pip install 'groupcoord[{extra}]'\n"
    )


def test_the_extras_have_the_packages() -> None:
    distributions = packages_distributions()
    for package, extra in cli.EXTRAS.items():
        (name,) = set(distributions[package])
        pattern = re.compile(rf"{re.escape(name)}\b.*; extra == ['\"]{extra.rpartition(',')[2]}['\"]")
        assert any(pattern.match(requirement) for requirement in requires("groupcoord") or ()), package


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Console:
    """Console of a process whose output is no terminal."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return console.open_console()


def test_what_is_piped_is_not_folded(piped: Console, capsys: pytest.CaptureFixture[str]) -> None:
    """A long line stays one line in a pipe, in text and in the table of a dump, and has all of its characters."""
    piped.print(LONG)
    for page in pages([("0", "12", "2026-01-01", "offset", LONG, LONG)], None):
        piped.print(page)

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == LONG
    assert sum(line.count(LONG) for line in lines[1:]) == 2


HOSTILE = {
    "\x1b[31mred": r"\x1b[31mred",
    "\x1b]0;owned\x07": r"\x1b]0;owned\x07",
    "a\nb": r"a\nb",
    "\u202egnol": r"\u202egnol",
    "\x9b2J": r"\x9b2J",
    "\r": r"\r",
    "\x7f": r"\x7f",
    "\u200b": r"\u200b",
    "\udc80": r"\udc80",
    "\ta": r"\ta",
}
WRITERS = ("print", "typer.echo", "Console", "sys.stdout.write", "sys.stderr.write")


def test_names_do_not_steer_a_terminal(piped: Console, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are escaped in texts, tables, dumps, messages and logs, and all else is as it was."""
    logged = io.StringIO()
    handler = logging.StreamHandler(logged)
    handler.setFormatter(messages.EscapingFormatter("%(message)s"))
    for name in HOSTILE:
        table = Table(title=name)
        table.add_column("größer")
        table.add_row(name)
        table.add_row(Text(name))
        piped.print(table)
        piped.print(Text(name), name)
        for page in pages([("0", "12", "2026-01-01", "offset", name, name)], None):
            piped.print(page)
        messages.say(name)
        messages.complain("lag", name)
        handler.handle(logging.makeLogRecord({"msg": "%s", "args": (name,)}))

    output = capsys.readouterr()
    for text in (output.out, output.err, logged.getvalue()):
        assert not [line for line in text.splitlines() if not line.isprintable()]
    assert "┃ größer" in output.out
    assert logged.getvalue().splitlines() == list(HOSTILE.values())
    for shown in HOSTILE.values():
        assert shown.replace(r"\n", "\n  ") in output.err
        assert shown in output.out


def test_commands_print_by_what_escapes() -> None:
    """Commands print only through the escaping console; JSON escapes by itself."""
    found = set()
    for path in Path(cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and path.name not in ("console.py", "messages.py"):
                called = ast.unparse(node.func)
                if called in WRITERS and not (node.args and ast.unparse(node.args[0]).startswith("json.dumps(")):
                    found.add(f"{path.name}: {called}")
    assert found == {"__init__.py: sys.stderr.write", "options.py: typer.echo"}


def test_progress_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, progress is a line now and then; with --quiet there is none."""
    monkeypatch.setattr(console, "LINE_INTERVAL_S", 0.001)
    told = ""
    with console.progress_bar(TextColumn("")) as bar:
        task = bar.add_task("the first step", total=4)
        bar.update(task, advance=1)
        end_s = time.monotonic() + 20
        while "25 % after 0 s: the first step\n" not in told and time.monotonic() < end_s:
            told += capsys.readouterr().err
    assert "25 % after 0 s: the first step\n" in told

    with console.progress_bar(TextColumn(""), is_wanted=False) as bar:
        bar.add_task("something quiet", total=1)
    assert "quiet" not in capsys.readouterr().err
