"""The topics that Kafka keeps its own state in: how many partitions they are made with, and which settings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from uuid import UUID

from groupcoord.broker.configs.definitions import NO_CONFIGS, Configs
from groupcoord.broker.topics.registry import Topic, TopicEdit, TopicRegistry
from groupcoord.broker.work import Waker
from groupcoord.config import Config
from groupcoord.core.host_queries import CreateInternalTopics, InternalTopicsCreated
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.topics import SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

KEPT_TOPICS = {
    OFFSETS_TOPIC: "the offsets",
    TRANSACTIONS_TOPIC: "the transactions",
    SHARE_STATE_TOPIC: "the states of share groups",
}
"""What is in them. They are neither deleted nor extended: their number of partitions says in which something is."""


CREATION_MS = 50
"""A real broker on an idle machine has a topic some 20 to 60 ms after it has asked the controller for it."""


class LateCreations(Waker):
    """Internal topics of streams groups that were deleted, and come back a moment after a heartbeat has missed them.

    As with Kafka, whose controller creates them, heartbeats in between report them as missing, too. New topics are
    created at once.

    Args:
        topics: the topics.
        now_ms: returns the time.
        create: creates topics, and returns by name why it could not create some.
        created: takes the result of what was created later.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        now_ms: Callable[[], int],
        create: Callable[[CreateInternalTopics], Mapping[str, str]],
        created: Callable[[InternalTopicsCreated], None],
    ) -> None:
        super().__init__()
        self._topics, self._now_ms = topics, now_ms
        self._create, self._created = create, created
        self._asked: deque[tuple[int, CreateInternalTopics]] = deque()

    def ask(self, question: CreateInternalTopics) -> Mapping[str, str] | None:
        """Create topics, and return by name why some could not be created; None if they are created later."""
        if not any(topic.name in self._topics.deleted for topic in question.topics):
            return self._create(question)
        self._asked.append((self._now_ms() + CREATION_MS, question))
        self.wake_earlier()
        return None

    def next_deadline_ms(self) -> int | None:
        return self._asked[0][0] if self._asked else None

    def tick(self, now_ms: int) -> None:
        while self._asked and self._asked[0][0] <= now_ms:
            question = self._asked.popleft()[1]
            self._created(InternalTopicsCreated(question, self._create(question)))


def ensure_internal_topic(edit: TopicEdit, name: str, config: Config, topic_id: UUID | None = None) -> Topic:
    """Return an internal topic, made if need be.

    Args:
        edit: changes to the topics.
        name: its name.
        config: says how many partitions and which settings it gets.
        topic_id: the id that it gets; None: a new one.
    """
    topic = edit.topics.get(name)
    if topic is None:
        counts = {
            OFFSETS_TOPIC: config.offsets_topic_num_partitions,
            TRANSACTIONS_TOPIC: config.transaction_state_log_num_partitions,
            SHARE_STATE_TOPIC: config.share_coordinator_state_topic_num_partitions,
        }
        topic = edit.create(name, counts[name], topic_id, usual_configs(name, config))
    return topic


def usual_configs(name: str, config: Config) -> Configs:
    """Return the settings with which a topic is made: none, if it isn't an internal one."""
    usual: dict[str, Configs] = {
        OFFSETS_TOPIC: {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
        TRANSACTIONS_TOPIC: {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
        SHARE_STATE_TOPIC: {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "retention.ms": "-1",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
        },
    }
    return usual.get(name, NO_CONFIGS)
