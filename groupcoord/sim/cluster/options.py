"""What a simulated cluster is like."""

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
        lease_ms: how long a node answers after the start of its last successful heartbeat.
        dead_ms: silence after which other nodes take over.
        beat_ms: heartbeat interval of a node.
        snapshot_bytes_min: bytes after which a log partition is rewritten as a snapshot.
        stale_percent: reads in a hundred that miss the last slots, as from a lagging replica of the engine.
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
    """The cluster's side of a world.

    Attributes:
        node_count: coordinators; they are called node 1, node 2, …
        config: the settings of all of them; ``offsets_topic_num_partitions`` is how many log partitions there are.
        least_latency_ms, most_latency_ms: how long messages take, one way.
        flush_ms: how often the log writes; 0: at once.
        failure_detection_ms: how long after a node died others take its log partitions over; None: they wait for it.
        word_ms: how long at most the word of a new leader takes to a node.
        lease_ms: one node owns the whole log, until another takes it over, and the others stand by: an owner may answer
            for so long after it has found the log its own, and its successor waits for so long; None: log partitions
            have leaders, who hear when they aren't any more.
        replicas: nodes share the log partitions over a slot log, and find out by beats who is to have which; None: a
            controller says who leads. ``failure_detection_ms``, ``word_ms`` and ``lease_ms`` mean nothing then.
        group_configs: group id → the settings of its own that a consumer group has (KIP-848), by attribute of
            :class:`~groupcoord.config.group_settings.ConsumerGroupSettings`.
        load_step_records, load_step_ms: a load reads so many records in a step, and so long is a step.
    """

    node_count: int = 1
    config: Config = field(factory=lambda: Config(offsets_topic_num_partitions=8))
    least_latency_ms: int = 1
    most_latency_ms: int = 20
    flush_ms: int = 0
    failure_detection_ms: int | None = None
    word_ms: int = 50
    lease_ms: int | None = None
    replicas: ReplicaOptions | None = None
    group_configs: Mapping[str, Mapping[str, int]] = field(factory=dict)
    load_step_records: int = 1_000
    load_step_ms: int = 10
