"""``groupcoord analyze --follow``: what it keeps up to date, that it goes on where it ended, and how it refuses."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import groupcoord.spark as pipeline
from groupcoord.cli import USAGE_ERROR
from groupcoord.clock import ManualClock
from groupcoord.spark.analysis import Analysis
from groupcoord.spark.errors import InputError
from groupcoord.spark.following import Following, Progress

from .test_analyze import run
from .test_tables import Log, commit


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

    def page(*_: object) -> None:
        pages.append(len(updates))
        clock.advance(1_000)

    monkeypatch.setattr("groupcoord.spark.following.FollowedTables", Tables)
    monkeypatch.setattr(Following, "_update", lambda *_: updates.append(clock.now_ms()))
    monkeypatch.setattr(Following, "_report", page)
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
    done = run(tmp_path / "data", "--out", tmp_path / "out", "--follow", "--interval", "0.1")
    timer.cancel()

    assert done.status == 0, done.error
    assert "update 0: 2 rows read; report: 1 groups" in done.output
    assert done.output.endswith("goes on from here\n")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_refusals_are_one_line(broker_log: Path, tmp_path: Path) -> None:
    """What can't be followed is told in one line, before Spark does anything."""
    full = tmp_path / "full"
    full.mkdir()
    (full / "precious").touch()
    cases: list[tuple[list[str | Path], str]] = [
        ([broker_log, "--out", tmp_path / "new", "--follow", "--verify"], "don't go together"),
        ([broker_log, "--out", full, "--follow"], "is not empty"),
        ([tmp_path / "nowhere", "--out", tmp_path / "new", "--follow"], "no such file"),
    ]
    for words, told in cases:
        refused = run(*words)
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
