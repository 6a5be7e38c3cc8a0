"""Metrics of groups as they are followed or polled, by the names and labels of kafka-lag-exporter and Burrow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from groupcoord.analysis.pipeline.tables import FigureRow, Figures, RebalanceCounts, figures_of
from groupcoord.analysis.rules.statuses import LagStatus, group_status
from groupcoord.analysis.tables import FinishedTables
from groupcoord.clock import Clock, SystemClock

MS_PER_S = 1_000

_LAG = "kafka_consumergroup_group_"
_BURROW = "burrow_kafka_"
_OF_MEMBER = ["cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id"]


class GroupCollector(Collector):
    """Collector of the last figures."""

    def __init__(self, cluster_name: str, clock: Clock | None = None) -> None:
        self._cluster = cluster_name
        self._clock = clock or SystemClock()
        self._last: Figures | None = None

    def show(self, figures: Figures) -> None:
        self._last = figures

    def take(self, tables: FinishedTables, seen_ms: int, rows: int, earlier: RebalanceCounts | None = None) -> None:
        """Set the figures from tables."""
        self._last = figures_of(self._last, tables, seen_ms, rows, earlier)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; none before the first figures."""
        last = self._last
        if last is None:
            return
        rows = last.lag or ()
        known = [row for row in rows if row["lag"] is not None]
        yield from self._of_partitions(known)
        yield from self._of_lag(known)
        yield from self._of_statuses(rows)
        yield from self._of_topics(rows)
        yield from self._of_groups(last)
        delay_s = (self._clock.now_ms() - last.seen_ms) / MS_PER_S
        yield GaugeMetricFamily("groupcoord_follow_delay_seconds", "How old these figures are", value=delay_s)
        if last.rows is not None:
            yield GaugeMetricFamily("groupcoord_follow_rows", "Rows of the log that were read", value=last.rows)

    def _of_groups(self, last: Figures) -> Iterator[Metric]:
        causes = CounterMetricFamily("groupcoord_rebalances", "Rebalances by cause", labels=["cluster_name", "cause"])
        of_group = ["cluster_name", "group"]
        text = "Rebalances of a group by cause"
        by_group = CounterMetricFamily("groupcoord_group_rebalances", text, labels=[*of_group, "cause"])
        totals: Counter[str] = Counter()
        for (group_id, cause), count in last.rebalances.items():
            totals[cause] += count
            by_group.add_metric([self._cluster, group_id, cause], count)
        for cause, count in totals.items():
            causes.add_metric([self._cluster, cause], count)
        members = GaugeMetricFamily("groupcoord_group_members", "Members", labels=of_group)
        text = "1 for the state that a group is in"
        states = GaugeMetricFamily("groupcoord_group_state", text, labels=[*of_group, "type", "state"])
        for row in last.groups:
            if row["member_count"] is not None:
                members.add_metric([self._cluster, row["group_id"]], row["member_count"])
            states.add_metric([self._cluster, row["group_id"], row["type"] or "", row["state"] or ""], 1)
        text = "Anomalies of a group by kind"
        anomalies = GaugeMetricFamily("groupcoord_group_anomalies", text, labels=[*of_group, "kind"])
        for (group_id, kind), count in last.anomalies.items():
            anomalies.add_metric([self._cluster, group_id, kind], count)
        yield from (causes, by_group, members, states, anomalies)

    def _of_partitions(self, rows: list[FigureRow]) -> Iterator[Metric]:
        figures: list[tuple[str, str, Callable[[FigureRow], float | None]]] = [
            ("offset", "Committed offset", lambda row: row["committed_offset"]),
            ("lag", "Records behind", lambda row: row["lag"]),
            ("lag_seconds", "Age of the next record to read", lambda row: _seconds(row["lag_ms"])),
        ]
        for name, text, value_of in figures:
            family = GaugeMetricFamily(_LAG + name, text, labels=_OF_MEMBER)
            for row in rows:
                if (value := value_of(row)) is not None:
                    holder = [row["client_host"] or "", row["member_id"] or "", row["client_id"] or ""]
                    family.add_metric([*self._partition(row), *holder], value)
            yield family
        of_partition = ["cluster", "consumer_group", "topic", "partition"]
        offset = GaugeMetricFamily(_BURROW + "consumer_current_offset", "Committed offset", labels=of_partition)
        lag = GaugeMetricFamily(_BURROW + "consumer_partition_lag", "Records behind", labels=of_partition)
        for row in rows:
            if row["committed_offset"] is not None:
                offset.add_metric(self._partition(row), row["committed_offset"])
            lag.add_metric(self._partition(row), row["lag"])
        yield from (offset, lag)

    def _of_statuses(self, rows: Sequence[FigureRow]) -> Iterator[Metric]:
        of_partition = ["cluster", "consumer_group", "topic", "partition"]
        text = ", ".join(f"{number} {status.label}" for status in LagStatus if (number := _shown(status)) == status)
        statuses = GaugeMetricFamily("groupcoord_consumer_partition_status", text, labels=of_partition)
        for row in rows:
            statuses.add_metric(self._partition(row), _shown(LagStatus.of(row["status"])))
        yield statuses
        text = "1 OK, 2 WARN, 3 ERR: the worst of the partitions"
        by_group = _grouped(rows, lambda row: (row["group_id"],))
        yield self._family(_BURROW + "consumer_status", text, of_partition[:2], by_group, _status)

    def _of_lag(self, rows: list[FigureRow]) -> Iterator[Metric]:
        of_group = _grouped(rows, lambda row: (row["group_id"],))
        of_topic = _grouped(rows, lambda row: (row["group_id"], row["topic"]))
        labels = ["cluster_name", "group"]
        yield self._family(_LAG + "max_lag", "The greatest lag", labels, of_group, _max_lag)
        yield self._family(_LAG + "max_lag_seconds", "The greatest lag as time", labels, of_group, _max_seconds)
        yield self._family(_LAG + "sum_lag", "All lag", labels, of_group, _sum_lag)
        yield self._family(_LAG + "topic_sum_lag", "All lag in a topic", [*labels, "topic"], of_topic, _sum_lag)
        labels = ["cluster", "consumer_group"]
        yield self._family(_BURROW + "consumer_lag_total", "All lag", labels, of_group, _sum_lag)

    def _of_topics(self, rows: Sequence[FigureRow]) -> Iterator[Metric]:
        ends = {
            (row["topic"], row["topic_partition"]): row["end_offset"] for row in rows if row["end_offset"] is not None
        }
        for name, label in (
            ("kafka_partition_latest_offset", "cluster_name"),
            (_BURROW + "topic_partition_offset", "cluster"),
        ):
            family = GaugeMetricFamily(name, "End of the partition", labels=[label, "topic", "partition"])
            for (topic, partition), end in ends.items():
                family.add_metric([self._cluster, topic, str(partition)], end)
            yield family

    def _family(
        self,
        name: str,
        text: str,
        labels: list[str],
        groups: dict[tuple[str, ...], list[FigureRow]],
        value_of: Callable[[list[FigureRow]], float | None],
    ) -> Metric:
        family = GaugeMetricFamily(name, text, labels=labels)
        for key, rows in groups.items():
            if (value := value_of(rows)) is not None:
                family.add_metric([self._cluster, *key], value)
        return family

    def _partition(self, row: FigureRow) -> list[str]:
        return [self._cluster, row["group_id"], row["topic"], str(row["topic_partition"])]


