"""Playing one history, and what came of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Any

from attrs import frozen

from groupcoord.coordinator import GroupCoordinator
from groupcoord.log_store import LogStore
from groupcoord.testing.exploring.scope import Trace
from groupcoord.testing.exploring.stage import Happening, Law, MakeCoordinator, Stage
from groupcoord.testing.exploring.words import HistoryError

__all__ = ["BrokenLaw", "Played", "play"]


@frozen
class BrokenLaw:
    """A law that doesn't hold.

    Attributes:
        step: the number of the step after which it doesn't, from 0 on.
        law: the function that says so, such as ``check_tokens``.
        message: what it says.
    """

    step: int
    law: str
    message: str

    @classmethod
    def of(cls, error: BaseException, step: int) -> BrokenLaw:
        """Return what an exception says that a step has ended in."""
        return cls(step, law_of(error), f"{type(error).__name__}: {error}")


@frozen
class Played:
    """What came of a history.

    Attributes:
        trace: the history.
        happenings: what was seen from the outside: requests, answers, records for the log.
        broken: the first law that was broken, after which nothing more was played; None: all hold.
    """

    trace: Trace
    happenings: tuple[Happening, ...]
    broken: BrokenLaw | None


def play(
    trace: Trace,
    *,
    make_log_store: Callable[[], LogStore] | None = None,
    make_coordinator: MakeCoordinator = GroupCoordinator,
    laws: Iterable[Law] = (),
    watch: Callable[[Stage, int], Any] = lambda stage, number: None,
) -> Played:
    """Play a history, and look at every law after each step.

    Args:
        trace: the history.
        make_log_store: makes the log store under test; one in memory if left out.
        make_coordinator: makes the coordinator under test of keyword arguments; groupcoord's own if left out.
        laws: more laws than those of :mod:`groupcoord.laws`.
        watch: is called with the stage and the number of each step, when it is done and before laws are looked at.

    Returns:
        What was seen, and the first law that was broken.

    Raises:
        HistoryError: the history names what there is not.
    """
    stage = Stage(trace.scope, make_log_store=make_log_store, make_coordinator=make_coordinator)
    broken = None
    for number, step in enumerate(trace.steps):
        try:
            stage.do(step)
            watch(stage, number)
            stage.check_laws()
            for law in laws:
                law(stage)
        except HistoryError:
            raise
        except Exception as error:  # one of the core is a broken law as well
            broken = BrokenLaw.of(error, number)
            break
    return Played(trace, tuple(stage.happenings), broken)


def law_of(error: BaseException) -> str:
    """Return the name of the law that an exception tells of: the innermost check that raised it, else who did."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    checks = [name for name in names if name.startswith("check")]
    return checks[-1] if checks else next((name for name in reversed(names) if name != "require"), "")
