"""``groupcoord analyze --follow``: the results kept up to date, a line for each update, until a signal ends it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from groupcoord.cli.interrupts import AtTheFirstSignal, BeforeTheEnd, StopRequest

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.analysis.running.following import LocalFollowing
    from groupcoord.analysis.running.metrics import GroupCollector
    from groupcoord.analysis.running.runs import Progress
    from groupcoord.spark.following import Following

IsStopped = Callable[[float], bool]
Tell = Callable[["Progress"], None]


def run_on_spark(
    following: Following,
    out: str,
    begin: Callable[[], AbstractContextManager[Any]],
    collector: GroupCollector | None = None,
) -> None:
    """Follow logs until SIGINT or SIGTERM; a second signal does not wait for the update that is under way.

    Nor does the first one while Spark starts.

    Args:
        following: what to do.
        out: where the results go.
        begin: gives a session of Spark for as long as the context lasts.
        collector: shows figures.

    Raises:
        PipelineError: Spark does not start, or fails on the way.
    """
    from groupcoord.spark.running import end_java

    with BeforeTheEnd(end_java), begin() as spark:
        _run(lambda is_stopped, tell: following.run(spark, is_stopped, tell), out, collector, "goes on from here")


def run_here(following: LocalFollowing, out: str, collector: GroupCollector | None = None) -> None:
    """Follow logs in this process until SIGINT or SIGTERM; a second signal does not wait for what is under way.

    Args:
        following: what to do.
        out: where the results go.
        collector: shows figures.

    Raises:
        PipelineError: something fails on the way.
    """
    _run(following.run, out, collector, "reads the logs anew")


def _run(run: Callable[[IsStopped, Tell], object], out: str, collector: GroupCollector | None, another: str) -> None:
    """Follow, and say at the end what the same command does another time."""
    from groupcoord.cli.console import open_console

    stop, console = StopRequest(), open_console()
    leaderless: set[str] = set()

    def tell(progress: Progress) -> None:
        for name in sorted(set(progress.leaderless) - leaderless):
            console.print(f"not read: {name} has no leader; the other partitions are", style="red")
        leaderless.clear()
        leaderless.update(progress.leaderless)
        if collector is not None and progress.tables is not None:
            collector.take(progress.tables, progress.seen_ms, progress.rows, progress.earlier)
        if not progress.is_look:
            _print(console, progress)

    with AtTheFirstSignal(stop.ask):
        console.print(f"following; results go to {out}, and Ctrl-C ends this", style="dim")
        run(stop.is_there, tell)
    console.print(f"stopped; the same command {another}", style="dim")


def _print(console: Console, progress: Progress) -> None:
    """Print how far things are, with what the page says where it was made anew."""
    at = datetime.now().strftime("%H:%M:%S")
    line = f"{at}  update {progress.update}: {progress.rows:,} rows read"
    if progress.report is not None:
        found = progress.report.overview
        line += (
            f"; report: {found.groups:,} groups, {found.members:,} members, {found.rebalances:,} rebalances, "
            f"{found.anomalies:,} anomalies"
        )
    console.print(line)
