"""The surroundings of the groups of each kind, as a coordinator gives them to its log partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from groupcoord.config import Config
from groupcoord.config.group_settings import SettingsOfConsumerGroup
from groupcoord.core.consumer.environment import ConsumerGroupEnvironment
from groupcoord.core.modern.assignor import Assignor
from groupcoord.core.modern.known_topics import KnownTopics
from groupcoord.core.topics import RegexResolver, TopicResolver


class Environments(NamedTuple):
    """What the kinds of groups look at besides the group.

    Attributes:
        topics: the topics of the cluster, which all of them look at.
        consumer: of consumer groups.
    """

    topics: KnownTopics
    consumer: ConsumerGroupEnvironment

    @classmethod
    def of(
        cls,
        config: Config,
        topics: TopicResolver,
        consumer_assignors: Mapping[str, Assignor],
        consumer_settings_of: SettingsOfConsumerGroup,
        regexes: RegexResolver,
    ) -> Environments:
        """Return the surroundings of groups that have these settings, topics and assignors."""
        known = KnownTopics(topics)
        return cls(known, ConsumerGroupEnvironment(config, known, consumer_assignors, consumer_settings_of, regexes))
