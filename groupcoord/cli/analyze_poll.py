"""``groupcoord analyze --poll``: groups that were asked for, once or every so often, a line for each time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from groupcoord.cli.interrupts import AtTheFirstSignal, StopRequest

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.analysis.pipeline.metrics import GroupCollector
    from groupcoord.analysis.poll.polling import Polled, Polling

PROBLEMS_SHOWN_MAX = 10
"""So many of the things that a poll does not tell are printed."""


def run_polling(polling: Polling, out: str, interval_s: float | None, collector: GroupCollector | None = None) -> None:
    """Poll once, or until SIGINT or SIGTERM; a second signal does not wait for the poll that is under way.

    Args:
        polling: what to do.
        out: where the results go.
        interval_s: from the end of a poll to the next; None: there is only one.
        collector: shows figures.

    Raises:
        PipelineError: the cluster does not answer, or refuses the log-in.
    """
    from groupcoord.analysis.report.data.gathering import PAGE
    from groupcoord.cli.console import open_console

    console = open_console()
    seen: set[str] = set()
    if interval_s is None:
        polling.run(lambda: True, lambda polled: _print(console, polled, seen))
        console.print(f"report: {out.rstrip('/')}/{PAGE}")
        return
    stop = StopRequest()

    def tell(polled: Polled) -> None:
        if collector is not None:
            collector.show(polled.figures)
        _print(console, polled, seen)

    with AtTheFirstSignal(stop.ask):
        console.print(f"polling; results go to {out}, and Ctrl-C ends this", style="dim")
        polling.run(lambda: stop.is_there(interval_s), tell)


def _print(console: Console, polled: Polled, seen: set[str]) -> None:
    """Print what a poll came to, and what it does not tell, unless the one before did not tell it either."""
    from groupcoord.analysis.report.text import escape

    found = polled.report.overview
    console.print(
        f"{datetime.now():%H:%M:%S}  poll {polled.number}: {found.groups:,} groups, {found.members:,} members, "
        f"{found.current_offsets:,} offsets, {found.rebalances:,} rebalances, {polled.rebalances:,} of them new, "
        f"{found.anomalies:,} anomalies"
    )
    problems = [f"{one.subject}: {one.text}" for one in polled.snapshot.problems]
    new = [one for one in problems if one not in seen]
    for told in new[:PROBLEMS_SHOWN_MAX]:
        console.print(f"  not told: {escape(told)}", style="red")
    if len(new) > PROBLEMS_SHOWN_MAX:
        console.print(f"  not told: {len(new) - PROBLEMS_SHOWN_MAX:,} more, in tables/problems", style="red")
    seen.clear()
    seen.update(problems)
