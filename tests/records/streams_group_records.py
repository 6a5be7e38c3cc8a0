"""Records of streams groups: golden bytes of Kafka's classes, and strategies for values."""

from __future__ import annotations

from hypothesis import strategies as st

from groupcoord.core.log.records import (
    AssignedTaskIds,
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupRecord,
    StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord,
    Subtopology,
    TaskIds,
    TopicInfo,
)

from .consumer_group_records import GROUP, MEMBER, int32s, int64s, several, texts

STREAMS_MEMBER_VALUE = "0000 00 00 02 63 0b 2f3132372e302e302e31 0000afc8 00000000 03 7031"

_OWNED = (AssignedTaskIds("0", (0,), (2,)), AssignedTaskIds("1", (0,), (2,)))
_OWNED_BYTES = "03 02 30 02 00000000 01 00 05 02 00000002 02 31 02 00000000 01 00 05 02 00000002"
_STANDBY = (AssignedTaskIds("0", (1,), None),)
_STANDBY_BYTES = "02 02 30 02 00000001 01 00 01 00"
_PENDING = (AssignedTaskIds("0", (1,), (2,)), AssignedTaskIds("1", (1,), (2,)))
_PENDING_BYTES = "03 02 30 02 00000001 01 00 05 02 00000002 02 31 02 00000001 01 00 05 02 00000002"

STREAMS_GROUP_GOLDEN: list[tuple[str, str, StreamsGroupRecord]] = [
    (
        f"0011 {GROUP}",
        "0000 00000002 3f58432688e42dbe 02 00 04 0000000001 19 02 15 6e756d2e7374616e6462792e7265706c69636173 02 31 00",
        StreamsGroupMetadataRecord("g1", 2, 0x3F58432688E42DBE, 0, (KeyValue("num.standby.replicas", "1"),)),
    ),
    (f"0011 {GROUP}", "0000 00000002 0000000000000000 00", StreamsGroupMetadataRecord("g1", 2)),
    (
        f"0011 {GROUP}",
        "0000 00000002 0000000000000000 03 01 01 00 02 04 00000003 03 04 fffffffe",
        StreamsGroupMetadataRecord(
            "g1",
            2,
            last_assignment_configs=None,
            stored_description_topology_epoch=3,
            failed_description_topology_epoch=-2,
        ),
    ),
    (
        f"0013 {MEMBER}",
        f"{STREAMS_MEMBER_VALUE} 01 02 68 1f90 00 03 02 61 02 32 00 02 7a 02 31 00 00",
        StreamsGroupMemberMetadataRecord(
            "g1",
            "m1",
            None,
            None,
            "c",
            "/127.0.0.1",
            45_000,
            0,
            "p1",
            Endpoint("h", 8_080),
            (KeyValue("a", "2"), KeyValue("z", "1")),
        ),
    ),
    (
        f"0013 {MEMBER}",
        "0000 03 6931 02 72 02 63 0b 2f3132372e302e302e31 0000afc8 00000000 03 7032 ff 01 00",
        StreamsGroupMemberMetadataRecord("g1", "m1", "i1", "r", "c", "/127.0.0.1", 45_000, 0, "p2"),
    ),
    (
        f"0014 {GROUP}",
        "0000 00000002 01 00 08 0000018bcfe56800",
        StreamsGroupTargetAssignmentMetadataRecord("g1", 2, 1_700_000_000_000),
    ),
    (f"0014 {GROUP}", "0000 00000005 00", StreamsGroupTargetAssignmentMetadataRecord("g1", 5)),
    (
        f"0015 {MEMBER}",
        "0000 03 02 30 02 00000000 00 02 31 02 00000000 00 02 02 30 02 00000001 00 01 00",
        StreamsGroupTargetAssignmentMemberRecord(
            "g1", "m1", (TaskIds("0", (0,)), TaskIds("1", (0,))), (TaskIds("0", (1,)),)
        ),
    ),
    (
        f"0016 {MEMBER}",
        f"0000 00000003 00000002 01 {_OWNED_BYTES} {_STANDBY_BYTES} 01 01 01 01 00",
        StreamsGroupCurrentMemberAssignmentRecord("g1", "m1", 3, 2, 1, _OWNED, _STANDBY),
    ),
    (
        f"0016 {MEMBER}",
        f"0000 00000002 00000002 02 {_OWNED_BYTES} {_STANDBY_BYTES} 01 {_PENDING_BYTES} 01 01 00",
        StreamsGroupCurrentMemberAssignmentRecord(
            "g1", "m1", 2, 2, 2, _OWNED, _STANDBY, active_tasks_pending_revocation=_PENDING
        ),
    ),
    (
        f"0017 {GROUP}",
        "0000 00000000 03 02 30 03 03 7432 03 7431 01 02 03 7374 00000000 0001 02 0f 636c65616e75702e706f6c696379"
        "08 636f6d70616374 00 00 02 02 72 01 02 03 0000 0001 01 01 00 00 02 31 01 01 01 01 02 02 72 00000000 0000 01 00"
        "01 00 00",
        StreamsGroupTopologyRecord(
            "g1",
            0,
            (
                Subtopology(
                    "0",
                    source_topics=("t2", "t1"),
                    state_changelog_topics=(TopicInfo("st", 0, 1, (KeyValue("cleanup.policy", "compact"),)),),
                    repartition_sink_topics=("r",),
                    copartition_groups=(CopartitionGroup((0, 1)),),
                ),
                Subtopology("1", repartition_source_topics=(TopicInfo("r"),)),
            ),
        ),
    ),
]
"""The key, the value that Kafka's own classes write, and the record."""

