"""State of a consumer group, independent of the order and compaction of its records."""

from __future__ import annotations

import random
from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord.core.groups.consumer.assignors import SubscriptionType
from groupcoord.core.groups.consumer.records import (
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
    TopicPartitions,
)
from groupcoord.core.groups.consumer.state import ConsumerState
from groupcoord.core.log.record_keys import RecordKey
from groupcoord.core.log.records import GroupTombstone

GROUP = "group"
ORDERS, PAYMENTS = UUID(int=1), UUID(int=2)
PARTITIONS = [(topic_id, index) for topic_id in (ORDERS, PAYMENTS) for index in range(3)]
MEMBER_IDS = ("a", "b", "c")
REGEXES = ("o.*", "p.*")
CLASSIC = ClassicMemberMetadata(10_000, (ClassicProtocol("range", b""),))

Entry = ConsumerGroupRecord | GroupTombstone
Held = dict[UUID, tuple[int, ...]]

member_ids = st.sampled_from(MEMBER_IDS)
epochs = st.integers(2, 9)


def by_topic(partitions: set[tuple[UUID, int]]) -> Held:
    return {
        topic_id: indexes
        for topic_id in (ORDERS, PAYMENTS)
        if (indexes := tuple(sorted(index for topic, index in partitions if topic == topic_id)))
    }


@st.composite
def member_records(draw: st.DrawFn) -> ConsumerGroupMemberMetadataRecord:
    """Return the records of a member; an instance id belongs to one member."""
    member_id = draw(member_ids)
    return ConsumerGroupMemberMetadataRecord(
        GROUP,
        member_id,
        draw(st.sampled_from([None, f"instance of {member_id}"])),
        None,
        "client",
        "/127.0.0.1",
        tuple(draw(st.lists(st.sampled_from(["orders", "payments"]), max_size=3))),
        draw(st.sampled_from([None, "", *REGEXES])),
        60_000,
        draw(st.sampled_from([None, "range", "uniform"])),
        draw(st.sampled_from([None, CLASSIC])),
    )


@st.composite
def target_records(draw: st.DrawFn) -> ConsumerGroupTargetAssignmentMemberRecord:
    target = by_topic(draw(st.sets(st.sampled_from(PARTITIONS))))
    topics = tuple(TopicPartitions(*entry) for entry in target.items())
    return ConsumerGroupTargetAssignmentMemberRecord(GROUP, draw(member_ids), topics)


keys = st.one_of(
    st.sampled_from([(3, ""), (4, ""), (6, "")]),
    st.tuples(st.sampled_from([5, 7, 8]), member_ids),
    st.tuples(st.just(16), st.sampled_from(REGEXES)),
)


