"""Prometheus metrics of a replica: its lease, its log partitions, take-overs and losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from groupcoord.cluster.replica import ReplicaStatus

PREFIX = "groupcoord_replica_"


class ReplicaCollector(Collector):
    """Collector that reads the status of a replica: ``REGISTRY.register(ReplicaCollector(replica.status))``."""

    def __init__(self, status_now: Callable[[], ReplicaStatus | None]) -> None:
        self._status_now = status_now

    def collect(self) -> Iterator[Metric]:
        status = self._status_now()
        if status is None:
            return
        for name, text, value in (
            ("may_answer", "1 while the lease lasts, else 0", status.may_answer),
            ("live", "Replicas that were heard lately, this one included", len(status.live)),
        ):
            yield GaugeMetricFamily(PREFIX + name, text, value=value)
        for name, text, count in (
            ("take_overs", "Log partitions taken over so far: fences that stood", status.take_overs),
            ("losses", "Log partitions found to be another replica's when they were written to", status.losses),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value=count)
        owner = GaugeMetricFamily(PREFIX + "owner", "Who has a log partition, as heard", labels=["partition", "node"])
        for partition, node_id in status.owners.items():
            owner.add_metric([str(partition), node_id], 1)
        yield owner
        for name, text in (
            ("epoch", "Epoch of the leader, of log partitions that are owned here"),
            ("unread_bytes", "Appended since the last snapshot: what a take-over reads in addition"),
            ("snapshot_bytes", "Length of the last snapshot"),
        ):
            family = GaugeMetricFamily(PREFIX + name, text, labels=["partition"])
            for partition, figures in status.partitions.items():
                family.add_metric([str(partition)], getattr(figures, name))
            yield family
