"""What a test asks of a share group, and does to its locks: ``server.share("jobs").acquired()``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from groupcoord.broker.broker import Broker
from groupcoord.broker.share.leading import LedPartition
from groupcoord.core.share_state.records import DeliveryState


class AcquiredRange(NamedTuple):
    """Records that a member of a share group has to itself.

    Attributes:
        topic, partition: where they are.
        first, last: from which offset to which.
        member_id: whose they are.
        delivery_count: how often they were given out.
        locked_until_ms: until when they are the member's, by the server's clock.
    """

    topic: str
    partition: int
    first: int
    last: int
    member_id: str
    delivery_count: int
    locked_until_ms: int


class SharedRecords(NamedTuple):
    """How far a share group is with a partition that its members read.

    Attributes:
        topic, partition: which one.
        start_offset: all before it is finished.
        acquired, available, finished: how many records at and behind it somebody has, are free again, and are done.
    """

    topic: str
    partition: int
    start_offset: int
    acquired: int
    available: int
    finished: int


def acquired(brokers: list[Broker], group_id: str) -> tuple[AcquiredRange, ...]:
    """Return what members of a group have, by topic and offset; what one has in one go is one entry."""
    ranges: list[AcquiredRange] = []
    for led in _led(brokers, group_id):
        for run in () if led.records is None else led.records.runs():
            state = run.state
            if state.state is not DeliveryState.ACQUIRED:
                continue
            found = AcquiredRange(
                *(led.topic.name, led.key.partition, run.first, run.last),
                *(state.member_id, state.count, state.locked_until_ms),
            )
            last = ranges[-1] if ranges else None
            if last is not None and last == found._replace(first=last.first, last=found.first - 1):
                ranges[-1] = last._replace(last=found.last)
            else:
                ranges.append(found)
    return tuple(ranges)


def progress(brokers: list[Broker], group_id: str) -> tuple[SharedRecords, ...]:
    """Return how far a group is with the partitions that its members read."""
    told = []
    for led in _led(brokers, group_id):
        records = led.records
        if records is None:
            continue
        counts = dict.fromkeys(DeliveryState, 0)
        for run in records.runs():
            counts[run.state.state] += run.size
        told.append(
            SharedRecords(
                *(led.topic.name, led.key.partition, records.start_offset),
                counts[DeliveryState.ACQUIRED],
                counts[DeliveryState.AVAILABLE],
                records.delivery_complete_count(),
            )
        )
    return tuple(told)


def release(brokers: list[Broker], group_id: str, member_id: str | None) -> int:
    """Let go of what a member has, or all; return how many records that were."""
    held = [entry for entry in acquired(brokers, group_id) if member_id in (None, entry.member_id)]
    for broker in brokers:
        partitions = broker.share_requests.partitions
        for led in partitions.all():
            if led.key.group_id == group_id:
                for holder in dict.fromkeys(entry.member_id for entry in held):
                    partitions.release(led, holder)
    return sum(entry.last - entry.first + 1 for entry in held)


def expire_locks(brokers: list[Broker], group_id: str) -> int:
    """Let all locks of a group be over; return how many records that were."""
    held = acquired(brokers, group_id)
    latest_ms = max((entry.locked_until_ms for entry in held), default=0)
    for broker in brokers:
        partitions = broker.share_requests.partitions
        for led in partitions.all():
            if led.key.group_id == group_id:
                partitions.expire_locks(led, broker.clock.now_ms(), latest_ms)
    return sum(entry.last - entry.first + 1 for entry in held)


def _led(brokers: list[Broker], group_id: str) -> Iterator[LedPartition]:
    led = [each for broker in brokers for each in broker.share_requests.partitions.all()]
    yield from sorted(
        (each for each in led if each.key.group_id == group_id), key=lambda each: (each.topic.name, each.key.partition)
    )