@contextmanager
def served(collector: Collector, host: str, port: int) -> Iterator[str]:
    """Serve metrics within the context, and yield their URL."""
    registry = CollectorRegistry()
    registry.register(collector)
    server, thread = start_http_server(port, host, registry)
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _grouped(
    rows: Iterable[FigureRow], key_of: Callable[[FigureRow], tuple[str, ...]]
) -> dict[tuple[str, ...], list[FigureRow]]:
    groups: dict[tuple[str, ...], list[FigureRow]] = defaultdict(list)
    for row in rows:
        groups[key_of(row)].append(row)
    return groups


def _seconds(lag_ms: int | None) -> float | None:
    return None if lag_ms is None else lag_ms / MS_PER_S


def _max_lag(rows: list[FigureRow]) -> float:
    return max(float(row["lag"]) for row in rows)


def _max_seconds(rows: list[FigureRow]) -> float | None:
    return _seconds(max((row["lag_ms"] for row in rows if row["lag_ms"] is not None), default=None))


def _sum_lag(rows: list[FigureRow]) -> float:
    return sum(float(row["lag"]) for row in rows)


def _status(rows: list[FigureRow]) -> float:
    return group_status(LagStatus.of(row["status"]) for row in rows)


def _shown(status: LagStatus) -> int:
    """Return the number of a status; BEHIND has that of OK, as in Burrow."""
    return LagStatus.OK if status is LagStatus.BEHIND else status
