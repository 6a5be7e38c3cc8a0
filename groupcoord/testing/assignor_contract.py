"""A checker for assignors of consumer groups (KIP-848)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from copy import deepcopy
from typing import TypeVar
from uuid import UUID

from attrs import evolve

from groupcoord.assignors import Assignor, GroupAssignment, GroupSpec, MemberSpec, SubscriptionType, Topic
from groupcoord.core.java.hashing import hash_map_order
from groupcoord.laws import require

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

STORIES, ROUNDS = 25, 6
MEMBERS_MAX, TOPICS_MAX, PARTITIONS_MAX = 7, 5, 20
RACKS = ("r1", "r2", "r3")


def check_assignor(assignor: Assignor, *, seed: int = 0) -> None:
    """Check that an assignor keeps the contract of :class:`groupcoord.assignors.Assignor`.

    It is asked about random groups: members come and go, are static or not, subscribe to the same topics or to
    different ones, or to nothing; topics come, grow and go; what a round gives is what members have in the next. What
    is checked: each partition of each topic that somebody subscribes to goes to exactly one member, and that one
    subscribes to it; nobody else gets anything, and nothing that doesn't exist is given; the answer is the same when
    it is asked again, and when the mappings that it is given were made in another order; what it is given stays as it
    was. A group without members gets an empty answer.

    Args:
        assignor: the assignor.
        seed: decides what it is asked.

    Raises:
        AssertionError: the assignor breaks the contract; the message says how, and for which group.
    """
    require(
        isinstance(assignor.name, str) and bool(assignor.name), f"its name is {assignor.name!r}, which names nothing"
    )
    nobody = GroupSpec({}, SubscriptionType.HOMOGENEOUS, {}, ())
    require(not any(assignor.assign(nobody).values()), f"partitions for a group without members: {nobody}")
    asked: list[tuple[GroupSpec, GroupAssignment]] = []
    for story in range(STORIES):
        chance = random.Random(f"{seed} {story}")
        group = _new_group(chance)
        for _ in range(ROUNDS):
            answer = _ask(assignor, group, chance)
            asked.append((group, answer))
            group = _something_happens(_having(group, answer), chance)
    for group, answer in asked:
        # Once more when all the others have been asked: an assignor keeps nothing.
        require(_plain(assignor.assign(group)) == _plain(answer), f"another answer when it was asked later: {group}")


def _ask(assignor: Assignor, group: GroupSpec, chance: random.Random) -> GroupAssignment:
    before = deepcopy(group)
    try:
        answer = assignor.assign(group)
    except Exception as error:
        raise AssertionError(f"assign() raised {error!r} for a sound group: {group}") from error
    require(group == before, f"assign() changed what it was given: {before} became {group}")
    _check_answer(group, answer)
    again = _plain(assignor.assign(_shuffled(group, chance)))
    require(again == _plain(answer), f"another answer when mappings were made in another order: {group}")
    return answer


def _check_answer(group: GroupSpec, answer: GroupAssignment) -> None:
    owners: dict[tuple[UUID, int], str] = {}
    for member_id, assigned in answer.items():
        require(member_id in group.members, f"{member_id!r} is given something but is no member: {group}")
        for topic_id, partitions in assigned.items():
            require(
                topic_id in group.members[member_id].topic_ids,
                f"{member_id!r} is given topic {topic_id} but does not subscribe to it: {group}",
            )
            for partition in partitions:
                name = f"partition {partition} of topic {topic_id}"
                require(0 <= partition < group.topics[topic_id].partition_count, f"{name} does not exist: {group}")
                owner = owners.setdefault((topic_id, partition), member_id)
                require(owner == member_id, f"{name} is given to {owner!r} and to {member_id!r}: {group}")
            require(len(set(partitions)) == len(partitions), f"{member_id!r} is given {partitions} twice: {group}")
    for topic_id in {topic_id for member in group.members.values() for topic_id in member.topic_ids}:
        for partition in range(group.topics[topic_id].partition_count):
            require(
                (topic_id, partition) in owners,
                f"partition {partition} of topic {topic_id} is given to nobody: {group}",
            )


def _plain(answer: GroupAssignment) -> dict[str, list[tuple[UUID, tuple[int, ...]]]]:
    """Return who gets what, order of topics and partitions included: the log has it."""
    return {
        member_id: [(topic_id, tuple(partitions)) for topic_id, partitions in assigned.items() if partitions]
        for member_id, assigned in sorted(answer.items())
        if any(assigned.values())
    }


def _shuffled(group: GroupSpec, chance: random.Random) -> GroupSpec:
    """Return an equal group whose mappings were made in another order."""
    return evolve(group, members=_in_any_order(group.members, chance), topics=_in_any_order(group.topics, chance))


def _in_any_order(mapping: Mapping[KeyT, ValueT], chance: random.Random) -> dict[KeyT, ValueT]:
    return dict(chance.sample(list(mapping.items()), len(mapping)))


# ---------------------------------------------------------------- groups


def _new_group(chance: random.Random) -> GroupSpec:
    topics = dict(_new_topic(chance) for _ in range(chance.randint(1, TOPICS_MAX)))
    are_equal = chance.random() < 0.5
    common = _some_topics(topics, chance)
    members = {}
    for _ in range(chance.randint(1, MEMBERS_MAX)):
        member_id, member = _new_member(chance)
        members[member_id] = evolve(member, topic_ids=common if are_equal else _some_topics(topics, chance))
    return _group(members, topics)


def _group(members: Mapping[str, MemberSpec], topics: Mapping[UUID, Topic]) -> GroupSpec:
    are_equal = len({frozenset(member.topic_ids) for member in members.values()}) <= 1
    kind = SubscriptionType.HOMOGENEOUS if are_equal else SubscriptionType.HETEROGENEOUS
    return GroupSpec(members, kind, topics, tuple(hash_map_order(sorted(members))))


def _new_topic(chance: random.Random) -> tuple[UUID, Topic]:
    topic_id = UUID(int=chance.getrandbits(128))
    partition_count = chance.choice((1, 2, 3, chance.randint(1, PARTITIONS_MAX)))
    racks = tuple(tuple(chance.sample(RACKS, chance.randint(1, 3))) for _ in range(partition_count))
    return topic_id, Topic(f"topic-{topic_id}", topic_id, partition_count, racks if chance.random() < 0.5 else ())


def _new_member(chance: random.Random) -> tuple[str, MemberSpec]:
    member_id = str(UUID(int=chance.getrandbits(128)))
    instance_id = f"instance-{member_id[:6]}" if chance.random() < 0.3 else None
    return member_id, MemberSpec((), {}, instance_id, chance.choice((None, *RACKS)))


def _some_topics(topics: Mapping[UUID, Topic], chance: random.Random) -> tuple[UUID, ...]:
    return tuple(sorted(chance.sample(list(topics), chance.randint(chance.random() < 0.9, len(topics)))))


def _having(group: GroupSpec, answer: GroupAssignment) -> GroupSpec:
    """Return the group in which every member has what it was given."""
    members = {
        member_id: evolve(member, assigned={t: tuple(p) for t, p in answer.get(member_id, {}).items() if p})
        for member_id, member in group.members.items()
    }
    return evolve(group, members=members)


def _something_happens(group: GroupSpec, chance: random.Random) -> GroupSpec:
    members, topics = dict(group.members), dict(group.topics)
    match chance.choice(("join", "join", "leave", "resubscribe", "grow", "new topic", "delete", "nothing")):
        case "join":
            like = chance.choice(list(members.values())).topic_ids
            member_id, member = _new_member(chance)
            members[member_id] = evolve(member, topic_ids=like)
        case "leave" if len(members) > 1:
            del members[chance.choice(list(members))]
        case "resubscribe":
            member_id = chance.choice(list(members))
            members[member_id] = evolve(members[member_id], topic_ids=_some_topics(topics, chance))
        case "grow":
            topic_id = chance.choice(list(topics))
            larger = topics[topic_id].partition_count + chance.randint(1, 5)
            topics[topic_id] = evolve(topics[topic_id], partition_count=larger, racks=())
        case "new topic":
            topic_id, topic = _new_topic(chance)
            topics[topic_id] = topic
            members = {m: evolve(member, topic_ids=(*member.topic_ids, topic_id)) for m, member in members.items()}
        case "delete" if len(topics) > 1:
            gone = chance.choice(list(topics))
            del topics[gone]
            members = {
                m: evolve(member, topic_ids=tuple(t for t in member.topic_ids if t != gone))
                for m, member in members.items()
            }
    return _group(members, topics)
