"""What the core asks its host: things that it can't know, and whose answers come as inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen


@frozen
class ResolveRegexes:
    """Please match regular expressions against the topics; the answer is :class:`ResolvedRegexes`.

    Attributes:
        partition: the log partition of the group.
        group_id: the group.
        regexes: what its members subscribe to.
        principal: for whom the member spoke that made it necessary; topics that it may not describe are left out.
        version: of the topics.
        asked_ms: when it was asked.
    """

    partition: int
    group_id: str
    regexes: tuple[str, ...]
    principal: Any
    version: int
    asked_ms: int


@frozen
class ResolvedRegexes:
    """The answer to a question.

    Attributes:
        question: what was asked.
        topics: regular expression → the names that match.
    """

    question: ResolveRegexes
    topics: Mapping[str, tuple[str, ...]]
