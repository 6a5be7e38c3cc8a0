"""Which member of a streams group answers interactive queries about which partitions (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from groupcoord.core.groups.base.known_topics import KnownTopics
from groupcoord.core.groups.streams.reconciliation import Task
from groupcoord.core.groups.streams.state import StreamsMember, by_subtopology
from groupcoord.core.groups.streams.topology import ConfiguredTopology
from groupcoord.core.messages import EndpointPartitions, NamedTopicPartitions


class EndpointError(Exception):
    """What lies behind an endpoint can't be told, as topics are missing: Kafka's request fails then."""


class Endpoints:
    """What is told of members' endpoints; each is worked out once, as long as the member and the topology stay."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[StreamsMember, ConfiguredTopology, EndpointPartitions]] = {}

    def partitions(
        self, members: Mapping[str, StreamsMember], configured: ConfiguredTopology, topics: KnownTopics
    ) -> tuple[EndpointPartitions, ...]:
        """Return an entry for each member that has an endpoint: what its active tasks read, and what its copies would.

        Raises:
            EndpointError: it can't be told.
        """
        found = {
            member.member_id: self._entry(member, configured, topics)
            for member in members.values()
            if member.metadata.user_endpoint is not None
        }
        self._entries = found
        return tuple(entry for _, _, entry in found.values())

    def _entry(
        self, member: StreamsMember, configured: ConfiguredTopology, topics: KnownTopics
    ) -> tuple[StreamsMember, ConfiguredTopology, EndpointPartitions]:
        known = self._entries.get(member.member_id)
        if known is not None and known[0] is member and known[1] is configured:
            return known
        endpoint, assigned = member.metadata.user_endpoint, member.assignment.assigned
        assert endpoint is not None
        active = _partitions(assigned.active, configured, topics)
        standby = _partitions((*assigned.standby, *assigned.warmup), configured, topics)
        return member, configured, EndpointPartitions(endpoint, active, standby)


def _partitions(
    tasks: Iterable[Task], configured: ConfiguredTopology, topics: KnownTopics
) -> tuple[NamedTopicPartitions, ...]:
    if configured.subtopologies is None:
        raise EndpointError
    found = []
    for subtopology_id, partitions in by_subtopology(tasks):
        subtopology = configured.subtopologies.get(subtopology_id)
        if subtopology is None:
            raise EndpointError
        names = subtopology.subtopology.read_topics
        existing = topics.existing(names)
        for name in names:
            if name not in existing:
                raise EndpointError
            there = tuple(number for number in partitions if number < existing[name].partition_count)
            if there:
                found.append(NamedTopicPartitions(name, there))
    return tuple(found)
