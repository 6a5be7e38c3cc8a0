"""What the host finds out for the core: the answers to its questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from groupcoord.core.groups.share.host import ShareHost
from groupcoord.core.host_queries import (
    AskShareCoordinator,
    CreateInternalTopics,
    Found,
    InternalTopicsCreated,
    Question,
    ResolvedRegexes,
    ResolveRegexes,
)
from groupcoord.core.topics import RegexResolver

CreateTopics = Callable[[CreateInternalTopics], Mapping[str, str] | None]
"""Creates topics that a streams group needs, and returns by name why it could not create some. It must not raise.

None: it creates them later, and then calls :meth:`~groupcoord.coordinator.GroupCoordinator.found_out`."""


def create_no_topics(question: CreateInternalTopics) -> Mapping[str, str]:
    """Create nothing: for hosts that can't."""
    return {topic.name: "this coordinator creates no topics" for topic in question.topics}


class Host:
    """Answers the core's questions.

    Args:
        regexes: matches regular expressions against the topics.
        create_topics: creates topics.
        share: has a share coordinator.

    Attributes:
        share: as given.
    """

    __slots__ = ("_answers", "_create_topics", "_regexes", "share")

    def __init__(self, regexes: RegexResolver, create_topics: CreateTopics, share: ShareHost) -> None:
        self._regexes = regexes
        self._create_topics = create_topics
        self.share = share
        self._answers: dict[type[Question], Callable[[Any], Found | None]] = {
            ResolveRegexes: self._resolve,
            CreateInternalTopics: self._create,
            AskShareCoordinator: share.ask,
        }

    def answer(self, question: Question) -> Found | None:
        """Find out what the core asks; return None if the answer comes later."""
        return self._answers[type(question)](question)

    def _resolve(self, question: ResolveRegexes) -> ResolvedRegexes:
        matching = self._regexes.matching_topics
        topics = {regex: tuple(matching(regex, question.principal)) for regex in question.regexes}
        return ResolvedRegexes(question, topics)

    def _create(self, question: CreateInternalTopics) -> InternalTopicsCreated | None:
        errors = self._create_topics(question)
        return None if errors is None else InternalTopicsCreated(question, errors)
