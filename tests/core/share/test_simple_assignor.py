"""The assignor of share groups where no group was recorded: emptied topics, partitions not ready, no members."""

from __future__ import annotations

from uuid import UUID

from attrs import evolve

from groupcoord.core.groups.base.assignor import GroupAssignment, GroupSpec, MemberSpec, SubscriptionType
from groupcoord.core.groups.share.simple_assignor import SimpleAssignor
from groupcoord.core.topics import Topic

TOPICS = [UUID(int=number << 64 | 0x5EED) for number in range(1, 4)]


def group_of(member_count: int, *partition_counts: int) -> GroupSpec:
    topic_ids = tuple(TOPICS[: len(partition_counts)])
    member_ids = tuple(f"m{number}" for number in range(member_count))
    return GroupSpec(
        {member_id: MemberSpec(topic_ids) for member_id in member_ids},
        SubscriptionType.HOMOGENEOUS,
        {
            topic_id: Topic(f"t{number}", topic_id, count)
            for number, (topic_id, count) in enumerate(zip(topic_ids, partition_counts, strict=True))
        },
        member_ids,
    )


def with_targets(group: GroupSpec, assignment: GroupAssignment) -> GroupSpec:
    """Return a group with current assignments equal to its targets."""
    members = {
        member_id: evolve(member, assigned=assignment.get(member_id, {})) for member_id, member in group.members.items()
    }
    return evolve(group, members=members)


def places_of(assignment: GroupAssignment, member_id: str) -> set[tuple[UUID, int]]:
    """Return the partitions of a member."""
    partitions = assignment.get(member_id, {})
    return {(topic_id, index) for topic_id, indexes in partitions.items() for index in indexes}


def test_a_topic_without_anything_left_stays_in_the_target() -> None:
    """A member that gives up its only partition of a topic keeps the topic, without a partition (Kafka 4.4)."""
    alone = with_targets(group_of(1, 1, 1), {"m0": {TOPICS[0]: (0,), TOPICS[1]: (0,)}})
    two = evolve(group_of(2, 1, 1), members={**group_of(2, 1, 1).members, "m0": alone.members["m0"]})
    assignment = SimpleAssignor().assign(two)
    assert sorted(map(len, assignment["m0"].values())) == [0, 1]
    assert len(places_of(assignment, "m1")) == 1


def test_only_what_is_ready_is_given_away() -> None:
    """Partitions that are not initialized yet are assigned to no member."""
    group = evolve(group_of(2, 4), assignable={TOPICS[0]: {1, 3}})
    assignment = SimpleAssignor().assign(group)
    assert places_of(assignment, "m0") | places_of(assignment, "m1") == {(TOPICS[0], 1), (TOPICS[0], 3)}
    nothing = SimpleAssignor().assign(evolve(group, assignable={}))
    assert not any(places_of(nothing, member_id) for member_id in group.members)


def test_nobody_and_nothing() -> None:
    """Without members, or without topics, there is nothing to assign."""
    assert SimpleAssignor().assign(group_of(0)) == {}
    assert SimpleAssignor().assign(group_of(2)) == {}
    unlike = evolve(group_of(2), subscription_type=SubscriptionType.HETEROGENEOUS)
    assert SimpleAssignor().assign(unlike) == {}
