"""Laws of epochs in a group whose state is in the log."""

from __future__ import annotations

from typing import Any

from groupcoord.core.groups.base.state import ModernGroupState
from groupcoord.laws.coordinator import require


def check_sound_epochs(state: ModernGroupState[Any, Any]) -> None:
    """Check that members are not ahead of the target nor the target of the group, and nothing of former members is
    kept.

    Raises:
        LawBrokenError: this does not hold.
    """
    for member in state.members.values():
        epochs = member.member_epoch, state.assignment_epoch, state.epoch
        is_in_order = tuple(sorted(epochs)) == epochs
        require(is_in_order, "epochs of group {!r} are {}, of {}", state.group_id, epochs, member)
    require(
        state.targets.keys() <= state.members.keys(),
        f"group {state.group_id!r} remembers {[*state.targets]} of members {[*state.members]}",
    )
