"""Events of scenario files: faults, other clients, and writers of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, takewhile
from random import Random
from typing import Any

from attrs import field, frozen

from groupcoord.sim.actors.applications import Application, ShareWorkers, StreamsApplication
from groupcoord.sim.actors.clients import (
    FOREIGN,
    AdminAction,
    Administrator,
    Fault,
    ForeignRecords,
    SimpleConsumer,
    TransactionalProducer,
)
from groupcoord.sim.actors.environment import GroupOptions, GroupProtocol
from groupcoord.sim.cluster.leading import ClusterOptions
from groupcoord.sim.scenarios.faults import (
    BusyApplication,
    ConsumerCrash,
    ConsumerFault,
    ConsumerPause,
    ConsumerStop,
    CutOff,
    LogTrouble,
    LossyNetwork,
    Migration,
    NodeCrash,
    NodeStall,
    TopicCreation,
    TopicDeletion,
    TopicGrowth,
    rolling_restart,
)
from groupcoord.sim.scenarios.table_reader import ScenarioReader

Make = Callable[[Random, int], list[Fault]]
"""Function that returns the faults of an event from a random generator and the start time."""


@frozen
class EventTargets:
    """Targets of events."""

    cluster: ClusterOptions
    topics: dict[str, int]
    groups: tuple[GroupOptions, ...]
    simple_groups: tuple[str, ...] = ()
    producer_ids: Iterator[int] = field(factory=lambda: count(1))

    def numbers_of(self, group: GroupOptions) -> range:
        before = takewhile(lambda other: other is not group, self.groups)
        first = sum(other.consumer_count for other in before)
        return range(first, first + group.consumer_count)


def group_of(table: ScenarioReader, targets: EventTargets) -> GroupOptions:
    groups = {group.group_id: group for group in targets.groups}
    name = table.text("group")
    table.require_known("group", name, groups)
    return groups[name]


Event = Callable[[ScenarioReader, EventTargets], Make]
"""Reader of an event's table."""


def _at_once(kind: type[Fault], /, **arguments: Any) -> Make:
    return lambda chance, at_ms: [kind(start_ms=at_ms, end_ms=at_ms, **arguments)]


def _lasting(kind: type[Fault], /, bounds: tuple[int, int], **arguments: Any) -> Make:
    return lambda chance, at_ms: [kind(start_ms=at_ms, end_ms=at_ms + chance.randint(*bounds), **arguments)]


def _topic(table: ScenarioReader, targets: EventTargets) -> str:
    topic = table.text("topic")
    table.require_known("topic", topic, targets.topics)
    return topic


def _topics(table: ScenarioReader, targets: EventTargets) -> tuple[str, ...]:
    topics = table.names("topics")
    for topic in topics:
        table.require_known("topics", topic, targets.topics)
    return topics


def _rolling_restart(protocol: GroupProtocol | None = None) -> Event:
    def parse(table: ScenarioReader, targets: EventTargets) -> Make:
        group = group_of(table, targets)
        at_once = table.number("at_once", 1, at_least=1)
        step_ms, down_ms = table.duration("every", "30s"), table.duration("down", "5s")
        is_graceful = table.flag("graceful", True)
        numbers = targets.numbers_of(group)
        return lambda chance, at_ms: rolling_restart(
            group.group_id, numbers, at_ms, at_once, step_ms, down_ms, is_graceful=is_graceful, protocol=protocol
        )

    return parse


def _consumer(kind: type[ConsumerFault], duration_key: str) -> Event:
    def parse(table: ScenarioReader, targets: EventTargets) -> Make:
        stays_dead = kind is ConsumerCrash and table.take("down", "") == "forever"
        group = group_of(table, targets)
        index = table.number("consumer", -1, at_least=-1, at_most=group.consumer_count - 1)
        bounds = (0, 0) if stays_dead else table.duration_range(duration_key)
        numbers = targets.numbers_of(group)
        arguments: dict[str, Any] = {"group": group.group_id, **({"stays_dead": True} if stays_dead else {})}

        def make(chance: Random, at_ms: int) -> list[Fault]:
            number = chance.choice(numbers) if index < 0 else numbers[index]
            return _lasting(kind, bounds, consumer=number, **arguments)(chance, at_ms)

        return make

    return parse


def _node(kind: type[NodeCrash] | type[NodeStall], duration_key: str) -> Event:
    def parse(table: ScenarioReader, targets: EventTargets) -> Make:
        node_id = table.number("node", 0, at_least=0, at_most=targets.cluster.node_count)
        bounds = table.duration_range(duration_key)

        def make(chance: Random, at_ms: int) -> list[Fault]:
            chosen = node_id or chance.randint(1, targets.cluster.node_count)
            return _lasting(kind, bounds, node_id=chosen)(chance, at_ms)

        return make

    return parse


