"""Prometheus metrics under the names of Kafka's group coordinator, and their HTTP server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from groupcoord.config import GroupType
from groupcoord.coordinator import GroupCoordinator, PartitionStatus
from groupcoord.core.groups.classic.group import GroupState
from groupcoord.core.groups.consumer.group import ConsumerGroupState
from groupcoord.core.groups.share.group import ShareGroupState
from groupcoord.core.groups.streams.group import StreamsGroupState
from groupcoord.host.http import HttpServer

PREFIX = "kafka_server_group_coordinator_metrics_"
STATES: Mapping[GroupType, type[Enum]] = {
    GroupType.CLASSIC: GroupState,
    GroupType.CONSUMER: ConsumerGroupState,
    GroupType.SHARE: ShareGroupState,
    GroupType.STREAMS: StreamsGroupState,
}


class CoordinatorCollector(Collector):
    """Collector that reads a coordinator on each scrape and costs nothing in between.

    The metrics are those of Kafka's ``group-coordinator-metrics``; expired sessions and failed appends are additions.
    """

    def __init__(self, coordinator_now: Callable[[], GroupCoordinator | None]) -> None:
        self._coordinator_now = coordinator_now

    def collect(self) -> Iterator[Metric]:
        coordinator = self._coordinator_now()
        if coordinator is not None:
            yield from _gauges(coordinator)
            yield from _totals(coordinator)


def _totals(coordinator: GroupCoordinator) -> Iterator[Metric]:
    counters = coordinator.counters
    for name, text, value in (
        ("append_failure_count", "Appends that could not be written to the log", counters.append_failures),
        (
            "group_completed_rebalance_count",
            "Generations of classic groups that became stable",
            counters.group_completed_rebalances,
        ),
        *(
            (
                f"{kind}_group_rebalance_count",
                f"Epochs of {kind} groups that began since subscriptions or topics had changed",
                getattr(counters, f"{kind}_group_rebalances"),
            )
            for kind in STATES
            if kind is not GroupType.CLASSIC
        ),
        ("offset_commit_count", "Committed offsets, one for each partition", counters.offset_commits),
        ("offset_expiration_count", "Offsets removed by retention", counters.offset_expirations),
        ("offset_deletion_count", "Offsets removed on request", counters.offset_deletions),
        ("session_expiration_count", "Members removed since they were silent", counters.session_expirations),
        ("partition_load_count", "Log partitions loaded", counters.partition_loads),
        ("partition_load_time_ms", "Time spent loading, milliseconds", counters.partition_load_ms),
    ):
        yield CounterMetricFamily(PREFIX + name, text, value=value)


def _gauges(coordinator: GroupCoordinator) -> Iterator[Metric]:
    indexes = range(coordinator.config.offsets_topic_num_partitions)
    partitions = [partition for index in indexes if (partition := coordinator.partition(index)) is not None]
    # Types without groups are shown, too: a missing series looks like a failed scrape.
    states: dict[GroupType, Counter[str]] = {kind: Counter() for kind in STATES}
    for group in [group.listed() for partition in partitions for group in partition.groups.values()]:
        states[GroupType(group.group_type)][group.group_state] += 1
    by_protocol = GaugeMetricFamily(PREFIX + "group_count", "Groups by protocol", labels=["protocol"])
    for protocol, counts in states.items():
        by_protocol.add_metric([protocol], counts.total())
    yield by_protocol
    for kind, names in STATES.items():
        yield _by_state(f"{kind}_group_count", f"{kind.capitalize()} groups by state", names, states[kind])
    statuses = Counter(coordinator.status(index).value for index in indexes)
    yield _by_state("num_partitions", "Log partitions by state", PartitionStatus, statuses)
    offsets = sum(partition.offset_count() for partition in partitions)
    yield GaugeMetricFamily(PREFIX + "num_offsets", "Committed offsets", value=offsets)


def _by_state(name: str, text: str, states: type[Enum], counts: Counter[str]) -> Metric:
    """Return the number of groups in each state, zeros included."""
    family = GaugeMetricFamily(PREFIX + name, text, labels=["state"])
    for state in states:
        family.add_metric([state.value], counts[state.value])
    return family


class LoopCollector(Collector):
    """Collector that runs others in the event loop of its creation, in which alone their sources change."""

    def __init__(self, collectors: Iterable[Collector]) -> None:
        self._collectors = tuple(collectors)
        self._loop = asyncio.get_running_loop()

    def collect(self) -> Iterable[Metric]:
        return asyncio.run_coroutine_threadsafe(self._collected(), self._loop).result()

    async def _collected(self) -> list[Metric]:
        return [metric for collector in self._collectors for metric in collector.collect()]


def metrics_server(
    coordinator_now: Callable[[], GroupCoordinator | None], host: str, port: int, more: Iterable[Collector] = ()
) -> HttpServer:
    """Return the HTTP server for ``GET /metrics``, made in the event loop of the server that it watches."""
    registry = CollectorRegistry()
    registry.register(LoopCollector((CoordinatorCollector(coordinator_now), *more)))
    return HttpServer(host, port, "metrics", make_wsgi_app(registry))
