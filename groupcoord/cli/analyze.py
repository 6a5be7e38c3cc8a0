"""``groupcoord analyze``: ``__consumer_offsets`` logs to tables and one HTML report, on Spark or in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from importlib.util import find_spec
from math import inf
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from attrs import frozen

from groupcoord.analysis.selection import Selection
from groupcoord.cli.cluster_options import (
    BootstrapServer,
    CommandConfig,
    ExcludedGroups,
    Topic,
    given_address,
    served_metrics,
)
from groupcoord.cli.interrupts import BeforeTheEnd
from groupcoord.cli.messages import complain, say
from groupcoord.cli.replica_logs import as_files, is_of_replicas
from groupcoord.core.log.records import OFFSETS_TOPIC

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from groupcoord.analysis.live.settings import ClusterAddress
    from groupcoord.analysis.pipeline.sources import Source
    from groupcoord.analysis.report.data.model import Report

FAILED, USAGE_ERROR = 1, 2
POLL_S = 0.5
WORST_PRINTED_MAX = 10
MASTER, MEMORY = "local[*]", "2g"

GIB_BYTES = 1_073_741_824
SPARK_START_S, SPARK_CORE_S_PER_GIB, LOCAL_S_PER_GIB = 46, 94, 38
"""How long Spark takes to start, and each engine for logs: measured, see ``docs/performance.md``."""

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
        "patterns of these; local, or URLs that fsspec understands; or the URL of a log that replicas share: "
        "postgresql://USER@HOST/DATABASE or nats://HOST,HOST,HOST.",
    ),
]
Partition = Annotated[list[int] | None, typer.Option(help="Only this log partition; repeatable.")]
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
Interval = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="With --follow: update interval.")]
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
    """What does the work."""

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

Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="With --follow: address of /metrics for Prometheus, on 127.0.0.1 by default; 0 takes a free port.",
    ),
]


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
    partition: Partition = None,
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
    """Turn __consumer_offsets logs into tables and a report: who rebalanced, why, and what is at risk.

    They are files, or with --bootstrap-server or --command-config those of a cluster that runs. DIR/report.html is one
    page without scripts; DIR/summary.json has its figures; DIR/tables/NAME are Parquet. With --follow DIR may be that
    of an earlier such run, whose tables are replaced. Exit status: 0, 1 if verifying found a difference or
    the work failed on the way, 2 if the command can't be carried out.
    """
    address = given_address(bootstrap_server, command_config)
    if (address is not None) == bool(paths):
        _give_up("give either paths or a cluster, by --bootstrap-server or --command-config")
    _check_records_asked(lag_from_records, is_possible=not (paths or end_offsets or poll))
    if poll:
        if verify or partition or topic != OFFSETS_TOPIC or end_offsets is not None:
            _give_up("--poll reads no log: it goes without --topic, --partition, --end-offsets and --verify")
        if engine is Engine.SPARK:
            _give_up("--poll starts no Spark: it goes without --engine spark")
        _check_follows(follow, metrics)
        with _folder(out) as place:
            _poll(address, exclude_group or (), place, interval if follow else None, metrics)
        return
    paths = _local(paths or [], context, follows=follow)
    with _errors_in_words(Engine.LOCAL):
        selection = Selection(partition or (), exclude_group or ())
    source = _Source(paths, address, topic, selection, end_offsets, lag_from_records)
    _check_follows(follow, metrics)
    if follow and verify:
        _give_up("--follow and --verify don't go together: verify in a run without --follow")
    for_spark = {
        "--master": master is not None,
        "--memory": memory is not None,
        "--conf": bool(conf),
    }
    given = [option for option, is_given in for_spark.items() if is_given]
    if follow:
        _check_follows_locally(engine, given)
        with _folder(out) as place:
            _follow(source, place, interval, metrics)
        return
    is_on_spark = _takes_spark(engine, source, given)
    settings = _settings(conf or [])
    with _folder(out) as place:
        work = _Work(source, place, master or MASTER, memory or MEMORY, settings)
        run = _analyze(work, verifies=verify) if is_on_spark else _analyze_here(source, place, verifies=verify)
        _end(run, place)


def local_bytes_max(cores: int) -> float:
    """Return up to how many bytes of logs one process is done before Spark is, which starts late and then shares them.

    Args:
        cores: of this machine, which are all Spark's.
    """
    gained_s_per_gib = LOCAL_S_PER_GIB - SPARK_CORE_S_PER_GIB / cores
    return SPARK_START_S / gained_s_per_gib * GIB_BYTES if gained_s_per_gib > 0 else inf


def _local(paths: list[str], context: typer.Context, *, follows: bool) -> list[str]:
    """Return the paths, with copies in place of logs that replicas share."""
    if follows and any(map(is_of_replicas, paths)):
        _give_up("--follow reads files that grow, or a cluster: of a log that replicas share there is a copy")
    with _errors_in_words(Engine.LOCAL):
        return as_files(paths, context)


@contextmanager
def _folder(out: str | None) -> Iterator[str]:
    """Give where the results go: what was named, or a temporary folder, which goes again if nothing came into it."""
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


def _check_follows_locally(engine: Engine, for_spark: list[str]) -> None:
    """Refuse Spark and its options, and name what does the same in their place."""
    words = ["--engine spark"] if engine is Engine.SPARK else for_spark
    if words:
        _give_up(
            "--follow runs in this process, which keeps up with more than a cluster writes: it goes without "
            f"{', '.join(words)}; for a streaming query on Spark use groupcoord.spark.read_log_stream"
        )


def _check_follows(follow: bool, metrics: str | None) -> None:
    if metrics is not None and not follow:
        _give_up("--metrics goes with --follow")


def _takes_spark(engine: Engine, source: _Source, for_spark: list[str]) -> bool:
    """Tell whether Spark does the work.

    Args:
        engine: what was chosen.
        source: what is to be read.
        for_spark: the options that were given and that nothing but Spark understands.
    """
    is_installed = find_spec("pyspark") is not None
    if engine is Engine.LOCAL and for_spark:
        _give_up(f"--engine local starts no Spark: it goes without {', '.join(for_spark)}")
    if engine is Engine.AUTO and for_spark and not is_installed:
        _give_up(
            f"{for_spark[0]} needs Spark, and pyspark is not installed; try: pip install '{_EXTRAS[Engine.SPARK]}'"
        )
    if engine is not Engine.AUTO or for_spark or not is_installed:
        return engine is Engine.SPARK or bool(for_spark)
    with _errors_in_words(Engine.LOCAL):
        return source.open().check() > local_bytes_max(os.cpu_count() or 1)


def _end(report: Report, out: str) -> None:
    """Tell what came of it; differences are the command's failure."""
    _print_result(report, out)
    if report.verification is not None and report.verification.difference_count:
        raise typer.Exit(FAILED)


