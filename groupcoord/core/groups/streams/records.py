"""Records of a streams group (KIP-1071) as values: types 17 and 19 to 23.

Fields have the names of Kafka's schemas ``StreamsGroup…Key/Value``. ``raw_value`` holds the original bytes of a value
that has unknown tagged fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from groupcoord.core.fast_construct import frozen
from groupcoord.core.javacompat import hash_map_order
from groupcoord.core.log.record_keys import GroupWideRecord, MemberRecord

NEVER_CHANGES = True  # instances of all classes here are shared by copies (forking/copies.py)


class KeyValue(NamedTuple):
    """A setting, or a tag of a client."""

    key: str
    value: str


class Endpoint(NamedTuple):
    """Host and port of a member for interactive queries."""

    host: str
    port: int


class TaskIds(NamedTuple):
    """Tasks of one subtopology, in a target assignment, a heartbeat or its response.

    Attributes:
        subtopology_id: the subtopology.
        partitions: the partitions of its source topics, one for each task.
    """

    subtopology_id: str
    partitions: tuple[int, ...]


class AssignedTaskIds(NamedTuple):
    """Assigned tasks of one subtopology.

    Attributes:
        subtopology_id: the subtopology.
        partitions: the partitions of its source topics, one for each task.
        assignment_epochs: the member's epoch at the assignment of each active task; empty or None if unknown, as for
            standby and warm-up tasks.
    """

    subtopology_id: str
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = ()


class TopicInfo(NamedTuple):
    """An internal topic: the changelog of a store, or a repartition topic.

    Attributes:
        name: its name.
        partitions: the required number; 0 if the subtopologies determine it, as always for changelogs.
        replication_factor: the replication factor; 0 for the broker's default.
        topic_configs: settings to create it with.
    """

    name: str
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: tuple[KeyValue, ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics of a subtopology that need equal numbers of partitions.

    Attributes:
        source_topics, source_topic_regex, repartition_source_topics: indexes in the subtopology's fields of these
            names.
    """

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    """Connected part of a topology; each of its tasks processes all of it.

    Attributes:
        subtopology_id: its id in the topology.
        source_topics: the topics that it reads.
        source_topic_regex: regular expressions for further topics that it reads.
        state_changelog_topics: the changelogs of its stores; empty if it is stateless.
        repartition_sink_topics: the internal topics that it writes for other subtopologies.
        repartition_source_topics: the internal topics that it reads.
        copartition_groups: topics that need equal numbers of partitions.
    """

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[TopicInfo, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[TopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def read_topics(self) -> tuple[str, ...]:
        """The topics that it reads, except for matches of regular expressions."""
        return *self.source_topics, *(topic.name for topic in self.repartition_source_topics)


@frozen
class StreamsGroupMetadataRecord(GroupWideRecord):
    """Epoch of a group, which every change of the assignment's inputs increases, and some of these inputs (type 17).

    Attributes:
        metadata_hash: hash of the topology's topics; 0 if none existed.
        validated_topology_epoch: the topology's epoch if no topic was missing or wrong, otherwise -1.
        last_assignment_configs: the assignor's settings; None is equivalent to empty.
        stored_description_topology_epoch, failed_description_topology_epoch: epoch of the topology with a description
            that a plugin has stored, or failed to store (KIP-1331); -1 without one.
    """

    group_id: str
    epoch: int
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    last_assignment_configs: tuple[KeyValue, ...] | None = ()
    stored_description_topology_epoch: int = -1
    failed_description_topology_epoch: int = -1
    raw_value: bytes | None = None

    RECORD_TYPE = 17


@frozen
class StreamsGroupMemberMetadataRecord(MemberRecord):
    """Metadata of a member (record type 19)."""

    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[KeyValue, ...] = ()
    raw_value: bytes | None = None

    RECORD_TYPE = 19


@frozen
class StreamsGroupTargetAssignmentMetadataRecord(GroupWideRecord):
    """Group epoch and time of the target assignment (record type 20); time 0 without members."""

    group_id: str
    assignment_epoch: int
    assignment_timestamp_ms: int = 0
    raw_value: bytes | None = None

    RECORD_TYPE = 20


@frozen
class StreamsGroupTargetAssignmentMemberRecord(MemberRecord):
    """Target assignment of a member (record type 21)."""

    group_id: str
    member_id: str
    active_tasks: tuple[TaskIds, ...] = ()
    standby_tasks: tuple[TaskIds, ...] = ()
    warmup_tasks: tuple[TaskIds, ...] = ()
    raw_value: bytes | None = None

    RECORD_TYPE = 21


@frozen
class StreamsGroupCurrentMemberAssignmentRecord(MemberRecord):
    """Current assignment of a member, and tasks to revoke (record type 22).

    ``state`` is 1 for STABLE, 2 for UNREVOKED_TASKS, 3 for UNRELEASED_TASKS; others are of newer brokers.
    """

    group_id: str
    member_id: str
    member_epoch: int
    previous_member_epoch: int
    state: int
    active_tasks: tuple[AssignedTaskIds, ...] = ()
    standby_tasks: tuple[AssignedTaskIds, ...] = ()
    warmup_tasks: tuple[AssignedTaskIds, ...] = ()
    active_tasks_pending_revocation: tuple[AssignedTaskIds, ...] = ()
    standby_tasks_pending_revocation: tuple[AssignedTaskIds, ...] = ()
    warmup_tasks_pending_revocation: tuple[AssignedTaskIds, ...] = ()
    raw_value: bytes | None = None

    RECORD_TYPE = 22


@frozen
class StreamsGroupTopologyRecord(GroupWideRecord):
    """Topology of a group (record type 23), as its first member sent it."""

    group_id: str
    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()
    raw_value: bytes | None = None

    RECORD_TYPE = 23

    @cached_property
    def required_topics(self) -> tuple[str, ...]:
        """Names of all topics, changelogs included, once each."""
        names = (
            name
            for subtopology in self.subtopologies
            for name in (*subtopology.read_topics, *(topic.name for topic in subtopology.state_changelog_topics))
        )
        return tuple(dict.fromkeys(names))

    @cached_property
    def readers(self) -> Mapping[str, str]:
        """Topics that members commit offsets of, each with the id of the subtopology that reads it."""
        # Of several readers the last one in the order of Kafka's hash map counts.
        by_id = {subtopology.subtopology_id: subtopology for subtopology in self.subtopologies}
        return {
            name: subtopology_id
            for subtopology_id in hash_map_order(by_id)
            for name in by_id[subtopology_id].read_topics
        }


StreamsGroupRecord = (
    StreamsGroupMetadataRecord
    | StreamsGroupMemberMetadataRecord
    | StreamsGroupTargetAssignmentMetadataRecord
    | StreamsGroupTargetAssignmentMemberRecord
    | StreamsGroupCurrentMemberAssignmentRecord
    | StreamsGroupTopologyRecord
)
