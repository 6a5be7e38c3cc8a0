"""What a command needs of Spark besides its tables: a session for one run, how far it is, and errors in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from groupcoord.analysis.errors import RunFailedError, first_line
from groupcoord.spark.sessions import C1, C2, session

C1_BYTES_MAX = 536_870_912
"""The size of the largest logs for which Java's first compiler is enough, some 5 million commits."""

WRITERS_MAX = 64
END_TIMEOUT_S, POLL_S = 10.0, 0.05

_starts: list[Future[SparkSession]] = []
"""The start of Spark that is under way, if one is."""


class SparkFailedError(RunFailedError):
    """Spark gave up on the way. The message is what it says, without the stacks of two languages."""


@contextmanager
def one_run(
    master: str, memory: str, settings: Mapping[str, str], size_bytes: int | None = None
) -> Iterator[SparkSession]:
    """Give a session for one run, and stop it behind it; one that runs already stays.

    Args:
        master: where Spark runs.
        memory: of the driver.
        settings: of Spark, by key.
        size_bytes: the size of the logs, by which Java's compiler is chosen; None if unknown.

    Raises:
        PipelineError: Spark does not start.
        SparkFailedError: what is done inside fails in Spark.
    """
    compiler: Literal["c1", "c2"] = C1 if size_bytes is not None and size_bytes <= C1_BYTES_MAX else C2
    is_ours = SparkSession.getActiveSession() is None
    # Without this, Spark would sort all rows by log partition before it writes them, and they are in order already.
    chosen = {"spark.sql.maxConcurrentOutputFileWriters": str(WRITERS_MAX), **settings}
    begin = partial(session, master, app_name="groupcoord analyze", memory=memory, compiler=compiler, config=chosen)
    spark = _start(begin) if is_ours else begin()
    try:
        yield spark
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(f"Spark failed: {first_line(error)}") from error
    finally:
        if is_ours:
            spark.stop()


def end_java() -> None:
    """End the Java process that this one has started for Spark, or is starting, without a word to it.

    It is for a process that is about to end, and may be in the midst of a call to Java.
    """
    java = getattr(SparkContext._gateway, "proc", None)
    if java is not None:
        java.terminate()
        with suppress(subprocess.TimeoutExpired):
            java.wait(END_TIMEOUT_S)
    elif _starts:
        # Spark keeps the process to itself until it has answered; what starts it removes its files when it is gone.
        # Where the system does not name the children of a process, Java ends later, as its standard input does.
        end_s = time.monotonic() + END_TIMEOUT_S
        while wait(_starts, POLL_S).not_done and time.monotonic() < end_s:
            for children in Path("/proc/self/task").glob("*/children"):
                for process_id in children.read_text("ascii").split():
                    os.kill(int(process_id), signal.SIGTERM)


def _start(begin: Callable[[], SparkSession]) -> SparkSession:
    """Start Spark in another thread: in the main one it would put a handler of its own in the place of SIGINT's."""
    with ThreadPoolExecutor(1) as pool:
        _starts.append(pool.submit(begin))
        try:
            return _starts[0].result()
        finally:
            _starts.clear()


def count_tasks(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the stages that run now are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
