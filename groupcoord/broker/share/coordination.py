"""Share coordinator of a server (KIP-932): its topic ``__share_group_state``, its requests, and the persister.

All nodes share one coordinator; clients send requests to the leader of the partition. Leaders of share-partitions and
share groups call it through the :class:`Persister`, which retries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from attrs import Factory, define, evolve, field

from groupcoord.broker.configs.definitions import GroupConfigs
from groupcoord.broker.connection import Connection
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import Topic, ensure_internal_topic
from groupcoord.broker.work import (
    Answer,
    Background,
    Timers,
    Turns,
    Work,
    deliver_replies,
    do_in_background,
    do_in_place,
    holds_more,
    portions,
)
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.coordinator.loading import LoadError
from groupcoord.core.host_queries import (
    AskShareCoordinator,
    AwaitedAnswer,
    LoneShareHost,
    ShareCoordinatorAnswered,
    known_ends,
)
from groupcoord.core.log.records import SHARE_STATE_TOPIC
from groupcoord.core.messages import Node
from groupcoord.core.messages.share_state import (
    ShareStateRequest,
    ShareStateResponse,
)
from groupcoord.core.router.authorization import Authorize
from groupcoord.core.share_state.partition import AnyResult, TopicIdPartition, answer_of, part_of, results_of
from groupcoord.core.share_state.records import parse_share_partition
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError
from groupcoord.storage.log.settings import TopicLogSettings
from groupcoord.wire import WireResponse

if TYPE_CHECKING:
    from groupcoord.broker.cluster.leadership import Leadership
    from groupcoord.broker.records.topic_data import TopicData
    from groupcoord.coordinator.share_coordinator import ShareCoordinator
    from groupcoord.storage.log.memory_log import PartitionLog


# The four pauses between them add up to 15 s.
TRIES_MAX = 5
FIRST_PAUSE_MS = 1_000


def pause_ms(try_count: int) -> int:
    """Return the pause after an attempt: 1, 2, 4 or 8 s, as in ``PersisterStateManager`` but without its jitter."""
    return FIRST_PAUSE_MS << try_count - 1


PASSING = frozenset(
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
)
"""Errors that are retried. Kafka also retries unknown partitions, since brokers may learn of topics late."""

ENTRIES_AT_ONCE = 50
"""Entries of a request for states that are handled in one step."""

OnResponse = Callable[[Any], None]
Submit = Callable[[ShareStateRequest, Any], None]


class Persister:
    """Client of the share coordinator with retries."""

    def __init__(self, submit: Submit, now_ms: Callable[[], int]) -> None:
        self.timers = Timers()
        self._submit = submit
        self._now_ms = now_ms

    def ask(self, request: ShareStateRequest, on_response: OnResponse) -> None:
        do_in_background(self._ask(request, on_response), do_in_place)

    def _ask(self, request: ShareStateRequest, on_response: OnResponse) -> Work[None]:
        part, results = request, dict[TopicIdPartition, AnyResult]()
        for try_count in range(1, TRIES_MAX + 1):
            answer = Answer()
            self._submit(part, answer)
            if not answer.is_done:
                yield answer
            found = results_of(answer.response)
            failed = {partition for partition, result in found.items() if result.error_code in PASSING}
            if not failed or try_count == TRIES_MAX:
                break
            results |= found
            # Each further write of the others would append another record.
            part = part_of(part, failed)
            yield from self.timers.wait_until(self._now_ms() + pause_ms(try_count))
        # Retries change the order.
        on_response(answer.response if try_count == 1 else answer_of(request, results | found))


logger = logging.getLogger("groupcoord.host")


class ShareCoordination:
    """Share coordinator of all nodes, and its topic."""

    def __init__(self, data: TopicData, leadership: Leadership, authorize: Authorize | None) -> None:
        self.config = data.config
        self._clock, self._topics, self._data = data.clock, data.topics, data
        self._leadership = leadership
        self._authorize = authorize
        self._coordinator: ShareCoordinator | None = None
        self.persister = Persister(self._submit, data.clock.now_ms)
        self.on_earlier = self.persister.timers.on_earlier
        # States are loaded before clients can connect.
        if data.topics.get(SHARE_STATE_TOPIC) is not None:
            self._open()

    @property
    def is_possible(self) -> bool:
        return self._data.logs is not None

    @property
    def coordinator(self) -> ShareCoordinator | None:
        """Share coordinator, created on first use; None if topics have no logs."""
        if self._coordinator is None:
            self._open()
        return self._coordinator

    def _open(self) -> None:
        # Most servers never serve share groups.
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
            # reload_failed tries again.
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
        coordinator = self.coordinator
        if coordinator is None:
            return None
        index = coordinator.partition_of(parse_share_partition(key))
        return self._leadership.node(self._leadership.leader(self._topic, index).node_id)

    def topic_deleted(self, topic: Topic) -> None:
        if self._coordinator is not None:
            self._coordinator.topic_deleted(topic.topic_id)

    def _submit(self, request: ShareStateRequest, token: Any) -> None:
        coordinator = self.coordinator
        if coordinator is None:
            token.answer(request.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        # The server's own requests need no permission.
        coordinator.submit(request, token, is_own=True)
        deliver_replies(coordinator)

    def deliver_replies(self) -> None:
        if self._coordinator is not None:
            deliver_replies(self._coordinator)

    def answer(self, connection: Connection, request: ShareStateRequest) -> Work[WireResponse | None]:
        """Answer a request for share-partition states, which any node serves."""
        coordinator = self.coordinator
        if coordinator is None:
            return request.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer = Answer()
        for number, _ in enumerate(coordinator.submit_in_steps(request, answer, connection.principal), 1):
            if number % ENTRIES_AT_ONCE == 0:
                yield None
        self.deliver_replies()
        if not answer.is_done:
            yield answer
        response: WireResponse = answer.response
        return response

    # ------------------------------------------------------------ time

    def next_deadline_ms(self) -> int | None:
        own_ms = None if self._coordinator is None else self._coordinator.next_deadline_ms()
        deadlines_ms = (own_ms, self.persister.timers.next_deadline_ms())
        return min((each for each in deadlines_ms if each is not None), default=None)

    def tick(self, now_ms: int) -> None:
        self.persister.timers.tick(now_ms)
        if self._coordinator is not None:
            self._coordinator.tick()
            self.deliver_replies()

    def reload_failed(self) -> None:
        if self._coordinator is not None:
            self._load(self._coordinator.failed_partitions())


PARTITIONS_AT_ONCE = 500
"""Most share-partitions of a query that is answered at once."""

TakeAnswer = Callable[[ShareCoordinatorAnswered], None]


@define(eq=False)
class ServerShareHost:
    """Host of the share groups of a node; without logs of topics, every query succeeds."""

    _configs: GroupConfigs
    _share: ShareCoordination
    _data: TopicData
    _take: TakeAnswer
    _turns: Turns
    _alone: LoneShareHost = field(
        init=False, default=Factory(lambda self: LoneShareHost(self._share.config), takes_self=True)
    )

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        return self._configs.share_settings_of(group_id)

    def ask(self, question: AskShareCoordinator) -> ShareCoordinatorAnswered | None:
        if not self._share.is_possible:
            return self._alone.ask(question)
        awaited = AwaitedAnswer(question, self._take)

        def answered(response: ShareStateResponse) -> None:
            # Read together with the states: the lag must not be older than the start offset.
            ends = known_ends(question.ends_wanted(response), self._latest_offset)
            awaited.found_out(ShareCoordinatorAnswered(question, response, ends))

        if holds_more(question.request, PARTITIONS_AT_ONCE):
            Background(self._turns, self._submit_in_portions(question.request, answered)).begin()
        else:
            self._share.persister.ask(question.request, answered)
        return awaited.now_or_late()

    def _submit_in_portions(
        self, request: ShareStateRequest, answered: Callable[[ShareStateResponse], None]
    ) -> Work[None]:
        whole: Any = request
        results: dict[TopicIdPartition, AnyResult] = {}
        for topic in whole.topics:
            for some in portions(topic.partitions, ENTRIES_AT_ONCE):
                answer = Answer()
                portion = evolve(whole, topics=(topic._replace(partitions=tuple(some)),))
                self._share.persister.ask(portion, answer.answer)
                # None gives other connections their turn.
                yield None if answer.is_done else answer
                results |= results_of(answer.response)
        answered(answer_of(request, results))

    def _latest_offset(self, name: str, index: int) -> int | None:
        """Return the end offset of a partition; None if it does not exist, or its files can't be used."""
        topic = self._data.topics.get(name)
        if topic is None or not topic.has_partition(index):
            return None
        try:
            # The group's coordinator need not lead the partition.
            log = self._data.log(topic, index)
        except FailedLogError:
            return None
        # As for read_uncommitted, the lag includes records of open transactions.
        return None if log is None else log.end_offset
