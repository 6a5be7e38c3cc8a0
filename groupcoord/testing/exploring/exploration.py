"""Exploration: every history in a scope, breadth first, in several processes."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from attrs import define, evolve, field, frozen

from groupcoord.coordinator import GroupCoordinator
from groupcoord.log_store import LogStore
from groupcoord.testing.exploring.scope import HistoryError, Scope, Step, Trace, steps_of
from groupcoord.testing.exploring.stage import BrokenLaw, Law, MakeCoordinator
from groupcoord.testing.exploring.turns import BrokenTurnError, Core, Form, Recipe, Turn, Turns


class Done(NamedTuple):
    """Turn as a process sends it, with what its numbers of the state and the form stand for."""

    turn: Turn
    key: bytes
    in_flight: int
    form: Form


class Crew:
    """Worker processes that compute turns.

    A process knows the states at its start and those it created. Results are taken in the order of the requests, so
    they do not depend on the number of processes.
    """

    def __init__(self, turns: Turns, jobs: int) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise HistoryError("this system cannot fork processes: use jobs=1")
        self._turns = turns
        self._common = len(turns.cores)
        self._places: dict[int, tuple[int, int]] = {}  # worker and its number of a state, by state
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
        return sum(self._cpu_s)

    def end(self) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.terminate()
            process.join()

    def take(self, recipes: Sequence[Recipe]) -> None:
        turns = self._turns
        orders = [("take", *self._place(core), step, turns.forms[form]) for core, step, form in recipes]
        for recipe, (worker, outcome) in zip(recipes, self._outcomes(orders), strict=True):
            if isinstance(outcome, BrokenLaw):
                turns.results[recipe] = BrokenTurnError(outcome)
                continue
            done: Done = outcome
            number = turns.numbers.get(done.key)
            if number is None:
                number = turns.add(done.key, Core(done.turn.after, None, done.in_flight, None))
                self._places[number] = worker, done.turn.core
            turns.results[recipe] = evolve(done.turn, core=number, form=turns.number_of(done.form))

    def look(self, keys: Sequence[tuple[int, int]]) -> None:
        orders = [("look", *self._place(core), None, self._turns.forms[form]) for core, form in keys]
        for key, (_, outcome) in zip(keys, self._outcomes(orders), strict=True):
            self._turns.seen[key] = outcome

    def _place(self, core: int) -> tuple[int, int]:
        return (core % len(self._ends), core) if core < self._common else self._places[core]

    def _outcomes(self, orders: Iterable[tuple[str, int, int, Step | None, Form]]) -> list[tuple[int, Any]]:
        """Send orders to their workers; return worker and result of each, in order."""
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent process handles the interrupt
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
        turn = turns.turn(Recipe(core, step, number))
    except BrokenTurnError as error:
        return error.broken
    return Done(turn, turns.keys[turn.core], turns.cores[turn.core].in_flight, turns.forms[turn.form])


State = tuple[int, tuple[int, ...]]
"""Number of the coordinator state, and of each process's form."""

OF_MEMBERS = ("leave", "beat", "pause", "fetch")
"""Steps of a member without a request in flight."""

DEPTH_MAX = 1_000
STATES_TO_SHARE = 200
STATES_BETWEEN_LOOKS = 500
COLLECTION_THRESHOLD = 50_000
"""Garbage collection is rare, since few objects are in cycles."""


@frozen
class Level:
    """Totals after a number of steps.

    Attributes:
        transitions: distinct steps so far.
        is_whole: every history of this length was examined.
    """

    depth: int
    new: int
    states: int
    transitions: int
    cpu_s: float
    is_whole: bool = True


@frozen
class Violation:
    """Broken law with the shortest history that breaks it."""

    trace: Trace
    broken: BrokenLaw


