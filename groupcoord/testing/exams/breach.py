"""Where a law was broken."""

from __future__ import annotations

from attrs import frozen


@frozen
class Breach:
    """A law that does not hold, at a moment.

    Attributes:
        at_s: when, in seconds since the beginning.
        who: the instance that broke it; empty if it can't be told.
        text: what it did, in words.
    """

    at_s: float
    who: str
    text: str
