"""``groupcoord analyze`` from the command line: what it writes, what it prints, and how it refuses."""

from __future__ import annotations

import json
from contextlib import nullcontext
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

import groupcoord.spark as pipeline
import groupcoord.spark.sessions
from groupcoord.analysis.pipeline.batch import Pipeline
from groupcoord.cli import analyze as command
from groupcoord.cli.interrupts import USAGE_ERROR
from groupcoord.spark.engine import SparkEngine
from groupcoord.spark.sessions import JavaNotFoundError, SparkFailedError, one_run

from ..analysis.fold.history.consumer_story import CREW, crew, write_story
from ..command import analyze

TABLES = (
    *("records", "read_counts", "corrupt", "partition_load", "commits", "current_offsets", "generations", "members"),
    *("rebalances", "groups", "anomalies", "offset_expiry", "stale_groups", "lag", "differences"),
    *("epochs", "memberships", "moves", "revocations"),
)


class Analyzed(NamedTuple):
    """A run that went well."""

    folder: Path
    summary: dict[str, Any]
    steps: list[str]
    begun: list[str]


@pytest.fixture(scope="module")
def analyzed(spark: SparkSession, broker_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Analyzed:
    """Run over a broker's log with a torn tail, into a folder whose name contains pattern characters."""
    folder = tmp_path_factory.mktemp("analyzed") / "results [1]"
    torn = tmp_path_factory.mktemp("torn") / "__consumer_offsets-5" / f"{0:020d}.log"
    torn.parent.mkdir()
    torn.write_bytes(bytes(7))
    ends = folder.parent / "ends.csv"
    ends.write_text("topic,topic_partition,end_offset\nt-6,0,1000\n", "utf-8")
    steps = Pipeline(SparkEngine(), [broker_log], folder, end_offsets=str(ends), verifies=True).steps
    begun: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(command, "_progress", lambda *_: nullcontext(begun.append))
        done = analyze(broker_log, torn, "--out", folder, "--engine", "spark", "--verify", "--end-offsets", ends)
    assert done.status == 0, done.error
    return Analyzed(folder, json.loads((folder / "summary.json").read_text("utf-8")), steps, begun)


@pytest.mark.slow
def test_tables_are_parquet(analyzed: Analyzed, spark: SparkSession) -> None:
    """Each table has the rows that the summary counts; large ones are divided by log partition."""
    found = {path.name: path for path in (analyzed.folder / "tables").iterdir()}

    assert set(found) == set(TABLES) == set(analyzed.summary["tables"])
    escaped = str(analyzed.folder / "tables").replace("[", "\\[").replace("]", "\\]")
    for name in ("commits", "rebalances", "groups"):
        assert spark.read.parquet(f"{escaped}/{name}").count() == analyzed.summary["tables"][name] > 0
    assert {path.name for path in found["commits"].glob("log_partition=*")} == {
        f"log_partition={number}" for number in (1, 2, 3, 4, 6, 7)
    }


@pytest.mark.slow
def test_every_step_begins(analyzed: Analyzed) -> None:
    """The bar of the terminal gets to its end: each step that was announced begins, in that order."""
    assert analyzed.begun == analyzed.steps
    assert len(set(analyzed.steps)) == len(analyzed.steps) > 1


@pytest.mark.slow
def test_consumer_groups_are_told(spark: SparkSession, tmp_path: Path) -> None:
    """Fenced and slow members, and unnecessary moves of assignors; coordinators agree with all of it."""
    log = write_story(tmp_path / "log", crew)
    report = Pipeline(SparkEngine(spark), [log], tmp_path / "out", verifies=True).run()

    assert report.verification is not None
    assert report.verification.difference_count == 0
    (group,) = report.consumer_groups
    assert (group.group_id, group.epoch, group.members_seen, group.fenced) == (CREW, 16, 8, 2)
    assert (group.moved, group.swapped, group.slowest_ms) == (21, 4, 10_000)
    assert [(row.assignor, row.moved, row.swapped) for row in report.assignors] == [("", 13, 0), ("range", 8, 4)]
    assert [(row.client_id, row.slowest_ms, row.fenced) for row in report.slow_members][:2] == [
        ("client-ben", 10_000, 1),
        ("client-ann", 8_000, 0),
    ]
    (story,) = report.troubled
    assert story.epochs[-1].group == story.epochs[-1].target == story.epochs[-1].lowest == 16
    (fenced,) = [one for one in story.anomalies if one.kind == "fenced member"]
    assert fenced.subject == "client-ben"
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert 'id="consumer"' in page
    assert 'class="epoch-member"' in page


def test_where_spark_can_not_write_is_told(spark: SparkSession, broker_log: Path) -> None:
    """A URL that fsspec knows and Spark does not is refused before anything is read."""
    with pytest.raises(
        pipeline.InputError, match=r'^Spark can\'t write to memory://out: .*No FileSystem for scheme "memory"$'
    ):
        Pipeline(SparkEngine(spark), [broker_log], "memory://out").run()


def test_no_java_is_told(broker_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java the command fails with one line."""

    def no_session(*_: object, **__: object) -> SparkSession:
        raise JavaNotFoundError("Spark needs Java 17 or newer, and there is no java in the path")

    monkeypatch.setattr(groupcoord.spark.sessions, "session", no_session)
    refused = analyze(broker_log, "--engine", "spark", "--out", tmp_path / "new")

    assert (refused.status, refused.error.count("\n")) == (USAGE_ERROR, 1)
    assert "Spark needs Java 17" in refused.error


@pytest.mark.parametrize(("bytes_max", "expected"), [(inf, "c1"), (0, "c2")])
def test_the_compiler_goes_by_the_size_of_the_logs(
    broker_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: float, expected: str
) -> None:
    """Small logs need Java's first compiler alone."""
    chosen: list[object] = []

    def no_session(*_: object, compiler: str, **__: object) -> SparkSession:
        chosen.append(compiler)
        raise JavaNotFoundError("there is no java")

    monkeypatch.setattr(groupcoord.spark.sessions, "session", no_session)
    monkeypatch.setattr(groupcoord.spark.sessions, "C1_BYTES_MAX", bytes_max)
    analyze(broker_log, "--engine", "spark", "--out", tmp_path / "new")

    assert chosen == [expected]


def test_failures_of_spark_are_one_line(spark: SparkSession) -> None:
    """A failure inside Spark is reported by its cause, and an existing session continues."""
    with (
        pytest.raises(SparkFailedError, match=r"^Spark failed: .*PATH_NOT_FOUND") as caught,
        one_run("local", "1g", {}),
    ):
        spark.read.parquet("/there/is/no/such/path")

    assert "\n" not in str(caught.value)
    assert spark.range(3).count() == 3
