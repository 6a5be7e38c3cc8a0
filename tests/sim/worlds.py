"""Small worlds for the tests of the simulator."""

from __future__ import annotations

from typing import Any

from groupcoord import Config
from groupcoord.member import MemberConfig
from groupcoord.sim import ClusterOptions, Fault, GroupOptions, WorldOptions

MEMBER = MemberConfig(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, max_poll_interval_ms=60_000)


def small_world(*faults: Fault, duration_ms: int = 120_000, members: int = 3, **changes: Any) -> WorldOptions:
    """Return a world of one group of consumers over six partitions, with two nodes."""
    cluster = changes.pop("cluster", None) or ClusterOptions(
        node_count=2,
        config=Config(offsets_topic_num_partitions=2, group_initial_rebalance_delay_ms=1_000),
        failure_detection_ms=2_000,
    )
    group = GroupOptions(
        "billing", members, ("orders",), member=changes.pop("member", MEMBER), **changes.pop("group", {})
    )
    return WorldOptions(cluster, {"orders": 6}, (group,), tuple(faults), duration_ms=duration_ms, **changes)


def consumer_group_world(*faults: Fault, on_consumer_protocol: int = 3, **changes: Any) -> WorldOptions:
    """Return the small world with a number of consumers of the consumer protocol (KIP-848)."""
    config = Config(
        offsets_topic_num_partitions=2,
        group_initial_rebalance_delay_ms=1_000,
        group_consumer_min_session_timeout_ms=1_000,
        group_consumer_session_timeout_ms=10_000,
        group_consumer_min_heartbeat_interval_ms=1_000,
        group_consumer_heartbeat_interval_ms=3_000,
        group_consumer_regex_refresh_interval_ms=10_000,
    )
    cluster = ClusterOptions(node_count=2, config=config, failure_detection_ms=2_000)
    group = {"consumer_protocol_count": on_consumer_protocol, **changes.pop("group", {})}
    return small_world(*faults, cluster=cluster, group=group, **changes)
