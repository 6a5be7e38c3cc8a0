"""What a test may wait for, and for how long: the same for threads and for event loops."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

from attrs import frozen

from groupcoord.broker.broker import Broker
from groupcoord.testing.asserting.groups import GroupDescription, describe_groups, look_whether_stable
from groupcoord.testing.asserting.words import counted

WAIT_S = 10.0
"""How long a test waits, unless it says otherwise."""

LOOK_AGAIN_S = 0.005

T_co = TypeVar("T_co", covariant=True)


class Wanted(Protocol[T_co]):
    """Something that shall come to be."""

    def look(self, broker: Broker) -> tuple[T_co | None, str | None]:
        """Return what was waited for; or None, and how things stand, in words. Called in the server's thread."""

    def __str__(self) -> str:
        """Return what isn't the case as long as it is waited for."""


@frozen
class Stability:
    """A group is stable, with as many members as wanted; None: with any."""

    group_id: str
    members: int | None

    def look(self, broker: Broker) -> tuple[GroupDescription | None, str | None]:
        """See :class:`Wanted`."""
        return look_whether_stable(broker, self.group_id, self.members)

    def __str__(self) -> str:
        count = "" if self.members is None else f" with {counted(self.members, 'member')}"
        return f"group {self.group_id!r} is not stable{count}"


@frozen
class Condition:
    """A condition of the test's own holds."""

    holds: Callable[[], object]

    def look(self, broker: Broker) -> tuple[Literal[True] | None, str | None]:
        """See :class:`Wanted`."""
        if self.holds():
            return True, None
        return None, "; ".join(map(str, describe_groups(broker))) or "there are no groups"

    def __str__(self) -> str:
        return "the condition does not hold"


class Attempts:
    """Counts how long something was waited for, in real time."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s

    def count(self, wanted: Wanted[object], reason: str | None) -> None:
        """Note an attempt in vain.

        Raises:
            TimeoutError: it was the last one.
        """
        if time.monotonic() >= self._deadline_s:
            waited = f" after {self._timeout_s:g} s" if self._timeout_s else ""
            space = "" if f"{reason}".startswith("\n") else " "
            raise TimeoutError(f"{wanted}{waited}:{space}{reason}")