_int16s = st.integers(-(2**15), 2**15 - 1)
_places = several(_int16s)
_key_values = several(st.builds(KeyValue, texts, texts))
_topics = several(st.builds(TopicInfo, texts, int32s, _int16s, _key_values))
_tasks = several(st.builds(TaskIds, texts, several(int32s)))
_assigned = several(st.builds(AssignedTaskIds, texts, several(int32s), st.none() | several(int32s)))
_subtopologies = several(
    st.builds(
        Subtopology,
        texts,
        several(texts),
        several(texts),
        _topics,
        several(texts),
        _topics,
        several(st.builds(CopartitionGroup, _places, _places, _places)),
    )
)


def streams_group_records(
    group_ids: st.SearchStrategy[str] = texts, names: st.SearchStrategy[str] = texts
) -> st.SearchStrategy[StreamsGroupRecord]:
    """Return records of all six kinds.

    Args:
        group_ids: the groups that they are about.
        names: the members that they are about.
    """
    return st.one_of(
        st.builds(
            StreamsGroupMetadataRecord, group_ids, int32s, int64s, int32s, st.none() | _key_values, int32s, int32s
        ),
        st.builds(
            StreamsGroupMemberMetadataRecord,
            group_ids,
            names,
            st.none() | texts,
            st.none() | texts,
            texts,
            texts,
            int32s,
            int32s,
            texts,
            st.none() | st.builds(Endpoint, texts, st.integers(0, 65_535)),
            _key_values,
        ),
        st.builds(StreamsGroupTargetAssignmentMetadataRecord, group_ids, int32s, int64s),
        st.builds(StreamsGroupTargetAssignmentMemberRecord, group_ids, names, _tasks, _tasks, _tasks),
        st.builds(
            StreamsGroupCurrentMemberAssignmentRecord,
            group_ids,
            names,
            int32s,
            int32s,
            st.integers(-128, 127),
            _assigned,
            _assigned,
            _assigned,
            _assigned,
            _assigned,
            _assigned,
        ),
        st.builds(StreamsGroupTopologyRecord, group_ids, int32s, _subtopologies),
    )
