"""``groupcoord conformance``: replay transcripts of a real broker and say where a server differs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.conformance import Outcome, Report, Target, Transcript

FAILED = 1
USAGE_ERROR = 2


def conformance(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Transcripts, or folders of them. Default: those of this package."),
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A server that runs already, with settings of your choice.")
    ] = None,
    launch: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Start servers with this command: {port} to listen on, {dir} for data, {sets} for --set key=value ….",
        ),
    ] = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="groupcoord itself on a virtual clock (the default).")
    ] = False,
    only: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only transcripts whose area/name matches somewhere.")
    ] = None,
    area: Annotated[list[str] | None, typer.Option(help="Only this area; may be repeated.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many transcripts at the same time, over sockets.")] = 16,
    list_only: Annotated[bool, typer.Option("--list", help="List the transcripts and run none.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every transcript and whole bodies.")] = False,
) -> None:
    """Replay conversations recorded with a real Kafka broker against a server.

    Exit status: 0 if every transcript passed or was skipped, 1 if one failed, 2 if the command can't be carried out.
    """
    from groupcoord.cli.console import open_console

    if (bootstrap is not None) + (launch is not None) + in_process > 1:
        _give_up("give only one of --bootstrap, --launch and --in-process")
    target = _target(bootstrap, launch)
    transcripts = _select(files or [], only, area or [])
    console = open_console()
    if list_only:
        _print_list(console, transcripts, as_json=as_json)
        return
    with _ready(target):
        report = _run(transcripts, target, jobs, progress=not as_json)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        _print_report(console, report, verbose=verbose)
    if not report.ok:
        raise typer.Exit(FAILED)


def _give_up(message: str) -> NoReturn:
    typer.echo(f"groupcoord conformance: {message}", err=True)
    raise typer.Exit(USAGE_ERROR)


def _select(files: list[Path], only: str | None, areas: list[str]) -> list[Transcript]:
    from groupcoord.conformance import TranscriptError, load_transcripts

    try:
        pattern = re.compile(only or "")
    except re.error as error:
        _give_up(f"--only {only!r} is no regular expression: {error}")
    try:
        transcripts = load_transcripts(*files)
    except TranscriptError as error:
        _give_up(str(error))
    known = {transcript.area for transcript in transcripts}
    for area in areas:
        if area not in known:
            _give_up(f"there is no area {area!r}; there are {', '.join(sorted(known))}")
    chosen = [t for t in transcripts if pattern.search(str(t)) and (not areas or t.area in areas)]
    if not chosen:
        _give_up("no transcript is selected")
    return chosen


def _target(bootstrap: str | None, launch: str | None) -> Target:
    from groupcoord.conformance import AddressTarget, InProcessTarget, LaunchTarget

    try:
        if bootstrap is not None:
            return AddressTarget.from_text(bootstrap)
        if launch is not None:
            return LaunchTarget(launch)
    except ValueError as error:
        _give_up(str(error))
    return InProcessTarget()


@contextmanager
def _ready(target: Target) -> Iterator[None]:
    """Make sure that there is something to talk to, and that servers of ours end when a signal ends this process."""
    from groupcoord.cli.interrupts import BeforeTheEnd
    from groupcoord.conformance import AddressTarget, LaunchTarget, TargetError
    from groupcoord.conformance.targets import ConnectionClosedError

    if isinstance(target, AddressTarget | LaunchTarget):
        try:
            target.check()
        except (ConnectionClosedError, TargetError) as error:
            _give_up(str(error))
    with BeforeTheEnd(target.stop_all) if isinstance(target, LaunchTarget) else nullcontext():
        yield


def _run(transcripts: list[Transcript], target: Target, jobs: int, *, progress: bool) -> Report:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from groupcoord.cli.progress import progress_bar
    from groupcoord.conformance import run

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with progress_bar(*columns, is_wanted=progress) as bar:
        task = bar.add_task("", total=len(transcripts))

        def advance(outcome: Outcome) -> None:
            bar.update(task, advance=1, description=str(outcome.transcript))

        return run(transcripts, target, jobs=jobs, on_outcome=advance)


def _print_list(console: Console, transcripts: list[Transcript], *, as_json: bool) -> None:
    if as_json:
        fields = [
            {"area": t.area, "name": t.name, "shows": t.shows, "settings": dict(t.settings), "restarts": t.restarts}
            for t in transcripts
        ]
        print(json.dumps(fields, indent=2, ensure_ascii=False))
        return
    for transcript in transcripts:
        console.print(f"{transcript}", style="bold")
        console.print(f"    {transcript.shows}")


def _print_report(console: Console, report: Report, *, verbose: bool) -> None:
    from rich.table import Table

    from groupcoord.conformance import Verdict

    if verbose:
        for outcome in report.outcomes:
            reason = f" ({outcome.reason})" if outcome.reason else ""
            console.print(f"{outcome.verdict:8}{outcome.transcript}{reason}", soft_wrap=True)
        console.print()
    for outcome in report.failed():
        _print_failure(console, outcome, verbose=verbose)
    table = Table()
    table.add_column("area")
    for verdict in Verdict:
        table.add_column(verdict.value, justify="right")
    for area in report.areas():
        counts = [report.count(verdict, area) for verdict in Verdict]
        style = "red" if report.count(Verdict.FAILED, area) else None
        table.add_row(area, *(str(count) if count else "" for count in counts), style=style)
    console.print(table)
    for reason in sorted({outcome.reason for outcome in report.outcomes if outcome.reason}):
        skipped = sum(outcome.reason == reason for outcome in report.outcomes)
        console.print(f"{skipped} skipped: {reason}")
    console.print(report.summary(), style="bold green" if report.ok else "bold red")


def _print_failure(console: Console, outcome: Outcome, *, verbose: bool) -> None:
    assert outcome.failure is not None
    console.print(f"FAILED {outcome.transcript}", style="bold red")
    console.print(f"  {outcome.transcript.shows}", style="dim")
    text = outcome.failure.describe(verbose=verbose)
    console.print("\n".join(f"  {line}" for line in text.splitlines()), soft_wrap=True)
    if outcome.transcript.settings:
        needed = " ".join(f"{key}={value}" for key, value in outcome.transcript.settings.items())
        console.print(f"  it needs the settings {needed}", soft_wrap=True)
    console.print()
