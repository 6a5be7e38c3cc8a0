"""A cluster that is followed: lag anew at each look at where topics end, and metrics of it."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.cli import USAGE_ERROR
from groupcoord.clock import ManualClock
from groupcoord.core.records import OffsetCommitRecord
from groupcoord.records.codec import encode_record
from groupcoord.spark.follow_metrics import FollowCollector, served
from groupcoord.spark.following import Following, Progress
from groupcoord.spark.inputs import ClusterInput
from groupcoord.testing import ProducerRecord, ServerThread

from .test_analyze import run

LONG_AGO_MS = 1_700_000_000_000


def commit(server: ServerThread, second: int, offset: int) -> None:
    """Put a commit into the topic that stands for ``__consumer_offsets``."""
    record = OffsetCommitRecord("billing", "orders", 0, offset, commit_timestamp_ms=LONG_AGO_MS + 1_000 * second)
    key, value = encode_record(record)
    server.produce("offsets", [ProducerRecord(value=value, key=key, partition=0)])


def shown(url: str) -> dict[tuple[str, str], float]:
    """Return what Prometheus would read there: values by name and group, cause or topic."""
    with urlopen(url) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found = {}
    for sample in [sample for family in families for sample in family.samples]:
        labels = sample.labels
        name = labels.get("group") or labels.get("consumer_group") or labels.get("cause") or labels.get("topic")
        found[sample.name, name or ""] = sample.value
    return found


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
            ClusterInput(frozenset(), None, ClusterAddress(server.bootstrap), "offsets"), tmp_path / "out", clock=clock
        )
        collector = FollowCollector(following.cluster_name, clock)

        def is_stopped(wait_s: float) -> bool:
            seen.append(shown(url))
            server.produce("orders", [b"order"] * 10, partition=0)
            clock.advance(2_000)
            return len(seen) == 2

        def tell(progress: Progress) -> None:
            told.append(progress)
            collector.show(progress)

        with served(collector, "127.0.0.1", 0) as url:
            assert shown(url) == {}
            following.run(spark, is_stopped, tell)
            late = shown(url)

    assert [(progress.update, progress.is_look) for progress in told] == [(0, False), (0, True)]
    for name in (
        "kafka_consumergroup_group_lag",
        "kafka_consumergroup_group_sum_lag",
        "burrow_kafka_consumer_lag_total",
    ):
        assert [values[name, "billing"] for values in seen] == [10, 20]
    assert [values["kafka_partition_latest_offset", "orders"] for values in seen] == [30, 40]
    assert ("kafka_consumergroup_group_lag_seconds", "billing") not in seen[0]
    assert seen[1]["kafka_consumergroup_group_lag_seconds", "billing"] > 0
    assert [values["burrow_kafka_consumer_status", "billing"] for values in seen] == [1, 3]
    assert [values["groupcoord_consumer_partition_status", "billing"] for values in seen] == [1, 4]
    assert (seen[1]["groupcoord_follow_delay_seconds", ""], late["groupcoord_follow_delay_seconds", ""]) == (0, 2)
    assert spark.read.parquet(f"{tmp_path}/out/tables/end_offsets").count() == 2


def test_metrics_need_a_good_address(tmp_path: Path) -> None:
    """They go with following, and a port is a number."""
    refused = run(tmp_path, "--out", tmp_path / "out", "--metrics", "9000")
    assert (refused.status, refused.error) == (USAGE_ERROR, "groupcoord analyze: --metrics goes with --follow\n")
    for address in ("here", "127.0.0.1:", "70000"):
        refused = run(tmp_path, "--out", tmp_path / "out", "--follow", "--metrics", address)
        assert refused.status == USAGE_ERROR
        assert f"--metrics {address}: write it as PORT or HOST:PORT" in refused.error