def _check_records_asked(lag_from_records: bool, *, is_possible: bool) -> None:
    if lag_from_records and not is_possible:
        _give_up("--lag-from-records asks a cluster: it goes without paths, --end-offsets and --poll")


@frozen
class _Source:
    """What is to be read."""

    paths: list[str]
    address: ClusterAddress | None
    topic: str
    selection: Selection
    end_offsets: str | None
    lag_from_records: bool

    def open(self) -> Source:
        """Return it as the pipeline knows it."""
        from groupcoord.analysis.pipeline.sources import ClusterSource, LogSource

        selection, ends = self.selection, self.end_offsets
        if self.address is None:
            return LogSource(self.paths, selection=selection, end_offsets=ends)
        return ClusterSource(self.address, self.topic, self.lag_from_records, selection=selection, end_offsets=ends)


@frozen
class _Work:
    """What is to be read, where the results go, and what Spark is told."""

    source: _Source
    out: str
    master: str
    memory: str
    settings: Mapping[str, str]


def _give_up(message: str, status: int = USAGE_ERROR) -> NoReturn:
    complain("analyze", message)
    raise typer.Exit(status)


def _settings(words: list[str]) -> dict[str, str]:
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            _give_up(f"--conf {word}: write it as KEY=VALUE")
        settings[key] = value
    return settings


_EXTRAS = {Engine.SPARK: "groupcoord[serve,spark]", Engine.LOCAL: "groupcoord[serve,local]"}


@contextmanager
def _errors_in_words(engine: Engine) -> Iterator[None]:
    """Tell what goes wrong in one line, and exit; that a package is missing too, so they are imported inside."""
    from groupcoord.analysis.errors import PipelineError, RunFailedError

    try:
        yield
    except ModuleNotFoundError as error:
        _give_up(f"{error.name} is not installed; try: pip install '{_EXTRAS[engine]}'")
    except RunFailedError as error:
        _give_up(str(error), FAILED)
    except PipelineError as error:
        # What a cluster doesn't show of its log, it mostly tells of its groups.
        other_way = "; --poll asks for groups instead" if f"topic {OFFSETS_TOPIC}" in str(error) else ""
        _give_up(f"{error}{other_way}")


def _analyze_here(source: _Source, out: str, *, verifies: bool) -> Report:
    """Do everything in this process."""
    with _errors_in_words(Engine.LOCAL):
        from groupcoord.analysis.pipeline.batch import Pipeline
        from groupcoord.analysis.pipeline.local_engine import LocalEngine

        engine = LocalEngine()
        pipeline = Pipeline(engine, source.open(), out, verifies=verifies)
        with _progress(lambda: engine.tasks, len(pipeline.steps)) as begin:
            return pipeline.run(begin)


