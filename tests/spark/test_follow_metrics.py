"""A cluster that is followed on Spark: lag anew at each look at where topics end, and metrics of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.running.metrics import GroupCollector, served
from groupcoord.analysis.running.runs import Progress
from groupcoord.analysis.running.sources import ClusterSource
from groupcoord.clock import ManualClock
from groupcoord.spark.following import Following
from groupcoord.testing import ServerThread

from ..running.metrics_shown import LONG_AGO_MS, check_falling_behind, commit, shown


@pytest.mark.slow
def test_metrics_follow_the_ends_of_topics(spark: SparkSession, tmp_path: Path) -> None:
    """A group that stopped falls behind though nothing is committed; no page is made for that, but the lag is told."""
    told: list[Progress] = []
    seen: list[dict[tuple[str, str], float]] = []
    clock = ManualClock(LONG_AGO_MS + 3_000)  # a second after the last commit, when the group has not stopped yet
    with ServerThread(topics={"orders": 1, "offsets": 1}) as server:
        server.produce("orders", [b"order"] * 30, partition=0)
        for second, offset in enumerate((10, 15, 20)):
            commit(server, second, offset)
        following = Following(
            ClusterSource(frozenset(), None, ClusterAddress(server.bootstrap), "offsets"), tmp_path / "out", clock=clock
        )
        collector = GroupCollector(following.cluster_name, clock)

        def is_stopped(wait_s: float) -> bool:
            seen.append(shown(url))
            server.produce("orders", [b"order"] * 10, partition=0)
            clock.advance(2_000)
            return len(seen) == 2

        def tell(progress: Progress) -> None:
            told.append(progress)
            assert progress.tables is not None
            collector.take(progress.tables, progress.seen_ms, progress.rows)

        with served(collector, "127.0.0.1", 0) as url:
            following.run(spark, is_stopped, tell)

    assert [(progress.update, progress.is_look) for progress in told] == [(0, False), (0, True)]
    check_falling_behind(seen)
    assert spark.read.parquet(f"{tmp_path}/out/tables/end_offsets").count() == 2
