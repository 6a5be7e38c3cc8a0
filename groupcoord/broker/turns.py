"""Which connection's request is handled next, so that no peer can hold up the others.

A broker's requests are handled in turns, each of which is bounded in time; between two turns the host looks at its
sockets. Of a connection one request is handled, or a portion of a long one, or as many short ones as take no longer.
Then it is another connection's turn: those that have just asked go before those that have had a portion and still want
more, those that have cost little lately before those that have cost much, and among equals the one that has waited
longest. One that has waited for long goes before all, once in a turn, so that nobody waits for ever. Apache Kafka mutes
a connection's channel while one of its requests is handled (``SocketServer``), which gives each connection its turn,
too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from groupcoord.broker.work import Work

TURN_S = 0.004
"""How long requests are handled before answers leave and sockets are looked at again."""

PORTION_S = 0.001
"""How long requests of one connection are handled, or a long one is worked on, before it is another one's turn."""

HALF_LIFE_S = 1.0
"""What a connection has cost counts half as much after this time."""

LEVELS_S = (0.005, 0.05, 0.3)
"""Bounds between those who have cost little lately and those who have cost more and more."""

PATIENCE_S = 0.02
"""Of those that have waited for so long, one goes before all others in each turn."""

_LEVEL_COUNT = len(LEVELS_S) + 1


class TakesTurns(Protocol):
    """Something that has requests to handle."""

    cost_s: float
    cost_at_s: float
    is_queued: bool
    queued_at_s: float

    def take_turn(self) -> bool:
        """Handle requests, or a portion of one, until time is up; return True if there is more to do now."""


class Turns:
    """Those whose requests wait to be handled, and for how long the present turn goes on.

    Args:
        now_s: a clock that never goes back, in seconds.

    Attributes:
        now_s: that clock.
        waiting: how many wait.
        is_over: True if somebody could not go first since the turn had lasted long enough.
        has_newcomer: set it when a connection is accepted. The next turn is then for those alone who have just asked
            and cost little: event loops may accept one connection at a time, and more may wait.
    """

    __slots__ = (
        "_end_s",
        "_first",
        "_first_s",
        "_levels",
        "_until_s",
        "has_newcomer",
        "is_over",
        "now_s",
        "waiting",
    )

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._until_s = 0.0  # the end of the portion that is worked on
        # First those that have just asked, then those that want more, each by what they have cost lately.
        self._levels: tuple[deque[TakesTurns], ...] = tuple(deque() for _ in range(2 * _LEVEL_COUNT))
        self._end_s = 0.0
        self._first: TakesTurns | None = None
        self._first_s = 0.0
        self.is_over = False
        self.has_newcomer = False
        self.waiting = 0

    def go_first(self, who: TakesTurns, now_s: float) -> bool:
        """Tell whether a request that has just arrived is handled without queueing; it costs what passes from now on.

        It is until the turn is over, unless others wait and its connection isn't one of those that have cost little.
        """
        first = self._first
        if first is not None:
            first.cost_s += now_s - self._first_s
        if now_s >= self._end_s:
            if self._end_s:
                self.is_over = True
                self._first = None
                return False
            self._end_s = now_s + TURN_S
        if self.waiting and self._level(who, now_s):
            self._first = None
            return False
        self._first = who
        self._first_s = now_s
        return True

    def begin_portion(self) -> None:
        """Let a portion of long work begin that nobody waited for."""
        self._until_s = self.now_s() + PORTION_S

    def is_time_up(self) -> bool:
        """Tell whether others should have their turn before what is being worked on goes on."""
        return self.now_s() >= self._until_s

    def add(self, who: TakesTurns) -> None:
        """Let somebody wait for a turn, once."""
        if not who.is_queued:
            self._add(who, self.now_s(), 0)

    def _add(self, who: TakesTurns, now_s: float, first_level: int) -> None:
        who.is_queued = True
        who.queued_at_s = now_s
        self.waiting += 1
        self._levels[first_level + self._level(who, now_s)].append(who)

    def run(self) -> bool:
        """Handle what waits, for the time of one turn; then a new turn begins.

        Returns:
            True if more waits.
        """
        start_s = now_s = self.now_s()
        if self._first is not None:
            self._first.cost_s += now_s - self._first_s
            self._first = None
        if self.waiting:
            self._promote(now_s)
            end_s = start_s + TURN_S
            levels = self._levels[:1] if self.has_newcomer else self._levels
            while now_s < end_s and (level := next(filter(None, levels), None)):
                now_s = self._run_next(level, now_s)
        self._end_s = 0.0
        self.is_over = False
        self.has_newcomer = False
        return self.waiting > 0

    def _run_next(self, level: deque[TakesTurns], start_s: float) -> float:
        who = level.popleft()
        self._until_s = start_s + PORTION_S
        has_more = who.take_turn()
        now_s = self.now_s()
        self._forget_cost(who, now_s)
        who.cost_s += now_s - start_s
        who.is_queued = False
        self.waiting -= 1
        if has_more:
            self._add(who, now_s, _LEVEL_COUNT)
        return now_s

    def _level(self, who: TakesTurns, now_s: float) -> int:
        if who.cost_s <= LEVELS_S[0]:
            return 0
        self._forget_cost(who, now_s)
        return sum(who.cost_s > bound_s for bound_s in LEVELS_S)

    def _forget_cost(self, who: TakesTurns, now_s: float) -> None:
        """Let what somebody has cost count less by now."""
        who.cost_s *= 0.5 ** ((now_s - who.cost_at_s) / HALF_LIFE_S)
        who.cost_at_s = now_s

    def _promote(self, now_s: float) -> None:
        """Move the first of each level to where it belongs by now: who has waited long enough has cost little."""
        levels = self._levels
        eldest, eldest_s = levels[0], now_s - PATIENCE_S
        for number, level in enumerate(levels):
            if not level:
                continue
            who = level[0]
            better = levels[number - number % _LEVEL_COUNT + self._level(who, now_s)]
            if better is not level:
                better.append(level.popleft())
            elif number and who.queued_at_s <= eldest_s:
                eldest, eldest_s = level, who.queued_at_s
        if eldest is not levels[0]:
            levels[0].insert(1, eldest.popleft())


class Background:
    """Work that no connection waits for, done in turns as requests are.

    Args:
        turns: where it waits for its turns.
        work: the work; it raises nothing, and has no jobs.
    """

    def __init__(self, turns: Turns, work: Work[None]) -> None:
        self.cost_s = self.cost_at_s = self.queued_at_s = 0.0
        self.is_queued = False
        self._turns = turns
        self._work = work

    def begin(self) -> None:
        """Have the work begin at its first turn."""
        self._turns.add(self)

    def take_turn(self) -> bool:
        """Work until time is up, or until something has to be waited for."""
        for awaited in self._work:
            if awaited is not None and not awaited.is_done:
                awaited.on_done = self.begin
                return False
            if self._turns.is_time_up():
                return True
        return False
