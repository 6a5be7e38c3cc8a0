"""How a member closes: what it does about its group, and what closing waits for."""

from __future__ import annotations

from enum import Enum

from attrs import define

from groupcoord.member.commits import Commit


class CloseOperation(Enum):
    """What closing a member means for its membership (KIP-1092)."""

    DEFAULT = "default"
    """A dynamic member leaves; a static one stays until its session's time is over."""
    LEAVE_GROUP = "leave_group"
    REMAIN_IN_GROUP = "remain_in_group"


class ClosingStep(Enum):
    """What closing waits for."""

    COMMITS = "the last automatic commit, and commits that wait for the coordinator"
    LISTENER = "the application's listener"
    ANSWERS = "answers to what was sent"


@define(eq=False)
class Closing:
    """How far closing has come."""

    deadline_ms: int
    operation: CloseOperation
    commit: Commit | None
    step: ClosingStep = ClosingStep.COMMITS
