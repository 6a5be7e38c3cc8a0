"""``groupcoord conformance``: replay transcripts of a real broker against a server and report differences."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from attrs import asdict

from groupcoord.cli.interrupts import FAILED
from groupcoord.cli.messages import CommandError, command_errors, complain, key_values, write_text
from groupcoord.cli.options import AsJson, BootstrapServer, CommandConfig, Jobs, JunitFile, ListOnly, Only

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.conformance import Cause, Change, Expectations, Outcome, Report, ServerFacts, Target, Transcript


Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE", help="Transcripts, or folders of them. Default: those of this package."),
]
Has = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="A setting of the running server, instead of the one that it describes; repeatable."
    ),
]
Launch = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="Start servers with this command; {port}, {dir}, {nodes} and {sets} (--set key=value …) are replaced.",
    ),
]
LaunchSettings = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A TOML file with the words of the command for Kafka's settings: "
        '"group.max.size" = "--group-max {value}"; "*" is for all others.',
    ),
]
InProcess = Annotated[bool, typer.Option("--in-process", help="groupcoord itself on a virtual clock (the default).")]
Skip = Annotated[
    list[str] | None, typer.Option(metavar="REGEX", help="Skip transcripts with a matching area/name; repeatable.")
]
Area = Annotated[list[str] | None, typer.Option(help="Only this area; repeatable.")]
ExpectFailures = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File of known failures: a name or pattern per line, with the reason after #."),
]
MaxSkipped = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Exit with status 1 if more transcripts are skipped.")
]
Prefix = Annotated[str, typer.Option(help="Prefix of group ids and topics.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep groups and topics on the running server.")]
Compare = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Compare with a run saved by --json. Given twice: compare two saved runs without running anything.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print every transcript and whole bodies.")]


def conformance(
    context: typer.Context,
    files: Files = None,
    bootstrap_server: BootstrapServer = "",
    command_config: CommandConfig = None,
    has: Has = None,
    launch: Launch = None,
    launch_settings: LaunchSettings = None,
    in_process: InProcess = False,
    only: Only = None,
    skip: Skip = None,
    area: Area = None,
    expect_failures: ExpectFailures = None,
    max_skipped: MaxSkipped = None,
    jobs: Jobs = 16,
    prefix: Prefix = "",
    keep: Keep = False,
    compare: Compare = None,
    junit: JunitFile = None,
    list_only: ListOnly = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Replay conversations recorded with a real Kafka broker against a server.

    Exit status: 0 if every transcript passed, was skipped or failed as expected; 1 if another failed, more were skipped
    than --max-skipped, or one fails in the second of two saved runs only; 2 if the command cannot be carried out.
    """
    from groupcoord.cli.console import counting_bar, open_console
    from groupcoord.conformance import compare_runs, junit_xml, run

    saved = compare or []
    if len(saved) > 1:
        _compare_saved(saved, _given(context) - {"compare", "as_json"}, as_json=as_json)
        return
    target = _target(bootstrap_server, command_config, has or [], launch, launch_settings, is_in_process=in_process)
    transcripts, expectations = _select(files or [], only or [], skip or [], area or [], expect_failures)
    before = _load_run(saved[0]) if saved else {}
    console = open_console()
    if list_only:
        print_list(console, transcripts, as_json=as_json)
        return

    def tell_needs(facts: ServerFacts) -> None:
        if not as_json and target.own_settings is not None:
            print_needs(console, transcripts, facts)

    with _ready(target), counting_bar(len(transcripts), is_wanted=not as_json) as count:
        report = run(
            transcripts,
            target,
            jobs=jobs,
            prefix=prefix,
            cleans=not keep,
            on_facts=tell_needs,
            on_outcome=lambda outcome: count(str(outcome.transcript)),
        )
    report = expectations.apply(report)
    if junit is not None:
        write_text(junit, junit_xml(report))
    changes = compare_runs(before, report.to_json()) if saved else []
    if as_json:
        print(json.dumps({**report.to_json(), "changes": [asdict(change) for change in changes]}, indent=2))
    else:
        print_report(console, report, expectations.passed_unexpectedly(report), verbose=verbose)
        if saved:
            print_changes(console, saved[0], changes)
    if _skips_too_many(report, max_skipped) or not report.ok:
        raise typer.Exit(FAILED)


