"""What every assignment of the coordinator has to be, whatever Kafka answers: whole, fair, sticky, always the same."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from groupcoord.core.groups.base.topics import Topic
from groupcoord.core.groups.consumer.assignors import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    RangeAssignor,
    SubscriptionType,
    UniformAssignor,
)
from groupcoord.core.javacompat.hashing import hash_map_order

RANGE, UNIFORM = RangeAssignor(), UniformAssignor()
Owned = dict[str, set[tuple[UUID, int]]]

calm = settings(max_examples=100)
both = pytest.mark.parametrize("assignor", [RANGE, UNIFORM], ids=lambda assignor: assignor.name)

member_ids = st.text(st.sampled_from("ABCab019-é"), min_size=1, max_size=5) | st.uuids().map(str)


def topic(topic_id: UUID, partition_count: int) -> Topic:
    """Return a topic without racks."""
    return Topic(f"topic-{topic_id.int % 1000}", topic_id, partition_count)


def group_of(members: Mapping[str, MemberSpec], topics: Mapping[UUID, Topic]) -> GroupSpec:
    are_equal = len({frozenset(member.topic_ids) for member in members.values()}) <= 1
    kind = SubscriptionType.HOMOGENEOUS if are_equal else SubscriptionType.HETEROGENEOUS
    return GroupSpec(members, kind, topics, tuple(hash_map_order(sorted(members))))


@st.composite
def groups(draw: st.DrawFn, *, are_equal: bool | None = None) -> GroupSpec:
    """Generate new groups, with equal or with different subscriptions."""
    ids = draw(st.lists(st.uuids(), min_size=1, max_size=6, unique=True))
    topics = {topic_id: topic(topic_id, draw(st.integers(1, 20))) for topic_id in ids}
    some = st.lists(st.sampled_from(ids), min_size=1, unique=True).map(lambda chosen: tuple(sorted(chosen)))
    if are_equal is None:
        are_equal = draw(st.booleans())
    wanted = st.just(draw(some)) if are_equal else some
    instances = st.none() | st.uuids().map(str)
    chosen = draw(st.lists(member_ids, min_size=1, max_size=9, unique=True))
    return group_of({m: MemberSpec(draw(wanted), {}, draw(instances)) for m in chosen}, topics)


def having(group: GroupSpec, assignment: GroupAssignment) -> dict[str, MemberSpec]:
    """Return the members with what they were given."""
    return {m: evolve(member, assigned=assignment.get(m, {})) for m, member in group.members.items()}


def owned(assignment: GroupAssignment) -> Owned:
    """Return each member's partitions as a set."""
    return {m: {(t, p) for t, partitions in topics.items() for p in partitions} for m, topics in assignment.items()}


def sizes(assignment: GroupAssignment) -> list[int]:
    """Return how many partitions each member has."""
    return [len(partitions) for partitions in owned(assignment).values()]


@both
@calm
@given(group=groups())
def test_each_partition_has_one_owner_that_wants_it(assignor: Assignor, group: GroupSpec) -> None:
    """Every partition of a topic that is subscribed to is given once, to a subscriber."""
    assignment = assignor.assign(group)

    given_away = sorted(partition for partitions in owned(assignment).values() for partition in partitions)
    wanted = {topic_id for member in group.members.values() for topic_id in member.topic_ids}
    assert given_away == sorted((t, p) for t in wanted for p in range(group.topics[t].partition_count))
    for member_id, assigned in assignment.items():
        assert assigned.keys() <= set(group.members[member_id].topic_ids)


@calm
@given(group=groups(are_equal=True), data=st.data())
def test_uniform_gives_equal_shares(group: GroupSpec, data: st.DataObject) -> None:
    """If all want the same, nobody has two more than another, also after members came and went."""
    first = UNIFORM.assign(group)
    assert max(sizes(first)) - min(sizes(first)) <= 1
    staying = data.draw(st.lists(st.sampled_from(sorted(group.members)), min_size=1, unique=True))
    coming = data.draw(st.lists(member_ids, max_size=5, unique=True))
    members = {m: member for m, member in having(group, first).items() if m in staying}
    topic_ids = next(iter(members.values())).topic_ids
    changed = group_of({m: MemberSpec(topic_ids) for m in coming} | members, group.topics)

    second = UNIFORM.assign(changed)

    assert max(sizes(second)) - min(sizes(second)) <= 1
    before, after = owned(first), owned(second)
    for member_id in staying:
        # A member that gives something up gets nothing new, and one that gets something new gave nothing up.
        assert before[member_id] <= after[member_id] or after[member_id] <= before[member_id]


@calm
@given(group=groups(are_equal=True), data=st.data())
def test_who_stays_keeps_everything(group: GroupSpec, data: st.DataObject) -> None:
    """When members leave a uniform group of equal subscriptions, the others keep what they have and share the rest."""
    first = UNIFORM.assign(group)
    staying = data.draw(st.lists(st.sampled_from(sorted(group.members)), min_size=1, unique=True))
    members = {m: member for m, member in having(group, first).items() if m in staying}

    second = owned(UNIFORM.assign(group_of(members, group.topics)))

    assert all(
        second[member_id] >= partitions for member_id, partitions in owned(first).items() if member_id in staying
    )


