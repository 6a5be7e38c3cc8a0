"""Records of consumer groups: golden bytes of Kafka's classes, and strategies for values, tombstones among them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from attrs import evolve
from hypothesis import strategies as st

from groupcoord.core.log.records import (
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

TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
ID = TOPIC_ID.hex
GROUP, MEMBER, EXPRESSION = "0002 6731", "0002 6731 0002 6d31", "0002 6731 0003 742e2a"
MEMBER_VALUE = "0000 00 02 72 02 63 0b 2f3132372e302e302e31 02 03 7431 01 0000afc8 00"

OF_CONSUMER_PROTOCOL = ConsumerGroupMemberMetadataRecord(
    "g1", "m1", None, "r", "c", "/127.0.0.1", ("t1",), subscribed_topic_regex="", rebalance_timeout_ms=45_000
)
OF_CLASSIC_PROTOCOL = ConsumerGroupMemberMetadataRecord(
    "g1",
    "m1",
    instance_id="i1",
    rack_id=None,
    client_id="c",
    client_host="h",
    server_assignor="range",
    classic_member_metadata=ClassicMemberMetadata(45_000, (ClassicProtocol("range", b"\x09"),)),
)
STABLE = ConsumerGroupCurrentMemberAssignmentRecord("g1", "m1", member_epoch=2, previous_member_epoch=1, state=0)

CONSUMER_GROUP_GOLDEN: list[tuple[str, str, ConsumerGroupRecord]] = [
    (
        f"0003 {GROUP}",
        "0000 00000002 01 00 08 1122334455667788",
        ConsumerGroupMetadataRecord("g1", 2, 0x1122334455667788),
    ),
    (f"0003 {GROUP}", "0000 00000002 00", ConsumerGroupMetadataRecord("g1", 2)),
    (
        f"0004 {GROUP}",
        f"0000 02 {ID} 03 7431 00000002 02 00000001 03 0261 0262 00 00 00",
        ConsumerGroupPartitionMetadataRecord(
            "g1", (TopicMetadata(TOPIC_ID, "t1", 2, (PartitionMetadata(1, ("a", "b")),)),)
        ),
    ),
    (f"0004 {GROUP}", "0000 01 00", ConsumerGroupPartitionMetadataRecord("g1")),
    (f"0005 {MEMBER}", f"{MEMBER_VALUE} 01 00 01 00", OF_CONSUMER_PROTOCOL),
    (
        f"0005 {MEMBER}",
        f"{MEMBER_VALUE} 00",  # no tag: a member of the classic protocol
        evolve(OF_CONSUMER_PROTOCOL, classic_member_metadata=ClassicMemberMetadata(0, ())),
    ),
    (
        f"0005 {MEMBER}",
        "0000 03 6931 00 02 63 02 68 01 00 ffffffff 06 72616e6765 01 00 10 01 0000afc8 02 06 72616e6765 02 09 00 00",
        OF_CLASSIC_PROTOCOL,
    ),
    (
        f"0006 {GROUP}",
        "0000 00000002 01 00 08 00000000000003e8",
        ConsumerGroupTargetAssignmentMetadataRecord("g1", 2, 1_000),
    ),
    (f"0006 {GROUP}", "0000 00000002 00", ConsumerGroupTargetAssignmentMetadataRecord("g1", 2)),
    (
        f"0007 {MEMBER}",
        f"0000 02 {ID} 03 00000000 00000001 00 00",
        ConsumerGroupTargetAssignmentMemberRecord("g1", "m1", (TopicPartitions(TOPIC_ID, (0, 1)),)),
    ),
    (f"0007 {MEMBER}", "0000 01 00", ConsumerGroupTargetAssignmentMemberRecord("g1", "m1")),
    (
        f"0008 {MEMBER}",
        f"0000 00000002 00000001 00 02 {ID} 03 00000000 00000001 01 00 09 03 00000002 00000002 01 00",
        evolve(STABLE, assigned_partitions=(AssignedTopicPartitions(TOPIC_ID, (0, 1), (2, 2)),)),
    ),
    (f"0008 {MEMBER}", "0000 00000002 00000001 00 01 01 00", STABLE),
    (
        f"0008 {MEMBER}",
        f"0000 00000002 00000001 00 02 {ID} 02 00000007 00 01 00",  # of a broker before 4.3: no epochs
        evolve(STABLE, assigned_partitions=(AssignedTopicPartitions(TOPIC_ID, (7,)),)),
    ),
    (
        f"0008 {MEMBER}",
        f"0000 00000002 00000001 01 01 02 {ID} 02 00000000 01 00 01 00 00",
        evolve(STABLE, state=1, partitions_pending_revocation=(AssignedTopicPartitions(TOPIC_ID, (0,), None),)),
    ),
    (
        f"0010 {EXPRESSION}",
        "0000 02 03 7431 000000000000000c 00000000000003e8 00",
        ConsumerGroupRegularExpressionRecord("g1", "t.*", ("t1",), 12, 1_000),
    ),
]
"""The key, the value that Kafka's own classes write, and the record."""

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
    records = consumer_group_records(group_ids, names)
    return records.map(lambda record: GroupTombstone(record.group_id, record.key))