@define
class Exploration:
    """Result of an exploration.

    Attributes:
        levels: totals by length of histories, from 0.
        is_closed: longer histories reach no other state.
        violations: broken laws, one history each.
        coordinator_steps: steps computed by coordinators, each only once.
    """

    scope: Scope
    levels: list[Level] = field(factory=list)
    is_closed: bool = False
    violations: list[Violation] = field(factory=list)
    coordinator_steps: int = 0

    @property
    def states(self) -> int:
        """Number of states."""
        return self.levels[-1].states

    @property
    def new_states(self) -> list[int]:
        """New states of each level, which characterize the explored behaviour."""
        return [level.new for level in self.levels]


def explore(
    scope: Scope,
    *,
    make_log_store: Callable[[], LogStore] | None = None,
    make_coordinator: MakeCoordinator = GroupCoordinator,
    laws: Iterable[Law] = (),
    max_depth: int = DEPTH_MAX,
    max_cpu_s: float = float("inf"),
    max_states: int | None = None,
    stops_when_broken: bool = False,
    jobs: int = 1,
    on_level: Callable[[Level], Any] = lambda level: None,
) -> Exploration:
    """Explore every history in a scope, shortest first, and check every law after each step.

    Processes with one protocol and no instance id are interchangeable: states that differ only by their exchange are
    equal. Where a member id decides a tie, as in Kafka, only one outcome is explored.

    Args:
        scope: processes, settings and steps.
        make_log_store: creates the log store under test, copied by ``copy.deepcopy``; default: in memory.
        make_coordinator: creates the coordinator under test from keyword arguments; default: groupcoord's.
        laws: further laws, called with the ``Stage`` after each computed step.
        max_depth: maximum length of histories.
        max_cpu_s: CPU seconds after which no further state is examined.
        max_states: sufficient number of states; None for all.
        stops_when_broken: stop at the first broken law.
        jobs: number of processes for large levels; the result does not depend on it.
        on_level: called with each finished level.

    Returns:
        The totals, and for each broken law the first history that breaks it.

    Raises:
        HistoryError: the scope is invalid, or the system cannot fork processes for ``jobs``.
    """
    search = _Search(Turns(scope, make_log_store=make_log_store, make_coordinator=make_coordinator, laws=laws))
    exploration = Exploration(scope)
    frontier: list[int] = [0]
    thresholds, has_frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    gc.set_threshold(COLLECTION_THRESHOLD)
    try:
        while True:
            level = search.level(len(exploration.levels), len(frontier))
            exploration.levels.append(level)
            on_level(level)
            exploration.is_closed = level.is_whole and not frontier
            if not level.is_whole or not frontier or level.depth >= max_depth:
                break
            if jobs > 1 and search.crew is None and len(frontier) >= STATES_TO_SHARE:
                gc.freeze()
                search.crew = Crew(search.turns, jobs)
            frontier = list(search.following(frontier, max_cpu_s, max_states, stops_when_broken=stops_when_broken))
    finally:
        gc.set_threshold(*thresholds)
        if not has_frozen:
            gc.unfreeze()
        if search.crew is not None:
            search.crew.end()
    exploration.violations = [search.violation(*found) for found in search.broken.values()]
    exploration.coordinator_steps = search.turns.steps
    return exploration