@both
@calm
@given(group=groups())
def test_nothing_moves_without_a_cause(assignor: Assignor, group: GroupSpec) -> None:
    """When an assignment is worked out anew, nothing changes."""
    first = assignor.assign(group)

    assert owned(assignor.assign(group_of(having(group, first), group.topics))) == owned(first)


@calm
@given(group=groups(are_equal=False))
def test_nobody_could_take_one_from_a_larger_member(group: GroupSpec) -> None:
    """In a new uniform group, whoever wants a topic has at most one partition less than any owner of its partitions."""
    assignment = UNIFORM.assign(group)
    loads = {member_id: len(partitions) for member_id, partitions in owned(assignment).items()}
    for owner, assigned in assignment.items():
        for topic_id in assigned:
            for member_id, member in group.members.items():
                assert topic_id not in member.topic_ids or loads[owner] <= loads.get(member_id, 0) + 1


@calm
@given(group=groups())
def test_range_shares_each_topic_in_runs(group: GroupSpec) -> None:
    """Of each topic everybody has a run without gaps, static members by instance id first; early ones have one more."""

    def place(member_id: str) -> tuple[bool, bytes]:
        instance_id = group.members[member_id].instance_id
        return instance_id is None, (instance_id or member_id).encode("utf-16-be")

    assignment = RANGE.assign(group)
    for topic_id, found in group.topics.items():
        members = sorted((m for m, member in group.members.items() if topic_id in member.topic_ids), key=place)
        runs = [assignment[member_id].get(topic_id, ()) for member_id in members]
        assert [p for run in runs for p in run] == list(range(found.partition_count if members else 0))
        lengths = [len(run) for run in runs]
        assert lengths == sorted(lengths, reverse=True)
        assert max(lengths, default=0) - min(lengths, default=0) <= 1


@both
@calm
@given(group=groups(), data=st.data())
def test_how_mappings_were_made_does_not_show(assignor: Assignor, group: GroupSpec, data: st.DataObject) -> None:
    """Members and topics in another order, as after a restart, give the same answer, order included."""
    group = group_of(having(group, assignor.assign(group)), group.topics)
    if data.draw(st.booleans()):
        del group.members[min(group.members)]  # type: ignore[attr-defined]
        group = group_of(group.members, group.topics)
    members = dict(data.draw(st.permutations(list(group.members.items()))))
    topics = dict(data.draw(st.permutations(list(group.topics.items()))))

    assert repr(sorted(assignor.assign(evolve(group, members=members, topics=topics)).items())) == repr(
        sorted(assignor.assign(group).items())
    )


@both
def test_a_group_without_members_or_topics_has_nothing(assignor: Assignor) -> None:
    topics = {UUID(int=1): topic(UUID(int=1), 3)}
    assert not assignor.assign(group_of({}, topics))
    for members in ({"m": MemberSpec(())}, {"m": MemberSpec(()), "n": MemberSpec(())}):
        assert not any(assignor.assign(group_of(members, topics)).values())
    members = {"m": MemberSpec(()), "n": MemberSpec((UUID(int=1),))}
    assert owned(assignor.assign(group_of(members, topics)))["n"] == {(UUID(int=1), p) for p in range(3)}


@both
@pytest.mark.parametrize("others", [(), (UUID(int=1),)])
def test_a_topic_that_does_not_exist_is_an_error(assignor: Assignor, others: tuple[UUID, ...]) -> None:
    """Whoever asks names topics that exist; other ones are refused, with equal and with different subscriptions."""
    gone = UUID(int=7)
    group = group_of({"m": MemberSpec((gone,)), "n": MemberSpec((gone, *others))}, {UUID(int=1): topic(UUID(int=1), 1)})

    with pytest.raises(PartitionAssignorError, match=str(gone)):
        assignor.assign(group)


def test_partitions_that_two_members_have_leave_no_room() -> None:
    """If the targets before contradict each other, so that quotas can't be kept, the uniform assignor refuses."""
    topic_id = UUID(int=1)
    had = MemberSpec((topic_id,), {topic_id: (0, 1, 2)})
    group = group_of({"m": had, "n": had}, {topic_id: topic(topic_id, 4)})

    with pytest.raises(PartitionAssignorError, match="left over"):
        UNIFORM.assign(group)


def test_the_order_of_large_numbers_is_that_of_javas_sets() -> None:
    """Of 20 partitions a member keeps the 10 that come first in Java's set of them, which has 32 buckets."""
    topic_id = UUID(int=1)
    members = {member_id: MemberSpec((topic_id,)) for member_id in "abc"}
    members["m"] = MemberSpec((topic_id,), {topic_id: tuple(range(20, 40))})

    assignment = UNIFORM.assign(group_of(members, {topic_id: topic(topic_id, 40)}))

    assert assignment["m"][topic_id] == (*range(32, 40), 20, 21)
