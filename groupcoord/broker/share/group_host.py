"""What share groups need of a server: their settings, its share coordinator, and where partitions end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from groupcoord.broker.bounds import holds_more
from groupcoord.broker.configs.groups import GroupConfigs
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.share.coordination import ShareCoordination
from groupcoord.broker.share.state_requests import ENTRIES_AT_ONCE
from groupcoord.broker.turns import Background, Turns
from groupcoord.broker.work import Answer, Work, portions
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.host_queries import (
    AskShareCoordinator,
    AwaitedAnswer,
    LoneShareHost,
    ShareCoordinatorAnswered,
    known_ends,
)
from groupcoord.core.messages.share_state import ShareStateRequest, ShareStateResponse
from groupcoord.core.share_state.partition import AnyResult, TopicIdPartition, answer_of, results_of
from groupcoord.storage.errors import FailedLogError

PARTITIONS_AT_ONCE = 500
"""A question about no more share-partitions is answered at once."""

TakeAnswer = Callable[[ShareCoordinatorAnswered], None]
"""Takes what the share coordinator could not tell at once."""


class ServerShareHost:
    """The surroundings of the share groups of one node.

    Where topics hold nothing, there is no share coordinator, and nothing to share: all is agreed to.

    Args:
        configs: the settings of groups.
        share: the share coordinator of all nodes.
        data: what topics hold, of all nodes together.
        take: takes answers that come late.
        turns: where work on many share-partitions takes its turns.
    """

    def __init__(
        self,
        configs: GroupConfigs,
        share: ShareCoordination,
        data: TopicData,
        take: TakeAnswer,
        turns: Turns,
    ) -> None:
        self._configs = configs
        self._share = share
        self._data = data
        self._take = take
        self._turns = turns
        self._alone = LoneShareHost(share.config)

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return what holds for a share group."""
        return self._configs.share_settings_of(group_id)

    def ask(self, question: AskShareCoordinator) -> ShareCoordinatorAnswered | None:
        """Ask the share coordinator; the answer is there at once unless the question is about many partitions."""
        if not self._share.is_possible:
            return self._alone.ask(question)
        awaited = AwaitedAnswer(question, self._take)

        def answered(response: ShareStateResponse) -> None:
            ends = known_ends(question.ends_wanted(response), self._latest_offset)
            awaited.found_out(ShareCoordinatorAnswered(question, response, ends))

        if holds_more(question.request, PARTITIONS_AT_ONCE):
            Background(self._turns, self._ask_in_portions(question.request, answered)).begin()
        else:
            self._share.persister.ask(question.request, answered)
        return awaited.now_or_late()

    def _ask_in_portions(
        self, request: ShareStateRequest, answered: Callable[[ShareStateResponse], None]
    ) -> Work[None]:
        """Ask the share coordinator about some partitions at a time, and pass on the whole answer."""
        whole: Any = request
        results: dict[TopicIdPartition, AnyResult] = {}
        for topic in whole.topics:
            for some in portions(topic.partitions, ENTRIES_AT_ONCE):
                answer = Answer()
                portion = evolve(whole, topics=(topic._replace(partitions=tuple(some)),))
                self._share.persister.ask(portion, answer.answer)
                yield None if answer.is_done else answer
                results |= results_of(answer.response)
        answered(answer_of(request, results))

    def _latest_offset(self, name: str, index: int) -> int | None:
        """Return where a partition ends; None if it does not exist, or its files can't be used."""
        topic = self._data.topics.get(name)
        if topic is None or not topic.has_partition(index):
            return None
        try:
            log = self._data.log(topic, index)
        except FailedLogError:
            return None
        return None if log is None else log.end_offset
