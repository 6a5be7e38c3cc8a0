"""What must hold of a program that consumes, and what was found: a verdict for each law.

A law that is broken often breaks others as a consequence: who doesn't come back after it was fenced doesn't catch up
either. So a law is judged only where none holds the blame already that would explain it.
"""

from __future__ import annotations

from enum import Enum

from attrs import frozen


@frozen
class Event:
    """Something that happened.

    Attributes:
        at_s: when, in seconds since the beginning.
        who: an instance, or empty for the exam itself.
        text: what, in words.
        is_error: an instance was told an error.
    """

    at_s: float
    who: str
    text: str
    is_error: bool = False


@frozen
class Breach:
    """A law that does not hold, at a moment.

    Attributes:
        at_s: when, in seconds since the beginning.
        who: the instance that broke it; empty if it can't be told.
        text: what it did, in words.
        causes: earlier events that belong to it, of any instance.
    """

    at_s: float
    who: str
    text: str
    causes: tuple[Event, ...] = ()


class Law(Enum):
    """A law, in a sentence. Those that explain others come first."""

    OWNED = "nobody works on a partition that another owns"
    AHEAD = "no committed offset passes what was processed"
    BACKWARD = "no committed offset goes back without a cause"
    ACCEPTED = "nothing is accepted before it is processed"
    AFTERWARDS = "nothing is processed long after it was accepted"
    FENCED = "a fenced instance stops or comes back"
    COMMITTED = "what is processed is committed"
    PROCESSED = "every record is processed"
    ONCE = "no record is processed twice"
    GIVEN_UP = "no record is given up that can be read"
    CAUGHT_UP = "all is caught up soon after the fault"
    LEAVING = "leaving is said"

    def __str__(self) -> str:
        return self.value


EXPLAINS: dict[Law, tuple[Law, ...]] = {
    Law.COMMITTED: (Law.FENCED,),
    Law.PROCESSED: (Law.AHEAD, Law.ACCEPTED, Law.FENCED, Law.GIVEN_UP),
    Law.ONCE: (Law.OWNED,),
    Law.CAUGHT_UP: (Law.FENCED, Law.PROCESSED, Law.AHEAD, Law.GIVEN_UP),
    Law.LEAVING: (Law.FENCED, Law.CAUGHT_UP),
}
"""By law: which others explain that it is broken, if they are."""


@frozen
class Verdict:
    """What was found of one law.

    Attributes:
        law: which one.
        breaches: where it was broken, the first first; none if it held.
        explained_by: the law whose breach explains these; None: they stand for themselves.
    """

    law: Law
    breaches: tuple[Breach, ...] = ()
    explained_by: Law | None = None

    @property
    def is_broken(self) -> bool:
        """Whether the law is broken, and nothing else explains it."""
        return bool(self.breaches) and self.explained_by is None


def judge(breaches: dict[Law, list[Breach]]) -> list[Verdict]:
    """Return a verdict for each law that was looked at.

    Args:
        breaches: by law, where it was broken; a law that isn't there was not looked at.
    """
    return [
        Verdict(
            law,
            tuple(breaches[law]),
            next((other for other in EXPLAINS.get(law, ()) if breaches[law] and breaches.get(other)), None),
        )
        for law in Law
        if law in breaches
    ]
