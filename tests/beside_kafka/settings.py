"""Settings of brokers and groups, drawn so that little time and few members are enough to come upon their rules."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

ALWAYS = {
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignor.offload.enable": "false",
}

CHOICES: Mapping[str, Sequence[Any]] = {
    "group.initial.rebalance.delay.ms": (0, 0, 313, 2_011),
    "group.consumer.assignment.interval.ms": (0, 0, 0, 1_000),
    "group.consumer.migration.policy": ("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled"),
    "group.consumer.session.timeout.ms": (45_000, 45_000, 10_009, 3_011),
    "group.consumer.heartbeat.interval.ms": (1_000, 500),
    "group.consumer.assignors": ("uniform,range", "uniform,range", "range,uniform", "range"),
    "group.consumer.regex.refresh.interval.ms": (None, None, 10_000),
    "group.consumer.max.size": (None, None, None, None, 1, 2, 3),
    "group.max.size": (None, None, None, None, 1, 2, 3),
    "group.max.session.timeout.ms": (None, None, None, 6_500),
    "offsets.retention.minutes": (1, 1, 10),
    "offsets.retention.check.interval.ms": (7_013, 20_021),
    "offset.metadata.max.bytes": (None, None, 0, 8),
}
"""What a broker may be set to; None leaves Kafka's default."""

OF_GROUPS: Mapping[str, Sequence[Any]] = {
    "consumer.session.timeout.ms": (None, 2_003, 20_011),
    "consumer.heartbeat.interval.ms": (None, 200, 700),
    "consumer.assignment.interval.ms": (None, 0, 3_000),
}

OF_STREAMS: Mapping[str, Sequence[Any]] = {
    "group.streams.min.session.timeout.ms": (500,),
    "group.streams.min.heartbeat.interval.ms": (100,),
    "group.streams.session.timeout.ms": (45_000, 45_000, 10_009, 3_011),
    "group.streams.heartbeat.interval.ms": (1_000, 500),
    "group.streams.initial.rebalance.delay.ms": (0, 0, 0, 313, 3_000),
    "group.streams.assignment.interval.ms": (0, 0, 0, 1_000),
    "group.streams.num.standby.replicas": (0, 0, 1, 2),
    "group.streams.max.size": (None, None, None, None, 2, 3),
    "group.streams.rack.aware.assignment.tags": (None, None, None, "zone", "zone,az"),
    "group.streams.acceptable.recovery.lag": (None, None, 7),
}
"""What a broker may be set to that serves streams groups."""

OF_STREAMS_GROUPS: Mapping[str, Sequence[Any]] = {
    "streams.session.timeout.ms": (None, 2_003, 20_011),
    "streams.heartbeat.interval.ms": (None, 200, 700),
    "streams.num.standby.replicas": (None, 0, 1, 2),
    "streams.initial.rebalance.delay.ms": (None, 0, 500),
    "streams.assignment.interval.ms": (None, 0, 3_000),
    "streams.num.warmup.replicas": (None, None, 0, 1),
    "streams.task.offset.interval.ms": (None, None, 15_000),
    "streams.rack.aware.assignment.tags": (None, None, None, "az"),
}

OF_SHARE: Mapping[str, Sequence[Any]] = {
    "group.share.min.session.timeout.ms": (500,),
    "group.share.min.heartbeat.interval.ms": (100,),
    "group.share.session.timeout.ms": (45_000, 45_000, 10_009, 3_011),
    "group.share.heartbeat.interval.ms": (1_000, 500),
    "group.share.assignment.interval.ms": (0, 0, 0, 1_000),
    "group.share.max.size": (None, None, None, 2, 3),
    "group.share.assignor.offload.enable": ("false",),
}
"""What a broker may be set to that serves share groups."""

OF_SHARE_GROUPS: Mapping[str, Sequence[Any]] = {
    "share.session.timeout.ms": (None, 2_003, 20_011),
    "share.heartbeat.interval.ms": (None, 200, 700),
    "share.assignment.interval.ms": (None, 0, 3_000),
}


def drawn(draw: random.Random, choices: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    drawn = {name: draw.choice(values) for name, values in choices.items()}
    return {name: str(value) for name, value in drawn.items() if value is not None}
