"""Contract of assignors of consumer groups (KIP-848): ``check_assignor``."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

from attrs import evolve

from groupcoord.analysis.report.text import counted
from groupcoord.assignors import Assignor, GroupAssignment, GroupSpec, MemberSpec, SubscriptionType, Topic
from groupcoord.core.javacompat import hash_map_order
from groupcoord.laws import LawBrokenError, require

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

STORIES, ROUNDS = 25, 6
MEMBERS_MAX, TOPICS_MAX, PARTITIONS_MAX = 7, 5, 20
RACKS = ("r1", "r2", "r3")
SHORT_ID_LENGTH = 8

Plain = dict[str, list[tuple[UUID, tuple[int, ...]]]]
"""Assignment by member, with the order of topics and partitions in the log, without empty entries."""


def check_assignor(assignor: Assignor, *, seed: int = 0) -> None:
    """Check that an assignor keeps the contract of :class:`groupcoord.assignors.Assignor`.

    It assigns random groups: members come and go, may be static, and subscribe to equal or different topics or to none;
    topics are created, grow and are deleted. Each result is the members' assignment of the next round.

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
    require(
        isinstance(assignor.name, str) and bool(assignor.name), f"its name is {assignor.name!r}, which names nothing"
    )
    nobody = GroupSpec({}, SubscriptionType.HOMOGENEOUS, {}, ())
    require(not any(assignor.assign(nobody).values()), "partitions for a group without members")
    assigned_before: list[tuple[GroupSpec, GroupAssignment]] = []
    for story in range(STORIES):
        chance = random.Random(f"{seed} {story}")
        group = _new_group(chance)
        for _ in range(ROUNDS):
            answer = _assign(assignor, group)
            assigned_before.append((group, answer))
            group = _something_happens(_having(group, answer), chance)
    for group, answer in assigned_before:
        # Again after all other groups: an assignor keeps no state.
        try:
            _compare(_plain(answer), _plain(assignor.assign(group)), "in a later call", "it remembers earlier groups")
        except _ContractError as error:
            raise LawBrokenError(_describe(group, error)) from None
    _check_in_another_process(assignor, [group for group, _ in assigned_before])


class _ContractError(Exception):
    """Broken rule of the contract."""

    def __init__(self, kind: str, text: str, *answers: Plain) -> None:
        super().__init__(text)
        self.kind = kind
        self.answers = answers


def _assign(assignor: Assignor, group: GroupSpec) -> GroupAssignment:
    try:
        return _checked_answer(assignor, group)
    except _ContractError as error:
        raise _broken(group, error, partial(_checked_answer, assignor)) from None


def _broken(group: GroupSpec, error: _ContractError, check: Callable[[GroupSpec], object]) -> LawBrokenError:
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(group):
            try:
                check(smaller)
            except _ContractError as other:
                if other.kind == error.kind:
                    group, error, is_smaller = smaller, other, True
                    break
    return LawBrokenError(_describe(group, error))


def _checked_answer(assignor: Assignor, group: GroupSpec) -> GroupAssignment:
    before = deepcopy(group)
    try:
        answer = assignor.assign(group)
    except Exception as error:
        raise _ContractError(type(error).__name__, f"assign() raised {error!r} for a sound group") from error
    if group != before:
        raise _ContractError("changed", f"assign() changed its argument to {group}")
    _check_answer(group, answer)
    plain = _plain(answer)
    _compare(plain, _plain(assignor.assign(group)), "in a repeated call", "it remembers earlier groups")
    _compare(
        plain,
        _plain(assignor.assign(_shuffled(group))),
        "with mappings in another order",
        "it depends on the order of members or topics in the mappings: sort them",
    )
    return answer


def _compare(answer: Plain, again: Plain, when: str, why: str) -> None:
    if answer == again:
        return
    if _without_order(answer) != _without_order(again):
        raise _ContractError(f"another {when}", f"another answer {when}: {why}", answer, again)
    raise _ContractError(
        f"order {when}",
        f"the same partitions in another order {when}: sort topics and partitions in the answer, "
        "since records of the log have them in this order",
        answer,
        again,
    )


