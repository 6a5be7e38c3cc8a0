"""``groupcoord analyze``: ``__consumer_offsets`` logs to tables and one HTML report, on Spark or in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from functools import partial
from importlib.util import find_spec
from math import inf
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated

import typer

from groupcoord.analysis.options import Selection
from groupcoord.cli.interrupts import FAILED, AtTheFirstSignal, BeforeTheEnd, StopRequest
from groupcoord.cli.messages import CommandError, key_values, say
from groupcoord.cli.options import (
    ENGINE_URLS,
    BootstrapServer,
    CommandConfig,
    ExcludedGroups,
    Interval,
    Metrics,
    Partitions,
    Topic,
    given_address,
    served_metrics,
)
from groupcoord.cli.replica_logs import as_files, is_of_replicas
from groupcoord.core.log.records import OFFSETS_TOPIC

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.analysis.live.settings import ClusterAddress
    from groupcoord.analysis.pipeline.following import LocalFollowing, Progress as Update
    from groupcoord.analysis.pipeline.metrics import GroupCollector
    from groupcoord.analysis.pipeline.sources import Source
    from groupcoord.analysis.poll.polling import Polled, Polling
    from groupcoord.analysis.report.data.model import Report


POLL_S = 0.5
WORST_PRINTED_MAX = 10
MASTER, MEMORY = "local[*]", "2g"

GIB_BYTES = 1_073_741_824
SPARK_START_S, SPARK_CORE_S_PER_GIB, LOCAL_S_PER_GIB = 46, 94, 38
"""Measured: Spark's start-up, its core time per GiB, local time per GiB; see ``docs/performance.md``."""

Out = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Directory of the results: empty or new, or a URL. With --follow also that of an earlier "
        "run; its tables are replaced. [default: a temporary directory]",
    ),
]
Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH",
        help="Segment files, folders of a log partition, or data directories with __consumer_offsets-N inside; "
        "patterns of these; local, or URLs that fsspec understands; "
        f"or the URL of a log that replicas share: {ENGINE_URLS}.",
    ),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Also load the log into coordinators and compare. Not with --follow.")
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        help="Update the results as the logs grow, until SIGINT or SIGTERM, in one process without Spark.",
    ),
]
EndOffsets = Annotated[
    str | None,
    typer.Option(
        "--end-offsets",
        metavar="FILE",
        help="End offsets for the lag: CSV with the header topic,topic_partition,end_offset.",
    ),
]
LagFromRecords = Annotated[
    bool,
    typer.Option(
        "--lag-from-records",
        help="On a cluster: compute time lag from the next unread record. Needs READ on the topics.",
    ),
]
Poll = Annotated[
    bool,
    typer.Option(
        "--poll",
        help="On a cluster without access to __consumer_offsets: request its groups once, or with --follow repeatedly.",
    ),
]


class Engine(Enum):
    """Engine of the analysis."""

    AUTO = "auto"
    SPARK = "spark"
    LOCAL = "local"


EngineOption = Annotated[
    Engine,
    typer.Option(
        help="spark, or local: one process without Spark and Java. auto is local where that is faster "
        "(any size on two cores, up to 3.2 GiB on four, 1.8 GiB on eight) or pyspark is not "
        "installed. Always local with --follow."
    ),
]
Master = Annotated[str | None, typer.Option(show_default=MASTER, help="Spark master.")]
Memory = Annotated[
    str | None,
    typer.Option(show_default=MEMORY, help="Memory of Spark's driver."),
]

Settings = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; repeatable.")]