def _analyze(work: _Work, *, verifies: bool) -> Report:
    """Do everything; what can go wrong without Spark goes wrong before it starts."""
    with _errors_in_words(Engine.SPARK):
        from groupcoord.analysis.pipeline.batch import Pipeline
        from groupcoord.spark.engine import SparkEngine
        from groupcoord.spark.sessions import end_java, one_run

        engine = SparkEngine()
        pipeline = Pipeline(engine, work.source.open(), work.out, verifies=verifies)
        with (
            BeforeTheEnd(end_java),
            one_run(work.master, work.memory, work.settings, pipeline.size_bytes) as engine.spark,
            _progress(lambda: engine.tasks, len(pipeline.steps)) as begin,
        ):
            return pipeline.run(begin)


def _follow(source: _Source, out: str, interval_s: float, metrics: str | None) -> None:
    """Keep tables and page up to date until a signal comes."""
    with _errors_in_words(Engine.LOCAL):
        from groupcoord.analysis.pipeline.following import LocalFollowing
        from groupcoord.cli.analyze_follow import run_following

        following = LocalFollowing(source.open(), out, interval_s=interval_s)
        with served_metrics("analyze", lambda: following.cluster_name, metrics) as collector:
            run_following(following, out, collector)


def _poll(
    address: ClusterAddress | None,
    exclude_groups: Sequence[str],
    out: str,
    interval_s: float | None,
    metrics: str | None,
) -> None:
    """Ask a cluster for its groups, once or until a signal comes."""
    if address is None:
        _give_up("--poll asks a cluster: name it by --bootstrap-server or --command-config, and no paths")
    with _errors_in_words(Engine.LOCAL):
        from groupcoord.analysis.poll.polling import Polling
        from groupcoord.cli.analyze_poll import run_polling

        polling = Polling(address, out, exclude_groups=exclude_groups)
        with served_metrics("analyze", polling.cluster_name, metrics) as collector:
            run_polling(polling, out, interval_s, collector)


@contextmanager
def _progress(count_tasks: Callable[[], tuple[int, int]], step_count: int) -> Iterator[Callable[[str], None]]:
    """Give a function that is called at the start of each step with its name; on a terminal a bar shows them."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    from groupcoord.cli.progress import progress_bar

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with (
        progress_bar(*columns) as bar,
        _Watch(count_tasks, bar, bar.add_task("", total=step_count)) as watch,
    ):
        yield watch.begin


class _Watch:
    """Shows which step runs, and how many of its tasks are done, as long as the context lasts."""

    def __init__(self, count_tasks: Callable[[], tuple[int, int]], bar: Progress, task: TaskID) -> None:
        self._count_tasks = count_tasks
        self._bar = bar
        self._task = task
        self._step, self._steps_done = "", -1
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def begin(self, step: str) -> None:
        """The step before is done; this one begins."""
        self._step, self._steps_done = step, self._steps_done + 1
        self._bar.update(self._task, completed=self._steps_done, description=step)

    def _run(self) -> None:
        while not self._ended.wait(POLL_S):
            step = self._step
            done, total = self._count_tasks()
            if total:
                self._bar.update(
                    self._task,
                    completed=max(self._steps_done, 0) + done / total,
                    description=f"{step}: {done:,} of {total:,} tasks",
                )


def _print_result(report: Report, out: str) -> None:
    """Print what matters most, and where the rest is."""
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
    from rich.table import Table
    from rich.text import Text

    from groupcoord.analysis.report.data.group_status import BAD
    from groupcoord.analysis.report.text import clipped, escape, format_number
    from groupcoord.cli.console import NAME_LENGTH_MAX

    rows = [row for row in report.groups if not row.standing.is_fine]
    if not rows:
        return
    table = Table(title="worst groups", title_justify="left")
    for name in ("status", "group", "what is wrong"):
        table.add_column(name, overflow="fold")
    for name in ("behind", "rebalances", "anomalies"):
        table.add_column(name, justify="right")
    for row in rows[:WORST_PRINTED_MAX]:
        stands = row.standing
        numbers = (stands.lag, row.rebalances, row.anomalies)
        group_id = Text(clipped(row.group_id, NAME_LENGTH_MAX) if console.is_terminal else escape(row.group_id))
        word = Text(stands.word, style="bold red" if stands.severity == BAD else "yellow")
        table.add_row(word, group_id, Text(clipped(stands.told)), *(format_number(number) for number in numbers))
    console.print(table)


def _print_verification(console: Console, report: Report) -> None:
    verified = report.verification
    assert verified is not None
    if not verified.difference_count:
        console.print("verified: coordinators that loaded the log answer what the tables say", style="bold green")
        return
    console.print(f"verified: {verified.difference_count:,} differences", style="bold red")
    for told in verified.differences[:10]:
        console.print(f"  {told}")
