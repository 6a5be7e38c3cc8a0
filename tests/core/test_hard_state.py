"""Hard state as the last record of each key, after any compaction and interleaving."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from groupcoord.core.log.hard_state import HardState
from groupcoord.core.log.records import (
    AssignedTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    GroupMetadataRecord,
    GroupTombstone,
    OffsetCommitRecord,
    OffsetTombstone,
    Record,
    TopicPartitions,
)
from groupcoord.records.codec import decode_record, encode_record
from tests.records.broker_segment import segment_records
from tests.records.consumer_group_records import consumer_group_records, consumer_group_tombstones

Logged = tuple[int, Record]


def hard_state(records: Iterable[Logged]) -> dict[str, Any]:
    """Return what records make of nothing, without groups of which only offsets are left."""
    hard = HardState()
    for log_offset, record in records:
        hard.apply(record, log_offset)
    facts = hard.facts()
    return {**facts, "groups": {group_id: records for group_id, records in hard.groups.items() if records}}


def at_offsets(records: Iterable[Record]) -> list[Logged]:
    """Return records as they lie in a log."""
    return list(enumerate(records))


def key_of(record: Record) -> bytes:
    """Return what compaction knows a record by."""
    key, _ = encode_record(record)
    return key


GROUP_IDS, NAMES = st.sampled_from(["a", "b"]), st.sampled_from(["m", "n"])
TOPICS, NUMBERS = st.sampled_from(["t", "u"]), st.integers(0, 1)
LOGS = st.lists(
    consumer_group_records(GROUP_IDS, NAMES)
    | consumer_group_tombstones(GROUP_IDS, NAMES)
    | st.builds(GroupMetadataRecord, GROUP_IDS, st.just("consumer"), NUMBERS, st.none(), st.none())
    | st.builds(GroupTombstone, GROUP_IDS)
    | st.builds(OffsetCommitRecord, GROUP_IDS, TOPICS, NUMBERS, NUMBERS)
    | st.builds(OffsetTombstone, GROUP_IDS, TOPICS, NUMBERS),
    max_size=40,
).map(at_offsets)


def compacted(records: Sequence[Logged], chance: Random) -> list[Logged]:
    """Return what compaction may leave: of what a later record replaces, and of tombstones with nothing before, any."""
    last = {key_of(record): log_offset for log_offset, record in records}
    kept: list[Logged] = []
    keys = set()
    for log_offset, record in records:
        key = key_of(record)
        is_tombstone = isinstance(record, GroupTombstone | OffsetTombstone)
        may_go = log_offset < last[key] or (is_tombstone and key not in keys)
        if not may_go or chance.random() < 0.5:
            keys.add(key)
            kept.append((log_offset, record))
    return kept


def interleaved(records: Iterable[Logged], chance: Random) -> list[Logged]:
    """Return records in another order, but those of one key in their own."""
    of_keys: dict[bytes, list[Logged]] = {}
    for logged in records:
        of_keys.setdefault(key_of(logged[1]), []).append(logged)
    waiting = [iter(entries) for entries in of_keys.values()]
    found = []
    while waiting:
        entries = chance.choice(waiting)
        logged_next = next(entries, None)
        if logged_next is None:
            waiting.remove(entries)
        else:
            found.append(logged_next)
    return found


@given(LOGS, st.randoms(use_true_random=False))
def test_compaction_changes_nothing(records: list[Logged], chance: Random) -> None:
    """Replay of the log = replay of any legal compaction of it, for groups of both kinds and for both in turn."""
    assert hard_state(compacted(records, chance)) == hard_state(records)


@given(LOGS, st.randoms(use_true_random=False))
def test_order_between_keys_changes_nothing(records: list[Logged], chance: Random) -> None:
    """Only the order of records with one key counts, so tombstones of a group may come before or after its members'."""
    assert hard_state(interleaved(records, chance)) == hard_state(records)


@given(LOGS)
def test_hard_state_is_the_last_record_of_each_key(records: list[Logged]) -> None:
    """The state of groups equals a dictionary of keys without its tombstones."""
    last = {key_of(record): (log_offset, record) for log_offset, record in records}
    known = {
        log_offset: record
        for log_offset, record in last.values()
        if not isinstance(record, GroupTombstone | OffsetTombstone | OffsetCommitRecord)
    }
    found = [entry for of_group in hard_state(records)["groups"].values() for entry in of_group.values()]

    assert dict(found) == known
    assert len(found) == len(known)


