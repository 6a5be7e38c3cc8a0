"""From what a member has to what it should have, as Kafka's class does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from groupcoord.core.groups.consumer.reconciliation import MemberAssignment, MemberState, reconcile
from groupcoord.errors import ErrorCode

from .recorded import Record, records

Numbers = dict[UUID, list[int]]

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
