"""Conditions that tests wait for or assert: a stable or reading group, committed offsets, owners, records."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from attrs import evolve, frozen

from groupcoord.analysis.report.text import counted
from groupcoord.broker.broker import Broker
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.testing.asserting.groups import (
    GroupDescription,
    MemberDescription,
    Unmet,
    assigned_partitions,
    committed_offsets,
    describe_group,
    describe_groups,
    look_whether_stable,
    no_such_group,
)
from groupcoord.testing.asserting.records import (
    ConsumerRecord,
    IsolationLevel,
    ProducerRecord,
    read_records,
)
from groupcoord.testing.asserting.report import some, story_of
from groupcoord.testing.asserting.requests import ObservedBroker
from groupcoord.testing.faults.error_answers import Place

__tracebackhide__ = True

WAIT_S = 10.0
LOOK_AGAIN_S = 0.005

T = TypeVar("T")


class Wanted(ABC, Generic[T]):
    """Awaited condition. ``str`` returns what does not hold; all methods run in the server's thread."""

    @abstractmethod
    def look(self, broker: Broker) -> T | Unmet:
        """Return the result, or the present state if the condition does not hold."""

    def failure(self, broker: Broker, message: str) -> Exception:
        return TimeoutError(message)


@frozen
class Stable(Wanted[GroupDescription]):
    """A group is Stable with the wanted number of members; None for at least one."""

    group_id: str
    members: int | None

    def look(self, broker: Broker) -> GroupDescription | Unmet:
        return look_whether_stable(broker, self.group_id, self.members)

    def __str__(self) -> str:
        count = "" if self.members is None else f" with {counted(self.members, 'member')}"
        return f"group {self.group_id!r} is not {type(self).__name__.lower()}{count}"


class Reading(Stable):
    """Each member of a group has fetched from each partition that it owns."""

    def look(self, broker: Broker) -> GroupDescription | Unmet:
        assert isinstance(broker, ObservedBroker)
        group = super().look(broker)
        waiting = [] if isinstance(group, Unmet) else list(self._waiting(broker, group))
        return Unmet("; ".join(waiting)) if waiting else group

    def _waiting(self, broker: ObservedBroker, group: GroupDescription) -> Iterator[str]:
        namesakes = Counter(
            (member.client_id, *place)
            for other in describe_groups(broker)
            if other.group_id != group.group_id and other.type != "share"
            for member in other.members
            for place in assigned_partitions(broker, other, member)
        )
        assignments = {member: assigned_partitions(broker, group, member) for member in group.members}
        assigned = {topic for places in assignments.values() for topic, _ in places}
        # Clients may join before they know the partitions of a topic; the first assignment is then empty.
        subscribed = sorted({topic for member in group.members for topic in member.topics} - assigned)
        unassigned = [topic for topic in subscribed if broker.topics.get(topic) is not None]
        if unassigned or not assigned:
            yield f"{group.group_id}: no member has a partition of {some(unassigned, 'any topic')}"
        for member, partitions in assignments.items():
            missing = []
            for topic, index in partitions:
                known = broker.topics.get(topic)
                places: tuple[Place, ...] = ((topic, index), *(() if known is None else ((known.topic_id, index),)))
                readers = broker.request_log.fetches.readers(group.group_id, member, places)
                others = 0 if group.type == "share" else namesakes[member.client_id, topic, index]
                if readers <= others:
                    missing.append(f"{topic}-{index}")
            if missing:
                yield f"{member.member_id} (client {member.client_id!r}) has not fetched from {some(missing)}"


@frozen
class Condition(Wanted[None]):
    """A condition of the test holds."""

    holds: Callable[[], object]

    def look(self, broker: Broker) -> Unmet | None:
        return None if self.holds() else Unmet("; ".join(map(str, describe_groups(broker))) or "no groups exist")

    def __str__(self) -> str:
        return "the condition does not hold"


