"""Which member of a streams group answers interactive queries about which partitions (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable

from groupcoord.core.messages import EndpointPartitions, NamedTopicPartitions
from groupcoord.core.modern.known_topics import KnownTopics
from groupcoord.core.streams.reconciliation import Task
from groupcoord.core.streams.state import StreamsMember, by_subtopology
from groupcoord.core.streams.topology import ConfiguredTopology, source_topics


class EndpointError(Exception):
    """What lies behind an endpoint can't be told, as topics are missing: Kafka's request fails then."""


def endpoint_partitions(
    members: Iterable[StreamsMember], configured: ConfiguredTopology, topics: KnownTopics
) -> tuple[EndpointPartitions, ...]:
    """Return an entry for each member that has an endpoint: what its active tasks read, and what its copies would.

    Raises:
        EndpointError: it can't be told.
    """
    found = []
    for member in members:
        endpoint = member.metadata.user_endpoint
        if endpoint is not None:
            assigned = member.assignment.assigned
            active = _partitions(assigned.active, configured, topics)
            standby = _partitions((*assigned.standby, *assigned.warmup), configured, topics)
            found.append(EndpointPartitions(endpoint, active, standby))
    return tuple(found)


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
        names = source_topics(subtopology.subtopology)
        existing = topics.existing(names)
        for name in names:
            if name not in existing:
                raise EndpointError
            there = tuple(number for number in partitions if number < existing[name].partition_count)
            if there:
                found.append(NamedTopicPartitions(name, there))
    return tuple(found)
