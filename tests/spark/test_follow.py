"""``groupcoord analyze --follow``: what it keeps up to date, that it goes on where it ended, and how it refuses."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from socket import gethostname

import fsspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import groupcoord.spark as pipeline
from groupcoord.analysis.columns.errors import InputError
from groupcoord.cli import USAGE_ERROR
from groupcoord.clock import ManualClock
from groupcoord.spark.analysis import Analysis
from groupcoord.spark.following import Following, Progress
from groupcoord.spark.stream_store import CHECKPOINT

from ..command import analyze
from ..folding.small_log import Log, commit
from .programs import Process


class Followed:
    """A run that ends after some looks at the logs; before each further look, something is done to them."""

    def __init__(self, *deeds: Log) -> None:
        self.told: list[Progress] = []
        self._waiting = list(deeds)

    def is_stopped(self, wait_s: float) -> bool:
        """Grow the next log by a commit; stop when there is none left."""
        if not self._waiting:
            return True
        self._waiting.pop(0).add(commit(len(self._waiting), 9))
        return False


@pytest.mark.slow
def test_results_follow_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """A directory that is empty at first; the page comes with the first update, and again when all ends."""
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    log = Log(data)
    followed = Followed(log, log)
    following = Following([data], out, clock=ManualClock(5_000))
    report = following.run(spark, followed.is_stopped, followed.told.append)

    assert report is not None
    assert [progress.update for progress in followed.told] == [0, 1, 2]
    assert json.loads((out / "summary.json").read_text("utf-8"))["overview"]["current_offsets"] == 2
    assert "<html" in (out / "report.html").read_text("utf-8")
    offsets = spark.read.parquet(f"{out}/tables/current_offsets")
    assert {row.topic_partition for row in offsets.collect()} == {0, 1}

    log.add(commit(7, 1))
    again = Followed()
    Following([data], out).run(spark, again.is_stopped, again.told.append)
    assert [progress.update for progress in again.told] == [3]
    assert pipeline.FollowedTables(spark, out).table("current_offsets").count() == 3
    with pytest.raises(InputError, match="follows"):
        Following([data], out, partitions=[1])
    with pytest.raises(InputError, match="is not empty"):
        Analysis([data], out)


@pytest.mark.slow
def test_a_directory_without_timestamps_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """What was followed before tables had timestamps goes on; new parts have them, older ones read as null."""
    out, log = tmp_path / "out", Log(tmp_path / "data").add(commit(0, 5))
    Following([tmp_path / "data"], out).run(spark, Followed().is_stopped, lambda progress: None)
    for path in out.rglob("*.parquet"):
        table = pq.ParquetFile(path).read()
        pq.write_table(table.select([name for name in table.column_names if not name.endswith("_utc")]), path)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    log.add(commit(1, 6))
    Following([tmp_path / "data"], out).run(spark, Followed().is_stopped, lambda progress: None)
    tables = pipeline.FollowedTables(spark, out)
    commits = spark.read.option("mergeSchema", True).parquet(f"{out}/tables/commits")

    assert tables.table("commits").count() == tables.table("current_offsets").count() == 2
    assert [row.commit_timestamp_utc is None for row in commits.orderBy("log_offset").collect()] == [True, False]
    assert spark.read.parquet(f"{out}/tables/current_offsets").where("commit_timestamp_utc is null").count() == 0


def test_the_page_takes_a_fifth_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what has changed is read; after a page come updates alone, four times as long; the last page is whole."""
    log, clock = Log(tmp_path), ManualClock(0)
    updates: list[int] = []
    pages: list[int] = []

    class Tables:
        update = -1

        def __init__(self, *_: object) -> None: ...

        def refresh(self) -> int:
            self.update = len(updates) - 1
            return self.update

        def row_count(self, name: str) -> int:
            return 0

    class Query:
        def awaitTermination(self) -> None:  # noqa: N802
            updates.append(clock.now_ms())

    def page(*_: object) -> object:
        pages.append(len(updates))
        clock.advance(1_000)
        return object()

    monkeypatch.setattr("groupcoord.spark.following.FollowedTables", Tables)
    monkeypatch.setattr("groupcoord.spark.following.follow", lambda *_, **__: Query())
    monkeypatch.setattr(Following, "_records", lambda _: None)
    monkeypatch.setattr(Following, "_write", lambda *_: None)
    monkeypatch.setattr(Following, "_write_page", page)
    grows = iter([True, False, True, True, True, None])

    def is_stopped(wait_s: float) -> bool:
        clock.advance(round(wait_s * 1_000))
        grow = next(grows)
        if grow:
            log.add(commit(0, 1))
        return grow is None

    log.add(commit(0, 1))
    following = Following([tmp_path], tmp_path / "out", interval_s=1.5, clock=clock)
    following.run(None, is_stopped, lambda progress: None)  # type: ignore[arg-type]

    assert updates == [0, 2_500, 5_500, 8_000, 9_500]
    assert pages == [1, 3, 5]


@pytest.mark.slow
def test_a_signal_ends_the_command(spark: SparkSession, tmp_path: Path) -> None:
    """SIGTERM ends it with status 0; a line tells of each update."""
    Log(tmp_path / "data").add(commit(0, 5))
    timer = threading.Timer(20.0, signal.raise_signal, (signal.SIGTERM,))
    timer.start()
    done = analyze(tmp_path / "data", "--out", tmp_path / "out", "--follow", "--interval", "0.1")
    timer.cancel()

    assert done.status == 0, done.error
    assert "update 0: 2 rows read; report: 1 groups" in done.output
    assert done.output.endswith("goes on from here\n")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