def _skips_too_many(report: Report, max_skipped: int | None) -> bool:
    from groupcoord.conformance import Verdict

    skipped = report.count(Verdict.SKIPPED)
    if max_skipped is None or skipped <= max_skipped:
        return False
    complain("conformance", f"{skipped} were skipped, {max_skipped} may be")
    return True


def _given(context: typer.Context) -> set[str]:
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _compare_saved(saved: list[Path], others: set[str], *, as_json: bool) -> None:
    from groupcoord.cli.console import open_console
    from groupcoord.conformance import compare_runs

    if len(saved) > 2:
        raise CommandError("--compare takes two saved runs at most")
    if others:
        raise CommandError(
            "two saved runs are compared without running anything: no other option than --json is possible"
        )
    first, second = (_load_run(path) for path in saved)
    changes = compare_runs(first, second)
    if as_json:
        print(json.dumps({"changes": [asdict(change) for change in changes]}, indent=2))
    else:
        print_changes(open_console(), saved[0], changes)
    if any(change.is_worse for change in changes):
        raise typer.Exit(FAILED)


def _select(
    files: list[Path], only: list[str], skip: list[str], areas: list[str], expect_failures: Path | None
) -> tuple[list[Transcript], Expectations]:
    from groupcoord.conformance import Expectations, ExpectationsError, TranscriptError, load_transcripts

    wanted = [_pattern("--only", text) for text in only]
    skipped = [_pattern("--skip", text) for text in skip]
    with command_errors(TranscriptError, ExpectationsError):
        transcripts = load_transcripts(*files)
        expectations = Expectations({})
        if expect_failures is not None:
            expectations = Expectations.load(expect_failures, transcripts)
    known = {transcript.area for transcript in transcripts}
    for area in areas:
        if area not in known:
            raise CommandError(f"there is no area {area!r}; there are {', '.join(sorted(known))}")
    chosen = [t for t in transcripts if not areas or t.area in areas]
    chosen = [t for t in chosen if not wanted or any(one.search(str(t)) for one in wanted)]
    chosen = [t for t in chosen if not any(one.search(str(t)) for one in skipped)]
    if not chosen:
        raise CommandError("no transcript is selected")
    return chosen, expectations


def _pattern(option: str, text: str) -> re.Pattern[str]:
    with command_errors(re.error, prefix=f"{option} {text!r} is no regular expression: "):
        return re.compile(text)


def _target(
    bootstrap: str,
    command_config: str | None,
    has: list[str],
    launch: str | None,
    launch_settings: Path | None,
    *,
    is_in_process: bool,
) -> Target:
    from groupcoord.config.client_properties import ClientProperties
    from groupcoord.conformance import AddressTarget, InProcessTarget, LaunchTarget
    from groupcoord.errors import ConfigError

    if bool(bootstrap) + (launch is not None) + is_in_process > 1:
        raise CommandError("give only one of --bootstrap-server, --launch and --in-process")
    if launch_settings is not None and launch is None:
        raise CommandError("--launch-settings is for --launch")
    if (launch is not None or is_in_process) and (command_config is not None or has):
        raise CommandError("--command-config and --has are for a server that runs already")
    with command_errors(ConfigError, ValueError):
        if launch is not None:
            return LaunchTarget(launch) if launch_settings is None else LaunchTarget.load(launch, launch_settings)
        properties = ClientProperties.load(Path(command_config)) if command_config is not None else None
        if not bootstrap and properties is not None:
            bootstrap = next((str(address) for address in properties.addresses), "")
            if not bootstrap:
                raise CommandError(f"{command_config} has no bootstrap.servers; give --bootstrap-server HOST:PORT")
        if bootstrap:
            return AddressTarget.from_text(bootstrap, properties=properties, settings=key_values("--has", has))
    if has:
        raise CommandError("--has is for a server that runs already; give --bootstrap-server HOST:PORT")
    return InProcessTarget()


