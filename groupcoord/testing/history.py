"""A Hypothesis strategy for whole histories: what clients and a coordinator said to each other, and the log it left.

For tests of what reads such traffic or such logs, or answers it: analysers, proxies, other coordinators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from groupcoord.clock import ManualClock
from groupcoord.config import Config
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.messages import Request, Response
from groupcoord.core.replies import Reply
from groupcoord.log_store import LogRecord, MemoryLogStore
from groupcoord.testing.fleet import Consumer, Fleet

__all__ = ["Exchange", "History", "histories"]

START_MS = 1_700_000_000_000
STEPS_MAX = 20
CONSUMERS_MAX = 6


class Exchange(NamedTuple):
    """A request and its answer.

    Attributes:
        sent_ms: when it was sent, in milliseconds since the Unix epoch.
        request: what was asked.
        answered_ms: when it was answered; None if it never was.
        response: the answer; None if there was none.
    """

    sent_ms: int
    request: Request
    answered_ms: int | None
    response: Response | None


@frozen
class History:
    """What happened between clients and a coordinator.

    Attributes:
        exchanges: every request in the order in which they were sent.
        logs: log partition → its records in order, of the partitions that have any.
    """

    exchanges: tuple[Exchange, ...]
    logs: dict[int, tuple[LogRecord, ...]]


@st.composite
def histories(
    draw: st.DrawFn,
    *,
    group_ids: Collection[str] = ("alpha", "beta"),
    static_members: bool = True,
    deaths: bool = True,
    max_consumers: int = CONSUMERS_MAX,
    max_steps: int = STEPS_MAX,
) -> History:
    """Return histories of consumer groups: consumers come, share the topic ``orders``, commit, leave and die.

    All of it is true to the protocol and to time: it was played by a coordinator on a virtual clock. The first
    history is the empty one.

    Args:
        group_ids: the groups to choose from.
        static_members: let some consumers have instance ids (KIP-345).
        deaths: let some fall silent, so that their sessions expire.
        max_consumers: how many consumers come at most.
        max_steps: how many things happen at most; several requests can belong to one.

    Raises:
        InvalidArgument: there are no groups, or a number is negative.
    """
    if isinstance(group_ids, str) or not group_ids:
        raise InvalidArgument(f"group_ids={group_ids!r} must be a collection of at least one id")
    for name, value in (("max_consumers", max_consumers), ("max_steps", max_steps)):
        if not isinstance(value, int) or value < 0:
            raise InvalidArgument(f"{name}={value!r} must be a whole number, and not negative")
    stage = _Stage()
    kinds = ["come", "go on", "go on", "go on", "leave"] + ["die"] * deaths
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=max_steps)):
        living = [consumer for consumer in stage.fleet.consumers if consumer.is_alive and not consumer.is_waiting]
        if kind == "come" and len(stage.fleet.consumers) < max_consumers:
            free = [None, *(f"i{number}" for number in range(max_consumers) if static_members)]
            taken = {consumer.instance_id for consumer in stage.fleet.consumers}
            instance_id = draw(st.sampled_from([name for name in free if name is None or name not in taken]))
            name = f"c{len(stage.fleet.consumers)}"
            stage.fleet.consumers.append(Consumer(name, draw(st.sampled_from(sorted(group_ids))), instance_id))
        elif kind == "go on":
            stage.go_on(draw(st.integers(1, 5)), draw(st.sampled_from([0, 1_000, 3_000])), draw(st.booleans()))
        elif kind == "leave" and living:
            stage.leave(draw(st.sampled_from(living)))
        elif kind == "die" and living:
            draw(st.sampled_from(living)).is_alive = False
    return stage.history()


class _Stage:
    """A coordinator in memory, and a note of everything that is said to it."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.store = MemoryLogStore()
        self._ids: Counter[str] = Counter()
        self.coordinator = GroupCoordinator(
            config=Config(offsets_topic_num_partitions=2),
            clock=self.clock,
            log_store=self.store,
            new_member_id=self._new_member_id,
        )
        self.coordinator.load_all()
        self._exchanges: dict[int, Exchange] = {}
        self.fleet = Fleet(self._send, self._receive)

    def _new_member_id(self, prefix: str) -> str:
        self._ids[prefix] += 1
        return f"{prefix}-{self._ids[prefix]}"

    def _send(self, request: Request, token: int) -> None:
        self._exchanges[token] = Exchange(self.clock.now_ms(), request, None, None)
        self.coordinator.submit(request, token)

    def _receive(self) -> Iterable[Reply]:
        replies = self.coordinator.take_replies()
        for token, response in replies:
            if response is not None:
                answered = self._exchanges[token]._replace(answered_ms=self.clock.now_ms(), response=response)
                self._exchanges[token] = answered
        return replies

    def go_on(self, rounds: int, interval_ms: int, commits: bool) -> None:
        """Let everybody send what comes next, several times, and time pass in between."""
        for _ in range(rounds):
            self.fleet.go_on(commits=commits)
            end_ms = self.clock.now_ms() + interval_ms
            while (due_ms := self.coordinator.next_deadline_ms()) is not None and due_ms <= end_ms:
                self.clock.advance_to(max(due_ms, self.clock.now_ms()))
                self.coordinator.tick()
                self.fleet.deliver()
            self.clock.advance_to(end_ms)

    def leave(self, consumer: Consumer) -> None:
        """Let a consumer leave, if it has joined."""
        consumer.is_alive = False
        if consumer.member_id:
            self.fleet.submit(consumer.leave_request(), consumer)

    def history(self) -> History:
        """Return what was said, and the log."""
        count = self.coordinator.config.offsets_topic_num_partitions
        logs = {index: tuple(self.store.read(index)) for index in range(count)}
        return History(tuple(self._exchanges.values()), {index: log for index, log in logs.items() if log})
