"""From what a member has to what it should have: as Kafka's class does it, and so that no partition has two owners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st

from groupcoord.core.groups.consumer.reconciliation import MemberAssignment, MemberState, PartitionEpochs, reconcile
from groupcoord.errors import ErrorCode

from .recorded import Record, records

Numbers = dict[UUID, list[int]]

calm = settings(max_examples=200)

A, B, C = (UUID(int=number) for number in (1, 2, 3))


# ---------------------------------------------------------------- what Kafka's class answered


def id_of(name: str) -> UUID:
    return UUID(bytes=name.encode().ljust(16, b"\0"))


def epochs_of(recorded: Mapping[str, Mapping[str, int]]) -> dict[UUID, dict[int, int]]:
    """Return recorded partitions with their epochs."""
    return {id_of(name): {int(p): epoch for p, epoch in found.items()} for name, found in recorded.items()}


def assignment_of(recorded: Record) -> MemberAssignment:
    """Return where a recorded member stands."""
    return MemberAssignment(
        recorded["member_epoch"],
        recorded["previous_member_epoch"],
        MemberState[recorded["state"]],
        epochs_of(recorded["assigned"]),
        epochs_of(recorded["pending_revocation"]),
    )


def reconciled(record: Record, current: MemberAssignment) -> MemberAssignment | ErrorCode:
    """Return our answer for a recorded member."""
    held = epochs_of(record["partition_epochs"])
    names = {*record["member"]["topics"], *record["resolved"].get(record["member"]["regex"], ())}
    owned = record["owned"]
    return reconcile(
        current,
        target_epoch=record["target_epoch"],
        target={id_of(name): partitions for name, partitions in record["target"].items()},
        subscribed={id_of(n) for n in names if n in record["topics"] and "gone" not in record["topics"][n]},
        subscribes_to_nothing=not names,
        has_subscription_changed=record["subscription_changed"],
        owned=None if owned is None else {id_of(name): partitions for name, partitions in owned.items()},
        owner_epochs={(topic_id, p): epoch for topic_id, epochs in held.items() for p, epoch in epochs.items()},
    )


def test_members_move_as_in_kafka() -> None:
    """All 1,918 recorded members come to where Kafka brings them; if nothing is to be done they stay as they are."""
    different = []
    for record in records("reconciliation"):
        current = assignment_of(record["member"])
        got = reconciled(record, current)
        expected = assignment_of(record["result"]) if record["result"] else ErrorCode.FENCED_MEMBER_EPOCH
        if got != expected or (got is current) is not record.get("unchanged", False):
            different.append(record["id"])

    assert len(records("reconciliation")) == 1918
    assert not different


# ---------------------------------------------------------------- single steps


def step(current: MemberAssignment, **changes: Any) -> MemberAssignment | ErrorCode:
    """Reconcile a member that subscribes to all topics, towards epoch 3, where all partitions are free."""
    arguments: dict[str, Any] = {
        "target_epoch": 3,
        "target": {},
        "subscribed": {A, B, C},
        "subscribes_to_nothing": False,
        "has_subscription_changed": False,
        "owned": None,
        "owner_epochs": {},
    }
    return reconcile(current, **(arguments | changes))


def test_what_a_member_gives_up_it_may_get_back() -> None:
    """A partition that it was to give up counts as free for itself, and is its own with the new epoch (KAFKA-16147)."""
    revoking = MemberAssignment(2, 2, MemberState.UNREVOKED_PARTITIONS, {A: {0: 1}}, {A: {1: 2}})

    found = step(revoking, target={A: (0, 1)}, owned={A: [0]}, owner_epochs={(A, 0): 1, (A, 1): 2})

    assert found == MemberAssignment(3, 2, MemberState.STABLE, {A: {0: 1, 1: 3}}, {})


@pytest.mark.parametrize("owned", [None, {A: [0]}, {A: []}])
def test_a_member_in_a_state_of_a_newer_broker_starts_over(owned: Numbers | None) -> None:
    """Unless it says that it owns nothing, it is fenced; then it goes on at the target's epoch."""
    unknown = MemberAssignment(2, 1, MemberState.of(3), {A: {0: 1}}, {})

    assert step(unknown, target={A: (0,)}, owned=owned) is ErrorCode.FENCED_MEMBER_EPOCH
    assert step(unknown, target={B: (0,)}, owned={}) == MemberAssignment(3, 2, MemberState.STABLE, {B: {0: 3}}, {})


