"""Clients besides the groups' consumers, and other writers of the log, that a scenario file may name: as events too."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from groupcoord.sim.actors.administrators import AdminAction, Administrator
from groupcoord.sim.actors.fault import Fault
from groupcoord.sim.actors.foreign_records import FOREIGN, ForeignRecords
from groupcoord.sim.actors.producers import TransactionalProducer
from groupcoord.sim.actors.share_workers import ShareWorkers
from groupcoord.sim.actors.simple_consumers import SimpleConsumer
from groupcoord.sim.actors.streams_applications import StreamsApplication
from groupcoord.sim.scenarios.fault_events import EventTargets, Make, group_of
from groupcoord.sim.scenarios.table_reader import TableReader

SIMPLE_CONSUMER = "simple-consumer"
STREAMS_APPLICATION, SHARE_WORKERS = PROGRAMS = ("streams-application", "share-workers")
"""What comes as a group of its own: a fleet may be nothing else."""


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
    """Read the keys that programs with instances have in common; return what draws the arguments of one."""
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
"""The kinds of events by name."""
