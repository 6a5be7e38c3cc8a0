"""``groupcoord analyze --follow --engine local``: logs that grow, in one process."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from groupcoord.analysis.columns.errors import InputError
from groupcoord.analysis.columns.tailing import LogChangedError
from groupcoord.analysis.columns.tasks import LogTask, RecordTask
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.running import tails
from groupcoord.analysis.running.analysis import LocalAnalysis
from groupcoord.analysis.running.following import LocalFollowing
from groupcoord.analysis.running.runs import Progress
from groupcoord.analysis.running.sources import ClusterSource, LogSource
from groupcoord.analysis.running.tails import LogTail
from groupcoord.clock import ManualClock

from ..history.consumer_story import crew, moving, write_story
from ..judging.troubled import write_troubled
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


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.ci)])
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
    whole = LocalAnalysis([whole_log], tmp_path / "whole", end_offsets=str(ends), clock=clock).run()

    assert report is not None
    assert [progress.update for progress in told] == [0, 1, 2, 3]
    assert table_names(tmp_path / "out") == table_names(tmp_path / "whole") - {"records"}
    for name in table_names(tmp_path / "whole") - NOT_ALIKE:
        found, wanted = (sorted_rows(read_table(tmp_path / folder, name)) for folder in ("out", "whole"))
        assert found == wanted, name
    assert report.overview.anomalies == whole.overview.anomalies
    assert report.causes == whole.causes


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
    """What other files gave meanwhile is not counted twice; one that changes each time ends the run."""
    changes = 1

    def check(tail: LogTail, task: RecordTask) -> None:
        nonlocal changes
        assert isinstance(task, LogTask)
        if changes and "__consumer_offsets-7" in task.ranges[-1].segment.name:
            changes -= 1
            raise LogChangedError("a file was replaced or deleted while it was read; start again")

    monkeypatch.setattr(LogTail, "check", check)
    monkeypatch.setattr(tails, "SPLIT_BYTES", 65_536)
    LocalFollowing([whole_log], tmp_path / "out").run(lambda wait_s: True, lambda progress: None)
    LocalAnalysis([whole_log], tmp_path / "whole").run()

    assert not changes
    for name in ("current_offsets", "rebalances", "partition_load"):
        found, wanted = (sorted_rows(read_table(tmp_path / folder, name)) for folder in ("out", "whole"))
        assert found == wanted, name
    changes = 4
    with pytest.raises(LogChangedError):
        LocalFollowing([whole_log], tmp_path / "again").run(lambda wait_s: True, lambda progress: None)


def test_a_cluster_is_judged_as_of_now() -> None:
    """Files tell nothing behind their last record; a cluster goes on though nothing comes to its log."""
    of_files = LogSource(frozenset(), None, ["log"])
    of_cluster = ClusterSource(frozenset(), None, ClusterAddress("localhost:1"), "__consumer_offsets")

    assert of_files.judged_at_ms(1_000, 60_000) == 1_000
    assert of_cluster.judged_at_ms(1_000, 60_000) == 60_000
    assert of_cluster.judged_at_ms(61_000, 60_000) == 61_000
    assert of_cluster.judged_at_ms(None, 60_000) is None
