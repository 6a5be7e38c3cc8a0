"""``groupcoord analyze --follow``: the results kept up to date, a line for each update, until a signal ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from groupcoord.spark.following import Following, Progress

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_following(following: Following, out: str, master: str, memory: str, settings: Mapping[str, str]) -> None:
    """Follow logs until SIGINT or SIGTERM; a second signal does not wait for the update that is under way.

    Raises:
        PipelineError: Spark does not start, or fails on the way.
    """
    from rich.console import Console

    from groupcoord.spark.running import one_run

    console = Console(highlight=False, markup=False, soft_wrap=True)
    with one_run(master, memory, settings) as spark, _until_signal() as is_stopped:
        console.print(f"following; results go to {out}, and Ctrl-C ends this", style="dim")
        following.run(spark, is_stopped, lambda progress: _print(console, progress))
    console.print("stopped; the same command goes on from here", style="dim")


@contextmanager
def _until_signal() -> Iterator[Callable[[float], bool]]:
    """Give a function that waits some seconds, or until the first signal, and says if there was one."""
    came = threading.Event()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def stop(number: int, frame: FrameType | None) -> None:
        came.set()
        _restore(before)

    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        yield came.wait
    finally:
        _restore(before)


def _restore(before: Mapping[signal.Signals, object]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)  # type: ignore[arg-type]


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
