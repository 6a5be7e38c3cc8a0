"""``groupcoord exam``: run a consumer program under faults, and report broken laws."""

from __future__ import annotations

import json
import logging
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer
from attrs import asdict

from groupcoord.cli.interrupts import FAILED
from groupcoord.cli.messages import command_errors, key_values, write_text
from groupcoord.cli.options import AsJson, HtmlFile, Jobs, JunitFile, ListOnly, Only, Settings

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.testing.exams import Result, Scenario


Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- COMMAND…",
        help="Starts one instance; has {bootstrap} {group} {topic} {output} {instance} {protocol}, as has the "
        "environment: EXAM_BOOTSTRAP ….",
    ),
]
Protocol = Annotated[
    str, typer.Option(help="Protocol of the consumers: classic, consumer (KIP-848), or share (KIP-932).")
]
Instances = Annotated[int, typer.Option(min=2, max=4, help="Number of instances.")]
Declared = Annotated[
    str,
    typer.Option(
        metavar="PROMISE",
        help="Promise about the output: at-least-once, exactly-once, or nothing (no output).",
    ),
]
SecurityProtocol = Annotated[
    str, typer.Option(help="Security protocol of the clients: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.")
]
Mechanism = Annotated[str, typer.Option(help="SASL mechanism of the clients: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")]
Within = Annotated[float, typer.Option(metavar="SECONDS", help="Time to catch up after a fault.")]
PlaysAll = Annotated[bool, typer.Option("--all", help="Run all scenarios even if the first fails before any fault.")]


def exam(
    command: Command = None,
    protocol: Protocol = "classic",
    instances: Instances = 3,
    declared: Declared = "at-least-once",
    within: Within = 30.0,
    only: Only = None,
    plays_all: PlaysAll = False,
    jobs: Jobs = 2,
    settings: Settings = None,
    security_protocol: SecurityProtocol = "PLAINTEXT",
    mechanism: Mechanism = "SCRAM-SHA-256",
    html: HtmlFile = None,
    junit: JunitFile = None,
    list_only: ListOnly = False,
    as_json: AsJson = False,
) -> None:
    """Run a consumer program under faults of its broker and itself, and report broken laws.

    The command starts it as several processes, and a server for them. The program receives numbered records, and
    writes the number of each processed record to the output. Exit status: 0 if no law was broken, 1 if one was, 2 if
    the command cannot be carried out.
    """
    from groupcoord.cli.console import open_console
    from groupcoord.cli.interrupts import BeforeTheEnd
    from groupcoord.testing import exams
    from groupcoord.testing.exams import SCENARIOS, Plan, examine, scenarios_for
    from groupcoord.testing.exams.examination import baseline_of, exam_junit, exam_page
    from groupcoord.testing.exams.stage import kill_all

    console = open_console(is_for_errors=as_json and not list_only)
    if list_only:
        _print_scenarios(console, SCENARIOS, as_json=as_json)
        return
    options: dict[str, Any] = {
        "protocol": protocol,
        "declared": declared,
        "security_protocol": security_protocol,
        "mechanism": mechanism,
    }
    results: list[Result] = []
    logging.getLogger("groupcoord.host").addFilter(_is_by_itself)
    with command_errors(exams.CommandError, ValueError), BeforeTheEnd(kill_all):
        own_settings = {**key_values("--set", settings or [])}
        plan = Plan(command or [], instances=instances, within_s=within, settings=own_settings, **options)
        not_played = len(scenarios_for(plan, only or ()))
        for result in examine(plan, only or (), jobs=jobs, plays_all=plays_all):
            results.append(result)
            not_played -= 1
            _print_result(console, result, baseline_of(results))
    if html is not None:
        write_text(html, exam_page(results, shlex.join(plan.command)))
    if junit is not None:
        write_text(junit, exam_junit(results))
    if as_json:
        print(json.dumps([_as_data(result) for result in results], indent=2))
    _print_summary(console, results, not_played)
    if not all(result.is_passed for result in results):
        raise typer.Exit(FAILED)


def _is_by_itself(record: logging.LogRecord) -> bool:
    """Return whether a line of the server's log is unrelated to the exam's faults."""
    from groupcoord.testing.faults.rules import ON_PURPOSE

    return ON_PURPOSE not in record.getMessage()


def _print_scenarios(console: Console, scenarios: list[Scenario], *, as_json: bool) -> None:
    if as_json:
        fields = [{"name": one.name, "why": one.why, "protocols": list(one.protocols)} for one in scenarios]
        print(json.dumps(fields, indent=2))
        return
    for scenario in scenarios:
        console.print(scenario.name, style="bold")
        console.print(f"    {scenario.why}")


def _print_result(console: Console, result: Result, baseline: Result | None) -> None:
    from groupcoord.testing.exams.examination import in_lines, is_like_baseline

    word, style = ("passed", "green") if result.is_passed else ("FAILED", "bold red")
    console.print(f"{word} {result.scenario.name} ({result.seconds:.0f} s)", style=style)
    if not result.is_passed and not is_like_baseline(result, baseline):
        console.print(f"  {result.scenario.why}", style="dim", soft_wrap=True)
    for line in in_lines(result, baseline):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _print_summary(console: Console, results: list[Result], not_played: int) -> None:
    from groupcoord.testing.exams.examination import baseline_of, is_like_baseline

    baseline = baseline_of(results)
    failed = [result for result in results if not result.is_passed]
    alike = sum(is_like_baseline(result, baseline) for result in failed)
    if not_played:
        first = results[0].scenario.name
        console.print(
            f"{not_played} other scenarios were not played: each begins like {first}, "
            "which failed before anything went wrong. --all plays them.",
            soft_wrap=True,
        )
    summary = f"{len(results) - len(failed)} passed, {len(failed)} failed"
    if alike:
        summary += f" ({alike} of them only as quiet does)"
    console.print(summary, style="bold red" if failed else "bold green")


def _as_data(result: Result) -> dict[str, object]:
    return {
        "scenario": result.scenario.name,
        "passed": result.is_passed,
        "trouble": result.trouble,
        "known_bugs": dict(result.known_bugs),
        "seconds": round(result.seconds, 1),
        "verdicts": [
            {
                "law": verdict.law.value,
                "breaches": [asdict(breach) for breach in verdict.breaches],
                "explained_by": verdict.explained_by.value if verdict.explained_by else None,
            }
            for verdict in result.verdicts
        ],
    }
