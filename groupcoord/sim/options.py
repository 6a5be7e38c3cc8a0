"""What a simulated world is like: drawn from a seed, or given."""

from __future__ import annotations

from attrs import field, frozen

from groupcoord.config import Config
from groupcoord.member import MemberConfig
from groupcoord.sim.faults import Fault


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
        load_step_records, load_step_ms: a load reads so many records in a step, and so long is a step.
    """

    node_count: int = 1
    config: Config = field(factory=lambda: Config(offsets_topic_num_partitions=8))
    least_latency_ms: int = 1
    most_latency_ms: int = 20
    flush_ms: int = 0
    failure_detection_ms: int | None = None
    word_ms: int = 50
    load_step_records: int = 1_000
    load_step_ms: int = 10


@frozen
class GroupOptions:
    """A group of consumers.

    Attributes:
        group_id: its name; its consumers are called by it and a number from 0 on.
        consumer_count: how many there are.
        topics: what all of them subscribe to.
        is_static: each has an instance id (KIP-345).
        member: their settings; group, instance and client id are filled in.
        start_spread_ms: they start at moments spread over so long.
        clock_skew_ms: their clocks are off by up to this much, either way.
        clock_drift_ppm: their clocks run faster or slower by up to so many millionths.
    """

    group_id: str
    consumer_count: int
    topics: tuple[str, ...]
    is_static: bool = False
    member: MemberConfig = field(factory=MemberConfig)
    start_spread_ms: int = 0
    clock_skew_ms: int = 0
    clock_drift_ppm: int = 0


@frozen
class WorldOptions:
    """A world, before anything has happened in it.

    Attributes:
        cluster: nodes, network and log.
        topics: name → number of partitions.
        groups: the consumers.
        faults: what goes wrong, and when.
        duration_ms: how long the story goes on; all faults end before.
        settle_ms: how long everything may take at most to come to rest after that.
        calm_ms: how long nothing may happen once it has.
        law_interval_ms: how much time passes between two looks at the costly laws; 0: after every event of a node.
        elides: what steady groups repeat is left out.
    """

    cluster: ClusterOptions
    topics: dict[str, int]
    groups: tuple[GroupOptions, ...]
    faults: tuple[Fault, ...] = ()
    duration_ms: int = 600_000
    settle_ms: int = 900_000
    calm_ms: int = 30_000
    law_interval_ms: int = 0
    elides: bool = True
