"""Contract of assignors of consumer groups (KIP-848): ``check_assignor``."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from copy import deepcopy
from traceback import walk_tb
from typing import TYPE_CHECKING, Any
from uuid import UUID

from attrs import evolve

from groupcoord.analysis.report.text import counted
from groupcoord.assignors import Assignor, GroupAssignment, GroupSpec, MemberSpec, SubscriptionType, Topic
from groupcoord.core.javacompat import hash_map_order
from groupcoord.laws import LawBrokenError, require

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

STORIES, ROUNDS_MAX = 25, 6
MEMBERS_MAX, TOPICS_MAX, PARTITIONS_MAX = 7, 5, 20
RACKS = ("r1", "r2", "r3")
SHORT_ID_LENGTH = 8

Plain = dict[str, list[tuple[UUID, tuple[int, ...]]]]
"""Assignment by member, with the order of topics and partitions in the log, without empty entries."""


def check_assignor(assignor: Assignor, *, seed: int = 0) -> None:
    """Check that an assignor keeps the contract of :class:`groupcoord.assignors.Assignor`.

    It assigns random groups: members come and go, may be static, and subscribe to equal or different topics or to none;
    topics are created, grow and are deleted. Each result is the members' assignment of the next round. Hypothesis draws
    the groups (extra ``testing``).

    Each partition of a subscribed topic must go to exactly one subscribed member, and nothing else may be assigned. The
    argument must not change. The result must be the same, in the same order, in a repeated call, for mappings in
    another order, and in a process with another ``PYTHONHASHSEED``. A group without members gets an empty assignment.

    The other process imports the assignor's module; if that fails, the check issues a UserWarning.

    Args:
        assignor: the assignor.
        seed: selects the groups.

    Raises:
        AssertionError: the assignor breaks the contract; the message has the rule and the smallest group found.
    """
    from hypothesis import HealthCheck, Phase, given, seed as seeded, settings, strategies as st

    require(
        isinstance(assignor.name, str) and bool(assignor.name), f"its name is {assignor.name!r}, which names nothing"
    )
    nobody = GroupSpec({}, SubscriptionType.HOMOGENEOUS, {}, ())
    require(not any(assignor.assign(nobody).values()), "partitions for a group without members")
    assigned: list[tuple[GroupSpec, Plain]] = []
    broken: list[tuple[list[int], LawBrokenError]] = []

    @seeded(seed)
    @settings(
        max_examples=STORIES,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.composite(_draw_group)(), min_size=1, max_size=ROUNDS_MAX))
    def check(rounds: list[GroupSpec]) -> None:
        answer: GroupAssignment = {}
        for group in rounds:
            continued = _having(group, answer)
            try:
                answer = _checked_answer(assignor, continued)
            except LawBrokenError as error:
                broken.append(([line for _, line in walk_tb(error.__traceback__)], error))
                raise
            assigned.append((continued, _plain(answer)))

    try:
        check()
    except Exception:  # Hypothesis raises its own if an equal call keeps the contract
        if not broken:
            raise
        rule = broken[0][0]
        raise min((error for lines, error in broken if lines == rule), key=lambda error: len(str(error))) from None
    assigned.sort(key=lambda entry: len(_describe(entry[0])))
    for group, answer in assigned:
        # Again after all other groups: an assignor keeps no state.
        _compare(group, answer, _plain(assignor.assign(group)), "in a later call", "it remembers earlier groups")
    _check_in_another_process(assignor, assigned)


def _checked_answer(assignor: Assignor, group: GroupSpec) -> GroupAssignment:
    before = deepcopy(group)
    try:
        answer = assignor.assign(group)
    except Exception as error:
        raise LawBrokenError(_describe(group, f"assign() raised {error!r} for a sound group")) from error
    if group != before:
        raise LawBrokenError(_describe(before, f"assign() changed its argument to {group}"))
    _check_answer(group, answer)
    plain = _plain(answer)
    _compare(group, plain, _plain(assignor.assign(group)), "in a repeated call", "it remembers earlier groups")
    _compare(
        group,
        plain,
        _plain(assignor.assign(_reversed(group))),
        "with mappings in another order",
        "it depends on the order of members or topics in the mappings: sort them",
    )
    return answer


def _compare(group: GroupSpec, answer: Plain, again: Plain, when: str, why: str) -> None:
    if answer == again:
        return
    text = f"another answer {when}: {why}"
    if _without_order(answer) == _without_order(again):
        text = (
            f"the same partitions in another order {when}: sort topics and partitions in the answer, "
            "since records of the log have them in this order"
        )
    raise LawBrokenError(_describe(group, text, answer, again))


def _without_order(answer: Plain) -> dict[str, dict[UUID, list[int]]]:
    return {
        member_id: {topic_id: sorted(partitions) for topic_id, partitions in assigned}
        for member_id, assigned in answer.items()
    }


def _check_answer(group: GroupSpec, answer: GroupAssignment) -> None:
    def check(holds: bool, text: str) -> None:
        if not holds:
            raise LawBrokenError(_describe(group, text, _plain(answer)))

    owners: dict[tuple[UUID, int], str] = {}
    for member_id, assigned in answer.items():
        check(member_id in group.members, f"{member_id!r} has an assignment but is no member")
        for topic_id, partitions in assigned.items():
            is_subscribed = topic_id in group.members[member_id].topic_ids
            check(is_subscribed, f"{member_id!r} is given topic {topic_id} but is not subscribed to it")
            for partition in partitions:
                name = f"partition {partition} of topic {topic_id}"
                check(0 <= partition < group.topics[topic_id].partition_count, f"{name} does not exist")
                owner = owners.setdefault((topic_id, partition), member_id)
                check(owner == member_id, f"{name} is given to {owner!r} and to {member_id!r}")
            check(len(set(partitions)) == len(partitions), f"{member_id!r} is given {partitions} twice")
    for topic_id in {topic_id for member in group.members.values() for topic_id in member.topic_ids}:
        for partition in range(group.topics[topic_id].partition_count):
            is_assigned = (topic_id, partition) in owners
            check(is_assigned, f"partition {partition} of topic {topic_id} is not assigned")


def _plain(answer: GroupAssignment) -> Plain:
    return {
        member_id: [(topic_id, tuple(partitions)) for topic_id, partitions in assigned.items() if partitions]
        for member_id, assigned in sorted(answer.items())
        if any(assigned.values())
    }


def _reversed(group: GroupSpec) -> GroupSpec:
    members, topics = reversed(list(group.members.items())), reversed(list(group.topics.items()))
    return evolve(group, members=dict(members), topics=dict(topics))


# ---------------------------------------------------------------- the message


def _short(id_: str | UUID) -> str:
    return str(id_)[:SHORT_ID_LENGTH]


def _describe(group: GroupSpec, text: str = "", *answers: Plain) -> str:
    lines = [text, "the group:"]
    lines += [
        f"  topic {_short(each.topic_id)}: {counted(each.partition_count, 'partition')}"
        for each in group.topics.values()
    ]
    for member_id, member in group.members.items():
        parts = [f"topics {', '.join(map(_short, member.topic_ids)) or 'none'}"]
        if member.assigned:
            parts.append(f"has {_as_text(member.assigned.items())}")
        parts += [f"instance {member.instance_id}"] if member.instance_id else []
        parts += [f"rack {member.rack_id}"] if member.rack_id else []
        lines.append(f"  member {_short(member_id)}: {'; '.join(parts)}")
    for name, answer in zip(("the answer:", "the other answer:"), answers, strict=False):
        lines.append(name)
        lines += [f"  {_short(member_id)}: {_as_text(assigned)}" for member_id, assigned in answer.items()] or ["  -"]
    return "\n".join(lines)


def _as_text(assigned: Any) -> str:
    return ", ".join(f"{_short(topic_id)} {list(partitions)}" for topic_id, partitions in assigned)


# ---------------------------------------------------------------- another process


def _check_in_another_process(assignor: Assignor, assigned: list[tuple[GroupSpec, Plain]]) -> None:
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        work = pickle.dumps((assignor, [group for group, _ in assigned]))
        command = [sys.executable, "-m", __name__]
        done = subprocess.run(command, input=work, capture_output=True, env=environment, check=True)
    except Exception as error:  # pickle passes on any exception
        stderr = error.stderr.decode() if isinstance(error, subprocess.CalledProcessError) else ""
        warnings.warn(
            f"assignor {assignor.name!r} was not checked in a process with another PYTHONHASHSEED, which cannot "
            f"import it: {(stderr.splitlines() or [error])[-1]}",
            stacklevel=3,
        )
        return
    place = "in a process with another PYTHONHASHSEED"
    for (group, answer), again in zip(assigned, pickle.loads(done.stdout), strict=True):
        if isinstance(again, str):
            raise LawBrokenError(_describe(group, f"assign() raised {again} {place}"))
        _compare(group, answer, again, place, "it depends on hash(), or on the order of a set of texts")


def _assign_from_stdin() -> None:
    with redirect_stdout(sys.stderr):  # output of the assignor must not mix with the answers
        assignor, groups = pickle.load(sys.stdin.buffer)
        answers: list[Plain | str] = []
        for group in groups:
            try:
                answers.append(_plain(assignor.assign(group)))
            except Exception as error:  # exceptions are compared
                answers.append(repr(error))
    pickle.dump(answers, sys.stdout.buffer)


# ---------------------------------------------------------------- groups

_chance = random.Random(0)
MEMBER_IDS = tuple(str(UUID(int=_chance.getrandbits(128))) for _ in range(MEMBERS_MAX))
TOPIC_IDS = tuple(UUID(int=_chance.getrandbits(128)) for _ in range(TOPICS_MAX))


def _draw_group(draw: DrawFn) -> GroupSpec:
    from hypothesis import strategies as st

    topics = {}
    for topic_id in draw(st.lists(st.sampled_from(TOPIC_IDS), min_size=1, unique=True)):
        count, replicas = draw(st.integers(1, PARTITIONS_MAX)), draw(st.integers(0, len(RACKS)))
        racks = [tuple((RACKS * 2)[index % 3 :][:replicas]) for index in range(count if replicas else 0)]
        topics[topic_id] = Topic(f"topic-{_short(topic_id)}", topic_id, count, tuple(racks))
    subscriptions = st.lists(st.sampled_from(sorted(topics)), unique=True).map(tuple)
    if draw(st.booleans()):
        subscriptions = st.just(draw(subscriptions))
    members = {}
    for member_id in draw(st.lists(st.sampled_from(MEMBER_IDS), min_size=1, unique=True)):
        instance_id = draw(st.none() | st.just(f"instance-{member_id[:6]}"))
        rack_id = draw(st.none() | st.sampled_from(RACKS))
        members[member_id] = MemberSpec(draw(subscriptions), {}, instance_id, rack_id)
    are_equal = len({frozenset(member.topic_ids) for member in members.values()}) == 1
    kind = SubscriptionType.HOMOGENEOUS if are_equal else SubscriptionType.HETEROGENEOUS
    return GroupSpec(members, kind, topics, tuple(hash_map_order(sorted(members))))


def _having(group: GroupSpec, answer: GroupAssignment) -> GroupSpec:
    """Return a group after its members took an answer's existing partitions."""
    counts = {topic_id: topic.partition_count for topic_id, topic in group.topics.items()}
    members = {}
    for member_id, member in group.members.items():
        kept = {
            topic_id: tuple(index for index in partitions if index < counts.get(topic_id, PARTITIONS_MAX))
            for topic_id, partitions in answer.get(member_id, {}).items()
        }
        members[member_id] = evolve(
            member, assigned={topic_id: indexes for topic_id, indexes in kept.items() if indexes}
        )
    return evolve(group, members=members)


if __name__ == "__main__":
    _assign_from_stdin()
