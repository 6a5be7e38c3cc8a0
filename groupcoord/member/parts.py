"""Parts of a member that both protocols use, and the progress of closing."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from attrs import define

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


class Parts:
    """Parts of a member that both protocols use, and that use each other.

    Attributes:
        awaits_listener: True while the application's listener handles an event, if the member waits for it.
    """

    __slots__ = (
        *("_waits_for_listener", "awaits_listener", "backoff", "commits", "config", "fetches", "link", "membership"),
        *("outputs", "subscription", "topic_metadata"),
    )

    def __init__(
        self,
        config: MemberConfig,
        membership: MembershipManager | ConsumerMembership,
        outputs: list[Output],
        random: Callable[[], float],
        *,
        waits_for_listener: bool,
    ) -> None:
        self.config, self.membership, self.outputs = config, membership, outputs
        self.backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._waits_for_listener = waits_for_listener
        self.awaits_listener = False
        self.subscription = SubscriptionState(config.exclude_internal_topics)
        self.topic_metadata = TopicMetadata(bool(config.client_rack))
        self.link = CoordinatorLink(self)
        self.commits = Commits(self)
        self.fetches = Fetches(self)

    def emit(self, event: Event) -> None:
        """Emit an event that the application's listener handles."""
        self.outputs.append(event)
        self.awaits_listener = self._waits_for_listener