class _Search:
    """Search state; it ``was_stopped`` if not all states of its last level were examined."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.crew: Crew | None = None
        self.was_stopped = False
        self._begun_s = time.process_time()
        self._scope = turns.scope
        processes = turns.scope.processes
        alike: dict[Any, list[int]] = {}
        for place, process in enumerate(processes):
            key = place if process.instance_id else (process.protocol, str(sorted(process.options.items())))
            alike.setdefault(key, []).append(place)
        self._groups = [places for places in alike.values() if len(places) > 1]
        self._has_consumers = any(process.protocol == "consumer" for process in processes)
        self._all_are_alike = len(alike) == 1
        self._first = {place: places[0] for places in alike.values() for place in places}
        self._steps_of = [_steps_of(processes[self._first[place]].name, turns.scope) for place in range(len(processes))]
        self._also = steps_of(turns.scope.also)
        self._own_steps = cache(lambda place, form: [(step, place) for step in self._steps_of_one(place, form)])
        self._nobodys_steps = cache(lambda in_flight: [(step, -1) for step in self._steps_of_nobody(in_flight)])
        self._claims = cache(lambda form: frozenset(self._claims_of(form)))
        self._may_end = [process.instance_id is not None or len(alike) == len(processes) for process in processes]
        first: State = 0, (0,) * len(processes)
        self.states: dict[State, int] = {first: 0}
        self._listed: list[State] = [first]
        self._came_from: list[tuple[int, Step, int]] = [(-1, Step("start"), -1)]
        self.transitions = 0
        self.broken: dict[str, tuple[int, Step, int, BrokenLaw]] = {}

    def level(self, depth: int, new: int) -> Level:
        return Level(depth, new, len(self.states), self.transitions, self._cpu_s(), not self.was_stopped)

    def _cpu_s(self) -> float:
        return time.process_time() - self._begun_s + (0.0 if self.crew is None else self.crew.cpu_s)

    # ------------------------------------------------------------ what can happen next

    def _steps(self, core: int, forms: tuple[int, ...]) -> list[tuple[Step, int]]:
        found: list[tuple[Step, int]] = []
        for place, form in enumerate(forms):
            first = self._first[place]
            if place != first and form in forms[first:place]:
                continue  # one of equal processes suffices
            found += self._own_steps(place, form)
        return found + self._nobodys_steps(self.turns.cores[core].in_flight)

    def _steps_of_one(self, place: int, form: int) -> Iterator[Step]:
        steps, words = self._steps_of[place], self._scope.words
        if not form:
            yield steps["start"]
            return
        _, waits, phase, member_id, _, owned, *_ = self.turns.forms[form]
        if waits < 0:
            yield steps["go"]
            if phase == "stable" and owned:
                if "commit" in words:
                    yield steps["commit"]
                if "txn" in words and self._may_end[place]:
                    yield steps["txn"]
            if member_id is not None and phase != "joining":
                yield from (steps[word] for word in OF_MEMBERS if word in words)
        elif "retry" in words:
            yield steps["retry"]
        if "die" in words:
            yield steps["die"]

    def _steps_of_nobody(self, in_flight: int) -> Iterator[Step]:
        words = self._scope.words
        if "time" in words:
            yield Step("time")
        if in_flight:
            yield Step("ack")
            yield from (Step(word) for word in ("refuse", "lose") if word in words)
        if "crash" in words:
            yield from (Step("crash", (written,)) for written in range(in_flight + 1))
        yield from (Step(word) for word in ("move", "sweep", "delete") if word in words)
        if "topic" in words:
            yield from (Step("topic", (change, name)) for name in self._scope.topics for change in ("create", "delete"))
        if "txn" in words:
            for place, may_end in enumerate(self._may_end):
                if may_end:
                    yield from (self._steps_of[place][outcome] for outcome in ("commit it", "abort it"))
        yield from self._also

    # ------------------------------------------------------------ what comes of it

    def following(
        self, numbers: Sequence[int], max_cpu_s: float, max_states: int | None, *, stops_when_broken: bool
    ) -> Iterator[int]:
        """Yield the numbers of new states one step after some states, until a limit is reached."""
        for place, number in enumerate(numbers):
            is_start = place % STATES_BETWEEN_LOOKS == 0
            if is_start:
                gc.freeze()
                is_full = max_states is not None and len(self.states) >= max_states
                self.was_stopped = is_full or self._cpu_s() > max_cpu_s
            self.was_stopped = self.was_stopped or (stops_when_broken and bool(self.broken))
            if self.was_stopped:
                return
            if is_start:
                self.prepare(numbers[place : place + STATES_BETWEEN_LOOKS])
            yield from self.expand(number)

    def prepare(self, numbers: Sequence[int]) -> None:
        if self.crew is None:
            return
        turns, recipes = self.turns, dict[Recipe, None]()
        for number in numbers:
            core, forms = self._listed[number]
            for step, place in self._steps(core, forms):
                recipe = Recipe(core, step, forms[place] if place >= 0 else 0)
                if step.word != "die" and recipe not in turns.results:
                    recipes[recipe] = None
        self.crew.take(list(recipes))
        looks = dict[tuple[int, int], None]()
        for number in numbers if self._has_consumers else ():
            core, forms = self._listed[number]
            for step, place in self._steps(core, forms):
                try:
                    reached, after = self._after(core, forms, step, place)
                except BrokenTurnError:
                    continue
                looks |= {(reached, form): None for form in after if turns.sees(form)}
        self.crew.look([key for key in looks if key not in turns.seen])

    def expand(self, number: int) -> list[int]:
        core, forms = self._listed[number]
        states, found = self.states, []
        for step, place in self._steps(core, forms):
            self.transitions += 1
            try:
                state = self._sorted(*self._after(core, forms, step, place))
                if state in states:
                    continue
                self._check(state)
            except BrokenTurnError as error:
                self.broken.setdefault(error.broken.law, (number, step, place, error.broken))
                continue
            states[state] = len(self._listed)
            found.append(len(self._listed))
            self._listed.append(state)
            self._came_from.append((number, step, place))
        return found

    def _after(self, core: int, forms: tuple[int, ...], step: Step, place: int) -> tuple[int, list[int]]:
        after = list(forms)
        if step.word == "die":
            after[place] = 0
            return core, after
        turns = self.turns
        turn = turns.turn(Recipe(core, step, forms[place] if place >= 0 else 0))
        if not turn.is_quiet:
            for other, form in enumerate(forms):
                if other != place and form:
                    after[other] = turns.beside(turn, form)
        if place >= 0:
            after[place] = turn.form
        return turn.core, after

    def _sorted(self, core: int, forms: list[int]) -> State:
        if self._all_are_alike:
            forms.sort()
            return core, tuple(forms)
        for places in self._groups:
            for place, form in zip(places, sorted([forms[place] for place in places]), strict=True):
                forms[place] = form
        return core, tuple(forms)

    def _check(self, state: State) -> None:
        core, forms = state
        owned: frozenset[tuple[Any, int]] = frozenset()
        for form in forms:
            if not form:
                continue
            if self._has_consumers:
                self.turns.check_seen(core, form)
            claims = self._claims(form)
            for _, index in owned & claims:
                message = f"in one generation two members own partition {index}"
                raise BrokenTurnError(BrokenLaw(0, "one_owner_in_a_generation", message))
            owned |= claims

    def _claims_of(self, form: int) -> Iterator[tuple[Any, int]]:
        place, _, _, _, epoch, owned, *_ = self.turns.forms[form]
        if self._scope.processes[place].protocol == "classic":
            yield from ((epoch, index) for index in owned or ())

    # ------------------------------------------------------------ the way there

    def violation(self, number: int, step: Step, place: int, broken: BrokenLaw) -> Violation:
        way = [(number, step, place)]
        while way[-1][0]:
            way.append(self._came_from[way[-1][0]])
        names = [process.name for process in self._scope.processes]
        steps: list[Step] = []
        for before, taken, whose in reversed(way):
            own = names[whose] if whose >= 0 else None
            steps.append(_renamed(taken, own))
            if (before, taken, whose) != way[0]:
                names = self._names_after(before, taken, whose, names)
        trace = Trace(self._scope, tuple(steps))
        return Violation(trace, BrokenLaw(len(steps) - 1, broken.law, broken.message))

    def _names_after(self, before: int, step: Step, place: int, names: list[str]) -> list[str]:
        core, forms = self._listed[before]
        _, after = self._after(core, forms, step, place)
        names = list(names)
        for places in self._groups:
            ordered = sorted(places, key=lambda other: after[other])
            for other, name in zip(places, [names[other] for other in ordered], strict=True):
                names[other] = name
        return names


def _steps_of(name: str, scope: Scope) -> dict[str, Step]:
    steps = {word: Step(word, (name,)) for word in ("start", "go", "commit", "retry", "die", "txn", *OF_MEMBERS)}
    return {**steps, **{f"{outcome} it": Step("marker", (name, outcome)) for outcome in ("commit", "abort")}}


def _renamed(step: Step, name: str | None) -> Step:
    return step if name is None else Step(step.word, (name, *step.operands[1:]))