def _without_order(answer: Plain) -> dict[str, dict[UUID, list[int]]]:
    return {
        member_id: {topic_id: sorted(partitions) for topic_id, partitions in assigned}
        for member_id, assigned in answer.items()
    }


def _check_answer(group: GroupSpec, answer: GroupAssignment) -> None:
    owners: dict[tuple[UUID, int], str] = {}
    for member_id, assigned in answer.items():
        if member_id not in group.members:
            raise _ContractError("stranger", f"{member_id!r} has an assignment but is no member")
        for topic_id, partitions in assigned.items():
            if topic_id not in group.members[member_id].topic_ids:
                text = f"{member_id!r} is given topic {topic_id} but is not subscribed to it"
                raise _ContractError("unwanted", text)
            for partition in partitions:
                name = f"partition {partition} of topic {topic_id}"
                if not 0 <= partition < group.topics[topic_id].partition_count:
                    raise _ContractError("unknown", f"{name} does not exist")
                owner = owners.setdefault((topic_id, partition), member_id)
                if owner != member_id:
                    raise _ContractError("two", f"{name} is given to {owner!r} and to {member_id!r}", _plain(answer))
            if len(set(partitions)) < len(partitions):
                raise _ContractError("twice", f"{member_id!r} is given {partitions} twice")
    for topic_id in {topic_id for member in group.members.values() for topic_id in member.topic_ids}:
        for partition in range(group.topics[topic_id].partition_count):
            if (topic_id, partition) not in owners:
                text = f"partition {partition} of topic {topic_id} is not assigned"
                raise _ContractError("nobody", text, _plain(answer))


def _plain(answer: GroupAssignment) -> Plain:
    return {
        member_id: [(topic_id, tuple(partitions)) for topic_id, partitions in assigned.items() if partitions]
        for member_id, assigned in sorted(answer.items())
        if any(assigned.values())
    }


def _shuffled(group: GroupSpec) -> GroupSpec:
    chance = random.Random(repr(sorted(group.members)))
    return evolve(group, members=_in_any_order(group.members, chance), topics=_in_any_order(group.topics, chance))


def _in_any_order(mapping: Mapping[KeyT, ValueT], chance: random.Random) -> dict[KeyT, ValueT]:
    return dict(chance.sample(list(mapping.items()), len(mapping)))


# ---------------------------------------------------------------- the message


def _short(id_: str | UUID) -> str:
    return str(id_)[:SHORT_ID_LENGTH]


def _describe(group: GroupSpec, error: _ContractError) -> str:
    lines = [str(error), "the group:"]
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
    for name, answer in zip(("the answer:", "the other answer:"), error.answers, strict=False):
        lines.append(name)
        lines += [f"  {_short(member_id)}: {_as_text(assigned)}" for member_id, assigned in answer.items()] or ["  -"]
    return "\n".join(lines)


def _as_text(assigned: Any) -> str:
    return ", ".join(f"{_short(topic_id)} {list(partitions)}" for topic_id, partitions in assigned)


# ---------------------------------------------------------------- another process


def _check_in_another_process(assignor: Assignor, groups: list[GroupSpec]) -> None:
    with _AnotherProcess(assignor) as other:
        if other.trouble:
            warnings.warn(
                f"assignor {assignor.name!r} was not checked in a process with another PYTHONHASHSEED, which cannot "
                f"import it: {other.trouble}",
                stacklevel=3,
            )
            return
        check = partial(_check_with, assignor, other)
        for group in groups:
            try:
                check(group)
            except _ContractError as error:
                raise _broken(group, error, check) from None


def _check_with(assignor: Assignor, other: _AnotherProcess, group: GroupSpec) -> None:
    _compare(
        _plain(assignor.assign(group)),
        other.ask(group),
        "in a process with another PYTHONHASHSEED",
        "it depends on hash(), or on the order of a set of texts",
    )


