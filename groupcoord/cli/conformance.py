"""``groupcoord conformance``: replay transcripts of a real broker and say where a server differs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from attrs import asdict

from groupcoord.cli.messages import complain

if TYPE_CHECKING:
    from groupcoord.conformance import Expectations, Outcome, Report, ServerFacts, Target, Transcript
    from groupcoord.conformance.runner import OnFacts

FAILED = 1
USAGE_ERROR = 2


Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE", help="Transcripts, or folders of them. Default: those of this package."),
]
Bootstrap = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Test a running server.")]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config", metavar="FILE", help="Properties file of a Kafka client: TLS, log-in, bootstrap.servers."
    ),
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
Only = Annotated[str | None, typer.Option(metavar="REGEX", help="Only transcripts with a matching area/name.")]
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
Jobs = Annotated[int, typer.Option(min=1, help="Number of concurrent transcripts over sockets.")]
Prefix = Annotated[str, typer.Option(help="Prefix of group ids and topics.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep groups and topics on the running server.")]
Compare = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Compare with a run saved by --json. Given twice: compare two saved runs without running anything.",
    ),
]
Junit = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as JUnit XML.")]
ListOnly = Annotated[bool, typer.Option("--list", help="List the transcripts without running them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print every transcript and whole bodies.")]


def conformance(
    context: typer.Context,
    files: Files = None,
    bootstrap: Bootstrap = None,
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
    junit: Junit = None,
    list_only: ListOnly = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Replay conversations recorded with a real Kafka broker against a server.

    Exit status: 0 if every transcript passed, was skipped or failed as expected, 1 if one failed otherwise or more were
    skipped than --max-skipped, 2 if the command can't be carried out. Of two saved runs: 1 if one fails in the second
    that did not in the first.
    """
    from groupcoord.cli.conformance_report import print_changes, print_list, print_needs, print_report
    from groupcoord.cli.console import open_console
    from groupcoord.conformance import compare_runs

    saved = compare or []
    if len(saved) > 1:
        _compare_saved(saved, _given(context) - {"compare", "as_json"}, as_json=as_json)
        return
    if (bootstrap is not None) + (launch is not None) + in_process > 1:
        _give_up("give only one of --bootstrap, --launch and --in-process")
    if launch_settings is not None and launch is None:
        _give_up("--launch-settings is for --launch")
    target = _target(bootstrap, command_config, has or [], launch, launch_settings, is_in_process=in_process)
    transcripts, expectations = _select(files or [], only, skip or [], area or [], expect_failures)
    before = _load_run(saved[0]) if saved else {}
    console = open_console()
    if list_only:
        print_list(console, transcripts, as_json=as_json)
        return

    def tell_needs(facts: ServerFacts) -> None:
        if not as_json and target.own_settings is not None:
            print_needs(console, transcripts, facts)

    with _ready(target):
        report = _run(transcripts, target, jobs, prefix, tell_needs, cleans=not keep, progress=not as_json)
    report = expectations.apply(report)
    if junit is not None:
        _write_junit(junit, report)
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
    """Tell whether more transcripts were skipped than may be, and say so."""
    from groupcoord.conformance import Verdict

    skipped = report.count(Verdict.SKIPPED)
    if max_skipped is None or skipped <= max_skipped:
        return False
    complain("conformance", f"{skipped} were skipped, {max_skipped} may be")
    return True