def _move_partition(table: ScenarioReader, targets: EventTargets) -> Make:
    partition = table.number("partition", at_most=targets.cluster.config.offsets_topic_num_partitions - 1)
    node_id = table.number("node", at_least=1, at_most=targets.cluster.node_count)
    return _at_once(Migration, partition=partition, node_id=node_id)


def _cut_off(table: ScenarioReader, targets: EventTargets) -> Make:
    group = group_of(table, targets)
    consumer_count = table.number("consumers", 1, at_least=1, at_most=group.consumer_count)
    bounds = table.duration_range("for")
    numbers, node_ids = targets.numbers_of(group), tuple(range(1, targets.cluster.node_count + 1))

    def make(chance: Random, at_ms: int) -> list[Fault]:
        chosen = tuple(sorted(chance.sample(numbers, consumer_count)))
        return _lasting(CutOff, bounds, consumers=chosen, node_ids=node_ids)(chance, at_ms)

    return make


def _slow_log(table: ScenarioReader, targets: EventTargets) -> Make:
    flush_ms = table.duration("flush")
    return _lasting(LogTrouble, table.duration_range("for"), flush_ms=flush_ms)


def _percentage(kind: type[Fault], argument: str, divisor: int = 1) -> Event:
    def parse(table: ScenarioReader, targets: EventTargets) -> Make:
        percent = table.number("percent", at_least=1, at_most=100)
        value = percent if divisor == 1 else percent / divisor
        return _lasting(kind, table.duration_range("for"), **{argument: value})

    return parse


def _grow_topic(table: ScenarioReader, targets: EventTargets) -> Make:
    topic = _topic(table, targets)
    partition_count = table.number("partitions", at_least=targets.topics[topic] + 1, at_most=100_000)
    return _at_once(TopicGrowth, topic=topic, partition_count=partition_count)


def _create_topic(table: ScenarioReader, targets: EventTargets) -> Make:
    topic = table.text("topic")
    if topic in targets.topics:
        table.fail("topic", f"there is a topic {topic!r} from the start")
    partition_count = table.number("partitions", at_least=1, at_most=100_000)
    return _at_once(TopicCreation, topic=topic, partition_count=partition_count)


def _delete_topic(table: ScenarioReader, targets: EventTargets) -> Make:
    topic = _topic(table, targets)
    is_forever = table.take("down", "") == "forever"
    bounds = (0, 0) if is_forever else table.duration_range("down")
    count = 0 if is_forever else table.number("partitions", targets.topics[topic], at_least=1, at_most=100_000)
    return _lasting(TopicDeletion, bounds, topic=topic, partition_count=count)


FAULT_EVENTS: dict[str, Event] = {
    "rolling-restart": _rolling_restart(),
    "upgrade": _rolling_restart(GroupProtocol.CONSUMER),
    "downgrade": _rolling_restart(GroupProtocol.CLASSIC),
    "crash-consumer": _consumer(ConsumerCrash, "down"),
    "stop-consumer": _consumer(ConsumerStop, "down"),
    "pause-consumer": _consumer(ConsumerPause, "for"),
    "busy-consumer": _consumer(BusyApplication, "for"),
    "crash-node": _node(NodeCrash, "down"),
    "stall-node": _node(NodeStall, "for"),
    "move-log-partition": _move_partition,
    "cut-off": _cut_off,
    "lose-messages": _percentage(LossyNetwork, "probability", 100),
    "slow-log": _slow_log,
    "failing-log": _percentage(LogTrouble, "refusal_percent"),
    "unreadable-log": _percentage(LogTrouble, "broken_read_percent"),
    "grow-topic": _grow_topic,
    "create-topic": _create_topic,
    "delete-topic": _delete_topic,
}
"""Readers of faults by ``kind``."""


SIMPLE_CONSUMER = "simple-consumer"
STREAMS_APPLICATION, SHARE_WORKERS = PROGRAMS = ("streams-application", "share-workers")
"""Events with a group of their own; a fleet may consist of these alone."""


def _transactional_producer(table: ScenarioReader, targets: EventTargets) -> Make:
    group = group_of(table, targets)
    bounds = table.duration_range("for")
    producer_ids = [next(targets.producer_ids) for _ in range(table.number("producers", 1, at_least=1, at_most=10_000))]
    pause_ms, commit_pause_ms = table.positive_duration("every", "1s"), table.duration("open", "100ms")
    percents = {key: table.number(key, 0, at_most=100) for key in ("abort_percent", "crash_percent", "zombie_percent")}
    timeout_ms = table.duration("transaction_timeout", "1m")
    arguments: dict[str, Any] = {
        "group": group.group_id,
        "pauses_ms": (pause_ms,),
        "commit_pauses_ms": (commit_pause_ms,),
        "least_timeout_ms": timeout_ms,
        "most_timeout_ms": timeout_ms,
        **percents,
    }

    def make(chance: Random, at_ms: int) -> list[Fault]:
        span: dict[str, Any] = {"start_ms": at_ms, "end_ms": at_ms + chance.randint(*bounds)}
        return [TransactionalProducer(producer_id=number, **span, **arguments) for number in producer_ids]

    return make


