"""Searches for a planted bug: exploration, the state machine, random lives of a member, simulated fleets.

``python -m groupcoord.testing.museum.hunting TASK ID SHIPPING|PLANTED …`` runs one task and prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from time import process_time
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from attrs import asdict, evolve

from groupcoord.errors import InvariantError
from groupcoord.laws import LawBrokenError
from groupcoord.testing.museum.exhibit import Exhibit, Hunt, exhibit, plant

if TYPE_CHECKING:
    from groupcoord.testing.exploring.story import Story

LIVES_A_ROUND = 25
STEPS_A_LIFE = 60
STEPS_OF_A_MEMBER = 300

LAWS_BROKEN = (LawBrokenError, InvariantError)
OF_THE_PACKAGE = ("groupcoord.core", "groupcoord.coordinator", "groupcoord.member")
"""Packages from which any exception is a broken law."""


def _machine(number: int) -> None:
    from hypothesis import HealthCheck, Phase, seed, settings
    from hypothesis.stateful import run_state_machine_as_test

    from groupcoord.testing.machine.state_machine import CoordinatorMachine

    class Machine(CoordinatorMachine):
        """Separate class for each round, since the seed belongs to the class."""

    options = settings(
        max_examples=LIVES_A_ROUND,
        stateful_step_count=STEPS_A_LIFE,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    run_state_machine_as_test(seed(number)(Machine), settings=options)


def _swarm(number: int) -> None:
    from groupcoord.sim import World, swarm_options

    World(number, swarm_options(number)).run()


def _member(number: int) -> None:
    from groupcoord.testing.museum.member_life import MemberLife

    MemberLife(number).live(STEPS_OF_A_MEMBER)


OF_NOBODY = ("ack", "time", "refuse", "lose", "crash", "move", "sweep", "delete")
"""Words without a process that the search varies; other steps are used as they are."""

_ROUNDS: dict[str, tuple[Callable[[int], None], int]] = {
    "machine": (_machine, LIVES_A_ROUND),
    "member": (_member, 1),
    "swarm": (_swarm, 1),
}
"""Search methods: one round by its number, and its number of histories."""


def explore_scope(table: Mapping[str, Any], cpu_s: float) -> Hunt:
    """Explore all histories with the processes, settings and words of a history, shortest first."""
    from groupcoord.testing.exploring.exploration import explore
    from groupcoord.testing.exploring.scope import WORDS_TO_EXPLORE, Trace

    trace = Trace.of(table)
    names = {process.name for process in trace.scope.processes}
    words = dict.fromkeys(WORDS_TO_EXPLORE)
    also: dict[str, None] = {}
    for step in trace.steps:
        if names.intersection(step.operands) or (step.word in OF_NOBODY and not step.operands):
            words[step.word] = None
        else:
            also[str(step)] = None
    scope = evolve(trace.scope, words=tuple(words), also=tuple(also))
    begun = process_time()
    exploration = explore(scope, max_cpu_s=cpu_s, stops_when_broken=True)
    broken = exploration.violations[0].broken if exploration.violations else None
    found = None if broken is None else broken.message.splitlines()[0]
    return Hunt("explore", found, broken is not None, process_time() - begun, exploration.levels[-1].transitions)


def hunt(searcher: str, cpu_s: float) -> Hunt:
    """Search for a broken law in this process, round after round."""
    look, histories = _ROUNDS[searcher]
    begun = process_time()
    for number in count():
        try:
            look(number)
        except Exception as error:  # any failure is a find
            broken = next((found for found in _chain(error) if _is_law(found)), None)
            text = f"{type(broken or error).__name__}: {broken or error}".splitlines()[0]
            return Hunt(searcher, text, broken is not None, process_time() - begun, (number + 1) * histories)
        if process_time() - begun >= cpu_s:
            return Hunt(searcher, None, False, process_time() - begun, (number + 1) * histories)
    raise AssertionError("unreachable")


def _is_law(error: BaseException) -> bool:
    if isinstance(error, LAWS_BROKEN):
        return True
    frames = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].startswith(OF_THE_PACKAGE)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _chain(inner)
        error = error.__cause__ or error.__context__


def main() -> None:
    task, name, core, *options = sys.argv[1:]
    shown = exhibit(name)
    if core == "planted":
        assert shown.plant is not None
        plant(shown.plant)
    sys.stdout.write(json.dumps(asdict(_hunt(shown, *options) if task == "hunt" else _play(shown))) + "\n")


def _hunt(shown: Exhibit, searcher: str, cpu_s: str) -> Hunt:
    if searcher == "explore":
        return explore_scope(shown.play or {"steps": []}, float(cpu_s))
    return hunt(searcher, float(cpu_s))


def _play(shown: Exhibit) -> Story:
    from groupcoord.testing.exploring.scope import Trace
    from groupcoord.testing.exploring.story import draw_story

    assert shown.play is not None
    return draw_story(Trace.of(shown.play))


if __name__ == "__main__":
    main()
