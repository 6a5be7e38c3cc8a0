"""Runs tasks of the museum in processes of their own, with a bug in them or without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

import groupcoord
from groupcoord.errors import GroupcoordError
from groupcoord.testing.museum.exhibit import Exhibit

if TYPE_CHECKING:
    from groupcoord.testing.exploring.telling import Story


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
        task: its name, as ``python -m groupcoord.testing.museum`` has it.
        shown: the exhibit.
        options: what else the task takes.
        is_planted: the process has the bug.

    Returns:
        What the task has found out, as JSON has it.

    Raises:
        TaskFailedError: the process fell over.
    """
    words = [task, shown.id, "planted" if is_planted else "shipping", *options]
    command = [sys.executable, "-P", "-m", "groupcoord.testing.museum", *words]
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
        searcher: the way of looking, one of :data:`~groupcoord.testing.museum.processes.SEARCHERS`.
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
    from groupcoord.testing.exploring.telling import Story

    return Story.of(in_a_process("play", shown, is_planted=is_planted))
