"""What every assignment of tasks has to be, whatever Kafka answers: whole, fair, sticky, never twice at one process."""

from __future__ import annotations

from math import ceil

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from groupcoord.core.groups.streams.assignors import (
    MemberTasks,
    StickyTaskAssignor,
    StreamsGroupSpec,
    StreamsMemberSpec,
    SubtopologySpec,
    Tasks,
)
from groupcoord.core.javacompat.hashing import hash_map_order

calm = settings(max_examples=60)

names = st.text("ab019-é", min_size=1, max_size=4)


@st.composite
def tasks(draw: st.DrawFn) -> Tasks:
    """Generate tasks, of subtopologies that may not be there."""
    return draw(st.dictionaries(names, st.sets(st.integers(0, 9), min_size=1).map(lambda s: tuple(sorted(s)))))


@st.composite
def groups(draw: st.DrawFn, *, are_new: bool = False) -> StreamsGroupSpec:
    """Generate groups, with members that run something already or, if they are new, nothing."""
    subtopologies = draw(
        st.dictionaries(names, st.builds(SubtopologySpec, st.integers(0, 9), st.booleans()), max_size=4)
    )
    running = st.just(MemberTasks()) if are_new else st.builds(MemberTasks, tasks(), tasks())
    offsets = st.dictionaries(names, st.dictionaries(st.integers(0, 9), st.integers(0, 9), min_size=1))
    member = st.builds(
        StreamsMemberSpec, st.sampled_from(["p1", "p2", "p3"]), running, st.just({}) if are_new else offsets
    )
    members = draw(st.dictionaries(names, member, min_size=1, max_size=7))
    return StreamsGroupSpec(members, subtopologies, draw(st.integers(0, 2)), tuple(hash_map_order(sorted(members))))


def pairs(assigned: Tasks) -> list[tuple[str, int]]:
    return [(name, partition) for name, partitions in assigned.items() for partition in partitions]


@calm
@given(groups())
def test_every_task_is_active_once_and_never_twice_at_a_process(group: StreamsGroupSpec) -> None:
    """All tasks are assigned, each to one member; copies lie at other processes, as many as there are to be or can."""
    assignment = StickyTaskAssignor().assign(group)

    active = [task for assigned in assignment.values() for task in pairs(assigned.active)]
    everything = {(name, n) for name, spec in group.subtopologies.items() for n in range(spec.task_count)}
    assert sorted(active) == sorted(everything)
    held = [
        (group.members[member_id].process_id, task)
        for member_id, assigned in assignment.items()
        for task in (*pairs(assigned.active), *pairs(assigned.standby))
    ]
    assert len(held) == len(set(held))
    copies = [task for assigned in assignment.values() for task in pairs(assigned.standby)]
    processes = {member.process_id for member in group.members.values()}
    replicas = min(group.standby_replicas, len(processes) - 1)
    stateful = {task for task in everything if group.subtopologies[task[0]].is_stateful}
    assert {task: copies.count(task) for task in stateful} == dict.fromkeys(stateful, replicas)
    assert set(copies) <= stateful


@calm
@given(groups(are_new=True))
def test_a_new_group_with_a_member_for_each_process_is_fair(group: StreamsGroupSpec) -> None:
    """Where each process is one member and nobody ran anything, nobody has more active tasks than its share."""
    alone = {member_id: evolve(member, process_id=member_id) for member_id, member in group.members.items()}
    assignment = StickyTaskAssignor().assign(evolve(group, members=alone))

    counts = [len(pairs(assigned.active)) for assigned in assignment.values()]
    assert max(counts) <= ceil(sum(counts) / len(counts))


@calm
@given(groups())
def test_who_runs_a_fair_assignment_keeps_it(group: StreamsGroupSpec) -> None:
    """Asked again with what it answered, without copies, the assignor moves no active task."""
    plain = evolve(group, standby_replicas=0)
    first = StickyTaskAssignor().assign(plain)
    running = {
        member_id: evolve(member, running=first[member_id], task_offsets={})
        for member_id, member in group.members.items()
    }
    second = StickyTaskAssignor().assign(evolve(plain, members=running))

    counts = [len(pairs(assigned.active)) for assigned in first.values()]
    if max(counts) - min(counts) <= 1:
        assert second == first


def test_nobody_gets_nothing() -> None:
    """A group without members has no assignment."""
    assert StickyTaskAssignor().assign(StreamsGroupSpec({}, {"0": SubtopologySpec(1, False)}, 1, ())) == {}