@contextmanager
def _ready(target: Target) -> Iterator[None]:
    from groupcoord.cli.interrupts import BeforeTheEnd
    from groupcoord.conformance import AddressTarget, LaunchTarget, TargetError
    from groupcoord.conformance.targets import ConnectionClosedError

    if isinstance(target, AddressTarget | LaunchTarget):
        with command_errors(ConnectionClosedError, TargetError):
            target.check()
    with BeforeTheEnd(target.stop_all) if isinstance(target, LaunchTarget) else nullcontext():
        yield


def _load_run(path: Path) -> Mapping[str, Any]:
    from groupcoord.conformance.report import RunFileError, load_run

    with command_errors(RunFileError):
        return load_run(path)


_SAME_CAUSE_MIN = 3


def print_list(console: Console, transcripts: list[Transcript], *, as_json: bool) -> None:
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
    from groupcoord.conformance.runner import unmet_settings
    from groupcoord.conformance.targets import USUAL_SETTINGS

    if facts.why_unknown:
        base = " ".join(f"{key}={value}" for key, value in USUAL_SETTINGS.items())
        console.print(
            f"the server does not return its settings ({facts.why_unknown}); the transcripts need {base}, and some "
            "need more; give its settings with --has KEY=VALUE",
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
            console.print(f"{outcome.transcript} passed alone, but failed among others: {why}", soft_wrap=True)
    for transcript in unexpected:
        console.print(f"{transcript} was expected to fail, and passed", style="yellow", soft_wrap=True)
    for left in report.left_behind:
        console.print(f"left behind on the server: {left}", style="yellow", soft_wrap=True)
    console.print(report.summary(), style="bold green" if report.ok else "bold red")


def print_changes(console: Console, before: Path, changes: list[Change]) -> None:
    for change in changes:
        style = "red" if change.is_worse else "green" if change.is_better else None
        was, now = change.before or "not in that run", change.after or "not in this run"
        console.print(f"{change.name}: {now}; before: {was}", style=style, soft_wrap=True)
    worse, better = (sum(getattr(change, name) for change in changes) for name in ("is_worse", "is_better"))
    others = len(changes) - worse - better
    console.print(f"since {before}: {worse} fail now, {better} no longer fail, {others} others changed", soft_wrap=True)


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
    first, *others = cause.outcomes
    console.print(f"{len(cause.outcomes)} FAILED alike: {cause.text}", style="bold red", soft_wrap=True)
    console.print(f"  also {', '.join(str(outcome.transcript) for outcome in others)}", soft_wrap=True)
    console.print("  the first of them:")
    _print_failure(console, first, verbose=False)


def _print_table(console: Console, report: Report) -> None:
    from groupcoord.cli.console import table
    from groupcoord.conformance import Verdict

    shown = table(["area"], [verdict.value for verdict in report.verdicts()])
    for area in report.areas():
        counts = [report.count(verdict, area) for verdict in report.verdicts()]
        style = "red" if report.count(Verdict.FAILED, area) else None
        shown.add_row(area, *(str(count) if count else "" for count in counts), style=style)
    console.print(shown)


def _print_server(console: Console, report: Report) -> None:
    from groupcoord.conformance.runner import unlisted_versions

    if report.server is None or not report.server.apis:
        return
    unlisted = {
        request for outcome in report.outcomes for request in unlisted_versions(outcome.transcript, report.server)
    }
    lacking = f", not {', '.join(sorted(unlisted))}" if unlisted else ""
    console.print(f"the server lists {len(report.server.apis)} APIs{lacking}", soft_wrap=True)


def _print_reasons(console: Console, report: Report) -> None:
    counts = Counter((outcome.verdict.value, outcome.reason) for outcome in report.outcomes if outcome.reason)
    for (verdict, reason), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        console.print(f"{count} {verdict}: {reason}", soft_wrap=True)