def _simple_consumer(table: ScenarioReader, targets: EventTargets) -> Make:
    group, topics, bounds = table.text("group"), _topics(table, targets), table.duration_range("for")
    pauses_ms = (table.positive_duration("every", "5s"),)
    lengths = (table.number("metadata_length", 0, at_most=100_000),)
    return _lasting(SimpleConsumer, bounds, group=group, topics=topics, pauses_ms=pauses_ms, metadata_lengths=lengths)


def _application(kind: type[Application], table: ScenarioReader, targets: EventTargets, **arguments: Any) -> Make:
    group, topics = table.text("group"), _topics(table, targets)
    if group in (other.group_id for other in targets.groups):
        table.fail("group", f"there are consumers with the name {group!r}")
    bounds, restart = table.duration_range("for"), table.duration_range("restart", "0ms")
    arguments |= {
        "group": group,
        "topics": topics,
        "instances": table.number("instances", 2, at_least=1, at_most=1_000),
        "restart_every_ms": table.positive_duration("every", "30s"),
        "down_ms": table.positive_duration("down", "5s"),
        "is_graceful": table.flag("graceful", True),
    }

    def make(chance: Random, at_ms: int) -> list[Fault]:
        end_ms = at_ms + chance.randint(*bounds)
        restart_ms = at_ms + chance.randint(*restart) if restart[1] else None
        return [kind(start_ms=at_ms, end_ms=end_ms, restart_from_ms=restart_ms, **arguments)]

    return make


def _streams_application(table: ScenarioReader, targets: EventTargets) -> Make:
    threads = table.number("threads", 1, at_least=1, at_most=1_000)
    restore_ms = table.duration("restore", "0ms")
    return _application(StreamsApplication, table, targets, threads=threads, restore_ms=restore_ms)


def _share_workers(table: ScenarioReader, targets: EventTargets) -> Make:
    percents = {
        f"{name}_percent": table.number(f"{name}_percent", 0, at_most=100)
        for name in ("release", "reject", "hang", "crash", "vanish")
    }
    return _application(
        ShareWorkers,
        table,
        targets,
        write_every_ms=table.positive_duration("write_every", "1s"),
        hang_ms=table.duration("hang", "1m"),
        work_ms=table.duration_range("work", "0ms"),
        renews=table.flag("renews", False),
        is_limit=table.flag("record_limit", False),
        batch_max=table.number("batch", 10, at_least=1, at_most=10_000),
        max_records=table.number("max_records", 500, at_least=1, at_most=10_000),
        **percents,
    )


def _known_group(table: ScenarioReader, targets: EventTargets) -> str:
    name = table.text("group")
    table.require_known("group", name, [*(group.group_id for group in targets.groups), *targets.simple_groups])
    return name


def _describe_group(table: ScenarioReader, targets: EventTargets) -> Make:
    group = _known_group(table, targets)
    looks, pause_ms = table.number("times", 1, at_least=1), table.positive_duration("every", "10s")
    return _at_once(Administrator, group=group, action=AdminAction.LOOK, looks=looks, look_pause_ms=pause_ms)


def _delete_group(table: ScenarioReader, targets: EventTargets) -> Make:
    return _at_once(Administrator, group=_known_group(table, targets), action=AdminAction.DELETE_GROUP)


def _delete_offsets(table: ScenarioReader, targets: EventTargets) -> Make:
    group, topic = _known_group(table, targets), _topic(table, targets)
    return _at_once(Administrator, group=group, action=AdminAction.DELETE_OFFSETS, topic=topic)


def _remove_member(table: ScenarioReader, targets: EventTargets) -> Make:
    return _at_once(Administrator, group=group_of(table, targets).group_id, action=AdminAction.REMOVE_MEMBER)


def _foreign_record(table: ScenarioReader, targets: EventTargets) -> Make:
    partition_count = targets.cluster.config.offsets_topic_num_partitions
    partition = table.number("partition", -1, at_least=-1, at_most=partition_count - 1)
    name = table.text("record", "")
    if name:
        table.require_known("record", name, FOREIGN)

    def make(chance: Random, at_ms: int) -> list[Fault]:
        chosen = chance.randrange(partition_count) if partition < 0 else partition
        kind = name or chance.choice(list(FOREIGN))
        return _at_once(ForeignRecords, partition=chosen, kind=kind)(chance, at_ms)

    return make


CLIENT_EVENTS: dict[str, Event] = {
    "transactional-producer": _transactional_producer,
    SIMPLE_CONSUMER: _simple_consumer,
    STREAMS_APPLICATION: _streams_application,
    SHARE_WORKERS: _share_workers,
    "describe-group": _describe_group,
    "delete-group": _delete_group,
    "delete-offsets": _delete_offsets,
    "remove-member": _remove_member,
    "foreign-record": _foreign_record,
}
"""Readers of other events by ``kind``."""
