"""``groupcoord simulate``: a fleet over virtual time, many times, with a report."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.sim import FleetReport, Run, WorldOptions

FAILED = 1
USAGE_ERROR = 2


def simulate(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCENARIO.toml", help="The fleet. Without one: small fleets with everything going wrong."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 20,
    first_seed: Annotated[int, typer.Option("--first-seed", min=0, help="The first of them.")] = 0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Run this seed alone and print its trace, one line per event.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many processes.")] = max(os.cpu_count() or 1, 1),
    no_fast_forward: Annotated[
        bool, typer.Option("--no-fast-forward", help="Skip nothing while groups are steady. The trace is the same.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML page.")] = None,
) -> None:
    """Run a fleet of consumers over virtual time, once for each seed, and report distributions.

    Exit status: 0 if every law held in every seed, 1 if not, 2 if the command can't be carried out.
    """
    from attrs import evolve

    from groupcoord.sim import swarm_options

    options_of: Callable[[int], WorldOptions]
    name, options_of = "small fleets with everything going wrong", swarm_options
    if scenario is not None:
        name, options_of = _load(scenario)
    if no_fast_forward:
        chosen = options_of

        def step_by_step(number: int) -> WorldOptions:
            return evolve(chosen(number), fast_forwards=False)

        options_of = step_by_step
    command = "groupcoord simulate" + (f" {shlex.quote(str(scenario))}" if scenario is not None else "")
    if seed is not None:
        if as_json or html is not None:
            _give_up("--seed prints the trace of one seed; for its report use --seeds 1 --first-seed and its number")
        _print_trace(seed, options_of(seed))
        return
    report = _run(name, range(first_seed, first_seed + seeds), options_of, jobs, progress=not as_json)
    if html is not None:
        _write_page(html, report, command)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        _print_report(report, command)
    if report.failed:
        raise typer.Exit(FAILED)


def _give_up(message: str) -> NoReturn:
    typer.echo(f"groupcoord simulate: {message}", err=True)
    raise typer.Exit(USAGE_ERROR)


def _load(path: Path) -> tuple[str, Callable[[int], WorldOptions]]:
    from groupcoord.sim import ScenarioError, parse_scenario

    try:
        text = path.read_text("utf-8")
    except OSError as error:
        _give_up(f"{path} can't be read: {error.strerror}")
    except UnicodeDecodeError:
        _give_up(f"{path} can't be read: it is no text in UTF-8")
    try:
        scenario = parse_scenario(text)
    except ScenarioError as error:
        _give_up(f"{path}: {error}")
    return scenario.name, scenario.options_of


def _print_trace(seed: int, options: WorldOptions) -> None:
    """Print the trace of one seed."""
    from groupcoord.sim import LEGEND, World, picture

    world: World

    def show(line: str) -> None:
        time, rest = line[:12], line[13:]
        print(f"{time} {picture(world)}  {rest}")

    world = World(seed, options, show)
    print(LEGEND)
    try:
        outcome = world.run()
    except Exception as error:  # whatever is wrong, the trace so far shows how it came about
        print(f"{type(error).__name__}: {error}")
        raise typer.Exit(FAILED) from error
    print(
        f"at rest; {outcome.line_count} lines, {outcome.heartbeats} heartbeats, {outcome.commits} commits; "
        f"digest {outcome.digest}"
    )


def _run(
    name: str, seeds: range, options_of: Callable[[int], WorldOptions], jobs: int, *, progress: bool
) -> FleetReport:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from groupcoord.cli.progress import progress_bar
    from groupcoord.sim import collect, run_seeds

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with progress_bar(*columns, is_wanted=progress) as bar:
        task = bar.add_task("", total=len(seeds))

        def advance(run: Run) -> None:
            bar.update(task, advance=1, description=f"seed {run.seed}")

        return collect(name, run_seeds(seeds, options_of, min(jobs, len(seeds))), advance)


def _write_page(path: Path, report: FleetReport, command: str) -> None:
    from groupcoord.sim import report_page

    try:
        path.write_text(report_page(report, command), "utf-8")
    except OSError as error:
        _give_up(f"{path} can't be written: {error.strerror}")


def _print_report(report: FleetReport, command: str) -> None:
    from groupcoord.cli.console import open_console
    from groupcoord.sim.reports.page import describe_seeds

    console = open_console()
    for run in report.failed:
        console.print(f"seed {run.seed} FAILED: {run.failure}", style="bold red", soft_wrap=True)
        for line in run.tail[-15:]:
            console.print(f"    {line}", style="dim", soft_wrap=True)
        console.print(f"  replay it: {command} --seed {run.seed}", soft_wrap=True)
    _print_table(console, report)
    _print_comparison(console, report)
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


def _print_table(console: Console, report: FleetReport) -> None:
    from rich.table import Table

    from groupcoord.sim.reports.measures import MEASURES
    from groupcoord.sim.reports.page import format_value

    table = Table(title=report.name)
    table.add_column("")
    for column in ("values", "least", "p50", "p90", "p99", "most"):
        table.add_column(column, justify="right")
    distributions = report.distributions()
    for measure in MEASURES:
        found = distributions[measure.key]
        if not found.count:
            continue
        values = (found.least, *found.percentiles.values(), found.most)
        table.add_row(measure.title, f"{found.count:,}", *(format_value(measure, value) for value in values))
    console.print(table)


def _print_comparison(console: Console, report: FleetReport) -> None:
    """Print the groups beside each other: what half of all values and what 99 % of them are not above."""
    from rich.table import Table

    from groupcoord.sim.reports.page import compared

    if not report.compared_ids():
        return
    table = Table(title="p50, p99 of each group")
    table.add_column("")
    for group_id in report.compared_ids():
        table.add_column(group_id, justify="right")
    for row in compared(report):
        table.add_row(*row)
    console.print(table)


def _print_operations(console: Console, report: FleetReport) -> None:
    """Print a line for each thing that clients did."""
    outcomes: dict[tuple[str, str], list[str]] = {}
    for operation, count in report.operations().items():
        outcomes.setdefault((operation.client, operation.name), []).append(f"{operation.outcome} {count:,}")
    for (client, name), found in outcomes.items():
        console.print(f"{client}, {name}: {', '.join(found)}", soft_wrap=True)
