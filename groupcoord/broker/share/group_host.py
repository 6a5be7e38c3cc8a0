"""What share groups need of a server: their settings, its share coordinator, and how long partitions are."""

from __future__ import annotations

from collections.abc import Callable

from groupcoord.broker.configs.groups import GroupConfigs
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.share.coordination import ShareCoordination
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.messages.share_state import ShareStateResponse
from groupcoord.core.questions import AskShareCoordinator, ShareCoordinatorAnswered
from groupcoord.core.share.host import AwaitedAnswer, LoneShareHost

TakeAnswer = Callable[[ShareCoordinatorAnswered], None]
"""Takes what the share coordinator could not tell at once."""


class ServerShareHost:
    """The surroundings of the share groups of one node.

    Where topics hold nothing, there is no share coordinator, and nothing to share: all is agreed to.

    Args:
        configs: the settings of groups.
        share: the share coordinator of all nodes.
        topics: the topics that exist.
        data: what they hold.
        take: takes answers that come late.
    """

    def __init__(
        self,
        configs: GroupConfigs,
        share: ShareCoordination,
        topics: TopicRegistry,
        data: TopicData,
        take: TakeAnswer,
    ) -> None:
        self._configs = configs
        self._share = share
        self._topics = topics
        self._data = data
        self._take = take
        self._alone = LoneShareHost(share.config)

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return what holds for a share group."""
        return self._configs.share_settings_of(group_id)

    def latest_offset(self, topic: str, partition: int) -> int | None:
        """Return the offset behind the last record of a partition; None if there is no such partition."""
        known = self._topics.get(topic)
        if known is None or not 0 <= partition < known.partition_count:
            return None
        log = self._data.log(known, partition)
        return None if log is None else log.end_offset

    def ask(self, question: AskShareCoordinator) -> ShareStateResponse | None:
        """Ask the share coordinator, which answers at once as a rule."""
        if not self._share.is_possible:
            return self._alone.ask(question)
        awaited = AwaitedAnswer(question, self._take)
        self._share.persister.ask(question.request, awaited.answer)
        return awaited.now_or_late()
