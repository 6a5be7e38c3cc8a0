"""Closing of a member: whether it leaves its group, and the steps of closing."""

from __future__ import annotations

from enum import Enum

from attrs import define

from groupcoord.member.commits import Commit


class CloseOperation(Enum):
    """Whether a closing member leaves its group (KIP-1092)."""

    DEFAULT = "default"
    """A dynamic member leaves; a static one stays until its session expires."""
    LEAVE_GROUP = "leave_group"
    REMAIN_IN_GROUP = "remain_in_group"


class ClosingStep(Enum):
    """What closing waits for."""

    COMMITS = "the last automatic commit, and commits that wait for the coordinator"
    LISTENER = "the application's listener"
    ANSWERS = "answers to what was sent"


@define(eq=False)
class Closing:
    """Progress of closing."""

    deadline_ms: int
    operation: CloseOperation
    commit: Commit | None
    step: ClosingStep = ClosingStep.COMMITS