# ---------------------------------------------------------------- whole groups


@define
class Group:
    """Members that reconcile while targets change, and what each of them, as a client, has in its hands."""

    members: list[MemberAssignment]
    target_epoch: int
    targets: list[Numbers]
    owned: list[Numbers]

    def beat(self, index: int, *, tells: bool) -> None:
        """Let a member send a heartbeat, and give up what the answer doesn't have before the next one."""
        found = reconcile(
            self.members[index],
            target_epoch=self.target_epoch,
            target=self.targets[index],
            subscribed={A, B, C},
            subscribes_to_nothing=False,
            has_subscription_changed=False,
            owned=self.owned[index] if tells else None,
            owner_epochs=dict.fromkeys((partition for member in self.members for partition in held(member)), 1),
        )
        assert isinstance(found, MemberAssignment)
        self.check_step(self.members[index], found, index)
        self.members[index] = found
        self.owned[index] = {topic_id: list(partitions) for topic_id, partitions in found.assigned.items()}

    def check_step(self, before: MemberAssignment, after: MemberAssignment, index: int) -> None:
        if after is not before:
            assert after.previous_member_epoch == before.member_epoch
            assert after.member_epoch in (before.member_epoch, self.target_epoch)
            assert bool(after.pending_revocation) is (after.state is MemberState.UNREVOKED_PARTITIONS)
            target = {(topic_id, p) for topic_id, partitions in self.targets[index].items() for p in partitions}
            assert pairs(after.assigned) <= target
            if after.state is MemberState.STABLE:
                assert pairs(after.assigned) == target
        others = [held(member) for number, member in enumerate(self.members) if number != index]
        assert not any(held(after) & other for other in others)

    def is_settled(self) -> bool:
        """Tell whether everybody has what it should have."""
        return all(
            member.state is MemberState.STABLE and member.member_epoch == self.target_epoch for member in self.members
        )


def pairs(partitions: PartitionEpochs) -> set[tuple[UUID, int]]:
    """Return partitions as a set."""
    return {(topic_id, partition) for topic_id, found in partitions.items() for partition in found}


def held(member: MemberAssignment) -> set[tuple[UUID, int]]:
    """Return what nobody else may get."""
    return pairs(member.assigned) | pairs(member.pending_revocation)


@calm
@given(data=st.data(), count=st.integers(1, 4))
def test_no_partition_has_two_owners_and_all_settle(data: st.DataObject, count: int) -> None:
    """Whoever beats when, and however targets change on the way: in the end everybody has its target, no more."""
    group = Group([MemberAssignment() for _ in range(count)], 0, [{} for _ in range(count)], [{} for _ in range(count)])
    for _ in range(data.draw(st.integers(1, 4))):
        group.target_epoch += data.draw(st.integers(1, 2))
        group.targets = [{} for _ in range(count)]
        for topic_id in (A, B, C):
            for partition in range(3):
                owner = data.draw(st.integers(-1, count - 1))
                if owner >= 0:
                    group.targets[owner].setdefault(topic_id, []).append(partition)
        for index in data.draw(st.lists(st.integers(0, count - 1), max_size=6)):
            group.beat(index, tells=data.draw(st.booleans()))

    for _ in range(3):
        for index in range(count):
            group.beat(index, tells=True)
            group.beat(index, tells=True)

    assert group.is_settled()
    for index, member in enumerate(group.members):
        group.beat(index, tells=True)
        assert group.members[index] is member
