"""``groupcoord analyze --follow``: the results kept up to date, a line for each update, until a signal ends it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from groupcoord.cli.interrupts import AtTheFirstSignal, StopRequest

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.analysis.pipeline.following import LocalFollowing, Progress
    from groupcoord.analysis.pipeline.metrics import GroupCollector


def run_following(following: LocalFollowing, out: str, collector: GroupCollector | None = None) -> None:
    """Follow logs until SIGINT or SIGTERM; a second signal does not wait for the update that is under way.

    Args:
        following: what to run.
        out: where the results go.
        collector: exports the metrics of each update.

    Raises:
        PipelineError: a file can't be read or written.
    """
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
        following.run(stop.is_there, tell)
    console.print("stopped; the same command reads the logs again", style="dim")


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
