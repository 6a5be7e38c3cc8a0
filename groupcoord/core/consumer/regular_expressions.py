"""What the coordinator asks of a library of regular expressions, for members that subscribe by one (KIP-848).

The core brings none: expressions come from clients, so a library whose time grows with the length of the name, and no
faster, is for the embedding program to choose. Kafka's is RE2/J.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import frozen

TopicMatcher = Callable[[str], bool]
"""Tells whether an expression matches the whole name of a topic."""


@frozen
class InvalidRegularExpression:
    """What the answer is if a client's expression is none.

    Attributes:
        message: what is wrong with it, for the client to read.
    """

    message: str


class RegularExpressions(Protocol):
    """Compiles regular expressions in the syntax of RE2."""

    def compile(self, expression: str) -> TopicMatcher | InvalidRegularExpression:
        """Return what matches names of topics, or what is wrong with the expression.

        It raises nothing for any text, and takes time and memory in proportion to its length.
        """
