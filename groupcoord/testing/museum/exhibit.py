"""Exhibits of the museum: real bugs, the function that plants each, and the processes that play and hunt them."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

import groupcoord
from groupcoord.config.files import data_files
from groupcoord.errors import GroupcoordError, did_you_mean

if TYPE_CHECKING:
    from groupcoord.testing.exploring.stage import Story

FOLDER = Path(__file__).parent / "exhibits"


class UnknownExhibitError(GroupcoordError, LookupError):
    """The museum has no exhibit with this name."""


@frozen
class Plant:
    """Bug as the replacement of one function of this package.

    Attributes:
        source: the function with the bug, with the module's globals. A keyword-only parameter ``original`` receives the
            correct function.
    """

    module: str
    function: str
    source: str

    @property
    def target(self) -> str:
        """Dotted name of the replaced function."""
        return f"{self.module}.{self.function}"


@frozen
class Exhibit:
    """Real bug.

    Attributes:
        number: rank by damage and fame.
        id: name of the best known report.
        versions: affected versions, as far as reported.
        history: the steps that trigger it.
        loses: the damage for users.
        plant: the bug in this package, or None.
        absent: why this package can't have the bug.
        play: a history, as for :meth:`~groupcoord.testing.exploring.scope.Trace.of`, that breaks a law only with the
            plant; None if no short one is known.
        found: effort of each search method to find it.
    """

    number: int
    id: str
    title: str
    room: str
    versions: str
    references: tuple[str, ...]
    story: str
    history: str
    loses: str
    law: str
    plant: Plant | None = None
    absent: str = ""
    play: Mapping[str, Any] | None = None
    found: Mapping[str, str] = field(factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """Lower-case names of the exhibit: ``kop-380`` is ``streamnative/kop#380``."""
        known = (self.id, *self.references)
        return frozenset(name.lower() for full in known for name in (full, full.rpartition("/")[2].replace("#", "-")))


def read_exhibit(table: Mapping[str, Any]) -> Exhibit:
    values = dict(table)
    plant = values.pop("plant", None)
    return Exhibit(
        references=tuple(values.pop("references")), plant=None if plant is None else Plant(**plant), **values
    )


@cache
def exhibits() -> tuple[Exhibit, ...]:
    """Return all exhibits, in order."""
    found = (read_exhibit(table) for _, table in data_files(FOLDER))
    return tuple(sorted(found, key=lambda exhibit: exhibit.number))


def exhibit(name: str) -> Exhibit:
    """Return an exhibit by its id or one of its references, ignoring case.

    Raises:
        UnknownExhibitError: it does not exist.
    """
    for known in exhibits():
        if name.lower() in known.names:
            return known
    near = [known.id for known in exhibits() if name.lower() in known.id.lower()]
    hint = did_you_mean(near[0], near) if len(near) == 1 else "; `groupcoord museum list` names all"
    raise UnknownExhibitError(f"the museum has no {name!r}{hint}")


class PlantError(GroupcoordError):
    """A plant's target is missing, not a function, or has other parameters."""


def plant(bug: Plant) -> None:
    function, changes = changes_of(bug)
    for attribute, value in changes.items():
        setattr(function, attribute, value)


def changes_of(bug: Plant) -> tuple[FunctionType, dict[str, Any]]:
    """Return the target of a plant and the attributes that change it.

    The function object stays the same, so names imported by other modules have the bug as well.
    """
    function = _target(bug)
    original = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    namespace = dict(function.__globals__)
    exec(compile(bug.source, f"<{bug.target}>", "exec"), namespace)
    planted = namespace[function.__name__]
    defaults = dict(planted.__kwdefaults__ or {})
    parameters, expected = list(inspect.signature(planted).parameters), list(inspect.signature(function).parameters)
    if "original" in parameters:
        parameters.remove("original")
        defaults["original"] = original
    if parameters != expected:
        raise PlantError(f"{bug.target} takes {expected}, its replacement {parameters}")
    return function, {"__code__": planted.__code__, "__defaults__": planted.__defaults__, "__kwdefaults__": defaults}


def _target(bug: Plant) -> FunctionType:
    try:
        found: Any = import_module(bug.module)
        for name in bug.function.split("."):
            found = vars(found)[name]
    except (ModuleNotFoundError, KeyError) as error:
        raise PlantError(f"{bug.target} does not exist, so the bug cannot be planted") from error
    if not isinstance(found, FunctionType):
        raise PlantError(f"{bug.target} is not a function")
    return found


SEARCHERS = ("explore", "machine", "member", "swarm")
"""Search methods: exploration of the exhibit's scope, the state machine, random lives of a member, simulated fleets."""


@frozen
class Hunt:
    """Result of a search.

    Attributes:
        searcher: search method, one of :data:`SEARCHERS`.
        found: message of the violation, or None.
        is_law: a law was broken, rather than another failure.
    """

    searcher: str
    found: str | None
    is_law: bool
    cpu_s: float
    histories: int


class TaskFailedError(GroupcoordError):
    """A process of the museum ended without a result."""


def in_a_process(task: str, shown: Exhibit, *options: str, is_planted: bool) -> Any:
    words = [task, shown.id, "planted" if is_planted else "shipping", *options]
    command = [sys.executable, "-P", "-m", "groupcoord.testing.museum.hunting", *words]
    paths = [str(Path(groupcoord.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.decode().strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise TaskFailedError(f"{task} {shown.id}: {last}")
    return pickle.loads(done.stdout)


def hunt_for(shown: Exhibit, searcher: str, cpu_s: float) -> Hunt:
    """Search for the bug of an exhibit without knowledge of it.

    Args:
        shown: an exhibit with a plant.
        searcher: search method, one of :data:`SEARCHERS`.
        cpu_s: CPU seconds after which no new round starts.

    Raises:
        TaskFailedError: the process failed.
    """
    result: Hunt = in_a_process("hunt", shown, searcher, str(cpu_s), is_planted=True)
    return result


def play_of(shown: Exhibit, *, is_planted: bool) -> Story:
    """Replay the history of an exhibit.

    Args:
        shown: an exhibit with a history.
        is_planted: whether the bug is planted.

    Raises:
        TaskFailedError: the process failed.
    """
    story: Story = in_a_process("play", shown, is_planted=is_planted)
    return story