class _AnotherProcess:
    """Process with another ``PYTHONHASHSEED`` and a copy of an assignor; ``trouble`` holds why it has none."""

    def __init__(self, assignor: Assignor) -> None:
        self.trouble = ""
        try:
            self._assignor = pickle.dumps(assignor)
        except Exception as error:  # pickle passes on any exception
            self.trouble = str(error)

    def __enter__(self) -> _AnotherProcess:
        if self.trouble:
            return self
        seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            self.trouble = self._exchange(self._assignor)
        except (EOFError, OSError):
            self.trouble = "it ended at once"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if hasattr(self, "_process"):
            self._process.communicate()

    def ask(self, group: GroupSpec) -> Plain:
        answer: Plain | str = self._exchange(group)
        if isinstance(answer, str):
            raise _ContractError("there", f"assign() raised {answer} in a process with another PYTHONHASHSEED")
        return answer

    def _exchange(self, value: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(value, self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)


def _answer_from_stdin() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the assignor must not mix with responses
    answer: Any
    try:
        assignor: Assignor = pickle.loads(pickle.load(sys.stdin.buffer))
        answer = ""
    except Exception as error:  # any exception of an import
        answer = repr(error)
    while True:
        pickle.dump(answer, answers)
        answers.flush()
        try:
            group = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = _plain(assignor.assign(group))
        except Exception as error:  # exceptions are compared
            answer = repr(error)


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
    name = f"topic-{_short(topic_id)}"
    return topic_id, Topic(name, topic_id, partition_count, racks if chance.random() < 0.5 else ())


def _new_member(chance: random.Random) -> tuple[str, MemberSpec]:
    member_id = str(UUID(int=chance.getrandbits(128)))
    instance_id = f"instance-{member_id[:6]}" if chance.random() < 0.3 else None
    return member_id, MemberSpec((), {}, instance_id, chance.choice((None, *RACKS)))


def _some_topics(topics: Mapping[UUID, Topic], chance: random.Random) -> tuple[UUID, ...]:
    return tuple(sorted(chance.sample(list(topics), chance.randint(chance.random() < 0.9, len(topics)))))


def _having(group: GroupSpec, answer: GroupAssignment) -> GroupSpec:
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


def _smaller(group: GroupSpec) -> Iterator[GroupSpec]:
    members, topics = dict(group.members), dict(group.topics)
    for member_id in members if len(members) > 1 else ():
        yield _group({key: member for key, member in members.items() if key != member_id}, topics)
    for topic_id, topic in topics.items():
        if len(topics) > 1:
            yield _with_topics(members, {key: each for key, each in topics.items() if key != topic_id})
        for count in sorted({1, topic.partition_count // 2, topic.partition_count - 1}):
            if 0 < count < topic.partition_count:
                fewer = evolve(topic, partition_count=count, racks=topic.racks[:count])
                yield _with_topics(members, {**topics, topic_id: fewer})
        if topic.racks:
            yield _group(members, {**topics, topic_id: evolve(topic, racks=())})
    for member_id, member in members.items():
        for plainer in (
            evolve(member, assigned={}),
            evolve(member, instance_id=None),
            evolve(member, rack_id=None),
            *(evolve(member, topic_ids=tuple(t for t in member.topic_ids if t != gone)) for gone in member.topic_ids),
        ):
            if plainer != member:
                yield _group({**members, member_id: plainer}, topics)


def _with_topics(members: Mapping[str, MemberSpec], topics: Mapping[UUID, Topic]) -> GroupSpec:
    counts = {topic_id: topic.partition_count for topic_id, topic in topics.items()}
    fitting = {
        member_id: evolve(
            member,
            topic_ids=tuple(topic_id for topic_id in member.topic_ids if topic_id in topics),
            assigned={
                topic_id: kept
                for topic_id, partitions in member.assigned.items()
                if (kept := tuple(partition for partition in partitions if partition < counts.get(topic_id, 0)))
            },
        )
        for member_id, member in members.items()
    }
    return _group(fitting, topics)


if __name__ == "__main__":
    _answer_from_stdin()
