"""Composition of a group coordinator: its router, its log partitions, and the types of groups with their assignors."""

from __future__ import annotations

from typing import Any

from groupcoord.assignors import choose_assignors, choose_share_assignors, choose_task_assignors
from groupcoord.config import Config
from groupcoord.config.group_settings import (
    ConsumerGroupSettings,
    StreamsGroupSettings,
)
from groupcoord.core.groups.consumer.group import ConsumerGroupEnvironment
from groupcoord.core.groups.group_types import Environments
from groupcoord.core.groups.share.group import ShareGroupEnvironment
from groupcoord.core.groups.streams.group import StreamsGroupEnvironment
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.host_queries import Host, LoneShareHost, ShareHost, create_no_topics
from groupcoord.core.log.log_partition import Effects, PartitionWriter
from groupcoord.core.messages import Node
from groupcoord.core.observer import Observer
from groupcoord.core.partition import Partition
from groupcoord.core.router.partition_table import PartitionTable
from groupcoord.core.router.request_router import RequestRouter
from groupcoord.core.router.split_requests import Coordinators, SplitRequests
from groupcoord.core.timers import TimerQueue
from groupcoord.core.topics import AnyTopic, KnownTopics, NoRegexes, RegexResolver, TopicResolver

LOCAL_NODE = Node(1, "127.0.0.1", 9092)


class Composition:
    """Parts of one coordinator.

    Args:
        config: the settings.
        given: the other arguments of ``GroupCoordinator``, as attributes.

    Raises:
        ConfigError: a setting names an unknown assignor, or two assignors have the same name.
    """

    def __init__(self, config: Config, given: Any) -> None:
        topics: TopicResolver = given.topics or AnyTopic()
        regexes: RegexResolver = given.regexes or NoRegexes()
        share: ShareHost = given.share or LoneShareHost(config)
        self.host = Host(regexes, given.create_internal_topics or create_no_topics, share)
        chosen = choose_assignors(config.group_consumer_assignors, given.assignors)
        known = KnownTopics(topics)
        usual_consumer, usual_streams = ConsumerGroupSettings.of(config), StreamsGroupSettings.of(config)
        consumer_settings = given.consumer_group_settings or (lambda group_id: usual_consumer)
        streams_settings = given.streams_group_settings or (lambda group_id: usual_streams)
        simple = choose_share_assignors(config.group_share_assignors, given.share_assignors)
        sticky = choose_task_assignors(config.group_streams_assignors, given.task_assignors)
        self.environments = environments = Environments(
            known,
            ConsumerGroupEnvironment(config, known, chosen, consumer_settings, regexes),
            ShareGroupEnvironment(config, known, simple, share.settings_of),
            StreamsGroupEnvironment(config, known, sticky, streams_settings),
        )
        count = config.offsets_topic_num_partitions
        self.effects, self.timers, self.observer = effects, timers, observer = Effects(), TimerQueue(), Observer()
        self.partitions: PartitionTable[str, Partition] = PartitionTable(count)
        self.split_requests = SplitRequests()
        self.cluster = Coordinators(
            given.node or LOCAL_NODE, given.owner, count, given.transaction_owner, given.share_owner
        )
        self.router = RequestRouter(
            config=config,
            assignors=tuple(chosen),
            effects=self.effects,
            split_requests=self.split_requests,
            partitions=self.partitions,
            topics=topics,
            cluster=self.cluster,
            authorize=given.authorize,
            verify_transaction=given.verify_transaction,
        )

        def make_partition(index: int, first_append: int) -> Partition:
            # Numbers of appends go on after a load, so that late answers are recognized.
            writer = PartitionWriter(index, effects, timers, config.offsets_commit_timeout_ms, first_append)
            context = HandlerContext(
                index, config, effects, timers, observer, given.new_member_id, given.new_uuid, writer
            )
            return Partition(context, environments)

        self.make_partition = make_partition
