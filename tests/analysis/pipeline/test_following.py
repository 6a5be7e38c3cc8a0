"""``groupcoord analyze --follow``: growing logs, in one process whatever is installed."""

from __future__ import annotations

import errno
import fcntl
import random
import shutil
import signal
from pathlib import Path

import pytest

from groupcoord.analysis.decode.files import LogChangedError, LogTask
from groupcoord.analysis.errors import InputError
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.pipeline import sources
from groupcoord.analysis.pipeline.batch import Pipeline
from groupcoord.analysis.pipeline.following import LocalFollowing, Progress
from groupcoord.analysis.pipeline.local_engine import LocalEngine
from groupcoord.analysis.pipeline.sources import ClusterSource, LogSource
from groupcoord.cli.interrupts import USAGE_ERROR
from groupcoord.clock import ManualClock
from tests.samples import SEED

from ...cli.interrupted import interrupted
from ...command import analyze
from ..fold.history.consumer_story import crew, moving, write_story
from ..fold.small_log import Log, commit
from ..rules.troubled import write_troubled
from .growing import Growing
from .written import read_table, sorted_rows, table_names

NOW_MS = 1_800_000_000_000
NOT_ALIKE = {
    "records",  # is not written
    "commits",  # has the last ones of each partition
    "read_counts",  # counts ranges, which are others
}


