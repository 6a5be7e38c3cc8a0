"""``groupcoord museum``: bugs of group coordination that really happened, described, replayed and hunted."""

from __future__ import annotations

import json
import textwrap
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import asdict

from groupcoord.cli.interrupts import FAILED
from groupcoord.cli.messages import CommandError, command_errors, write_text
from groupcoord.cli.options import AsJson, CpuSeconds, HtmlFile

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.testing.museum import Exhibit

WIDTH = 100


class Action(StrEnum):
    """Action in the museum."""

    LIST = "list"
    SHOW = "show"
    PLAY = "play"
    HUNT = "hunt"


What = Annotated[
    Action,
    typer.Argument(
        help="list: list all exhibits; show: describe one; play: replay its history without and with the bug; "
        "hunt: search for the bug."
    ),
]
With = Annotated[
    str,
    typer.Option(
        "--with", metavar="SEARCHERS", help="Ways of looking, with commas between: explore,machine,member,swarm."
    ),
]


def museum(
    action: What = Action.LIST,
    name: Annotated[
        str, typer.Argument(metavar="EXHIBIT", help="An exhibit's id, or a report among its references.")
    ] = "",
    searchers: With = "explore,machine,member,swarm",
    cpu: CpuSeconds = 60.0,
    whole: Annotated[bool, typer.Option("--all", help="With play or hunt: every possible exhibit.")] = False,
    html: HtmlFile = None,
    as_json: AsJson = False,
) -> None:
    """Bugs of coordinators, clients and monitors that really happened.

    Exit status: 0; 1 if a replayed bug breaks no law, or the package without it breaks one; 2 if the command cannot be
    carried out. A hunt without a result is no failure.
    """
    from groupcoord.cli.console import open_console
    from groupcoord.testing.museum import UnknownExhibitError, exhibit, exhibits

    console = open_console()
    if action is Action.LIST:
        _list(console, exhibits(), as_json=as_json)
        return
    if bool(name) == (whole and action is not Action.SHOW):
        raise CommandError(f"name one exhibit to {action.value}" + ("" if action is Action.SHOW else ", or give --all"))
    with command_errors(UnknownExhibitError):
        chosen = [exhibit(name)] if name else [shown for shown in exhibits() if shown.plant is not None]
    if action is Action.SHOW:
        _show(console, chosen[0], as_json=as_json)
        return
    if chosen[0].plant is None:
        raise CommandError(f"{chosen[0].id} has no place in this package: {chosen[0].absent}")
    if action is Action.HUNT:
        _hunt(console, chosen, searchers.split(","), cpu, as_json=as_json)
        return
    if name and chosen[0].play is None:
        raise CommandError(f"no short history of {chosen[0].id} is known; hunt it")
    _play(console, [shown for shown in chosen if shown.play is not None], html, as_json=as_json, is_short=whole)


def _list(console: Console, shown: tuple[Exhibit, ...], *, as_json: bool) -> None:
    if as_json:
        for one in shown:
            print(json.dumps(asdict(one)))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    for one in shown:
        style = "" if one.plant is not None else "dim"
        table.add_row(Text(one.id, style=style or "bold"), Text(one.title, style=style), Text(one.room, style="dim"))
    console.print(table)
    console.print(f"\n{len(shown)} exhibits; those in bold can be played and hunted.", style="dim")


def _show(console: Console, shown: Exhibit, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(shown)))
        return
    console.print(f"{shown.id}: {shown.title}", style="bold")
    console.print(f"{shown.room}; {shown.versions}", style="dim")
    sections = {
        "What was wrong": shown.story,
        "What has to happen": shown.history,
        "What users lost": shown.loses,
        "The law": shown.law,
        "Reports": ", ".join(shown.references),
        "Not in this package": shown.absent,
    }
    for title, text in sections.items():
        if text:
            console.print(f"\n{title}", style="bold")
            for line in textwrap.wrap(text, WIDTH):
                console.print(f"  {line}")
    if shown.plant is not None:
        console.print(f"\nThe same bug in {shown.plant.target}", style="bold")
        for line in shown.plant.source.splitlines():
            console.print(f"  {line}", style="green", soft_wrap=True)


def _hunt(console: Console, chosen: list[Exhibit], searchers: list[str], cpu_s: float, *, as_json: bool) -> None:
    from groupcoord.testing.museum import SEARCHERS, TaskFailedError, hunt_for

    for searcher in searchers:
        if searcher not in SEARCHERS:
            raise CommandError(f"there is no way of looking {searcher!r}; there are {', '.join(SEARCHERS)}")
    for shown in chosen:
        for searcher in searchers:
            with command_errors(TaskFailedError):
                hunt = hunt_for(shown, searcher, cpu_s)
            if as_json:
                print(json.dumps({"exhibit": shown.id, **asdict(hunt)}), flush=True)
                continue
            line = f"{shown.id:<20} {searcher:<8} {hunt.cpu_s:6.1f} CPU s {hunt.histories:>8,} histories  "
            if hunt.found is None:
                console.print(f"{line}nothing", style="dim")
            else:
                console.print(f"{line}{hunt.found}", style="" if hunt.is_law else "yellow", soft_wrap=True)


def _play(console: Console, chosen: list[Exhibit], html: Path | None, *, as_json: bool, is_short: bool) -> None:
    from groupcoord.testing.exploring.stage import in_lines
    from groupcoord.testing.museum import TaskFailedError, play_of

    played, is_as_described = [], True
    for shown in chosen:
        with command_errors(TaskFailedError):
            shipping, planted = (play_of(shown, is_planted=is_planted) for is_planted in (False, True))
        played.append((shown, planted))
        is_as_described = is_as_described and not shipping.law and bool(planted.law)
        if as_json:
            print(json.dumps({"exhibit": shown.id, "shipping": asdict(shipping), "planted": asdict(planted)}))
        elif is_short:
            style = "bold red" if shipping.law or not planted.law else ""
            console.print(f"{shown.id:<20} {planted.law or 'no law is broken'}: {planted.message}", style=style)
        else:
            console.print(f"{shown.id}: {shown.title}", style="bold")
            for title, story in (("without the bug", shipping), ("with the bug", planted)):
                console.print(f"\n{title}")
                for line in in_lines(story):
                    console.print(line, style="bold red" if line.lstrip().startswith("BROKEN") else "", soft_wrap=True)
    if html is not None:
        from groupcoord.analysis.report.html.rendering import render

        write_text(html, render("testing/museum/museum.html.jinja", played=played))
    if not is_as_described:
        raise typer.Exit(FAILED)
