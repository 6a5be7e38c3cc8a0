"""Parts of a member that both protocols use, and the progress of closing."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from attrs import Factory, define, field

from groupcoord.member.config import MemberConfig
from groupcoord.member.coordinator_link import CoordinatorLink, ExponentialBackoff
from groupcoord.member.offsets import Commit, Commits, Fetches
from groupcoord.member.outputs import Event, Output
from groupcoord.member.subscription import SubscriptionState, TopicMetadata

if TYPE_CHECKING:
    from groupcoord.member.classic.heartbeats import MembershipManager
    from groupcoord.member.consumer import ConsumerMembership


class CloseOperation(Enum):
    """Choice whether a closing member leaves its group (KIP-1092)."""

    DEFAULT = "default"
    """A dynamic member leaves; a static one stays until its session expires."""
    LEAVE_GROUP = "leave_group"
    REMAIN_IN_GROUP = "remain_in_group"


class ClosingStep(Enum):
    """Condition that closing waits for."""

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


@define(eq=False, repr=False)
class Parts:
    """Parts of a member that both protocols use, and that use each other.

    Attributes:
        awaits_listener: True while the application's listener handles an event, if the member waits for it.
    """

    config: MemberConfig
    membership: MembershipManager | ConsumerMembership
    outputs: list[Output]
    backoff: ExponentialBackoff
    _waits_for_listener: bool
    awaits_listener: bool = field(default=False, init=False)
    subscription: SubscriptionState = field(init=False)
    topic_metadata: TopicMetadata = field(init=False)
    link: CoordinatorLink = field(default=Factory(CoordinatorLink, takes_self=True), init=False)
    commits: Commits = field(default=Factory(Commits, takes_self=True), init=False)
    fetches: Fetches = field(default=Factory(Fetches, takes_self=True), init=False)

    def __attrs_post_init__(self) -> None:
        self.subscription = SubscriptionState(self.config.exclude_internal_topics)
        self.topic_metadata = TopicMetadata(bool(self.config.client_rack))

    def emit(self, event: Event) -> None:
        """Emit an event that the application's listener handles."""
        self.outputs.append(event)
        self.awaits_listener = self._waits_for_listener
