"""From what a member has to what it should have, as Kafka's class does it."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from groupcoord.core.groups.consumer.reconciliation import MemberAssignment, MemberState, Reconciliation
from groupcoord.core.messages.request import RefusedError
from groupcoord.errors import ErrorCode

from .recorded import Record, records


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
    reconciliation = Reconciliation(
        current,
        target_epoch=record["target_epoch"],
        target={id_of(name): partitions for name, partitions in record["target"].items()},
        subscribed={id_of(n) for n in names if n in record["topics"] and "gone" not in record["topics"][n]},
        subscribes_to_nothing=not names,
        has_subscription_changed=record["subscription_changed"],
        owned=None if owned is None else {id_of(name): partitions for name, partitions in owned.items()},
        owner_epochs={(topic_id, p): epoch for topic_id, epochs in held.items() for p, epoch in epochs.items()},
    )
    try:
        return reconciliation.result()
    except RefusedError as error:
        return error.error_code


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
