"""The table of legal moves: everything else raises and changes nothing."""

from __future__ import annotations

import itertools

import pytest

from groupcoord import GroupState
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.errors import IllegalTransitionError
from tests.tables import as_one_test

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
LEGAL = {
    (EMPTY, PREPARING),
    (STABLE, PREPARING),
    (COMPLETING, PREPARING),
    (PREPARING, COMPLETING),
    (COMPLETING, STABLE),
    (PREPARING, EMPTY),
    (EMPTY, DEAD),
    (PREPARING, DEAD),
    (COMPLETING, DEAD),
    (STABLE, DEAD),
}


@as_one_test
@pytest.mark.parametrize(("current", "target"), list(itertools.product(GroupState, GroupState)), ids=lambda s: s.value)
def test_every_move(current: GroupState, target: GroupState) -> None:
    """A legal move is made and remembered; any other raises and leaves the group as it was."""
    group = GroupMetadata("group", 0, 5)
    group.state = current
    if (current, target) in LEGAL:
        group.to(target, 99)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, current, 99)
        return
    with pytest.raises(IllegalTransitionError, match=f"from {current.value} to {target.value}"):
        group.to(target, 99)
    assert (group.state, group.previous_state, group.state_timestamp_ms) == (current, DEAD, 5)
