"""Round-robin assignor: partitions in order, one to each member in turn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from groupcoord.core.consumer_protocol import Assignment, Subscription, TopicPartition
from groupcoord.core.javacompat.hashing import hash_map_order, string_sort_key
from groupcoord.member.assignors.base import (
    Cluster,
    StatelessAssignor,
    members_in_order,
    subscribed_topics,
    subscribers_by_topic,
)


class RoundRobinAssignor(StatelessAssignor):
    """Assigns the partitions of all topics to the members in turn, skipping members without a subscription to the
    topic.

    Static members come first, by instance id, then dynamic ones by member id. Source: ``RoundRobinAssignor`` of Kafka's
    Java client.
    """

    name = "roundrobin"

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of each member."""
        visiting_order = hash_map_order(subscriptions)
        members = members_in_order(subscriptions, visiting_order)
        topics = subscribed_topics(cluster, subscriptions, visiting_order)
        subscribers = subscribers_by_topic(subscriptions, members)
        assigned: list[list[TopicPartition]] = [[] for _ in members]
        following = 0
        for topic in sorted(topics, key=string_sort_key):
            of_topic = subscribers[topic]
            for partition in range(topics[topic].partition_count):
                turn = bisect_left(of_topic, following)
                member = of_topic[turn if turn < len(of_topic) else 0]
                assigned[member].append(TopicPartition(topic, partition))
                following = member + 1
        by_id = dict(zip(members, assigned, strict=True))
        return {member_id: Assignment(tuple(by_id[member_id])) for member_id in subscriptions}
