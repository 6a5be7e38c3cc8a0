"""Cluster that is followed, and the metrics that Prometheus reads."""

from __future__ import annotations

from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.records.codec import encode_record
from groupcoord.testing import ProducerRecord, ServerThread

LONG_AGO_MS = 1_700_000_000_000


def commit(server: ServerThread, second: int, offset: int) -> None:
    """Put a commit into the topic that stands for ``__consumer_offsets``."""
    at_ms = LONG_AGO_MS + 1_000 * second
    key, value = encode_record(OffsetCommitRecord("billing", "orders", 0, offset, commit_timestamp_ms=at_ms))
    server.produce("offsets", [ProducerRecord(value=value, key=key, partition=0, timestamp_ms=at_ms)])


def shown(url: str) -> dict[tuple[str, str], float]:
    """Return the metrics as Prometheus reads them: values by name and labels, without the cluster."""
    with urlopen(url) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found = {}
    for sample in [sample for family in families for sample in family.samples]:
        labels = sample.labels
        name = labels.get("group") or labels.get("consumer_group") or labels.get("cause") or labels.get("topic") or ""
        parts = [labels[label] for label in ("cause", "state", "kind") if label in labels and labels[label] != name]
        found[sample.name, " ".join([name, *parts])] = sample.value
    return found


def check_falling_behind(seen: list[dict[tuple[str, str], float]]) -> None:
    """A group of 20 committed offsets that has stopped was looked at twice, while ten more records came."""
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
    assert seen[1]["groupcoord_group_state", "billing Empty"] == 1
    assert seen[1]["groupcoord_group_members", "billing"] == 0
