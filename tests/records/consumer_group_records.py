"""Strategies for records of consumer groups as values, tombstones among them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from groupcoord.core.records import (
    AssignedTopicPartitions,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    GroupTombstone,
    PartitionMetadata,
    TopicMetadata,
    TopicPartitions,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


def several(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Return tuples of up to three elements."""
    return st.lists(elements, max_size=3).map(tuple)


_partitions = several(int32s)
_racks = several(texts)
_classic_members = st.builds(
    ClassicMemberMetadata, int32s, several(st.builds(ClassicProtocol, texts, st.binary(max_size=12)))
)
_topics = several(
    st.builds(TopicMetadata, st.uuids(), texts, int32s, several(st.builds(PartitionMetadata, int32s, _racks)))
)
_assigned = several(st.builds(AssignedTopicPartitions, st.uuids(), _partitions, st.none() | _partitions))


def consumer_group_records(
    group_ids: st.SearchStrategy[str] = texts, names: st.SearchStrategy[str] = texts
) -> st.SearchStrategy[ConsumerGroupRecord]:
    """Return records of all seven kinds.

    Args:
        group_ids: the groups that they are about.
        names: the members and regular expressions that they are about.
    """
    return st.one_of(
        st.builds(ConsumerGroupMetadataRecord, group_ids, int32s, int64s),
        st.builds(ConsumerGroupPartitionMetadataRecord, group_ids, _topics),
        st.builds(
            ConsumerGroupMemberMetadataRecord,
            group_ids,
            names,
            instance_id=st.none() | texts,
            rack_id=st.none() | texts,
            client_id=texts,
            client_host=texts,
            subscribed_topic_names=several(texts),
            subscribed_topic_regex=st.none() | texts,
            rebalance_timeout_ms=int32s,
            server_assignor=st.none() | texts,
            classic_member_metadata=st.none() | _classic_members,
        ),
        st.builds(ConsumerGroupTargetAssignmentMetadataRecord, group_ids, int32s, int64s),
        st.builds(
            ConsumerGroupTargetAssignmentMemberRecord,
            group_ids,
            names,
            several(st.builds(TopicPartitions, st.uuids(), _partitions)),
        ),
        st.builds(
            ConsumerGroupCurrentMemberAssignmentRecord,
            group_ids,
            names,
            int32s,
            int32s,
            st.integers(-128, 127),
            _assigned,
            _assigned,
        ),
        st.builds(ConsumerGroupRegularExpressionRecord, group_ids, names, several(texts), int64s, int64s),
    )


def consumer_group_tombstones(
    group_ids: st.SearchStrategy[str] = texts, names: st.SearchStrategy[str] = texts
) -> st.SearchStrategy[GroupTombstone]:
    """Return the tombstones of such records."""
    records = consumer_group_records(group_ids, names)
    return records.map(lambda record: GroupTombstone(record.group_id, record.key))