@pytest.fixture(scope="module")
def whole_log(broker_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log partitions of a real broker with transactions, groups with every trouble, and a story of consumer groups."""
    folder = tmp_path_factory.mktemp("whole")
    write_troubled(folder)
    for number in (3, 4, 7):
        name = f"__consumer_offsets-{number}"
        shutil.copytree(broker_log / name, folder / name)
    story = write_story(tmp_path_factory.mktemp("story"), crew, moving)
    shutil.move(story / "__consumer_offsets-0", folder / "__consumer_offsets-5")
    return folder


@pytest.mark.parametrize("seed", [SEED, pytest.param(SEED + 1, marks=pytest.mark.ci)])
def test_tables_are_those_of_one_reading(whole_log: Path, tmp_path: Path, seed: int) -> None:
    """A log that grows by any bytes, batches and transactions that are cut among them."""
    growing, draw = Growing(whole_log, tmp_path / "data"), random.Random(seed)
    shares = growing.random_shares(draw)
    growing.grow(shares)
    told: list[Progress] = []

    def is_stopped(wait_s: float) -> bool:
        nonlocal shares
        shares = growing.random_shares(draw, shares)
        growing.grow(shares) if len(told) < 3 else growing.finish()
        return len(told) == 4

    ends = tmp_path / "ends.csv"
    ends.write_text("topic,topic_partition,end_offset\nt,0,1000\nt,1,9\nt-6,0,1000\n", "utf-8")
    clock = ManualClock(NOW_MS)
    following = LocalFollowing([growing.folder], tmp_path / "out", end_offsets=str(ends), clock=clock)
    report = following.run(is_stopped, told.append)
    whole = Pipeline(LocalEngine(), [whole_log], tmp_path / "whole", end_offsets=str(ends), clock=clock).run()

    assert report is not None
    assert [progress.update for progress in told] == [0, 1, 2, 3]
    assert table_names(tmp_path / "out") == table_names(tmp_path / "whole") - {"records"}
    for name in table_names(tmp_path / "whole") - NOT_ALIKE:
        found, wanted = (sorted_rows(read_table(tmp_path / folder, name)) for folder in ("out", "whole"))
        assert found == wanted, name
    assert report.overview.anomalies == whole.overview.anomalies
    assert report.causes == whole.causes


def test_excluded_groups_are_not_followed(whole_log: Path, tmp_path: Path) -> None:
    left_out = ("small-.*", "transactional")
    following = LocalFollowing([whole_log], tmp_path / "out", exclude_groups=left_out, clock=ManualClock(NOW_MS))
    following.run(lambda wait_s: True, lambda progress: None)
    whole = Pipeline(LocalEngine(), [whole_log], tmp_path / "whole", exclude_groups=left_out, clock=ManualClock(NOW_MS))
    whole.run()

    for name in table_names(tmp_path / "whole") - NOT_ALIKE:
        found, wanted = (sorted_rows(read_table(tmp_path / folder, name)) for folder in ("out", "whole"))
        assert found == wanted, name
    groups = {row["group_id"] for row in read_table(tmp_path / "out", "current_offsets").to_pylist()}
    assert {"altered-only", "busy", "crew"} <= groups
    assert not {one for one in groups if one.startswith("small-")}


def test_a_run_begins_anew_where_another_was(whole_log: Path, tmp_path: Path) -> None:
    """Its tables go; a directory with something else is refused, and one that another process uses."""
    LocalFollowing([whole_log], tmp_path / "out").run(lambda wait_s: True, lambda progress: None)
    (tmp_path / "out" / "tables" / "former").mkdir()
    following = LocalFollowing([whole_log / "__consumer_offsets-0"], tmp_path / "out")
    refused: list[str] = []

    def is_stopped(wait_s: float) -> bool:
        with pytest.raises(InputError) as caught:
            LocalFollowing([whole_log], tmp_path / "out")
        refused.append(str(caught.value))
        return True

    report = following.run(is_stopped, lambda progress: None)

    assert report is not None
    assert report.overview.log_partitions == 1
    assert "former" not in table_names(tmp_path / "out")
    assert "follows logs into it" in refused[0]
    with pytest.raises(InputError, match="is not empty"):
        LocalFollowing([whole_log], whole_log)


@pytest.mark.ci
def test_a_file_that_changes_while_it_is_read_is_read_again(
    whole_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of other files are not counted twice; a file that changes at each read ends the run."""
    changes = 1

    def check(task: LogTask) -> None:
        nonlocal changes
        if changes and "__consumer_offsets-7" in task.ranges[-1].segment.name:
            changes -= 1
            raise LogChangedError("a file was replaced or deleted while it was read; start again")

    monkeypatch.setattr(LogTask, "check_unchanged", check)
    monkeypatch.setattr(sources, "SPLIT_BYTES", 65_536)
    LocalFollowing([whole_log], tmp_path / "out").run(lambda wait_s: True, lambda progress: None)
    Pipeline(LocalEngine(), [whole_log], tmp_path / "whole").run()

    assert not changes
    for name in ("current_offsets", "rebalances", "partition_load"):
        found, wanted = (sorted_rows(read_table(tmp_path / folder, name)) for folder in ("out", "whole"))
        assert found == wanted, name
    changes = 4
    with pytest.raises(LogChangedError):
        LocalFollowing([whole_log], tmp_path / "again").run(lambda wait_s: True, lambda progress: None)


def test_the_page_takes_a_fifth_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is written only for new records, and after it four times as long none; the last page is whole."""
    log, clock = Log(tmp_path / "data"), ManualClock(0)
    looks: list[int] = []
    pages: list[int] = []

    def page(following: LocalFollowing, tables: object) -> object:
        pages.append(len(looks))
        clock.advance(1_000)
        return object()

    monkeypatch.setattr(LocalFollowing, "_write", lambda *_: object())
    monkeypatch.setattr(LocalFollowing, "_write_page", page)
    grows = iter([True, False, True, True, True, None])

    def is_stopped(wait_s: float) -> bool:
        looks.append(clock.now_ms())
        clock.advance(round(wait_s * 1_000))
        grow = next(grows)
        if grow:
            log.add(commit(0, 1))
        return grow is None

    log.add(commit(0, 1))
    updates: list[Progress] = []
    LocalFollowing([tmp_path / "data"], tmp_path / "out", interval_s=1.5, clock=clock).run(is_stopped, updates.append)

    assert looks == [1_000, 2_500, 4_000, 6_500, 8_000, 9_500]
    assert pages == [0, 3, 6]
    assert [progress.update for progress in updates] == [0, 1, 2, 3, 4]


def test_no_broker_is_locked_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock that log directories have against JVM brokers is not taken: over NFS it would collide with our own."""

    def refuse(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    LocalFollowing([tmp_path], tmp_path / "out")


@pytest.mark.ci
def test_the_command_ends_with_a_signal(whole_log: Path, tmp_path: Path) -> None:
    """It follows without Spark, and SIGTERM ends it with status 0."""
    with interrupted(tmp_path, "analyze", whole_log, "--out", tmp_path / "out", "--follow") as run:
        assert run.line().startswith("following; results go to")
        assert "update 0" in run.line()
        run.send(signal.SIGTERM)
        status, errors = run.result()
    assert (status, errors) == (0, "")
    assert (tmp_path / "out" / "report.html").exists()
    assert not (tmp_path / "out" / "tables" / "records").exists()


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("--engine", "spark"), "--engine spark"),
        (("--master", "local", "--conf", "a=b"), "--master, --conf"),
        (("--engine", "local", "--memory", "1g"), "--memory"),
    ],
)
def test_spark_is_refused(tmp_path: Path, words: tuple[str, ...], refused: str) -> None:
    """One line has the reason and the alternative; nothing is written."""
    done = analyze(tmp_path, "--follow", "--out", tmp_path / "out", *words)
    assert (done.status, done.error) == (
        USAGE_ERROR,
        f"groupcoord analyze: --follow runs in this process, and does not support {refused}; "
        "for a streaming query on Spark use groupcoord.spark.read_log_stream\n",
    )
    assert not (tmp_path / "out").exists()
    assert "--follow does not support --verify" in analyze(tmp_path, "--follow", "--verify").error


def test_a_cluster_is_judged_as_of_now() -> None:
    """Files end with their last record; a cluster's time advances without new records."""
    of_files = LogSource(["log"])
    of_cluster = ClusterSource(ClusterAddress("localhost:1"), "__consumer_offsets")
    assert of_files.judged_at_ms(1_000, 60_000) == 1_000
    assert of_cluster.judged_at_ms(1_000, 60_000) == 60_000
    assert of_cluster.judged_at_ms(61_000, 60_000) == 61_000
    assert of_cluster.judged_at_ms(None, 60_000) is None