def analyze(
    context: typer.Context,
    paths: Paths = None,
    out: Out = None,
    bootstrap_server: BootstrapServer = "",
    command_config: CommandConfig = None,
    topic: Topic = OFFSETS_TOPIC,
    engine: EngineOption = Engine.AUTO,
    master: Master = None,
    memory: Memory = None,
    partition: Partitions = None,
    exclude_group: ExcludedGroups = None,
    end_offsets: EndOffsets = None,
    lag_from_records: LagFromRecords = False,
    verify: Verify = False,
    follow: Follow = False,
    interval: Interval = 10.0,
    poll: Poll = False,
    metrics: Metrics = None,
    conf: Settings = None,
) -> None:
    """Turn __consumer_offsets logs into tables and a report: rebalances and their causes, lag, and anomalies.

    The input is files or, with --bootstrap-server or --command-config, a running cluster. DIR/report.html is one page
    without scripts, DIR/summary.json has its figures, and DIR/tables/NAME are Parquet. With --follow DIR may be that of
    an earlier run: its tables are replaced. Exit status: 0, 1 if --verify found a difference or the run failed, 2 if
    the command cannot be carried out.
    """
    address = given_address(bootstrap_server, command_config, paths)
    if lag_from_records and (paths or end_offsets or poll):
        raise CommandError("--lag-from-records needs a cluster, and does not support paths, --end-offsets or --poll")
    if metrics is not None and not follow:
        raise CommandError("--metrics needs --follow")
    if poll:
        if verify or partition or topic != OFFSETS_TOPIC or end_offsets is not None:
            raise CommandError(
                "--poll reads no log, and does not support --topic, --partition, --end-offsets or --verify"
            )
        if engine is Engine.SPARK:
            raise CommandError("--poll does not support --engine spark")
        if address is None:
            raise CommandError("--poll needs a cluster: give --bootstrap-server or --command-config, and no paths")
        with _folder(out) as place:
            _poll(address, exclude_group or (), place, interval if follow else None, metrics)
        return
    for_spark = _given({"--master": master, "--memory": memory, "--conf": conf or None})
    if follow:
        _check_follow(engine, for_spark, paths or (), verifies=verify)
    with _plain_errors():
        selection = Selection(partition or (), exclude_group or ())
        files = as_files(paths or (), context)

    def open_source() -> Source:
        from groupcoord.analysis.pipeline.sources import ClusterSource, LogSource

        if address is None:
            return LogSource(files, selection=selection, end_offsets=end_offsets)
        return ClusterSource(address, topic, lag_from_records, selection=selection, end_offsets=end_offsets)

    if follow:
        with _folder(out) as place:
            _follow(open_source, place, interval, metrics)
        return
    is_on_spark = _takes_spark(engine, open_source, for_spark)
    on_spark = partial(_analyze_on_spark, master or MASTER, memory or MEMORY, key_values("--conf", conf or ()))
    with _folder(out) as place:
        report = (on_spark if is_on_spark else _analyze_here)(open_source, place, verify)
        _print_result(report, place)
        if report.verification is not None and report.verification.difference_count:
            raise typer.Exit(FAILED)


def _given(options: Mapping[str, object]) -> list[str]:
    return [option for option, value in options.items() if value is not None]


def local_bytes_max(cores: int) -> float:
    """Return the size of logs up to which the local engine is faster than Spark on this number of cores."""
    gained_s_per_gib = LOCAL_S_PER_GIB - SPARK_CORE_S_PER_GIB / cores
    return SPARK_START_S / gained_s_per_gib * GIB_BYTES if gained_s_per_gib > 0 else inf


@contextmanager
def _folder(out: str | None) -> Iterator[str]:
    """Yield the output directory; a temporary one is removed if it stays empty."""
    if out is not None:
        yield out
        return
    made = Path(mkdtemp(prefix="groupcoord-"))
    say(f"the results go to {made}", is_error=True)
    try:
        yield str(made)
    finally:
        if not any(made.iterdir()):
            made.rmdir()


def _check_follow(engine: Engine, for_spark: list[str], paths: Sequence[str], *, verifies: bool) -> None:
    words = ["--engine spark"] if engine is Engine.SPARK else for_spark
    if words:
        raise CommandError(
            f"--follow runs in this process, and does not support {', '.join(words)}; for a streaming query on Spark "
            "use groupcoord.spark.read_log_stream"
        )
    if any(map(is_of_replicas, paths)):
        raise CommandError("--follow needs growing files or a cluster; a log that replicas share is read as a copy")
    if verifies:
        raise CommandError("--follow does not support --verify: verify in a run without --follow")


def _takes_spark(engine: Engine, open_source: Callable[[], Source], for_spark: list[str]) -> bool:
    """Return whether to run on Spark; ``for_spark`` are the given options for Spark."""
    is_installed = find_spec("pyspark") is not None
    if engine is Engine.LOCAL and for_spark:
        raise CommandError(f"--engine local does not support {', '.join(for_spark)}")
    if engine is Engine.AUTO and for_spark and not is_installed:
        raise CommandError(
            f"{for_spark[0]} needs Spark, and pyspark is not installed; try: pip install 'groupcoord[serve,spark]'"
        )
    if engine is not Engine.AUTO or for_spark or not is_installed:
        return engine is Engine.SPARK or bool(for_spark)
    with _plain_errors():
        return open_source().check() > local_bytes_max(os.cpu_count() or 1)


