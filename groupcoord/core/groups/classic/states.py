"""The five states of a classic group and the one table of legal moves between them."""

from __future__ import annotations

from enum import Enum

from groupcoord.core.fast_construct import plain_members
from groupcoord.errors import IllegalTransitionError


@plain_members
class GroupState(Enum):
    """States as Kafka names them on the wire, each with what is answered there and the ways out."""

    EMPTY = "Empty"
    """No members; perhaps offsets, and ids handed out that have not joined yet.

    Answers: a join starts the initial rebalance; sync and heartbeat UNKNOWN_MEMBER_ID; commits from outside of group
    management are taken. Out: the first member joins (PreparingRebalance); deletion or expiry (Dead).
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """Joins are collected for the next generation.

    Answers: joins wait; sync and heartbeat REBALANCE_IN_PROGRESS; commits of the current generation are taken. Out: all
    have joined or the time is up (CompletingRebalance, or Empty if nobody is left).
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation stands; its leader's assignments are awaited, or not durable yet.

    Answers: syncs wait; heartbeat NONE; commits REBALANCE_IN_PROGRESS. Out: the assignments are durable (Stable);
    somebody joins, changes, leaves, expires or never syncs, or the write failed (PreparingRebalance).
    """

    STABLE = "Stable"
    """Every member's assignment is durable.

    Answers: sync the assignment at once; heartbeat NONE; commits of this generation are taken. Out: somebody joins,
    changes, leaves or expires, the leader rejoins (PreparingRebalance).
    """

    DEAD = "Dead"
    """The group is gone from this coordinator: deleted, expired, or its log partition moved away. Final."""


LEGAL_TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
"""From each state, the states that a group may move to."""


def check_transition(current: GroupState, target: GroupState) -> None:
    """Refuse a move that the table does not have.

    Raises:
        IllegalTransitionError: the table does not lead from ``current`` to ``target``.
    """
    if target not in LEGAL_TRANSITIONS[current]:
        raise IllegalTransitionError(f"a group cannot move from {current.value} to {target.value}")
