"""Exhibits of the museum: real bugs, the function that plants each, and the processes that play and hunt them."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

import groupcoord
from groupcoord.config.files import data_files
from groupcoord.errors import GroupcoordError

if TYPE_CHECKING:
    from groupcoord.testing.exploring.story import Story

FOLDER = Path(__file__).parent / "exhibits"


class UnknownExhibitError(GroupcoordError, LookupError):
    """The museum has no exhibit of that name."""


@frozen
class Plant:
    """A bug as the replacement of one function of this package.

    Attributes:
        module: the dotted name of its module.
        function: the qualified name of the function or method.
        source: the function with the bug. It sees the globals of the module. A keyword-only parameter ``original``
            receives the function without the bug.
    """

    module: str
    function: str
    source: str

    @property
    def target(self) -> str:
        """The dotted name of the function that is replaced."""
        return f"{self.module}.{self.function}"


@frozen
class Exhibit:
    """A bug that really happened.

    Attributes:
        number: its place, by damage and fame.
        id: the name of the best known report.
        title: what happened, in a few words.
        room: what it is about.
        versions: of what it was a bug, from when to when, as far as the sources tell.
        references: the reports.
        story: what was wrong.
        history: what has to happen, in words.
        loses: what users lost.
        law: what must hold, and didn't.
        plant: the same bug in this package; None if there is no place for it.
        absent: why there is no place for it.
        play: a history that breaks a law with the plant and none without, as
            :meth:`~groupcoord.testing.exploring.scope.Trace.of` reads one; None: none is known that is short.
        found: how long each way of looking took to find it, in words.
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
        """What one can ask for it by, in small letters: ``kop-380`` is ``streamnative/kop#380``."""
        known = (self.id, *self.references)
        return frozenset(name.lower() for full in known for name in (full, full.rpartition("/")[2].replace("#", "-")))


def read_exhibit(table: Mapping[str, Any]) -> Exhibit:
    """Return the exhibit that a TOML table tells of."""
    values = dict(table)
    plant = values.pop("plant", None)
    return Exhibit(
        references=tuple(values.pop("references")), plant=None if plant is None else Plant(**plant), **values
    )


@cache
def exhibits() -> tuple[Exhibit, ...]:
    """Return all exhibits, in order."""
    tables = (tomllib.loads(text) for _, text in data_files(FOLDER, ".toml"))
    return tuple(sorted(map(read_exhibit, tables), key=lambda exhibit: exhibit.number))


def exhibit(name: str) -> Exhibit:
    """Return the exhibit of this id, or with this report among its references; capital or small letters.

    Raises:
        UnknownExhibitError: there is none.
    """
    for known in exhibits():
        if name.lower() in known.names:
            return known
    near = [known.id for known in exhibits() if name.lower() in known.id.lower()]
    hint = f"; did you mean {near[0]}?" if len(near) == 1 else "; `groupcoord museum list` names all"
    raise UnknownExhibitError(f"the museum has no {name!r}{hint}")


class PlantError(GroupcoordError):
    """A plant whose target does not exist, or has other parameters."""


def plant(bug: Plant) -> None:
    """Replace the target of a plant for as long as this process lives."""
    function, changes = changes_of(bug)
    for attribute, value in changes.items():
        setattr(function, attribute, value)


def changes_of(bug: Plant) -> tuple[FunctionType, dict[str, Any]]:
    """Return the target of a plant and the attributes that give it the bug.

    The function object stays the same, so that names that other modules have imported meet the bug as well.

    Raises:
        PlantError: if the plant does not fit the package.
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
        raise PlantError(f"{bug.target} does not exist (any more), so its bug can't be planted") from error
    if not isinstance(found, FunctionType):
        raise PlantError(f"{bug.target} is not a function")
    return found


SEARCHERS = ("explore", "machine", "member", "swarm")
"""The ways of looking for a bug that nobody knows: every history in the scope of the exhibit's, the shortest first; the
published machine; random lives of one member; and the simulator's fleets."""


@frozen
class Hunt:
    """How one way of looking did.

    Attributes:
        searcher: the way of looking, one of :data:`SEARCHERS`.
        found: what was broken, in its words; None if nothing was.
        is_law: it was a law; if not, something failed in another way.
        cpu_s: after so many CPU seconds.
        histories: so many histories were looked at.
    """

    searcher: str
    found: str | None
    is_law: bool
    cpu_s: float
    histories: int


class TaskFailedError(GroupcoordError):
    """A process of the museum ended without an outcome."""


def in_a_process(task: str, shown: Exhibit, *options: str, is_planted: bool) -> Any:
    """Do one task in a new process, which has the exhibit's bug if it is to.

    Args:
        task: its name, as ``python -m groupcoord.testing.museum.hunting`` has it.
        shown: the exhibit.
        options: what else the task takes.
        is_planted: the process has the bug.

    Returns:
        What the task has found out, as JSON has it.

    Raises:
        TaskFailedError: the process fell over.
    """
    words = [task, shown.id, "planted" if is_planted else "shipping", *options]
    command = [sys.executable, "-P", "-m", "groupcoord.testing.museum.hunting", *words]
    paths = [str(Path(groupcoord.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise TaskFailedError(f"{task} {shown.id}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def hunt_for(shown: Exhibit, searcher: str, cpu_s: float) -> Hunt:
    """Look for the bug of an exhibit without knowing it.

    Args:
        shown: an exhibit with a plant.
        searcher: the way of looking, one of :data:`SEARCHERS`.
        cpu_s: how long, in CPU seconds; what has begun then is brought to its end.

    Raises:
        TaskFailedError: the process that looks fell over.
    """
    return Hunt(**in_a_process("hunt", shown, searcher, str(cpu_s), is_planted=True))


def play_of(shown: Exhibit, *, is_planted: bool) -> Story:
    """Let the history of an exhibit happen.

    Args:
        shown: an exhibit with a history to play.
        is_planted: with the bug.

    Raises:
        TaskFailedError: the process in which it happens fell over.
    """
    from groupcoord.testing.exploring.story import Story

    return Story.of(in_a_process("play", shown, is_planted=is_planted))
