"""Processes that share the work of a search: each takes steps in the states of coordinators that it has made."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from groupcoord.core.messages import Response
from groupcoord.testing.exploring.forms import Form, View
from groupcoord.testing.exploring.playing import BrokenLaw
from groupcoord.testing.exploring.turns import BrokenTurnError, Core, Turn, Turns
from groupcoord.testing.exploring.words import HistoryError, Step

__all__ = ["Crew"]

Asked = tuple[int, Step, int]
"""The state of a coordinator, a step, and the form of the client that takes it."""


class Done(NamedTuple):
    """What a step has come to, as one process tells another; see :class:`.Turn`.

    Attributes:
        key: the fingerprint of the state that the coordinator is in then.
        number: what the process that did it calls that state.
        in_flight: how many appends wait then.
    """

    key: bytes
    number: int
    in_flight: int
    form: Form
    answers: Mapping[int, Response | None]
    is_lost: bool
    before: View
    after: View
    fenced: frozenset[int]


class Crew:
    """Does for turns what they were not asked before, in as many processes as it is told.

    Every process knows the states that there are when it starts. Of those that come later it has what it made itself,
    and goes on from there. Results are taken in the order in which they were asked for, so that they are the same
    however many processes there are.

    Args:
        turns: for whom; they learn what comes of the steps.
        jobs: how many processes.

    Raises:
        HistoryError: the system can't fork a process, which is how each gets what there is.
    """

    def __init__(self, turns: Turns, jobs: int) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise HistoryError("this system can't fork processes: a search has one job here")
        self._turns = turns
        self._common = len(turns.cores)
        self._places: dict[int, tuple[int, int]] = {}  # by the number of a state: whose it is, and its number there
        self._cpu_s = [0.0] * jobs
        context = multiprocessing.get_context("fork")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(jobs):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(turns, theirs), daemon=True)
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)

    @property
    def cpu_s(self) -> float:
        """Seconds of CPU that the processes have taken."""
        return sum(self._cpu_s)

    def end(self) -> None:
        """Let the processes end."""
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.terminate()
            process.join()

    def take(self, asked: Sequence[Asked]) -> None:
        """Let steps be taken, and turns know what comes of them."""
        orders = [("take", *self._place(core), step, self._turns.forms[form]) for core, step, form in asked]
        for (core, step, form), (worker, outcome) in zip(asked, self._outcomes(orders), strict=True):
            if isinstance(outcome, BrokenLaw):
                self._turns.learn(core, step, form, BrokenTurnError(outcome))
                continue
            done: Done = outcome
            number = self._turns.known(done.key)
            if number is None:
                number = self._turns.add(done.key, Core(done.after, None, done.in_flight, None))
                self._places[number] = worker, done.number
            mine = self._turns.number_of(done.form)
            turn = Turn.of(number, mine, done.answers, done.is_lost, done.before, done.after, done.fenced)
            self._turns.learn(core, step, form, turn)

    def look(self, asked: Sequence[tuple[int, int]]) -> None:
        """Let it be looked at what clients see of states of coordinators: see :meth:`.Turns.check_seen`."""
        orders = [("look", *self._place(core), None, self._turns.forms[form]) for core, form in asked]
        for key, (_, outcome) in zip(asked, self._outcomes(orders), strict=True):
            self._turns.seen[key] = outcome

    def _place(self, core: int) -> tuple[int, int]:
        return (core % len(self._ends), core) if core < self._common else self._places[core]

    def _outcomes(self, orders: Iterable[tuple[str, int, int, Step | None, Form]]) -> list[tuple[int, Any]]:
        """Give each process its orders, and return what came of each, in their order, and who did it."""
        lists: list[list[Any]] = [[] for _ in self._ends]
        order_of = []
        for what, worker, *order in orders:
            order_of.append(worker)
            lists[worker].append((what, *order))
        for end, own in zip(self._ends, lists, strict=True):
            end.send(own)
        outcomes = []
        for worker, end in enumerate(self._ends):
            found, self._cpu_s[worker], steps = end.recv()
            self._turns.steps += steps
            outcomes.append(iter(found))
        return [(worker, next(outcomes[worker])) for worker in order_of]


def _serve(turns: Turns, end: Connection) -> None:
    """Do what is ordered, list by list, until nobody orders any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted is the process that gives orders
    begun_s, steps = time.process_time(), turns.steps
    while True:
        try:
            orders = end.recv()
        except EOFError:
            return
        found = [_carry_out(turns, *order) for order in orders]
        end.send((found, time.process_time() - begun_s, turns.steps - steps))
        steps = turns.steps


def _carry_out(turns: Turns, what: str, core: int, step: Step, form: Form) -> Done | BrokenLaw | None:
    number = turns.number_of(form)
    try:
        if what == "look":
            turns.check_seen(core, number)
            return None
        turn = turns.turn(core, step, number)
    except BrokenTurnError as error:
        return error.broken
    reached = turns.cores[turn.core]
    told = turn.answers, turn.is_lost, turn.before, turn.after, turn.fenced
    return Done(turns.keys[turn.core], turn.core, reached.in_flight, turns.forms[turn.form], *told)
