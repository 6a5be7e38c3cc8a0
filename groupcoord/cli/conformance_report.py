"""What ``groupcoord conformance`` prints for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.conformance import Cause, Change, Outcome, Report, ServerFacts, Transcript

_SAME_CAUSE_MIN = 3
"""Failures with one cause are told together from so many on."""


def print_list(console: Console, transcripts: list[Transcript], *, as_json: bool) -> None:
    """Print the transcripts: names and what they show."""
    if as_json:
        fields = [
            {"area": t.area, "name": t.name, "shows": t.shows, "settings": dict(t.settings), "restarts": t.restarts}
            for t in transcripts
        ]
        print(json.dumps(fields, indent=2))
        return
    for transcript in transcripts:
        console.print(f"{transcript}", style="bold")
        console.print(f"    {transcript.shows}")


def print_needs(console: Console, transcripts: list[Transcript], facts: ServerFacts) -> None:
    """Print a line about what the transcripts were recorded with and the server has otherwise."""
    from groupcoord.conformance.needs import unmet_settings
    from groupcoord.conformance.targets import USUAL_SETTINGS

    if facts.why_unknown:
        base = " ".join(f"{key}={value}" for key, value in USUAL_SETTINGS.items())
        console.print(
            f"the server doesn't tell its settings ({facts.why_unknown}); the transcripts want {base}, and some want "
            "more; say with --has KEY=VALUE what it has",
            soft_wrap=True,
        )
    counts: dict[tuple[str, str], int] = {}
    for transcript in transcripts:
        for setting in unmet_settings(transcript, facts.settings).items():
            if setting[0] in USUAL_SETTINGS and setting[0] not in transcript.settings:
                counts[setting] = counts.get(setting, 0) + 1
    if counts:
        needs = [
            f"{key}={value} ({facts.settings[key]} here; {count} transcripts)"
            for (key, value), count in sorted(counts.items(), key=lambda item: -item[1])
        ]
        console.print(f"for all of it the server needs {', '.join(needs)}", soft_wrap=True)


def print_report(console: Console, report: Report, unexpected: list[Transcript], *, verbose: bool) -> None:
    """Print failures, counts by area, reasons, and the sum.

    Args:
        console: where.
        report: what.
        unexpected: transcripts that were expected to fail, and passed.
        verbose: print every transcript, and whole bodies.
    """
    from groupcoord.conformance import causes_of

    if verbose:
        for outcome in report.outcomes:
            reason = f" ({outcome.reason})" if outcome.reason else ""
            console.print(f"{outcome.verdict:8}{outcome.transcript}{reason}", soft_wrap=True)
        console.print()
    for cause in causes_of(report.failed()):
        if len(cause.outcomes) >= _SAME_CAUSE_MIN and not verbose:
            _print_cause(console, cause)
        else:
            for outcome in cause.outcomes:
                _print_failure(console, outcome, verbose=verbose)
    _print_table(console, report)
    _print_server(console, report)
    _print_reasons(console, report)
    for outcome in report.outcomes:
        if outcome.failure_beside_others is not None:
            why = outcome.failure_beside_others.describe().splitlines()[0]
            console.print(f"{outcome.transcript} passed alone; beside others it failed: {why}", soft_wrap=True)
    for transcript in unexpected:
        console.print(f"{transcript} was expected to fail, and passed", style="yellow", soft_wrap=True)
    for left in report.left_behind:
        console.print(f"left behind on the server: {left}", style="yellow", soft_wrap=True)
    console.print(report.summary(), style="bold green" if report.ok else "bold red")


def print_changes(console: Console, before: Path, changes: list[Change]) -> None:
    """Print what fared otherwise than in an earlier run."""
    for change in changes:
        style = "red" if change.is_worse else "green" if change.is_better else None
        was, now = change.before or "not in that run", change.after or "not in this run"
        console.print(f"{change.name}: {now}; before: {was}", style=style, soft_wrap=True)
    worse, better = (sum(getattr(change, name) for change in changes) for name in ("is_worse", "is_better"))
    others = len(changes) - worse - better
    console.print(f"since {before}: {worse} fail now, {better} fail no more, {others} others changed", soft_wrap=True)


def _print_failure(console: Console, outcome: Outcome, *, verbose: bool) -> None:
    assert outcome.failure is not None
    console.print(f"FAILED {outcome.transcript}", style="bold red")
    console.print(f"  {outcome.transcript.shows}", style="dim")
    text = outcome.failure.describe(verbose=verbose)
    console.print("\n".join(f"  {line}" for line in text.splitlines()), soft_wrap=True)
    for hint in outcome.hints:
        console.print(f"  {hint}", soft_wrap=True)
    console.print()


def _print_cause(console: Console, cause: Cause) -> None:
    """Print one failure of several that are alike, and the names of the others."""
    first, *others = cause.outcomes
    console.print(f"{len(cause.outcomes)} FAILED alike: {cause.text}", style="bold red", soft_wrap=True)
    console.print(f"  also {', '.join(str(outcome.transcript) for outcome in others)}", soft_wrap=True)
    console.print("  the first of them:")
    _print_failure(console, first, verbose=False)


def _print_table(console: Console, report: Report) -> None:
    from rich.table import Table

    from groupcoord.conformance import Verdict

    table = Table()
    table.add_column("area")
    for verdict in report.verdicts():
        table.add_column(verdict.value, justify="right")
    for area in report.areas():
        counts = [report.count(verdict, area) for verdict in report.verdicts()]
        style = "red" if report.count(Verdict.FAILED, area) else None
        table.add_row(area, *(str(count) if count else "" for count in counts), style=style)
    console.print(table)


def _print_server(console: Console, report: Report) -> None:
    """Print what the server lists of what the transcripts send."""
    from groupcoord.conformance.needs import unlisted_versions

    if report.server is None or not report.server.apis:
        return
    unlisted = {
        request for outcome in report.outcomes for request in unlisted_versions(outcome.transcript, report.server)
    }
    lacking = f", not {', '.join(sorted(unlisted))}" if unlisted else ""
    console.print(f"the server lists {len(report.server.apis)} APIs{lacking}", soft_wrap=True)


def _print_reasons(console: Console, report: Report) -> None:
    counts: dict[tuple[str, str], int] = {}
    for outcome in report.outcomes:
        if outcome.reason:
            counts[outcome.verdict.value, outcome.reason] = counts.get((outcome.verdict.value, outcome.reason), 0) + 1
    for (verdict, reason), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        console.print(f"{count} {verdict}: {reason}", soft_wrap=True)
