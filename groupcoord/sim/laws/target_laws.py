"""The target assignments of consumer groups (KIP-848): who is to have what changes for a reason, and evenly."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from groupcoord.core.groups.consumer.assignors import SubscriptionType
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from groupcoord.core.groups.consumer.state import ConsumerState
from groupcoord.core.log.hard_state import HardState
from groupcoord.core.log.records import GroupRecord, GroupTombstone
from groupcoord.laws import require

Shares = dict[str, frozenset[tuple[UUID, int]]]
"""Member id → the partitions that the member is to have."""

TARGET_OF_MEMBER, _ = ConsumerGroupTargetAssignmentMemberRecord.key_of("")


class TargetLaws:
    """Follows the targets of the groups of one log partition.

    The uniform assignor is judged where all members subscribe to the same topics and nobody asks for another assignor.

    Args:
        assignor: which one groups use that ask for none.
    """

    def __init__(self, assignor: str) -> None:
        self._is_uniform = assignor == "uniform"
        self._before: dict[str, Shares] = {}
        self._now: dict[str, Shares] = {}

    def take(self, record: GroupRecord | GroupTombstone, hard: HardState) -> None:
        """Take the next record about a group.

        Args:
            record: what is in the log now.
            hard: what the log makes with it.

        Raises:
            LawBrokenError: a new target is uneven, or moves what could have stayed.
        """
        group_id = record.group_id
        if isinstance(record, ConsumerGroupTargetAssignmentMemberRecord):
            share = frozenset((topic_id, index) for topic_id, indexes in record.topic_partitions for index in indexes)
            # Who has had no target before begins with this one: somebody new, or who has taken a static member's place.
            self._before.setdefault(group_id, {}).setdefault(record.member_id, share)
            self._now.setdefault(group_id, {})[record.member_id] = share
        elif isinstance(record, ConsumerGroupTargetAssignmentMetadataRecord):
            now = self._now.get(group_id, {})
            before, self._before[group_id] = self._before.get(group_id, {}), dict(now)
            if record.assignment_timestamp_ms and self._is_judged(group_id, hard):
                check_shares(group_id, before, now)
        elif isinstance(record, GroupTombstone) and record.key[0] == TARGET_OF_MEMBER:
            for shares in (self._before, self._now):
                shares.get(group_id, {}).pop(record.key[1], None)

    def _is_judged(self, group_id: str, hard: HardState) -> bool:
        state = ConsumerState.of(group_id, [entry for _, entry in hard.groups.get(group_id, {}).values()])
        found = {state.subscription_type(), state.last_seen_subscriptions()}
        return self._is_uniform and not state.votes and found == {SubscriptionType.HOMOGENEOUS}


def check_shares(group_id: str, before: Mapping[str, frozenset[object]], now: Mapping[str, frozenset[object]]) -> None:
    """Shares are even, and nobody is given something in place of what it could have kept.

    Args:
        group_id: the group.
        before: what the members of now were to have; who is new has what it is given now.
        now: what they are to have.

    Raises:
        LawBrokenError: it isn't so.
    """
    sizes = [len(share) for share in now.values()]
    require(max(sizes, default=0) - min(sizes, default=0) <= 1, f"targets of {group_id!r} have the sizes {sizes}")
    there_are = frozenset[object]().union(*now.values())
    for member_id, share in now.items():
        had = before.get(member_id, share)
        lost, gained = (had & there_are) - share, share - had
        require(
            not (lost and gained), f"{member_id} of {group_id!r} is to have {set(gained)}, and others have {set(lost)}"
        )