@contextmanager
def _plain_errors() -> Iterator[None]:
    from groupcoord.analysis.errors import PipelineError, RunFailedError

    try:
        yield
    except RunFailedError as error:
        raise CommandError(error, FAILED) from None
    except PipelineError as error:
        # The groups may be readable where the log is not.
        other_way = "; --poll requests groups instead" if f"topic {OFFSETS_TOPIC}" in str(error) else ""
        raise CommandError(f"{error}{other_way}") from None


def _analyze_here(open_source: Callable[[], Source], out: str, verifies: bool) -> Report:
    with _plain_errors():
        from groupcoord.analysis.pipeline.batch import Pipeline
        from groupcoord.analysis.pipeline.local_engine import LocalEngine

        engine = LocalEngine()
        pipeline = Pipeline(engine, open_source(), out, verifies=verifies)
        with _progress(lambda: engine.tasks, len(pipeline.steps)) as begin:
            return pipeline.run(begin)


def _analyze_on_spark(
    master: str, memory: str, settings: Mapping[str, str], open_source: Callable[[], Source], out: str, verifies: bool
) -> Report:
    """Run on Spark, started once input and output are checked."""
    with _plain_errors():
        from groupcoord.analysis.pipeline.batch import Pipeline
        from groupcoord.spark.engine import SparkEngine
        from groupcoord.spark.sessions import end_java, one_run

        engine = SparkEngine()
        pipeline = Pipeline(engine, open_source(), out, verifies=verifies)
        with (
            BeforeTheEnd(end_java),
            one_run(master, memory, settings, pipeline.size_bytes) as engine.spark,
            _progress(lambda: engine.tasks, len(pipeline.steps)) as begin,
        ):
            return pipeline.run(begin)


def _follow(open_source: Callable[[], Source], out: str, interval_s: float, metrics: str | None) -> None:
    with _plain_errors():
        from groupcoord.analysis.pipeline.following import LocalFollowing

        following = LocalFollowing(open_source(), out, interval_s=interval_s)
        with served_metrics(lambda: following.cluster_name, metrics) as collector:
            run_following(following, out, collector)


def _poll(
    address: ClusterAddress,
    exclude_groups: Sequence[str],
    out: str,
    interval_s: float | None,
    metrics: str | None,
) -> None:
    with _plain_errors():
        from groupcoord.analysis.poll.polling import Polling

        polling = Polling(address, out, exclude_groups=exclude_groups)
        with served_metrics(polling.cluster_name, metrics) as collector:
            run_polling(polling, out, interval_s, collector)


@contextmanager
def _progress(count_tasks: Callable[[], tuple[int, int]], step_count: int) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each step, which a progress bar shows."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    from groupcoord.cli.console import progress_bar, repeated

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with progress_bar(*columns) as bar:
        task, begun = bar.add_task("", total=step_count), [""]

        def begin(step: str) -> None:
            begun.append(step)
            bar.update(task, completed=len(begun) - 2, description=step)

        def look() -> None:
            step, steps_done = begun[-1], max(len(begun) - 2, 0)
            done, total = count_tasks()
            if total:
                description = f"{step}: {done:,} of {total:,} tasks"
                bar.update(task, completed=steps_done + done / total, description=description)

        with repeated(look, POLL_S):
            yield begin


def _print_result(report: Report, out: str) -> None:
    from groupcoord.analysis.report.data.gathering import PAGE
    from groupcoord.cli.console import open_console

    console = open_console()
    found = report.overview
    console.print(
        f"{found.records:,} records of {found.log_partitions:,} log partitions: {found.groups:,} groups, "
        f"{found.rebalances:,} rebalances, {found.anomalies:,} anomalies",
        style="bold",
    )
    if found.corrupt_ranges:
        console.print(f"{found.corrupt_ranges:,} byte ranges could not be read", style="bold red")
    _print_worst(console, report)
    if report.verification is not None:
        _print_verification(console, report)
    console.print(f"report: {out.rstrip('/')}/{PAGE}")


