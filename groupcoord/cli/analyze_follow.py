"""``groupcoord analyze --follow``: the results kept up to date, a line for each update, until a signal ends it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from groupcoord.cli.interrupts import AtTheFirstSignal, BeforeTheEnd, StopRequest

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.spark.following import Following, Progress


def run_following(
    following: Following,
    out: str,
    begin: Callable[[], AbstractContextManager[Any]],
    show: Callable[[Progress], None] = lambda progress: None,
) -> None:
    """Follow logs until SIGINT or SIGTERM; a second signal does not wait for the update that is under way.

    Nor does the first one while Spark starts.

    Args:
        following: what to do.
        out: where the results go.
        begin: gives a session of Spark for as long as the context lasts.
        show: is told how far things are, too.

    Raises:
        PipelineError: Spark does not start, or fails on the way.
    """
    from groupcoord.cli.console import open_console
    from groupcoord.spark.running import end_java

    stop = StopRequest()

    def tell(progress: Progress) -> None:
        show(progress)
        if not progress.is_look:
            _print(console, progress)

    console = open_console()
    with (
        BeforeTheEnd(end_java),
        begin() as spark,
        AtTheFirstSignal(stop.ask),
    ):
        console.print(f"following; results go to {out}, and Ctrl-C ends this", style="dim")
        following.run(spark, stop.is_there, tell)
    console.print("stopped; the same command goes on from here", style="dim")


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
