"""What a test may wait for, and for how long: the same for threads and for event loops."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal, Protocol, TypeVar

from attrs import frozen

from groupcoord.broker.broker import Broker
from groupcoord.testing.asserting.fetch_log import Place
from groupcoord.testing.asserting.groups import (
    GroupDescription,
    assigned_partitions,
    describe_groups,
    look_whether_stable,
)
from groupcoord.testing.asserting.observed_broker import ObservedBroker
from groupcoord.testing.asserting.summaries import some
from groupcoord.testing.asserting.words import counted

__tracebackhide__ = True

WAIT_S = 10.0
"""How long a test waits, unless it says otherwise."""

LOOK_AGAIN_S = 0.005

T_co = TypeVar("T_co", covariant=True)


class Wanted(Protocol[T_co]):
    """Something that shall come to be."""

    def look(self, broker: Broker) -> tuple[T_co | None, str | None]:
        """Return what was waited for; or None, and how things stand, in words. Called in the server's thread."""

    def __str__(self) -> str:
        """Return what isn't the case as long as it is waited for."""


@frozen
class Stability:
    """A group is stable, with as many members as wanted; None: with any."""

    group_id: str
    members: int | None

    def look(self, broker: Broker) -> tuple[GroupDescription | None, str | None]:
        """See :class:`Wanted`."""
        return look_whether_stable(broker, self.group_id, self.members)

    def __str__(self) -> str:
        count = "" if self.members is None else f" with {counted(self.members, 'member')}"
        return f"group {self.group_id!r} is not stable{count}"


@frozen
class Reading:
    """Each member of a group has fetched from each partition that it owns."""

    group_id: str
    members: int | None

    def look(self, broker: Broker) -> tuple[GroupDescription | None, str | None]:
        assert isinstance(broker, ObservedBroker)
        group, reason = look_whether_stable(broker, self.group_id, self.members)
        if group is None:
            return None, reason
        waiting = list(self._waiting(broker, group))
        return (None, "; ".join(waiting)) if waiting else (group, None)

    def _waiting(self, broker: ObservedBroker, group: GroupDescription) -> Iterator[str]:
        """Yield who has not fetched from what, and which topics no member is assigned yet."""
        namesakes = Counter(
            (member.client_id, *place)
            for other in describe_groups(broker)
            if other.group_id != group.group_id and other.type != "share"
            for member in other.members
            for place in assigned_partitions(broker, other, member)
        )
        assignments = {member: assigned_partitions(broker, group, member) for member in group.members}
        assigned = {topic for places in assignments.values() for topic, _ in places}
        # Clients join before they know how many partitions a topic has: their first assignment is empty.
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

    def __str__(self) -> str:
        count = "" if self.members is None else f" with {counted(self.members, 'member')}"
        return f"group {self.group_id!r} is not reading{count}"


@frozen
class Condition:
    """A condition of the test's own holds."""

    holds: Callable[[], object]

    def look(self, broker: Broker) -> tuple[Literal[True] | None, str | None]:
        """See :class:`Wanted`."""
        if self.holds():
            return True, None
        return None, "; ".join(map(str, describe_groups(broker))) or "there are no groups"

    def __str__(self) -> str:
        return "the condition does not hold"


def refuse_to_block(word: str, awaited: str) -> None:
    """Raise RuntimeError if an event loop runs in this thread: a blocking wait would stop it and its clients."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{word}() would block the event loop that runs here: await {awaited}(...)")


class Attempts:
    """Counts how long something was waited for, in real time."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s

    def count(self, wanted: Wanted[object], reason: str | None) -> None:
        """Note an attempt in vain.

        Raises:
            TimeoutError: it was the last one.
        """
        if time.monotonic() >= self._deadline_s:
            waited = f" after {self._timeout_s:g} s" if self._timeout_s else ""
            space = "" if f"{reason}".startswith("\n") else " "
            raise TimeoutError(f"{wanted}{waited}:{space}{reason}")
