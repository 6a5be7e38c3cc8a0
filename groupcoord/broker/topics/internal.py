"""The topics that Kafka keeps its own state in: how many partitions they are made with, and which settings."""

from __future__ import annotations

from uuid import UUID

from groupcoord.broker.configs.definitions import NO_CONFIGS, Configs
from groupcoord.broker.topics.registry import Topic, TopicEdit
from groupcoord.config import Config
from groupcoord.core.records import OFFSETS_TOPIC
from groupcoord.core.topic_names import SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

KEPT_TOPICS = {
    OFFSETS_TOPIC: "the offsets",
    TRANSACTIONS_TOPIC: "the transactions",
    SHARE_STATE_TOPIC: "the states of share groups",
}
"""What is in them. They are neither deleted nor extended: their number of partitions says in which something is."""


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
