"""Options of a simulated cluster and its replicas."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from groupcoord.cluster.membership import BEAT_MS, DEAD_MS, LEASE_MS
from groupcoord.cluster.slot_store import SNAPSHOT_BYTES_MIN
from groupcoord.config import Config


@frozen
class ReplicaOptions:
    """Options of nodes that share the log as replicas (:mod:`groupcoord.cluster`).

    Attributes:
        lease_ms: time for which a node answers after the start of its last successful heartbeat.
        dead_ms: silence of a node after which others take over.
        beat_ms: heartbeat interval of a node.
        snapshot_bytes_min: bytes after which a log partition is rewritten as a snapshot.
        stale_percent: reads in a hundred that miss the last writes, as from a lagging replica of the engine.
        late_percent: puts in a hundred that arrive a second time, later.
    """

    lease_ms: int = LEASE_MS
    dead_ms: int = DEAD_MS
    beat_ms: int = BEAT_MS
    snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN
    stale_percent: int = 0
    late_percent: int = 0


@frozen
class ClusterOptions:
    """Options of the simulated cluster.

    Attributes:
        node_count: number of nodes with a coordinator: node 1, node 2, …
        config: settings of the coordinators; ``offsets_topic_num_partitions`` is the number of log partitions.
        least_latency_ms, most_latency_ms: bounds of the latency of a message, one way.
        flush_ms: interval between writes of the log; 0: immediate.
        failure_detection_ms: time after which the log partitions of a crashed node move to others; None: they wait for
            it.
        metadata_delay_max_ms: largest delay of the notification of a new leader.
        lease_ms: time for which the owner of the whole log answers after an ownership check, and for which its
            successor waits; the other nodes stand by. None: log partitions have leaders, which are notified of their
            successors.
        replicas: options of nodes that share the log partitions over a slot log; None: a controller elects leaders.
            ``failure_detection_ms``, ``metadata_delay_max_ms`` and ``lease_ms`` do not apply to replicas.
        group_configs: by group id, the group's own settings (KIP-848), as attributes of
            :class:`~groupcoord.config.group_settings.ConsumerGroupSettings`.
        load_step_records, load_step_ms: records of a step of a load, and its duration.
    """

    node_count: int = 1
    config: Config = field(factory=lambda: Config(offsets_topic_num_partitions=8))
    least_latency_ms: int = 1
    most_latency_ms: int = 20
    flush_ms: int = 0
    failure_detection_ms: int | None = None
    metadata_delay_max_ms: int = 50
    lease_ms: int | None = None
    replicas: ReplicaOptions | None = None
    group_configs: Mapping[str, Mapping[str, int]] = field(factory=dict)
    load_step_records: int = 1_000
    load_step_ms: int = 10
