"""``groupcoord simulate``: a fleet over virtual time, many times, with a report."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import evolve, frozen

from groupcoord.cli.interrupts import FAILED
from groupcoord.cli.messages import CommandError, command_errors, read_given, say, write_text
from groupcoord.cli.options import AsJson, HtmlFile, Jobs

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from groupcoord.sim import Comparison, FleetReport, Scenario, WorldOptions


JOBS = max(os.cpu_count() or 1, 1)


@frozen
class _Fleet:
    name: str
    variant: str
    options_of: Callable[[int], WorldOptions]


def simulate(
    scenarios: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SCENARIO.toml",
            help="The fleet; several files are compared. Without one: small fleets with everything going wrong.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a key of the scenario: groups.billing.members=5. Repeatable."
        ),
    ] = None,
    variant: Annotated[str | None, typer.Option(metavar="NAME", help="Run this variant only.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 20,
    first_seed: Annotated[int, typer.Option("--first-seed", min=0, help="The first seed.")] = 0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Run this seed only and print its trace, one line per event.")
    ] = None,
    jobs: Jobs = JOBS,
    no_fast_forward: Annotated[
        bool, typer.Option("--no-fast-forward", help="Simulate steady phases step by step; the trace is the same.")
    ] = False,
    as_json: AsJson = False,
    html: HtmlFile = None,
) -> None:
    """Simulate a fleet of consumers in virtual time, once for each seed, and report distributions.

    Several files, or a file with [[variants]], run with the same seeds and are compared seed by seed.

    Exit status: 0 if every law held in every seed, 1 if not, 2 if the command cannot be carried out.
    """
    fleets = _fleets(scenarios or [], settings or [], variant)
    if no_fast_forward:
        fleets = [evolve(fleet, options_of=partial(_step_by_step, fleet.options_of)) for fleet in fleets]
    options = [word for text in settings or [] for word in ("--set", text)]
    command = shlex.join(["groupcoord", "simulate", *map(str, scenarios or []), *options])
    if seed is not None:
        if as_json or html is not None:
            raise CommandError(
                "--seed prints the trace of one seed; for its report use --seeds 1 --first-seed and its number"
            )
        if len(fleets) > 1:
            raise CommandError(
                f"--seed wants one of the variants: --variant {' or '.join(fleet.variant for fleet in fleets)}"
            )
        _print_trace(seed, fleets[0].options_of(seed))
        return
    chosen = range(first_seed, first_seed + seeds)
    reports = [_run(fleet, chosen, jobs, progress=not as_json) for fleet in fleets]
    _report(reports, command, html, as_json=as_json)
    if any(report.failed for report in reports):
        raise typer.Exit(FAILED)


def _step_by_step(options_of: Callable[[int], WorldOptions], seed: int) -> WorldOptions:
    return evolve(options_of(seed), fast_forwards=False)


def _fleets(paths: list[Path], settings: list[str], variant: str | None) -> list[_Fleet]:
    from groupcoord.sim import swarm_options

    if not paths:
        if settings or variant is not None:
            raise CommandError("--set and --variant need a scenario")
        return [_Fleet("small fleets with everything going wrong", "", swarm_options)]
    found = [(path, scenario) for path in paths for scenario in _load(path, settings)]
    fleets = []
    for path, scenario in found:
        names = [scenario.variant] if len(paths) == 1 else [path.stem, scenario.variant]
        fleets.append(_Fleet(scenario.name, " ".join(filter(None, names)), scenario.options_of))
    names = [fleet.variant for fleet in fleets]
    if len(set(names)) < len(names):
        raise CommandError(f"two variants have one name: {', '.join(names)}")
    if variant is not None:
        fleets = [fleet for fleet in fleets if fleet.variant == variant]
        if not fleets:
            raise CommandError(f"there is no variant {variant!r}; there are {', '.join(names)}")
    return fleets


def _report(reports: list[FleetReport], command: str, html: Path | None, *, as_json: bool) -> None:
    from groupcoord.sim import Comparison, comparison_page, report_page

    shown: FleetReport | Comparison
    if len(reports) == 1:
        (shown,) = reports
        command += f" --variant {shlex.quote(shown.variant)}" if shown.variant else ""
        make_page, print_text = partial(report_page, shown, command), partial(_print_report, shown, command)
    else:
        shown = Comparison(tuple(reports))
        make_page, print_text = partial(comparison_page, shown, command), partial(_print_variants, shown, command)
    if html is not None:
        write_text(html, make_page())
    if as_json:
        print(json.dumps(shown.to_json(), indent=2))
    else:
        print_text()


def _load(path: Path, settings: list[str]) -> list[Scenario]:
    from groupcoord.sim import ScenarioError, parse_variants, read_setting

    with command_errors(ScenarioError, prefix="--set: "):
        read = dict(read_setting(text) for text in settings)
    text = read_given(path)
    with command_errors(ScenarioError, prefix=f"{path}: "):
        return parse_variants(text, read)


def _print_trace(seed: int, options: WorldOptions) -> None:
    from groupcoord.sim import LEGEND, World, picture

    world: World

    def show(line: str) -> None:
        time, rest = line[:12], line[13:]
        say(f"{time} {picture(world)}  {rest}")

    world = World(seed, options, show)
    say(LEGEND)
    try:
        outcome = world.run()
    except Exception as error:  # of any kind: the trace so far shows how it happened
        say(f"{type(error).__name__}: {error}")
        raise typer.Exit(FAILED) from error
    say(
        f"at rest; {outcome.line_count} lines, {outcome.heartbeats} heartbeats, {outcome.commits} commits; "
        f"digest {outcome.digest}"
    )


def _run(fleet: _Fleet, seeds: range, jobs: int, *, progress: bool) -> FleetReport:
    from groupcoord.cli.console import counting_bar
    from groupcoord.sim import collect, run_seeds

    with counting_bar(len(seeds), is_wanted=progress) as count:
        runs = run_seeds(seeds, fleet.options_of, min(jobs, len(seeds)))
        return collect(fleet.name, runs, lambda run: count(f"{fleet.variant} seed {run.seed}".strip()), fleet.variant)


_STYLES = {"better": "green", "worse": "red", "": ""}


def _table(title: str, names: Iterable[str], rows: Iterable[Iterable[str | Text]]) -> Table:
    """Return a table of measures: their titles and units, then a column for each name."""
    from rich.table import Table

    table = Table("", "unit", title=title)
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _print_variants(comparison: Comparison, command: str) -> None:
    from rich.text import Text

    from groupcoord.cli.console import open_console
    from groupcoord.sim.reports.page import beside_rows, describe_seeds, difference_rows, format_verdict

    console = open_console()
    names = [report.variant for report in comparison.reports]
    for report in comparison.reports:
        _print_failed(console, report, f"{command} --variant {shlex.quote(report.variant)}")
    console.print(_table(f"{comparison.reports[0].name}: p50; p99", names, beside_rows(comparison)))
    differences: list[tuple[str | Text, ...]] = [
        (measure, unit, *(Text(cell, _STYLES[style]) for cell, style in cells))
        for measure, unit, cells in difference_rows(comparison)
    ]
    title = f"difference from {names[0]}: mean of the seeds (95 % confidence interval)"
    console.print(_table(title, names[1:], differences))
    console.print(format_verdict(comparison), style="bold", soft_wrap=True)
    failed = sum(len(report.failed) for report in comparison.reports)
    result = f"{len(names)} variants, each with {describe_seeds(comparison.reports[0])}: "
    result += f"{failed} broke a law" if failed else "every law held"
    console.print(result, style="bold red" if failed else "bold green", soft_wrap=True)


def _print_failed(console: Console, report: FleetReport, command: str) -> None:
    for run in report.failed:
        console.print(f"seed {run.seed} FAILED: {run.failure}", style="bold red", soft_wrap=True)
        for line in run.tail[-15:]:
            console.print(f"    {line}", style="dim", soft_wrap=True)
        console.print(f"  replay it: {command} --seed {run.seed}", soft_wrap=True)


def _print_report(report: FleetReport, command: str) -> None:
    from groupcoord.cli.console import open_console
    from groupcoord.sim.reports.page import STATISTICS, compared, describe_seeds, distribution_rows

    console = open_console()
    _print_failed(console, report, command)
    rows = [(measure.title, *cells) for measure, cells in distribution_rows(report.distributions())]
    console.print(_table(report.name, STATISTICS, rows))
    if report.compared_ids():
        console.print(_table("p50; p99 of each group", report.compared_ids(), compared(report)))
    figures = report.to_json()
    causes = ", ".join(f"{cause} {count}" for cause, count in report.causes().items())
    console.print(f"rebalances by cause: {causes or 'none'}", soft_wrap=True)
    _print_operations(console, report)
    style = "bold red" if report.failed else "bold green"
    console.print(
        f"{describe_seeds(report)}, {figures['heartbeats']:,} heartbeats, {figures['commits']:,} commits of consumers: "
        + (f"{len(report.failed)} broke a law" if report.failed else "every law held"),
        style=style,
        soft_wrap=True,
    )


def _print_operations(console: Console, report: FleetReport) -> None:
    outcomes: dict[tuple[str, str], list[str]] = {}
    for operation, count in report.operations().items():
        outcomes.setdefault((operation.client, operation.name), []).append(f"{operation.outcome} {count:,}")
    for (client, name), found in outcomes.items():
        console.print(f"{client}, {name}: {', '.join(found)}", soft_wrap=True)
