"""What the museum shows: a bug that somebody's coordinator, client or monitor really had, told in our words."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attrs import field, frozen

from groupcoord.config.files import data_files
from groupcoord.errors import GroupcoordError

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
