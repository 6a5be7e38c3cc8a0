"""``groupcoord explore``: every history of a coordinator up to a bound, with all laws checked after each step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from attrs import asdict

from groupcoord.cli.interrupts import FAILED
from groupcoord.cli.messages import CommandError, command_errors, read_given, say, write_text
from groupcoord.cli.options import AsJson, CpuSeconds, HtmlFile, Jobs
from groupcoord.config.files import parse_json, parse_toml

if TYPE_CHECKING:
    from groupcoord.testing.exploring.exploration import Exploration, Level, Violation
    from groupcoord.testing.exploring.scope import Scope
    from groupcoord.testing.exploring.stage import Story


What = Annotated[
    str | None,
    typer.Argument(metavar="SCOPE", help="What there is: the name of a scope, or a file FILE.toml. All: --scopes."),
]
Protocol = Annotated[
    str,
    typer.Option(metavar="PROTOCOL", help="Protocol, instead of SCOPE: classic, consumer, mixed, share or streams."),
]
Replay = Annotated[Path | None, typer.Option(metavar="FILE", help="Replay this history (JSON or TOML) instead.")]


def explore(
    what: What = None,
    scopes: Annotated[bool, typer.Option("--scopes", help="List the named scopes.")] = False,
    protocol: Protocol = "classic",
    dynamic: Annotated[int, typer.Option(min=0, help="Number of processes without an instance id.")] = 0,
    static: Annotated[int, typer.Option(min=0, help="Number of processes with an instance id.")] = 0,
    faults: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="Allowed faults, separated by commas; with refuse the log is late."),
    ] = None,
    depth: Annotated[int, typer.Option(min=0, help="Maximum steps of a history.")] = 1_000,
    cpu: CpuSeconds = 600.0,
    jobs: Jobs = 1,
    as_json: AsJson = False,
    html: HtmlFile = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Save each history that breaks a law as JSON.")
    ] = None,
    replay: Replay = None,
) -> None:
    """Explore all histories of a coordinator, the shortest first: members, a late log, crashes, time.

    One line per level; "closed" if there are no further states. The shortest history that breaks each law is printed.

    Exit status: 0 if every law holds, 1 if not, 2 if the command cannot be carried out.
    """
    from groupcoord.testing.exploring.scope import NAMED, HistoryError, Trace
    from groupcoord.testing.exploring.stage import draw_story

    if scopes:
        for name, scope in NAMED.items():
            say(f"{name:<16} {_in_words(scope)}")
        return
    with command_errors(HistoryError):
        if replay is not None:
            _show([draw_story(Trace.of(_read(replay)))], html, as_json=as_json)
            return
        scope = _scope(what, protocol, dynamic, static, faults)
        found = _search(scope, depth, cpu, jobs, as_json=as_json)
        stories = [draw_story(violation.trace) for violation in found.violations]
    _end(found, as_json=as_json)
    for violation in found.violations:
        _tell_violation(violation, keep, as_json=as_json)
    _show(stories, html, as_json=as_json)
    if found.violations:
        raise typer.Exit(FAILED)


def _scope(what: str | None, protocol: str, dynamic: int, static: int, faults: str | None) -> Scope:
    from groupcoord.testing.exploring.scope import ALL, NAMED, Scope, scope_of

    words = ALL if faults is None else tuple(filter(None, faults.split(",")))
    if what is None:
        if not dynamic + static:
            raise CommandError("name a scope, or the number of processes: --dynamic 2")
        return Scope.of(scope_of(protocol, dynamic, static, words).table())
    if dynamic + static or faults is not None:
        raise CommandError("--dynamic, --static and --faults are for those without a SCOPE")
    if what in NAMED:
        return NAMED[what]
    if not what.endswith(".toml"):
        raise CommandError(f"there is no scope {what!r}; there are {', '.join(NAMED)}")
    return Scope.of(_read(Path(what)))


def _read(path: Path) -> dict[str, Any]:
    text = read_given(path)
    with command_errors(ValueError, prefix=f"{path} can't be read: "):
        found: Any = parse_json(text) if path.suffix == ".json" else parse_toml(text)
    if not isinstance(found, dict):
        raise CommandError(f"{path} has no table")
    return found


def _in_words(scope: Scope) -> str:
    processes = ", ".join(
        f"{process.name}: {process.protocol}{' static' if process.instance_id else ''}" for process in scope.processes
    )
    return f"{processes}; {'late' if scope.log_is_late else 'prompt'} log; {', '.join(scope.words)}"


def _search(scope: Scope, depth: int, cpu: float, jobs: int, *, as_json: bool) -> Exploration:
    from groupcoord.testing.exploring.exploration import explore

    def show(level: Level) -> None:
        if as_json:
            print(json.dumps(asdict(level)), flush=True)
            return
        numbers = f"{level.depth:>5} {level.new:>10,} {level.states:>12,} {level.transitions:>13,} {level.cpu_s:>9.1f}"
        say(numbers + ("" if level.is_whole else "  in part"))

    if not as_json:
        say(_in_words(scope))
        say(f"{'steps':>5} {'new':>10} {'states':>12} {'transitions':>13} {'CPU s':>9}")
    return explore(scope, max_depth=depth, max_cpu_s=cpu, jobs=jobs, on_level=show)


def _end(found: Exploration, *, as_json: bool) -> None:
    broken = [violation.broken.law for violation in found.violations]
    if as_json:
        print(json.dumps({"is_closed": found.is_closed, "states": found.states, "broken": broken}))
        return
    bound = "closed: there is no other state" if found.is_closed else "in part: longer histories were not looked at"
    say(f"{bound}; " + (f"broken: {', '.join(broken)}" if broken else "every law holds"))


def _tell_violation(violation: Violation, keep: Path | None, *, as_json: bool) -> None:
    history = {**violation.trace.table(), "law": violation.broken.law, "message": violation.broken.message}
    if as_json:
        print(json.dumps(history))
    if keep is not None:
        path = keep / f"{violation.broken.law}.json"
        with suppress(OSError):  # writing reports the reason
            keep.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(history, indent=2) + "\n")
        if not as_json:
            say(f"play it again: groupcoord explore --replay {path}")


def _show(stories: Sequence[Story], html: Path | None, *, as_json: bool) -> None:
    from groupcoord.testing.exploring.stage import in_lines

    for story in () if as_json else stories:
        for line in in_lines(story):
            say(line)
    if html is not None:
        from groupcoord.analysis.report.html.rendering import render

        write_text(html, render("testing/exploring/histories.html.jinja", stories=stories))
    if any(story.law for story in stories):
        raise typer.Exit(FAILED)