def refuse_to_block(word: str, awaited: str) -> None:
    """Raise RuntimeError if an event loop runs in this thread, which a blocking wait would stop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{word}() would block the event loop that runs here: await {awaited}(...)")


class Attempts:
    """Deadline of a wait, in real time."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s

    def end(self, wanted: Wanted[Any], state: Unmet) -> Callable[[Broker], Exception] | None:
        if time.monotonic() < self._deadline_s:
            return None
        waited = f" after {self._timeout_s:g} s" if self._timeout_s else ""
        space = "" if state.startswith("\n") else " "
        return partial(wanted.failure, message=f"{wanted}{waited}:{space}{state}")


LINES_MAX = 20

Partitions = Iterable[tuple[str, int]]
Owners = Mapping[str, Partitions] | Partitions
"""Expected owners: partitions by member id, instance id or client id; or partitions with any owner."""


def _is_partition(place: object) -> bool:
    return isinstance(place, tuple) and len(place) == 2 and isinstance(place[0], str) and isinstance(place[1], int)


def checked_offsets(offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
    if not isinstance(offsets, Mapping):
        raise TypeError(f'offsets are a mapping such as {{("orders", 0): 42}}, not {offsets!r}')
    for place, offset in offsets.items():
        if not _is_partition(place):
            example = f"{{({place!r}, 0): {offset!r}}}" if isinstance(place, str) else '{("orders", 0): 42}'
            raise TypeError(f"offsets are given by topic and partition: {example}, not {{{place!r}: {offset!r}}}")
        if not isinstance(offset, int):
            raise TypeError(f"the offset of {place[0]}-{place[1]} must be an integer, not {offset!r}")
    return dict(offsets)


def checked_owners(owners: Owners) -> Owners:
    if isinstance(owners, Mapping):
        return {name: _checked_partitions(partitions) for name, partitions in owners.items()}
    return _checked_partitions(owners)


def _checked_partitions(partitions: Partitions) -> Partitions:
    listed = tuple(partitions)
    wrong = next((place for place in listed if not _is_partition(place)), None)
    if isinstance(partitions, str) or wrong is not None or _is_partition(partitions):
        topic = partitions if isinstance(partitions, str) else wrong if isinstance(wrong, str) else "orders"
        raise TypeError(f"partitions are a list of topics and numbers: [({topic!r}, 0)], not {partitions!r}")
    return listed


def differing(lines: Sequence[str]) -> Unmet | None:
    more = [f"… and {len(lines) - LINES_MAX} more differences"] if len(lines) > LINES_MAX else []
    return Unmet("\n  ".join(["", *lines[:LINES_MAX], *more])) if lines else None


@frozen
class Expected(Wanted[None]):
    """Assertion about a group."""

    group_id: str

    def failure(self, broker: Broker, message: str) -> AssertionError:
        assert isinstance(broker, ObservedBroker)
        story = story_of(broker, broker.request_log.requests(), self.group_id)
        return AssertionError("\n  ".join([f"{message}\nwhat the group did:", *story]))


@frozen
class Committed(Expected):
    """A group has committed exactly these offsets."""

    offsets: Mapping[tuple[str, int], int]

    def look(self, broker: Broker) -> Unmet | None:
        found = {(one.topic, one.partition): one.offset for one in committed_offsets(broker, self.group_id)}
        places = sorted({*found, *self.offsets})
        return differing(
            [
                f"{topic}-{index}: {_or_nothing(found, (topic, index))} committed, "
                f"{_or_nothing(self.offsets, (topic, index))} expected"
                for topic, index in places
                if found.get((topic, index)) != self.offsets.get((topic, index))
            ]
        )

    def __str__(self) -> str:
        return f"group {self.group_id!r} committed other offsets than expected"


def _or_nothing(offsets: Mapping[tuple[str, int], int], place: tuple[str, int]) -> str:
    return str(offsets.get(place, "nothing"))


@frozen
class Owned(Expected):
    """The partitions of a group have the expected owners."""

    owners: Owners

    def look(self, broker: Broker) -> Unmet | None:
        group = describe_group(broker, self.group_id)
        if group is None:
            return Unmet(no_such_group(broker, self.group_id))
        return differing(
            self._of_members(group) if isinstance(self.owners, Mapping) else self._of_all(group, self.owners)
        )

    def _of_members(self, group: GroupDescription) -> list[str]:
        assert isinstance(self.owners, Mapping)
        lines: list[str] = []
        met: set[str] = set()
        for name, partitions in self.owners.items():
            members = [member for member in group.members if name in _names(member)]
            met.update(member.member_id for member in members)
            wanted = sorted(TopicPartition(*place) for place in partitions)
            owned = sorted(place for member in members for place in member.assignment)
            if not members:
                lines.append(f"{name}: is no member, {_listed(wanted)} expected")
            elif owned != wanted:
                lines.append(f"{name}: owns {_listed(owned)}, {_listed(wanted)} expected")
        others = [member for member in group.members if member.member_id not in met and member.assignment]
        return lines + [f"{member.member_id}: owns {_listed(member.assignment)}, nothing expected" for member in others]

    def _of_all(self, group: GroupDescription, partitions: Partitions) -> list[str]:
        owners: dict[TopicPartition, list[str]] = {TopicPartition(*place): [] for place in partitions}
        wanted = set(owners)
        for member in group.members:
            for place in member.assignment:
                owners.setdefault(place, []).append(member.member_id)
        return [
            f"{topic}-{index}: owned by {some(owners[place], 'nobody')}, {expected} expected"
            for place in sorted(owners)
            for topic, index in [place]
            for expected in ["one member" if place in wanted else "nobody"]
            if len(owners[place]) != (place in wanted)
        ]

    def __str__(self) -> str:
        return f"the partitions of group {self.group_id!r} are not owned as expected"


def _names(member: MemberDescription) -> Collection[str | None]:
    return member.member_id, member.instance_id, member.client_id


def _listed(partitions: Iterable[tuple[str, int]]) -> str:
    return some((f"{topic}-{index}" for topic, index in partitions), "nothing")


@frozen
class Produced(Wanted[None]):
    """A topic holds exactly these records, in this order if all are in one partition."""

    topic: str
    records: Sequence[ProducerRecord]
    partition: int | None
    isolation_level: IsolationLevel

    def look(self, broker: Broker) -> Unmet | None:
        found = read_records(broker, self.topic, self.partition, isolation_level=self.isolation_level)
        wanted = [evolve(record, timestamp_ms=None) for record in self.records]
        return differing(self._of_each(found, wanted) or self._of_order(found, wanted))

    def failure(self, broker: Broker, message: str) -> AssertionError:
        return AssertionError(message)

    def _of_each(self, found: Sequence[ConsumerRecord], wanted: Sequence[ProducerRecord]) -> list[str]:
        places: dict[ProducerRecord, list[str]] = {}
        counts = Counter(wanted)
        for record in found:
            as_wanted = next((one for one in counts if counts[one] > 0 and _is_like(record, one)), None)
            if as_wanted is None:
                bare = ProducerRecord(record.value, record.key, record.headers)
                places.setdefault(bare, []).append(f"{record.topic}-{record.partition} at {record.offset}")
            else:
                counts[as_wanted] -= 1
        missing = [f"missing: {_described(record)}{_times(count)}" for record, count in counts.items() if count > 0]
        return missing + [f"not expected: {_described(bare)} ({some(where)})" for bare, where in places.items()]

    def _of_order(self, found: Sequence[ConsumerRecord], wanted: Sequence[ProducerRecord]) -> list[str]:
        if len({record.partition for record in found}) > 1:
            return []
        return [
            f"{has.topic}-{has.partition} at {has.offset}: {_described(has)}, {_described(wants)} expected"
            for has, wants in zip(found, wanted, strict=True)
            if not _is_like(has, wants)
        ]

    def __str__(self) -> str:
        return f"topic {self.topic!r} holds other records than expected"


def _is_like(record: ConsumerRecord, wanted: ProducerRecord) -> bool:
    return (
        record.value == wanted.value
        and wanted.key in (None, record.key)
        and wanted.headers in ((), record.headers)
        and wanted.partition in (None, record.partition)
    )


def _described(record: ProducerRecord | ConsumerRecord) -> str:
    key = "" if record.key is None else f"{record.key!r}: "
    return f"{key}{record.value!r}"


def _times(count: int) -> str:
    return "" if count == 1 else f", {count} times"