def _given(context: typer.Context) -> set[str]:
    """Return the names of the parameters that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _compare_saved(saved: list[Path], others: set[str], *, as_json: bool) -> None:
    """Print what is different between two saved runs."""
    from groupcoord.cli.conformance_report import print_changes
    from groupcoord.cli.console import open_console
    from groupcoord.conformance import compare_runs

    if len(saved) > 2:
        _give_up("--compare takes two saved runs at most")
    if others:
        _give_up("two saved runs are compared without running anything: beside them there can only be --json")
    first, second = (_load_run(path) for path in saved)
    changes = compare_runs(first, second)
    if as_json:
        print(json.dumps({"changes": [asdict(change) for change in changes]}, indent=2))
    else:
        print_changes(open_console(), saved[0], changes)
    if any(change.is_worse for change in changes):
        raise typer.Exit(FAILED)


def _give_up(message: str) -> NoReturn:
    complain("conformance", message)
    raise typer.Exit(USAGE_ERROR)


def _select(
    files: list[Path], only: str | None, skip: list[str], areas: list[str], expect_failures: Path | None
) -> tuple[list[Transcript], Expectations]:
    from groupcoord.conformance import Expectations, ExpectationsError, TranscriptError, load_transcripts

    pattern = _pattern("--only", only or "")
    skipped = [_pattern("--skip", text) for text in skip]
    try:
        transcripts = load_transcripts(*files)
        expectations = Expectations({})
        if expect_failures is not None:
            expectations = Expectations.load(expect_failures, transcripts)
    except (TranscriptError, ExpectationsError) as error:
        _give_up(str(error))
    known = {transcript.area for transcript in transcripts}
    for area in areas:
        if area not in known:
            _give_up(f"there is no area {area!r}; there are {', '.join(sorted(known))}")
    chosen = [t for t in transcripts if pattern.search(str(t)) and (not areas or t.area in areas)]
    chosen = [t for t in chosen if not any(one.search(str(t)) for one in skipped)]
    if not chosen:
        _give_up("no transcript is selected")
    return chosen, expectations


def _pattern(option: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        _give_up(f"{option} {text!r} is no regular expression: {error}")


def _target(
    bootstrap: str | None,
    command_config: Path | None,
    has: list[str],
    launch: str | None,
    launch_settings: Path | None,
    *,
    is_in_process: bool,
) -> Target:
    from groupcoord.config.client_properties import ClientProperties
    from groupcoord.conformance import AddressTarget, InProcessTarget, LaunchTarget
    from groupcoord.errors import ConfigError

    if (launch is not None or is_in_process) and (command_config is not None or has):
        _give_up("--command-config and --has are for a server that runs already")
    try:
        if launch is not None:
            return LaunchTarget(launch) if launch_settings is None else LaunchTarget.load(launch, launch_settings)
        properties = ClientProperties.load(command_config) if command_config is not None else None
        if bootstrap is None and properties is not None:
            bootstrap = next((str(address) for address in properties.addresses), None)
            if bootstrap is None:
                _give_up(f"{command_config} has no bootstrap.servers; give --bootstrap HOST:PORT")
        if bootstrap is not None:
            return AddressTarget.from_text(bootstrap, properties=properties, settings=_settings(has))
    except (ConfigError, ValueError) as error:
        _give_up(str(error))
    if has:
        _give_up("--has is for a server that runs already; give --bootstrap HOST:PORT")
    return InProcessTarget()


def _settings(has: list[str]) -> dict[str, str]:
    settings = {}
    for text in has:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            _give_up(f"--has takes KEY=VALUE, not {text!r}")
        settings[key.strip()] = value.strip()
    return settings


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


def _run(
    transcripts: list[Transcript],
    target: Target,
    jobs: int,
    prefix: str,
    on_facts: OnFacts,
    *,
    cleans: bool,
    progress: bool,
) -> Report:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from groupcoord.cli.progress import progress_bar
    from groupcoord.conformance import run

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with progress_bar(*columns, is_wanted=progress) as bar:
        task = bar.add_task("", total=len(transcripts))

        def advance(outcome: Outcome) -> None:
            bar.update(task, advance=1, description=str(outcome.transcript))

        return run(
            transcripts,
            target,
            jobs=jobs,
            prefix=prefix,
            cleans=cleans,
            on_facts=on_facts,
            on_outcome=advance,
        )


def _write_junit(path: Path, report: Report) -> None:
    from groupcoord.conformance import junit_xml

    try:
        path.write_text(junit_xml(report), "utf-8")
    except OSError as error:
        _give_up(f"{path} can't be written: {error.strerror}")


def _load_run(path: Path) -> Mapping[str, Any]:
    from groupcoord.conformance.comparison import RunFileError, load_run

    try:
        return load_run(path)
    except RunFileError as error:
        _give_up(str(error))