@st.composite
def assignment_records(draw: st.DrawFn, others: set[tuple[UUID, int]], member_id: str) -> Entry:
    held = draw(st.sets(st.sampled_from(PARTITIONS))) - others
    pending = draw(st.sets(st.sampled_from(PARTITIONS))) & held
    epoch = draw(epochs)
    return ConsumerGroupCurrentMemberAssignmentRecord(
        GROUP,
        member_id,
        epoch,
        epoch - 1,
        draw(st.integers(0, 2)),
        *(
            tuple(AssignedTopicPartitions(topic, indexes, ()) for topic, indexes in by_topic(part).items())
            for part in (held - pending, pending)
        ),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Return records and tombstones in the order of a log, in which a partition is never two members'."""
    entries: list[Entry] = []
    held: dict[str, set[tuple[UUID, int]]] = {}
    plain = st.one_of(
        st.builds(ConsumerGroupMetadataRecord, st.just(GROUP), epochs, st.integers(0, 3)),
        st.just(ConsumerGroupPartitionMetadataRecord(GROUP)),
        member_records(),
        st.builds(ConsumerGroupTargetAssignmentMetadataRecord, st.just(GROUP), epochs, st.integers(0, 3)),
        target_records(),
        st.builds(
            ConsumerGroupRegularExpressionRecord,
            st.just(GROUP),
            st.sampled_from(REGEXES),
            st.sampled_from([(), ("orders",), ("orders", "payments")]),
            st.integers(0, 3),
            st.integers(0, 3),
        ),
        st.builds(GroupTombstone, st.just(GROUP), keys),
        member_ids,
    )
    for entry in draw(st.lists(plain, max_size=25)):
        if isinstance(entry, str):
            others = {partition for other, partitions in held.items() if other != entry for partition in partitions}
            record = draw(assignment_records(others, entry))
            assert isinstance(record, ConsumerGroupCurrentMemberAssignmentRecord)
            topics = (*record.assigned_partitions, *record.partitions_pending_revocation)
            held[entry] = {(topic.topic_id, index) for topic in topics for index in topic.partitions}
            entries.append(record)
            continue
        if isinstance(entry, GroupTombstone) and entry.key[0] == 8:
            held.pop(entry.key[1], None)
        entries.append(entry)
    return entries


def applied(entries: list[Entry]) -> ConsumerState:
    """Return the state after one entry after another."""
    state = ConsumerState(GROUP)
    for entry in entries:
        state.apply(entry)
    return state


def left(entries: list[Entry]) -> list[Entry]:
    """Return what compaction leaves: the last record of each key that is not gone."""
    last: dict[RecordKey, Entry] = {}
    for entry in entries:
        last[entry.key] = entry
    return [entry for entry in last.values() if not isinstance(entry, GroupTombstone)]


@given(histories(), st.randoms(use_true_random=False))
def test_a_state_is_its_last_records(entries: list[Entry], order: random.Random) -> None:
    """The last record of each key gives the same state as the whole history, in any order."""
    expected = applied(entries).facts()
    records = left(entries)
    order.shuffle(records)
    assert ConsumerState.of(GROUP, records).facts() == expected


@given(histories(), st.integers(0, 25), st.randoms(use_true_random=False))
def test_compaction_of_the_beginning(entries: list[Entry], count: int, order: random.Random) -> None:
    """A state loaded from a compacted beginning continues like one with the whole history."""
    records = left(entries[:count])
    order.shuffle(records)
    state = ConsumerState.of(GROUP, records)
    for entry in entries[count:]:
        state.apply(entry)
    assert state.facts() == applied(entries).facts()


@given(histories(), histories())
def test_a_copy_changes_alone(entries: list[Entry], more: list[Entry]) -> None:
    """Changes of a copy leave the original unchanged, and the reverse."""
    state, twin = applied(entries), applied(entries)
    copy = state.copy()
    assert copy.facts() == twin.facts()
    for entry in [*state.tombstones(), *more]:
        copy.apply(entry)
    assert state.facts() == twin.facts()
    after = copy.copy()
    for entry in state.tombstones():
        state.apply(entry)
    assert copy.facts() == after.facts()


@given(histories())
def test_what_follows_from_the_members(entries: list[Entry]) -> None:
    """Owners, subscribers, votes and static members are those of the members that there are."""
    state = applied(entries)
    members = state.members.values()
    assert state.owner_epochs == {
        partition: member.assignment.member_epoch for member in members for partition in member.partitions()
    }
    assert state.name_subscribers == Counter(n for m in members for n in set(m.metadata.subscribed_topic_names))
    assert state.regex_subscribers == Counter(member.regex for member in members if member.regex)
    assert state.votes == Counter(m.metadata.server_assignor for m in members if m.metadata.server_assignor)
    assert state.static_members == {m.metadata.instance_id: m.member_id for m in members if m.metadata.instance_id}
    assert state.classic_member_count == sum(member.uses_classic_protocol for member in members)


@given(histories())
def test_the_tombstones_of_a_group_leave_nothing(entries: list[Entry]) -> None:
    """After them the state is that of a group that never was, and no record is left in the log."""
    tombstones: list[Entry] = list(applied(entries).tombstones())
    assert applied([*entries, *tombstones]).facts() == ConsumerState(GROUP).facts()
    assert left([*entries, *tombstones]) == []


def subscriber(member_id: str, *names: str, regex: str = "") -> ConsumerGroupMemberMetadataRecord:
    return ConsumerGroupMemberMetadataRecord(GROUP, member_id, None, None, "client", "/127.0.0.1", names, regex)


@pytest.mark.parametrize(
    ("topics", "seen"),
    [(("payments",), SubscriptionType.HOMOGENEOUS), (("orders", "payments"), SubscriptionType.HETEROGENEOUS)],
)
def test_what_kafka_sees_of_subscriptions_when_another_expression_stays(
    topics: tuple[str, ...], seen: SubscriptionType
) -> None:
    """Topics that both expressions stood for count twice until the next change."""
    staying, leaving = subscriber("a", regex="o.*"), subscriber("b", regex="p.*")
    resolved = ConsumerGroupRegularExpressionRecord(GROUP, "o.*", ("orders",), 1, 0)
    other = ConsumerGroupRegularExpressionRecord(GROUP, "p.*", topics, 1, 0)
    gone = [GroupTombstone(GROUP, record.key) for record in (leaving, other)]
    assert applied([staying, leaving, resolved, other, *gone]).last_seen_subscriptions() is seen
