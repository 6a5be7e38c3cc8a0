"""The surroundings of the groups of each kind, as a coordinator gives them to its log partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from groupcoord.config import Config
from groupcoord.config.group_settings import (
    ConsumerGroupSettings,
    SettingsOfConsumerGroup,
    SettingsOfStreamsGroup,
    StreamsGroupSettings,
)
from groupcoord.core.groups.base.assignor import Assignor
from groupcoord.core.groups.base.known_topics import KnownTopics
from groupcoord.core.groups.consumer.group import ConsumerGroupEnvironment
from groupcoord.core.groups.share.group import ShareGroupEnvironment
from groupcoord.core.groups.streams.assignors import TaskAssignor
from groupcoord.core.groups.streams.soft_state import StreamsGroupEnvironment
from groupcoord.core.host_queries import ShareHost
from groupcoord.core.topics import RegexResolver, TopicResolver


class Environments(NamedTuple):
    """What the kinds of groups look at besides the group.

    Attributes:
        topics: the topics of the cluster, which all of them look at.
        consumer: of consumer groups.
        share: of share groups.
        streams: of streams groups.
    """

    topics: KnownTopics
    consumer: ConsumerGroupEnvironment
    share: ShareGroupEnvironment
    streams: StreamsGroupEnvironment

    @classmethod
    def of(
        cls,
        config: Config,
        topics: TopicResolver,
        regexes: RegexResolver,
        share: ShareHost,
        consumer_assignors: Mapping[str, Assignor],
        consumer_settings_of: SettingsOfConsumerGroup | None,
        share_assignors: Mapping[str, Assignor],
        task_assignors: Mapping[str, TaskAssignor],
        streams_settings_of: SettingsOfStreamsGroup | None,
    ) -> Environments:
        """Return the surroundings of groups that have these topics and assignors.

        What holds for a group is what the broker's settings say, unless there is somebody who says it by the group.
        """
        known = KnownTopics(topics)
        usual_consumer, usual_streams = ConsumerGroupSettings.of(config), StreamsGroupSettings.of(config)
        consumer_settings_of = consumer_settings_of or (lambda group_id: usual_consumer)
        streams_settings_of = streams_settings_of or (lambda group_id: usual_streams)
        return cls(
            known,
            ConsumerGroupEnvironment(config, known, consumer_assignors, consumer_settings_of, regexes),
            ShareGroupEnvironment(config, known, share_assignors, share.settings_of),
            StreamsGroupEnvironment(config, known, task_assignors, streams_settings_of),
        )
