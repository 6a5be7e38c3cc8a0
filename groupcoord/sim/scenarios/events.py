"""Events of scenario files: faults, other clients, and writers of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

from attrs import field, frozen

from groupcoord.sim.actors.environment import GroupOptions, GroupProtocol
from groupcoord.sim.actors.other_clients import (
    FOREIGN,
    AdminAction,
    Administrator,
    ForeignRecords,
    SimpleConsumer,
    TransactionalProducer,
)
from groupcoord.sim.actors.scripted_clients import Fault
from groupcoord.sim.actors.share_workers import ShareWorkers
from groupcoord.sim.actors.streams_applications import StreamsApplication
from groupcoord.sim.cluster.options import ClusterOptions
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
from groupcoord.sim.scenarios.table_reader import TableReader

Make = Callable[[Random, int], list[Fault]]
"""Function that returns the faults of an event from a random generator and the start time."""


@frozen
class EventTargets:
    """Targets of events.

    Attributes:
        simple_groups: groups of simple consumers, with or without other consumers.
    """

    cluster: ClusterOptions
    topics: dict[str, int]
    groups: tuple[GroupOptions, ...]
    simple_groups: tuple[str, ...] = ()
    producer_ids: Iterator[int] = field(factory=lambda: count(1))

    def numbers_of(self, group: GroupOptions) -> range:
        first = 0
        for other in self.groups:
            if other is group:
                break
            first += other.consumer_count
        return range(first, first + group.consumer_count)


def group_of(table: TableReader, targets: EventTargets) -> GroupOptions:
    """Return the group of consumers that an event names.

    Raises:
        ScenarioError: no group has this name.
    """
    groups = {group.group_id: group for group in targets.groups}
    name = table.text("group")
    table.require_known("group", name, groups)
    return groups[name]


def _rolling_restart(protocol: GroupProtocol | None = None) -> Callable[[TableReader, EventTargets], Make]:
    def parse(table: TableReader, targets: EventTargets) -> Make:
        group = group_of(table, targets)
        at_once = table.number("at_once", 1, at_least=1)
        step_ms, down_ms = table.duration("every", "30s"), table.duration("down", "5s")
        is_graceful = table.flag("graceful", True)
        numbers = targets.numbers_of(group)

        def make(chance: Random, at_ms: int) -> list[Fault]:
            return rolling_restart(
                group.group_id, numbers, at_ms, at_once, step_ms, down_ms, is_graceful=is_graceful, protocol=protocol
            )

        return make

    return parse


def _consumer(
    table: TableReader, targets: EventTargets, kind: type[ConsumerFault], duration_key: str, **extra: bool
) -> Make:
    group = group_of(table, targets)
    index = table.number("consumer", -1, at_least=-1, at_most=group.consumer_count - 1)
    bounds = (0, 0) if extra.get("stays_dead") else table.duration_range(duration_key)
    numbers = targets.numbers_of(group)

    def make(chance: Random, at_ms: int) -> list[Fault]:
        number = chance.choice(numbers) if index < 0 else numbers[index]
        end_ms = at_ms + chance.randint(*bounds)
        return [kind(start_ms=at_ms, end_ms=end_ms, consumer=number, group=group.group_id, **extra)]

    return make


def _crash_consumer(table: TableReader, targets: EventTargets) -> Make:
    is_forever = table.take("down", "") == "forever"
    if is_forever:
        return _consumer(table, targets, ConsumerCrash, "down", stays_dead=True)
    return _consumer(table, targets, ConsumerCrash, "down")


def _stop_consumer(table: TableReader, targets: EventTargets) -> Make:
    return _consumer(table, targets, ConsumerStop, "down")


def _pause_consumer(table: TableReader, targets: EventTargets) -> Make:
    return _consumer(table, targets, ConsumerPause, "for")


def _busy_consumer(table: TableReader, targets: EventTargets) -> Make:
    return _consumer(table, targets, BusyApplication, "for")


def _node(kind: type[NodeCrash] | type[NodeStall], duration_key: str) -> Callable[[TableReader, EventTargets], Make]:
    def parse(table: TableReader, targets: EventTargets) -> Make:
        node_id = table.number("node", 0, at_least=0, at_most=targets.cluster.node_count)
        bounds = table.duration_range(duration_key)

        def make(chance: Random, at_ms: int) -> list[Fault]:
            chosen = node_id or chance.randint(1, targets.cluster.node_count)
            return [kind(start_ms=at_ms, end_ms=at_ms + chance.randint(*bounds), node_id=chosen)]

        return make

    return parse


def _move_partition(table: TableReader, targets: EventTargets) -> Make:
    partition = table.number("partition", at_most=targets.cluster.config.offsets_topic_num_partitions - 1)
    node_id = table.number("node", at_least=1, at_most=targets.cluster.node_count)
    return lambda chance, at_ms: [Migration(start_ms=at_ms, end_ms=at_ms, partition=partition, node_id=node_id)]


def _cut_off(table: TableReader, targets: EventTargets) -> Make:
    group = group_of(table, targets)
    consumer_count = table.number("consumers", 1, at_least=1, at_most=group.consumer_count)
    bounds = table.duration_range("for")
    numbers, node_ids = targets.numbers_of(group), tuple(range(1, targets.cluster.node_count + 1))

    def make(chance: Random, at_ms: int) -> list[Fault]:
        chosen = tuple(sorted(chance.sample(numbers, consumer_count)))
        end_ms = at_ms + chance.randint(*bounds)
        return [CutOff(start_ms=at_ms, end_ms=end_ms, consumers=chosen, node_ids=node_ids)]

    return make


def _lose_messages(table: TableReader, targets: EventTargets) -> Make:
    percent, bounds = table.number("percent", at_least=1, at_most=100), table.duration_range("for")

    def make(chance: Random, at_ms: int) -> list[Fault]:
        return [LossyNetwork(start_ms=at_ms, end_ms=at_ms + chance.randint(*bounds), probability=percent / 100)]

    return make


def _slow_log(table: TableReader, targets: EventTargets) -> Make:
    flush_ms, bounds = table.duration("flush"), table.duration_range("for")

    def make(chance: Random, at_ms: int) -> list[Fault]:
        return [LogTrouble(start_ms=at_ms, end_ms=at_ms + chance.randint(*bounds), flush_ms=flush_ms)]

    return make


def _failing_log(table: TableReader, targets: EventTargets) -> Make:
    percent, bounds = table.number("percent", at_least=1, at_most=100), table.duration_range("for")

    def make(chance: Random, at_ms: int) -> list[Fault]:
        return [LogTrouble(start_ms=at_ms, end_ms=at_ms + chance.randint(*bounds), refusal_percent=percent)]

    return make


def _unreadable_log(table: TableReader, targets: EventTargets) -> Make:
    percent, bounds = table.number("percent", at_least=1, at_most=100), table.duration_range("for")

    def make(chance: Random, at_ms: int) -> list[Fault]:
        return [LogTrouble(start_ms=at_ms, end_ms=at_ms + chance.randint(*bounds), broken_read_percent=percent)]

    return make


def _grow_topic(table: TableReader, targets: EventTargets) -> Make:
    topic = table.text("topic")
    table.require_known("topic", topic, targets.topics)
    partition_count = table.number("partitions", at_least=targets.topics[topic] + 1, at_most=100_000)
    return lambda chance, at_ms: [
        TopicGrowth(start_ms=at_ms, end_ms=at_ms, topic=topic, partition_count=partition_count)
    ]


def _create_topic(table: TableReader, targets: EventTargets) -> Make:
    topic = table.text("topic")
    if topic in targets.topics:
        table.fail("topic", f"there is a topic {topic!r} from the start")
    partition_count = table.number("partitions", at_least=1, at_most=100_000)
    return lambda chance, at_ms: [
        TopicCreation(start_ms=at_ms, end_ms=at_ms, topic=topic, partition_count=partition_count)
    ]


def _delete_topic(table: TableReader, targets: EventTargets) -> Make:
    topic = table.text("topic")
    table.require_known("topic", topic, targets.topics)
    is_forever = table.take("down", "") == "forever"
    bounds = (0, 0) if is_forever else table.duration_range("down")
    count = 0 if is_forever else table.number("partitions", targets.topics[topic], at_least=1, at_most=100_000)

    def make(chance: Random, at_ms: int) -> list[Fault]:
        end_ms = at_ms + chance.randint(*bounds)
        return [TopicDeletion(start_ms=at_ms, end_ms=end_ms, topic=topic, partition_count=count)]

    return make


FAULT_EVENTS: dict[str, Callable[[TableReader, EventTargets], Make]] = {
    "rolling-restart": _rolling_restart(),
    "upgrade": _rolling_restart(GroupProtocol.CONSUMER),
    "downgrade": _rolling_restart(GroupProtocol.CLASSIC),
    "crash-consumer": _crash_consumer,
    "stop-consumer": _stop_consumer,
    "pause-consumer": _pause_consumer,
    "busy-consumer": _busy_consumer,
    "crash-node": _node(NodeCrash, "down"),
    "stall-node": _node(NodeStall, "for"),
    "move-log-partition": _move_partition,
    "cut-off": _cut_off,
    "lose-messages": _lose_messages,
    "slow-log": _slow_log,
    "failing-log": _failing_log,
    "unreadable-log": _unreadable_log,
    "grow-topic": _grow_topic,
    "create-topic": _create_topic,
    "delete-topic": _delete_topic,
}
"""Readers of events by name."""


SIMPLE_CONSUMER = "simple-consumer"
STREAMS_APPLICATION, SHARE_WORKERS = PROGRAMS = ("streams-application", "share-workers")
"""Events with a group of their own; a fleet may consist of these alone."""


def _transactional_producer(table: TableReader, targets: EventTargets) -> Make:
    group = group_of(table, targets)
    bounds = table.duration_range("for")
    producer_ids = [next(targets.producer_ids) for _ in range(table.number("producers", 1, at_least=1, at_most=10_000))]
    pause_ms, commit_pause_ms = table.positive_duration("every", "1s"), table.duration("open", "100ms")
    abort_percent, crash_percent, zombie_percent = (
        table.number(key, 0, at_most=100) for key in ("abort_percent", "crash_percent", "zombie_percent")
    )
    timeout_ms = table.duration("transaction_timeout", "1m")

    def make(chance: Random, at_ms: int) -> list[Fault]:
        end_ms = at_ms + chance.randint(*bounds)
        return [
            TransactionalProducer(
                start_ms=at_ms,
                end_ms=end_ms,
                producer_id=producer_id,
                group=group.group_id,
                pauses_ms=(pause_ms,),
                commit_pauses_ms=(commit_pause_ms,),
                abort_percent=abort_percent,
                crash_percent=crash_percent,
                least_timeout_ms=timeout_ms,
                most_timeout_ms=timeout_ms,
                zombie_percent=zombie_percent,
            )
            for producer_id in producer_ids
        ]

    return make


def _simple_consumer(table: TableReader, targets: EventTargets) -> Make:
    group, topics, bounds = table.text("group"), table.names("topics"), table.duration_range("for")
    for topic in topics:
        table.require_known("topics", topic, targets.topics)
    pause_ms, metadata_length = (
        table.positive_duration("every", "5s"),
        table.number("metadata_length", 0, at_most=100_000),
    )

    def make(chance: Random, at_ms: int) -> list[Fault]:
        return [
            SimpleConsumer(
                start_ms=at_ms,
                end_ms=at_ms + chance.randint(*bounds),
                group=group,
                topics=topics,
                pauses_ms=(pause_ms,),
                metadata_lengths=(metadata_length,),
            )
        ]

    return make


def _application(table: TableReader, targets: EventTargets) -> Callable[[Random, int], dict[str, Any]]:
    """Read the common keys of programs with instances; return a function that draws the arguments of one."""
    group, topics = table.text("group"), table.names("topics")
    for topic in topics:
        table.require_known("topics", topic, targets.topics)
    if group in (other.group_id for other in targets.groups):
        table.fail("group", f"there are consumers with the name {group!r}")
    bounds, restart = table.duration_range("for"), table.duration_range("restart", "0ms")
    arguments: dict[str, Any] = {
        "group": group,
        "topics": topics,
        "instances": table.number("instances", 2, at_least=1, at_most=1_000),
        "restart_every_ms": table.positive_duration("every", "30s"),
        "down_ms": table.positive_duration("down", "5s"),
        "is_graceful": table.flag("graceful", True),
    }

    def draw(chance: Random, at_ms: int) -> dict[str, Any]:
        end_ms = at_ms + chance.randint(*bounds)
        restart_ms = at_ms + chance.randint(*restart) if restart[1] else None
        return {"start_ms": at_ms, "end_ms": end_ms, "restart_from_ms": restart_ms, **arguments}

    return draw


def _streams_application(table: TableReader, targets: EventTargets) -> Make:
    draw = _application(table, targets)
    threads = table.number("threads", 1, at_least=1, at_most=1_000)
    restore_ms = table.duration("restore", "0ms")
    return lambda chance, at_ms: [
        StreamsApplication(**draw(chance, at_ms), threads=threads, restore_ms=restore_ms),
    ]


def _share_workers(table: TableReader, targets: EventTargets) -> Make:
    draw = _application(table, targets)
    percents: dict[str, Any] = {
        f"{name}_percent": table.number(f"{name}_percent", 0, at_most=100)
        for name in ("release", "reject", "hang", "crash", "vanish")
    }
    write_every_ms, hang_ms = table.positive_duration("write_every", "1s"), table.duration("hang", "1m")
    work_ms, renews, is_limit = (
        table.duration_range("work", "0ms"),
        table.flag("renews", False),
        table.flag("record_limit", False),
    )
    batch_max, max_records = (
        table.number(key, usual, at_least=1, at_most=10_000) for key, usual in (("batch", 10), ("max_records", 500))
    )
    return lambda chance, at_ms: [
        ShareWorkers(
            **draw(chance, at_ms),
            **percents,
            write_every_ms=write_every_ms,
            batch_max=batch_max,
            max_records=max_records,
            is_limit=is_limit,
            work_ms=work_ms,
            hang_ms=hang_ms,
            renews=renews,
        )
    ]


def _known_group(table: TableReader, targets: EventTargets) -> str:
    name = table.text("group")
    table.require_known("group", name, [*(group.group_id for group in targets.groups), *targets.simple_groups])
    return name


def _describe_group(table: TableReader, targets: EventTargets) -> Make:
    group = _known_group(table, targets)
    looks, pause_ms = table.number("times", 1, at_least=1), table.positive_duration("every", "10s")
    action = AdminAction.LOOK
    return lambda chance, at_ms: [
        Administrator(start_ms=at_ms, end_ms=at_ms, group=group, action=action, looks=looks, look_pause_ms=pause_ms)
    ]


def _delete_group(table: TableReader, targets: EventTargets) -> Make:
    group, action = _known_group(table, targets), AdminAction.DELETE_GROUP
    return lambda chance, at_ms: [Administrator(start_ms=at_ms, end_ms=at_ms, group=group, action=action)]


def _delete_offsets(table: TableReader, targets: EventTargets) -> Make:
    group, topic = _known_group(table, targets), table.text("topic")
    table.require_known("topic", topic, targets.topics)
    action = AdminAction.DELETE_OFFSETS
    return lambda chance, at_ms: [Administrator(start_ms=at_ms, end_ms=at_ms, group=group, action=action, topic=topic)]


def _remove_member(table: TableReader, targets: EventTargets) -> Make:
    group, action = group_of(table, targets).group_id, AdminAction.REMOVE_MEMBER
    return lambda chance, at_ms: [Administrator(start_ms=at_ms, end_ms=at_ms, group=group, action=action)]


def _foreign_record(table: TableReader, targets: EventTargets) -> Make:
    partition_count = targets.cluster.config.offsets_topic_num_partitions
    partition = table.number("partition", -1, at_least=-1, at_most=partition_count - 1)
    name = table.text("record", "")
    if name:
        table.require_known("record", name, FOREIGN)

    def make(chance: Random, at_ms: int) -> list[Fault]:
        chosen = chance.randrange(partition_count) if partition < 0 else partition
        kind = name or chance.choice(list(FOREIGN))
        return [ForeignRecords(start_ms=at_ms, end_ms=at_ms, partition=chosen, kind=kind)]

    return make


CLIENT_EVENTS: dict[str, Callable[[TableReader, EventTargets], Make]] = {
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
"""Readers of events by name."""