LATE_ONCE = """\
#!/bin/sh
case "$*" in
*streaming_source_runner*) mkdir '{was_late}' 2>/dev/null && sleep 15 ;;
esac
exec '{python}' "$@"
"""

COMMAND = """
import os, sys
from groupcoord.cli import main

os.environ["PYSPARK_PYTHON"], data, out = sys.argv[1:]
sys.argv[1:] = ["analyze", data, "--out", out, "--follow", "--interval", "1"]
main()
"""


HOLDER = """
import sys, time
from groupcoord.spark.following import Following

with Following(sys.argv[1:2], sys.argv[2])._alone():
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_one_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    """Exit status 2, and one line that names the directory and the process; after a kill nothing stands in the way."""
    Log(tmp_path / "data").add(commit(0, 5))
    out = tmp_path / "out"
    words = [sys.executable, "-c", HOLDER, str(tmp_path / "data"), str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            for where in (str(out), f"file://{out}"):
                refused = analyze(tmp_path / "data", "--out", where, "--follow")
                assert refused.status == USAGE_ERROR
                told = f"{where} is in use: process {holder.pid} on {gethostname()} follows logs into it"
                assert refused.error == f"groupcoord analyze: {told}\n"
        finally:
            holder.kill()
    Following([tmp_path / "data"], out)


def test_a_directory_is_held_as_long_as_it_is_followed_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was made before but runs later is refused too; other directories are free, and at the end this one."""
    data, out = tmp_path / "data", tmp_path / "out"
    Log(data).add(commit(0, 5))
    monkeypatch.setattr("groupcoord.spark.following.FollowedTables", lambda *_: None)
    monkeypatch.setattr(Following, "_follow", lambda _, is_stopped, tell: is_stopped(0.0))
    first, second, elsewhere = Following([data], out), Following([data], out), Following([data], tmp_path / "other")

    def is_stopped(wait_s: float) -> bool:
        elsewhere.run(None, lambda _: True, print)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=f"is in use: process {os.getpid()} "):
            second.run(None, lambda _: True, print)  # type: ignore[arg-type]
        return True

    for _ in range(2):
        first.run(None, is_stopped, print)  # type: ignore[arg-type]


def test_no_broker_is_locked_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock that log directories have against JVM brokers is not taken: over NFS it would collide with our own."""

    def refuse(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    Following([tmp_path], tmp_path / "out")


def test_where_spark_can_not_write_is_told(spark: SparkSession, broker_log: Path) -> None:
    """A URL that fsspec knows and Spark does not is refused before anything is read."""
    told = r'^Spark can\'t write to memory://out: .*No FileSystem for scheme "memory"$'
    with pytest.raises(InputError, match=told):
        Following([broker_log], "memory://out").run(spark, lambda _: True, print)
    fsspec.filesystem("memory").rm("/out", recursive=True)
    with pytest.raises(InputError, match=told):
        Analysis([broker_log], "memory://out").run(spark)


@pytest.mark.slow
def test_a_process_that_starts_too_late_does_not_end_the_command(tmp_path: Path) -> None:
    """An update begins again where Spark has given up to wait for one of Python's, and nothing is read twice."""
    Log(tmp_path / "data").add(commit(0, 5))
    python = tmp_path / "python"
    python.write_text(LATE_ONCE.format(was_late=tmp_path / "was late", python=sys.executable))
    python.chmod(0o755)
    process = Process(COMMAND, str(python), str(tmp_path / "data"), str(tmp_path / "out"))
    process.wait_for("update 0: 2 rows read; report: 1 groups")

    process.process.terminate()
    assert process.wait() == 0, process.said
    assert (tmp_path / "was late").exists()


@pytest.mark.slow
def test_urls_lead_to_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Logs and results may be URLs; the directory's name may have a space and a pattern's characters in it."""
    data, out = tmp_path / "data", tmp_path / "out [1]"
    Log(data).add(commit(0, 5))
    followed = Followed()
    Following([data.as_uri()], f"file://{out}").run(spark, followed.is_stopped, followed.told.append)

    assert [progress.update for progress in followed.told] == [0]
    assert pipeline.FollowedTables(spark, out).table("records").where("kind = 'record'").count() == 1
    assert json.loads((out / "summary.json").read_text("utf-8"))["overview"]["groups"] == 1


def test_refusals_are_one_line(broker_log: Path, tmp_path: Path) -> None:
    """What can't be followed is told in one line, before Spark does anything."""
    full = tmp_path / "full"
    full.mkdir()
    (full / "precious").touch()
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / CHECKPOINT).touch()
    cases: list[tuple[list[str | Path], str]] = [
        ([broker_log, "--out", tmp_path / "new", "--follow", "--verify"], "don't go together"),
        ([broker_log, "--out", full, "--follow"], "is not empty"),
        ([broker_log, "--out", blocked, "--follow"], f"{blocked / CHECKPOINT}: it is not a directory"),
        ([tmp_path / "nowhere", "--out", tmp_path / "new", "--follow"], "no such file"),
    ]
    for words, told in cases:
        refused = analyze(*words)
        assert refused.status == USAGE_ERROR
        assert refused.error.startswith("groupcoord analyze: ")
        assert told in refused.error
        assert refused.error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_an_older_spark_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Spark's Python sources can't stop at the end of now, the message says what is needed."""
    monkeypatch.setattr("groupcoord.spark.streaming.find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"following logs needs PySpark 4\.2 or newer; this is \d"):
        Following([tmp_path], tmp_path / "out")
