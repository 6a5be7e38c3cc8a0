"""What a command needs of Spark besides its tables: a session for one run, how far it is, and errors in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from groupcoord.spark.errors import PipelineError, first_line
from groupcoord.spark.sessions import session

WRITERS_MAX = 64


class SparkFailedError(PipelineError):
    """Spark gave up on the way. The message is what it says, without the stacks of two languages."""


@contextmanager
def one_run(master: str, memory: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Give a session for one run, and stop it behind it; one that runs already stays.

    Args:
        master: where Spark runs.
        memory: of the driver.
        settings: of Spark, by key.

    Raises:
        PipelineError: Spark does not start.
        SparkFailedError: what is done inside fails in Spark.
    """
    is_ours = SparkSession.getActiveSession() is None
    # Without this, Spark would sort all rows by log partition before it writes them, and they are in order already.
    chosen = {"spark.sql.maxConcurrentOutputFileWriters": str(WRITERS_MAX), **settings}
    spark = session(master, app_name="groupcoord analyze", memory=memory, config=chosen)
    try:
        yield spark
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(f"Spark failed: {first_line(error)}") from error
    finally:
        if is_ours:
            spark.stop()


def task_counter(spark: SparkSession) -> Callable[[], tuple[int, int]]:
    """Return a function that tells how many tasks of what runs now are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()

    def count() -> tuple[int, int]:
        stages = [
            stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None
        ]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)

    return count
