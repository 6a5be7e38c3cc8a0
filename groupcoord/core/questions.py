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


@frozen
class InternalTopic:
    """A topic that an application of Kafka Streams keeps for itself: a changelog, or one that it repartitions by.

    Attributes:
        name: its name.
        partition_count: how many partitions it is to have.
        replication_factor: how many replicas; -1 for the broker's default.
        configs: its settings, as pairs of key and value.
    """

    name: str
    partition_count: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


@frozen
class CreateInternalTopics:
    """Please create topics that a streams group needs (KIP-1071); the answer is :class:`InternalTopicsCreated`.

    Members are not kept waiting for it: the topics show when they are there.

    Attributes:
        partition: the log partition of the group.
        group_id: the group.
        topics: what is to be created.
        principal: for whom the member spoke that made it necessary.
    """

    partition: int
    group_id: str
    topics: tuple[InternalTopic, ...]
    principal: Any


@frozen
class InternalTopicsCreated:
    """The answer to a question.

    Attributes:
        question: what was asked.
        errors: by name of a topic that could not be created, why.
    """

    question: CreateInternalTopics
    errors: Mapping[str, str]


Question = ResolveRegexes | CreateInternalTopics
"""Whatever the core asks."""

Found = ResolvedRegexes | InternalTopicsCreated
"""Whatever the host answers."""
