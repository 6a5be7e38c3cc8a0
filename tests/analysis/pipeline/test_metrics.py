"""Cluster that is followed or polled in one process: lag at each look, and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.analysis.pipeline.following import LocalFollowing, Progress
from groupcoord.analysis.pipeline.metrics import GroupCollector, served
from groupcoord.analysis.pipeline.sources import ClusterSource, LogSource
from groupcoord.analysis.poll.polling import Polled, Polling
from groupcoord.analysis.rules.statuses import COMMITS_STOPPED
from groupcoord.cli.interrupts import USAGE_ERROR
from groupcoord.clock import ManualClock
from groupcoord.testing import ServerThread

from ...command import analyze
from ..fold.history.consumer_story import CREW, crew, write_story
from ..poll.test_polling import GROUP, Clients
from ..rules.troubled import write_troubled
from .metrics_shown import LONG_AGO_MS, check_falling_behind, commit, shown
from .written import read_table


@contextmanager
def cluster() -> Iterator[tuple[ServerThread, ClusterSource, ManualClock]]:
    """Yield a cluster with a group a second after its last commit, when it has not stopped yet."""
    with ServerThread(topics={"orders": 1, "offsets": 1}) as server:
        server.produce("orders", [b"order"] * 30, partition=0)
        for second, offset in enumerate((10, 15, 20)):
            commit(server, second, offset)
        source = ClusterSource(ClusterAddress(server.bootstrap), "offsets", False)
        yield server, source, ManualClock(LONG_AGO_MS + 3_000)


def test_metrics_follow_the_ends_of_topics(tmp_path: Path) -> None:
    """A stopped group falls behind without commits; the lag is updated without a new page."""
    told: list[Progress] = []
    seen: list[dict[tuple[str, str], float]] = []
    with cluster() as (server, source, clock):
        following = LocalFollowing(source, tmp_path / "out", clock=clock)
        collector = GroupCollector(following.cluster_name, clock)

        def is_stopped(wait_s: float) -> bool:
            seen.append(shown(url))
            server.produce("orders", [b"order"] * 10, partition=0)
            clock.advance(2_000)
            return len(seen) == 2

        def tell(progress: Progress) -> None:
            told.append(progress)
            assert progress.tables is not None
            collector.take(progress.tables, progress.seen_ms, progress.rows, progress.earlier)

        with served(collector, "127.0.0.1", 0) as url:
            assert shown(url) == {}
            following.run(is_stopped, tell)
            late = shown(url)

    assert [(progress.update, progress.is_look, progress.report is None) for progress in told] == [
        (0, False, False),
        (0, True, True),
    ]
    check_falling_behind(seen)
    assert (seen[1]["groupcoord_follow_delay_seconds", ""], late["groupcoord_follow_delay_seconds", ""]) == (0, 2)
    assert read_table(tmp_path / "out", "end_offsets").num_rows == 2


def test_a_group_stops_though_nothing_comes_to_the_log(tmp_path: Path) -> None:
    """Of a cluster that runs the moment to judge from is now, not when the last record was written."""
    found: list[list[str]] = []
    with cluster() as (_, source, clock):

        def is_stopped(wait_s: float) -> bool:
            found.append(read_table(tmp_path / "out", "anomalies")["kind"].to_pylist())
            clock.advance(400_000)
            return len(found) == 2

        LocalFollowing(source, tmp_path / "out", clock=clock).run(is_stopped, lambda progress: None)

    assert found == [[], [COMMITS_STOPPED]]


def test_metrics_tell_of_groups(tmp_path: Path) -> None:
    write_troubled(tmp_path / "log")
    write_story(tmp_path / "story", crew)
    collector = GroupCollector("")
    for folder in ("log", "story"):
        following = LocalFollowing(LogSource([tmp_path / folder]), tmp_path / f"{folder}-out")

        def tell(progress: Progress) -> None:
            assert progress.tables is not None
            collector.take(progress.tables, progress.seen_ms, progress.rows, progress.earlier)

        following.run(lambda wait_s: True, tell)
        with served(collector, "127.0.0.1", 0) as url:
            found = shown(url)
        if folder == "log":
            assert found["groupcoord_group_members", "double"] == 2
            assert found["groupcoord_group_state", "double Stable"] == 1
            assert found["groupcoord_group_anomalies", "stormy offset rewind"] == 1
            assert found["groupcoord_group_anomalies", "stormy flapping member"] == 1
            assert found["groupcoord_group_rebalances_total", "stormy join"] > 1
        else:
            assert found["groupcoord_group_state", f"{CREW} Stable"] == 1
    causes = {cause: value for (name, cause), value in found.items() if name == "groupcoord_rebalances_total"}
    rebalances = read_table(tmp_path / "story-out", "rebalances")["cause"].to_pylist()
    assert causes == {cause: rebalances.count(cause) for cause in rebalances}


@pytest.mark.ci
def test_metrics_of_polls(tmp_path: Path) -> None:
    """Without READ on the log: the same metrics, as far as polls have them."""
    seen: list[dict[tuple[str, str], float]] = []
    with ServerThread(topics={"orders": 4}) as server:
        for partition in range(4):
            server.produce("orders", [b"order"] * 10, partition=partition)
        clients = Clients(server, "classic")
        polling = Polling(ClusterAddress(server.bootstrap), tmp_path / "out")
        collector = GroupCollector(polling.cluster_name())
        steps = iter((clients.join, clients.join, clients.commit))

        def tell(polled: Polled) -> None:
            collector.show(polled.figures)
            seen.append(shown(url))

        def is_stopped() -> bool:
            step = next(steps, None)
            if step is not None:
                step()
            return step is None

        with served(collector, "127.0.0.1", 0) as url:
            polling.run(is_stopped, tell)
        clients.close()

    assert seen[-1]["groupcoord_group_members", GROUP] == 2
    assert seen[-1]["groupcoord_group_state", f"{GROUP} Stable"] == 1
    assert seen[-1]["groupcoord_group_rebalances_total", f"{GROUP} join"] == 2
    assert seen[-1]["kafka_consumergroup_group_sum_lag", GROUP] == 9
    assert seen[-1]["burrow_kafka_consumer_status", GROUP] == 1


def test_metrics_need_a_good_address(tmp_path: Path) -> None:
    """They go with following, and a port is a number."""
    refused = analyze(tmp_path, "--out", tmp_path / "out", "--metrics", "9000")
    assert (refused.status, refused.error) == (USAGE_ERROR, "groupcoord analyze: --metrics needs --follow\n")
    for address in ("here", "127.0.0.1:", "70000"):
        refused = analyze(tmp_path, "--out", tmp_path / "out", "--follow", "--metrics", address)
        assert refused.status == USAGE_ERROR
        assert f"--metrics {address}: write it as PORT or HOST:PORT" in refused.error