# ---------------------------------------------------------------- what Kafka writes

EPOCH = ConsumerGroupMetadataRecord("g", 2, 77)
TARGET_EPOCH = ConsumerGroupTargetAssignmentMetadataRecord("g", 2, 1_000)
EXPRESSION = ConsumerGroupRegularExpressionRecord("g", "t.*", ("t",), 5, 1_000)
TOPIC_ID = UUID(int=1)


def member(member_id: str) -> ConsumerGroupMemberMetadataRecord:
    return ConsumerGroupMemberMetadataRecord("g", member_id, None, None, "client", "/127.0.0.1", ("t",))


def target(member_id: str, *partitions: int) -> ConsumerGroupTargetAssignmentMemberRecord:
    return ConsumerGroupTargetAssignmentMemberRecord("g", member_id, (TopicPartitions(TOPIC_ID, partitions),))


def current(member_id: str, epoch: int, *partitions: int) -> ConsumerGroupCurrentMemberAssignmentRecord:
    assigned = AssignedTopicPartitions(TOPIC_ID, partitions, (epoch,) * len(partitions))
    return ConsumerGroupCurrentMemberAssignmentRecord("g", member_id, epoch, epoch - 1, 0, (assigned,))


def tombstones(*records: ConsumerGroupRecord | GroupMetadataRecord) -> list[GroupTombstone]:
    return [GroupTombstone(record.group_id, record.key) for record in records]


GROUP: list[ConsumerGroupRecord] = [
    member("m"),
    EPOCH,
    target("m", 0, 1),
    TARGET_EPOCH,
    current("m", 2, 0, 1),
    EXPRESSION,
    ConsumerGroupPartitionMetadataRecord("g"),
]


def groups(*records: Record) -> dict[str, set[Record]]:
    facts = hard_state(at_offsets(records))
    return {group_id: {record for _, record in of.values()} for group_id, of in facts["groups"].items()}


def test_a_group_that_changes_its_kind() -> None:
    """An upgrade and a downgrade leave what is written last, and offsets stay where they are (KIP-848)."""
    classic, later = (GroupMetadataRecord("g", "consumer", number, "range", "m") for number in (1, 3))
    commit = OffsetCommitRecord("g", "t", 0, 5)
    upgrade = [*tombstones(classic), *GROUP]
    downgrade = [*tombstones(*GROUP), later]

    for records, left in (
        ([commit, classic], [classic]),
        ([commit, classic, *upgrade], GROUP),
        ([commit, classic, *upgrade, *downgrade], [later]),
        ([commit, classic, *upgrade, *downgrade, *upgrade], GROUP),
    ):
        facts = hard_state(at_offsets(records))
        assert [record for _, record in facts["groups"]["g"].values()] == left
        assert facts["committed"] == {"g": {"t": {0: (0, commit)}}}


def broker_records() -> list[Logged]:
    return [(log_offset, decode_record(key, value)) for log_offset, key, value in segment_records()]


def test_what_a_broker_left() -> None:
    """A real segment makes what its clients left: a static member that is away, an empty group, a classic one."""
    facts = hard_state(broker_records())
    known = {group_id: sorted(record_type for record_type, _ in of) for group_id, of in facts["groups"].items()}
    away = next(record for _, record in facts["groups"]["modern"].values() if record.key[0] == 8)

    assert known == {"modern": [3, 5, 6, 7, 8], "regex": [3, 6], "moves": [2]}
    assert away.member_epoch == -2
    assert facts["committed"].keys() == {"modern"}


@given(st.randoms(use_true_random=False))
def test_compaction_of_what_a_broker_wrote(chance: Random) -> None:
    """A real segment gives the same state after any legal compaction."""
    assert hard_state(compacted(broker_records(), chance)) == hard_state(broker_records())


@given(LOGS)
def test_appends_change_what_their_records_change(records: list[Logged]) -> None:
    """Records that are taken over together make what they make one by one, runs of tombstones included."""
    together, one_by_one = HardState(), HardState()
    together.apply_all([record for _, record in records], 0)
    for log_offset, record in records:
        one_by_one.apply(record, log_offset)
    assert together.facts() == one_by_one.facts()
    together.offsets.check()