def _print_worst(console: Console, report: Report) -> None:
    from rich.text import Text

    from groupcoord.analysis.report.data.model import BAD
    from groupcoord.analysis.report.text import clipped, escape, format_number
    from groupcoord.cli.console import NAME_LENGTH_MAX, table

    rows = [row for row in report.groups if not row.standing.is_fine]
    if not rows:
        return
    texts, numbers = ("status", "group", "what is wrong"), ("behind", "rebalances", "anomalies")
    worst = table(texts, numbers, title="worst groups", title_justify="left")
    for row in rows[:WORST_PRINTED_MAX]:
        stands = row.standing
        counts = map(format_number, (stands.lag, row.rebalances, row.anomalies))
        group_id = Text(clipped(row.group_id, NAME_LENGTH_MAX) if console.is_terminal else escape(row.group_id))
        word = Text(stands.word, style="bold red" if stands.severity == BAD else "yellow")
        worst.add_row(word, group_id, Text(clipped(stands.told)), *counts)
    console.print(worst)


def _print_verification(console: Console, report: Report) -> None:
    verified = report.verification
    assert verified is not None
    if not verified.difference_count:
        console.print(
            "verified: the responses of coordinators that loaded the log equal the tables", style="bold green"
        )
        return
    console.print(f"verified: {verified.difference_count:,} differences", style="bold red")
    for difference in verified.differences[:10]:
        console.print(f"  {difference}")


def run_following(following: LocalFollowing, out: str, collector: GroupCollector | None = None) -> None:
    """Follow until a signal; a second interrupts the current update."""
    from groupcoord.cli.console import open_console

    stop, console = StopRequest(), open_console()
    leaderless: set[str] = set()

    def print_update(progress: Update) -> None:
        for name in sorted(set(progress.leaderless) - leaderless):
            console.print(f"not read: {name} has no leader; the other partitions are", style="red")
        leaderless.clear()
        leaderless.update(progress.leaderless)
        if collector is not None and progress.tables is not None:
            collector.take(progress.tables, progress.seen_ms, progress.rows, progress.earlier)
        if not progress.is_look:
            _print_update(console, progress)

    with AtTheFirstSignal(stop.ask):
        console.print(f"following; results go to {out}, and Ctrl-C ends this", style="dim")
        following.run(stop.is_there, print_update)
    console.print("stopped; the same command reads the logs again", style="dim")


def _print_update(console: Console, progress: Update) -> None:
    at = datetime.now().strftime("%H:%M:%S")
    line = f"{at}  update {progress.update}: {progress.rows:,} rows read"
    if progress.report is not None:
        found = progress.report.overview
        line += (
            f"; report: {found.groups:,} groups, {found.members:,} members, {found.rebalances:,} rebalances, "
            f"{found.anomalies:,} anomalies"
        )
    console.print(line)


PROBLEMS_SHOWN_MAX = 10


def run_polling(polling: Polling, out: str, interval_s: float | None, collector: GroupCollector | None = None) -> None:
    from groupcoord.analysis.report.data.gathering import PAGE
    from groupcoord.cli.console import open_console

    console = open_console()
    seen: set[str] = set()
    if interval_s is None:
        polling.run(lambda: True, lambda polled: _print_poll(console, polled, seen))
        console.print(f"report: {out.rstrip('/')}/{PAGE}")
        return
    stop = StopRequest()

    def print_poll(polled: Polled) -> None:
        if collector is not None:
            collector.show(polled.figures)
        _print_poll(console, polled, seen)

    with AtTheFirstSignal(stop.ask):
        console.print(f"polling; results go to {out}, and Ctrl-C ends this", style="dim")
        polling.run(lambda: stop.is_there(interval_s), print_poll)


def _print_poll(console: Console, polled: Polled, seen: set[str]) -> None:
    from groupcoord.analysis.report.text import escape

    found = polled.report.overview
    console.print(
        f"{datetime.now():%H:%M:%S}  poll {polled.number}: {found.groups:,} groups, {found.members:,} members, "
        f"{found.current_offsets:,} offsets, {found.rebalances:,} rebalances, {polled.rebalances:,} of them new, "
        f"{found.anomalies:,} anomalies"
    )
    problems = [f"{one.subject}: {one.text}" for one in polled.snapshot.problems]
    new = [one for one in problems if one not in seen]
    for problem in new[:PROBLEMS_SHOWN_MAX]:
        console.print(f"  unknown: {escape(problem)}", style="red")
    if len(new) > PROBLEMS_SHOWN_MAX:
        console.print(f"  unknown: {len(new) - PROBLEMS_SHOWN_MAX:,} more, in tables/problems", style="red")
    seen.clear()
    seen.update(problems)
