"""The events that a scenario file may name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from random import Random

from attrs import field, frozen

from groupcoord.sim.faults import (
    BusyApplication,
    ConsumerCrash,
    ConsumerFault,
    ConsumerPause,
    ConsumerStop,
    CutOff,
    Fault,
    LogTrouble,
    LossyNetwork,
    Migration,
    NodeCrash,
    TopicGrowth,
    rolling_restart,
)
from groupcoord.sim.options import ClusterOptions, GroupOptions
from groupcoord.sim.scenario_reader import TableReader

Make = Callable[[Random, int], list[Fault]]
"""From chance and the moment, the faults that an event comes to."""


@frozen
class Fleet:
    """What events can happen to.

    Attributes:
        cluster, topics, groups: as in :class:`~groupcoord.sim.options.WorldOptions`.
        simple_groups: for which simple consumers commit; some may have no other consumers.
        producer_ids: those of the producers to come.
    """

    cluster: ClusterOptions
    topics: dict[str, int]
    groups: tuple[GroupOptions, ...]
    simple_groups: tuple[str, ...] = ()
    producer_ids: Iterator[int] = field(factory=lambda: count(1))

    def numbers_of(self, group: GroupOptions) -> range:
        """Return the numbers of a group's consumers."""
        first = 0
        for other in self.groups:
            if other is group:
                break
            first += other.consumer_count
        return range(first, first + group.consumer_count)


def group_of(table: TableReader, fleet: Fleet) -> GroupOptions:
    """Return the group of consumers that an event names.

    Raises:
        ScenarioError: there is none of that name.
    """
    groups = {group.group_id: group for group in fleet.groups}
    name = table.text("group")
    table.require_known("group", name, groups)
    return groups[name]


def _rolling_restart(table: TableReader, fleet: Fleet) -> Make:
    group = group_of(table, fleet)
    at_once = table.number("at_once", 1, at_least=1)
    step_ms, down_ms = table.duration("every", "30s"), table.duration("down", "5s")
    is_graceful = table.flag("graceful", True)
    numbers = fleet.numbers_of(group)

    def make(chance: Random, at_ms: int) -> list[Fault]:
        return rolling_restart(group.group_id, numbers, at_ms, at_once, step_ms, down_ms, is_graceful=is_graceful)

    return make


def _consumer(table: TableReader, fleet: Fleet, kind: type[ConsumerFault], duration_key: str, **extra: bool) -> Make:
    group = group_of(table, fleet)
    index = table.number("consumer", -1, at_least=-1, at_most=group.consumer_count - 1)
    bounds = (0, 0) if extra.get("stays_dead") else table.duration_range(duration_key)
    numbers = fleet.numbers_of(group)

    def make(chance: Random, at_ms: int) -> list[Fault]:
        number = chance.choice(numbers) if index < 0 else numbers[index]
        end_ms = at_ms + chance.randint(*bounds)
        return [kind(start_ms=at_ms, end_ms=end_ms, consumer=number, group=group.group_id, **extra)]

    return make


def _crash_consumer(table: TableReader, fleet: Fleet) -> Make:
    is_forever = table.take("down", "") == "forever"
    if is_forever:
        return _consumer(table, fleet, ConsumerCrash, "down", stays_dead=True)
    return _consumer(table, fleet, ConsumerCrash, "down")


def _stop_consumer(table: TableReader, fleet: Fleet) -> Make:
    return _consumer(table, fleet, ConsumerStop, "down")


def _pause_consumer(table: TableReader, fleet: Fleet) -> Make:
    return _consumer(table, fleet, ConsumerPause, "for")


def _busy_consumer(table: TableReader, fleet: Fleet) -> Make:
    return _consumer(table, fleet, BusyApplication, "for")


def _crash_node(table: TableReader, fleet: Fleet) -> Make:
    node_id = table.number("node", 0, at_least=0, at_most=fleet.cluster.node_count)
    bounds = table.duration_range("down")

    def make(chance: Random, at_ms: int) -> list[Fault]:
        chosen = node_id or chance.randint(1, fleet.cluster.node_count)
        return [NodeCrash(start_ms=at_ms, end_ms=at_ms + chance.randint(*bounds), node_id=chosen)]

    return make


def _move_partition(table: TableReader, fleet: Fleet) -> Make:
    partition = table.number("partition", at_most=fleet.cluster.config.offsets_topic_num_partitions - 1)
    node_id = table.number("node", at_least=1, at_most=fleet.cluster.node_count)
    return lambda chance, at_ms: [Migration(start_ms=at_ms, end_ms=at_ms, partition=partition, node_id=node_id)]


def _cut_off(table: TableReader, fleet: Fleet) -> Make:
    group = group_of(table, fleet)
    consumer_count = table.number("consumers", 1, at_least=1, at_most=group.consumer_count)
    bounds = table.duration_range("for")
    numbers, node_ids = fleet.numbers_of(group), tuple(range(1, fleet.cluster.node_count + 1))

    def make(chance: Random, at_ms: int) -> list[Fault]:
        chosen = tuple(sorted(chance.sample(numbers, consumer_count)))
        end_ms = at_ms + chance.randint(*bounds)
        return [CutOff(start_ms=at_ms, end_ms=end_ms, consumers=chosen, node_ids=node_ids)]

    return make


def _lose_messages(table: TableReader, fleet: Fleet) -> Make:
    percent, bounds = table.number("percent", at_least=1, at_most=100), table.duration_range("for")

    def make(chance: Random, at_ms: int) -> list[Fault]:
        return [LossyNetwork(start_ms=at_ms, end_ms=at_ms + chance.randint(*bounds), probability=percent / 100)]

    return make


def _slow_log(table: TableReader, fleet: Fleet) -> Make:
    flush_ms, bounds = table.duration("flush"), table.duration_range("for")

    def make(chance: Random, at_ms: int) -> list[Fault]:
        return [LogTrouble(start_ms=at_ms, end_ms=at_ms + chance.randint(*bounds), flush_ms=flush_ms)]

    return make


def _failing_log(table: TableReader, fleet: Fleet) -> Make:
    percent, bounds = table.number("percent", at_least=1, at_most=100), table.duration_range("for")

    def make(chance: Random, at_ms: int) -> list[Fault]:
        return [LogTrouble(start_ms=at_ms, end_ms=at_ms + chance.randint(*bounds), refusal_percent=percent)]

    return make


def _grow_topic(table: TableReader, fleet: Fleet) -> Make:
    topic = table.text("topic")
    table.require_known("topic", topic, fleet.topics)
    partition_count = table.number("partitions", at_least=fleet.topics[topic] + 1, at_most=100_000)
    return lambda chance, at_ms: [
        TopicGrowth(start_ms=at_ms, end_ms=at_ms, topic=topic, partition_count=partition_count)
    ]


EVENTS: dict[str, Callable[[TableReader, Fleet], Make]] = {
    "rolling-restart": _rolling_restart,
    "crash-consumer": _crash_consumer,
    "stop-consumer": _stop_consumer,
    "pause-consumer": _pause_consumer,
    "busy-consumer": _busy_consumer,
    "crash-node": _crash_node,
    "move-log-partition": _move_partition,
    "cut-off": _cut_off,
    "lose-messages": _lose_messages,
    "slow-log": _slow_log,
    "failing-log": _failing_log,
    "grow-topic": _grow_topic,
}
"""The kinds of events by name."""
