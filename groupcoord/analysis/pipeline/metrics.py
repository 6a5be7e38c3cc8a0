"""Metrics of groups as they are followed or polled, by the names and labels of kafka-lag-exporter and Burrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from groupcoord.analysis.fold.history.rows import grouped
from groupcoord.analysis.pipeline.tables import FigureRow, Figures, RebalanceCounts, figures_of
from groupcoord.analysis.rules.statuses import LagStatus, group_status
from groupcoord.analysis.tables import FinishedTables
from groupcoord.clock import Clock, SystemClock

MS_PER_S = 1_000

Rows = Sequence[FigureRow]


def _sum_of(name: str) -> Callable[[Rows], float]:
    return lambda rows: sum(float(row[name]) for row in rows)


def _last_of(name: str) -> Callable[[Rows], float | None]:
    return lambda rows: next((row[name] for row in reversed(rows) if row[name] is not None), None)


def _max_lag(rows: Rows) -> float:
    return max(float(row["lag"]) for row in rows)


def _max_seconds(rows: Rows) -> float | None:
    longest_ms = max((row["lag_ms"] for row in rows if row["lag_ms"] is not None), default=None)
    return None if longest_ms is None else longest_ms / MS_PER_S


def _partition_status(rows: Rows) -> float:
    return _shown(LagStatus.of(rows[0]["status"]))


def _group_status(rows: Rows) -> float:
    return group_status(LagStatus.of(row["status"]) for row in rows)


def _shown(status: LagStatus) -> int:
    """Return a status as a metric: as in Burrow, lag alone is OK."""
    return LagStatus.OK if status is LagStatus.BEHIND else status


class _Family(NamedTuple):
    """A metric family over rows of figures.

    Attributes:
        labels: the column of each label, or :data:`_CLUSTER`; rows with the same values are one metric.
        value_of: returns the value of these rows, None for no metric.
    """

    name: str
    text: str
    labels: Mapping[str, str]
    value_of: Callable[[Rows], float | None]
    type: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily


_CLUSTER = "cluster"
_TOPIC = {"topic": "topic"}
_PARTITION = {**_TOPIC, "partition": "topic_partition"}
_GROUP = {"cluster_name": _CLUSTER, "group": "group_id"}
_MEMBER = {**_GROUP, **_PARTITION, "member_host": "client_host", "consumer_id": "member_id", "client_id": "client_id"}
_BURROW_GROUP = {"cluster": _CLUSTER, "consumer_group": "group_id"}
_BURROW_PARTITION = _BURROW_GROUP | _PARTITION
_LAG = "kafka_consumergroup_group_"
_BURROW = "burrow_kafka_"
_STATUSES = ", ".join(f"{number} {status.label}" for status in LagStatus if (number := _shown(status)) == status)
_OFFSET, _END, _COUNT = _last_of("committed_offset"), _last_of("end_offset"), _sum_of("count")

_OF_LAG = (
    _Family(_LAG + "offset", "Committed offset", _MEMBER, _OFFSET),
    _Family(_LAG + "lag", "Records behind", _MEMBER, _max_lag),
    _Family(_LAG + "lag_seconds", "Age of the next record to read", _MEMBER, _max_seconds),
    _Family(_BURROW + "consumer_current_offset", "Committed offset", _BURROW_PARTITION, _OFFSET),
    _Family(_BURROW + "consumer_partition_lag", "Records behind", _BURROW_PARTITION, _max_lag),
    _Family(_LAG + "max_lag", "The greatest lag", _GROUP, _max_lag),
    _Family(_LAG + "max_lag_seconds", "The greatest lag as time", _GROUP, _max_seconds),
    _Family(_LAG + "sum_lag", "All lag", _GROUP, _sum_of("lag")),
    _Family(_LAG + "topic_sum_lag", "All lag in a topic", _GROUP | _TOPIC, _sum_of("lag")),
    _Family(_BURROW + "consumer_lag_total", "All lag", _BURROW_GROUP, _sum_of("lag")),
)
"""Families over rows with a known lag."""

_WORST = "1 OK, 2 WARN, 3 ERR: the worst of the partitions"
_OF_PARTITIONS = (
    _Family("groupcoord_consumer_partition_status", _STATUSES, _BURROW_PARTITION, _partition_status),
    _Family(_BURROW + "consumer_status", _WORST, _BURROW_GROUP, _group_status),
    _Family("kafka_partition_latest_offset", "End of the partition", {"cluster_name": _CLUSTER, **_PARTITION}, _END),
    _Family(_BURROW + "topic_partition_offset", "End of the partition", {"cluster": _CLUSTER, **_PARTITION}, _END),
)
_CAUSE, _STATE = {"cause": "kind"}, {"type": "type", "state": "state"}
_BY_CAUSE, _OF_GROUP = "Rebalances by cause", "Rebalances of a group by cause"
_OF_REBALANCES = (
    _Family("groupcoord_rebalances", _BY_CAUSE, {"cluster_name": _CLUSTER, **_CAUSE}, _COUNT, CounterMetricFamily),
    _Family("groupcoord_group_rebalances", _OF_GROUP, _GROUP | _CAUSE, _COUNT, CounterMetricFamily),
)
_OF_GROUPS = (
    _Family("groupcoord_group_members", "Members", _GROUP, _last_of("member_count")),
    _Family("groupcoord_group_state", "1 for the state that a group is in", _GROUP | _STATE, lambda rows: 1),
)
_OF_ANOMALIES = (
    _Family("groupcoord_group_anomalies", "Anomalies of a group by kind", _GROUP | {"kind": "kind"}, _COUNT),
)


def _counted(counts: Mapping[tuple[str, str], int]) -> list[FigureRow]:
    return [{"group_id": group_id, "kind": kind, "count": count} for (group_id, kind), count in counts.items()]


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
        yield from self._metrics(_OF_LAG, [row for row in rows if row["lag"] is not None])
        yield from self._metrics(_OF_PARTITIONS, rows)
        yield from self._metrics(_OF_REBALANCES, _counted(last.rebalances))
        yield from self._metrics(_OF_GROUPS, last.groups)
        yield from self._metrics(_OF_ANOMALIES, _counted(last.anomalies))
        delay_s = (self._clock.now_ms() - last.seen_ms) / MS_PER_S
        yield GaugeMetricFamily("groupcoord_follow_delay_seconds", "How old these figures are", value=delay_s)
        if last.rows is not None:
            yield GaugeMetricFamily("groupcoord_follow_rows", "Rows of the log that were read", value=last.rows)

    def _metrics(self, families: Iterable[_Family], rows: Rows) -> Iterator[Metric]:
        for one in families:
            family = one.type(one.name, one.text, labels=list(one.labels))
            for labels, some in grouped(rows, partial(self._labels, one)).items():
                if (value := one.value_of(some)) is not None:
                    family.add_metric(labels, value)
            yield family

    def _labels(self, family: _Family, row: FigureRow) -> tuple[str, ...]:
        values = (self._cluster if name == _CLUSTER else row[name] for name in family.labels.values())
        return tuple("" if value is None else str(value) for value in values)


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
