"""Records of share groups: golden bytes of Kafka's classes, and strategies for values."""

from __future__ import annotations

from hypothesis import strategies as st

from groupcoord.core.log.records import (
    NamedTopic,
    NamedTopicPartitions,
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
    TopicPartitions,
)

from .consumer_group_records import GROUP, ID, MEMBER, TOPIC_ID, int32s, int64s, several, texts

SHARE_GROUP_GOLDEN: list[tuple[str, str, ShareGroupRecord]] = [
    (
        f"000a {MEMBER}",
        "0000 00 02 63 0b 2f3132372e302e302e31 02 03 7431 00",
        ShareGroupMemberMetadataRecord("g1", "m1", None, "c", "/127.0.0.1", ("t1",)),
    ),
    (
        f"000a {MEMBER}",
        "0000 02 72 02 63 0b 2f3132372e302e302e31 01 00",
        ShareGroupMemberMetadataRecord("g1", "m1", "r", "c", "/127.0.0.1"),
    ),
    (
        f"000b {GROUP}",
        "0000 00000002 387bfac03d95e58c 00",
        ShareGroupMetadataRecord("g1", 2, 0x387BFAC03D95E58C),
    ),
    (
        f"000c {GROUP}",
        "0000 00000002 01 00 08 0000018bcfe56800",
        ShareGroupTargetAssignmentMetadataRecord("g1", 2, 1_700_000_000_000),
    ),
    (f"000c {GROUP}", "0000 00000006 00", ShareGroupTargetAssignmentMetadataRecord("g1", 6)),
    (f"000d {MEMBER}", "0000 01 00", ShareGroupTargetAssignmentMemberRecord("g1", "m1")),
    (
        f"000d {MEMBER}",
        f"0000 02 {ID} 02 00000000 00 00",
        ShareGroupTargetAssignmentMemberRecord("g1", "m1", (TopicPartitions(TOPIC_ID, (0,)),)),
    ),
    (
        f"000e {MEMBER}",
        "0000 00000002 00000000 00 01 00",
        ShareGroupCurrentMemberAssignmentRecord("g1", "m1", 2, 0),
    ),
    (
        f"000e {MEMBER}",
        f"0000 00000003 00000002 00 02 {ID} 02 00000000 00 00",
        ShareGroupCurrentMemberAssignmentRecord("g1", "m1", 3, 2, 0, (TopicPartitions(TOPIC_ID, (0,)),)),
    ),
    (
        f"000f {GROUP}",
        f"0000 02 {ID} 03 7431 02 00000000 00 01 01 00",
        ShareGroupStatePartitionMetadataRecord("g1", (NamedTopicPartitions(TOPIC_ID, "t1", (0,)),)),
    ),
    (
        f"000f {GROUP}",
        f"0000 01 02 {ID} 03 7431 02 00000000 00 02 {ID} 03 7431 00 00",
        ShareGroupStatePartitionMetadataRecord(
            "g1", (), (NamedTopicPartitions(TOPIC_ID, "t1", (0,)),), (NamedTopic(TOPIC_ID, "t1"),)
        ),
    ),
]

_partitions = several(st.builds(TopicPartitions, st.uuids(), several(int32s)))
_named_partitions = several(st.builds(NamedTopicPartitions, st.uuids(), texts, several(int32s)))


def share_group_records() -> st.SearchStrategy[ShareGroupRecord]:
    return st.one_of(
        st.builds(ShareGroupMemberMetadataRecord, texts, texts, st.none() | texts, texts, texts, several(texts)),
        st.builds(ShareGroupMetadataRecord, texts, int32s, int64s),
        st.builds(ShareGroupTargetAssignmentMetadataRecord, texts, int32s, int64s),
        st.builds(ShareGroupTargetAssignmentMemberRecord, texts, texts, _partitions),
        st.builds(
            ShareGroupCurrentMemberAssignmentRecord, texts, texts, int32s, int32s, st.integers(-128, 127), _partitions
        ),
        st.builds(
            ShareGroupStatePartitionMetadataRecord,
            texts,
            _named_partitions,
            _named_partitions,
            several(st.builds(NamedTopic, st.uuids(), texts)),
        ),
    )
