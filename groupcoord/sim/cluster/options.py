"""What a simulated cluster is like."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from groupcoord.config import Config


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
    group_configs: Mapping[str, Mapping[str, int]] = field(factory=dict)
    load_step_records: int = 1_000
    load_step_ms: int = 10
