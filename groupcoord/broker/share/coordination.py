"""The share coordinator of a server, and the topic ``__share_group_state`` that it writes to.

The topic is created by the first request to the coordinator. Its logs are those of other topics, and clients that are
allowed to can read it. All nodes share one coordinator; clients send their requests to the leader of the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from groupcoord.broker.share.persister import Persister
from groupcoord.broker.topics.internal import ensure_internal_topic
from groupcoord.broker.topics.registry import Topic, TopicRegistry
from groupcoord.clock import Clock
from groupcoord.config import Config
from groupcoord.coordinator.loading import LoadError
from groupcoord.core.messages import Node
from groupcoord.core.messages.share_state import ShareStateRequest
from groupcoord.core.router.authorization import Authorize
from groupcoord.core.share_state.records import parse_share_partition
from groupcoord.core.topics import SHARE_STATE_TOPIC
from groupcoord.errors import ErrorCode
from groupcoord.storage.log.settings import TopicLogSettings

if TYPE_CHECKING:
    from groupcoord.broker.cluster.leadership import Leadership
    from groupcoord.broker.records.topic_data import TopicData
    from groupcoord.coordinator.share_coordinator import ShareCoordinator
    from groupcoord.storage.log.memory_log import PartitionLog

logger = logging.getLogger("groupcoord.host")


class ShareCoordination:
    """The share coordinator of all nodes, and its topic.

    Args:
        config: how many partitions the topic gets.
        clock: where the time comes from.
        topics: the topics that exist.
        data: what they hold, of all nodes together.
        leadership: who leads what.
        authorize: decides who may ask.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        topics: TopicRegistry,
        data: TopicData,
        leadership: Leadership,
        authorize: Authorize | None = None,
    ) -> None:
        self.config = config
        self._clock = clock
        self._topics = topics
        self._data = data
        self._leadership = leadership
        self._authorize = authorize
        self._coordinator: ShareCoordinator | None = None
        self.persister = Persister(self._submit, clock.now_ms)
        self.on_earlier = self.persister.pauses.on_earlier
        if topics.get(SHARE_STATE_TOPIC) is not None:
            self._open()

    @property
    def is_possible(self) -> bool:
        """False where topics hold nothing: then there is nothing to share either."""
        return self._data.logs is not None

    @property
    def coordinator(self) -> ShareCoordinator | None:
        """The share coordinator, made with its topic if need be; None where topics hold nothing."""
        if self._coordinator is None:
            self._open()
        return self._coordinator

    def _open(self) -> None:
        from groupcoord.coordinator.share_coordinator import ShareCoordinator
        from groupcoord.records.share_state import decode_share_state
        from groupcoord.storage.stores.topics import TopicLogStore

        if not self.is_possible:
            return
        with self._topics.edit() as edit:
            topic = ensure_internal_topic(edit, SHARE_STATE_TOPIC, self.config)
        store = TopicLogStore(self._log, self._has_log, self._settings, decode_share_state)
        self._coordinator = ShareCoordinator(
            config=self.config,
            clock=self._clock,
            log_store=store,
            topics=self._topics,
            authorize=self._authorize,
            partition_count=topic.partition_count,
        )
        self._load(range(topic.partition_count))

    def _load(self, indexes: Iterable[int]) -> None:
        coordinator = self._coordinator
        assert coordinator is not None
        for index in indexes:
            try:
                coordinator.load(index)
            except LoadError as error:
                logger.error("partition %d of %s can't be loaded: %s", index, SHARE_STATE_TOPIC, error)

    @property
    def _topic(self) -> Topic:
        topic = self._topics.get(SHARE_STATE_TOPIC)
        assert topic is not None, "it can't be deleted"
        return topic

    def _log(self, index: int) -> PartitionLog:
        log = self._data.log(self._topic, index)
        assert log is not None, "topics hold something"
        return log

    def _has_log(self, index: int) -> bool:
        return index in self._data.existing_logs(self._topic)

    def _settings(self) -> TopicLogSettings:
        return self._data.settings_of(self._topic)

    # ------------------------------------------------------------ for nodes

    def node_of(self, key: str) -> Node | None:
        """Return the node that coordinates a share-partition, by its key; None while nobody does."""
        coordinator = self.coordinator
        if coordinator is None:
            return None
        index = coordinator.partition_of(parse_share_partition(key))
        return self._leadership.node(self._leadership.leader(self._topic, index).node_id)

    def topic_deleted(self, topic: Topic) -> None:
        """A topic is gone: its share-partitions have no states any more."""
        if self._coordinator is not None:
            self._coordinator.topic_deleted(topic.topic_id)

    def _submit(self, request: ShareStateRequest, token: Any) -> None:
        """Ask the coordinator on behalf of the server itself."""
        coordinator = self.coordinator
        if coordinator is None:
            token.answer(request.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        coordinator.submit(request, token, is_own=True)
        self.deliver_replies()

    def deliver_replies(self) -> None:
        """Pass on what the coordinator has answered; tokens are whoever takes an answer."""
        if self._coordinator is not None:
            for token, response in self._coordinator.take_replies():
                token.answer(response)

    # ------------------------------------------------------------ time

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is wanted; None: nothing was asked yet."""
        own_ms = None if self._coordinator is None else self._coordinator.next_deadline_ms()
        deadlines_ms = (own_ms, self.persister.pauses.next_deadline_ms())
        return min((each for each in deadlines_ms if each is not None), default=None)

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        self.persister.pauses.tick(now_ms)
        if self._coordinator is not None:
            self._coordinator.tick()
            self.deliver_replies()

    def reload_failed(self) -> None:
        """Load what has failed again. Worth calling every second."""
        if self._coordinator is not None:
            self._load(self._coordinator.failed_partitions())
