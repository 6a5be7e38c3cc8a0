"""Part of a member that depends on ``group.protocol``: joining, heartbeats, rebalances and leaving."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum

from attrs import define, frozen

from groupcoord.core.messages import Response
from groupcoord.errors import ErrorCode
from groupcoord.member.config import MemberConfig
from groupcoord.member.coordinator_link import CoordinatorLink, ExponentialBackoff
from groupcoord.member.membership import Membership
from groupcoord.member.offsets import Commit, Commits, Fetches
from groupcoord.member.outputs import ComputedAssignment, ListenerGate, Output, Send
from groupcoord.member.subscription import SubscriptionState, TopicMetadata


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


@frozen
class Parts:
    """Parts of a member that both protocols use."""

    config: MemberConfig
    membership: Membership
    link: CoordinatorLink
    subscription: SubscriptionState
    commits: Commits
    fetches: Fetches
    topic_metadata: TopicMetadata
    backoff: ExponentialBackoff
    gate: ListenerGate
    outputs: list[Output]

    @classmethod
    def of(
        cls,
        config: MemberConfig,
        membership: Membership,
        outputs: list[Output],
        random: Callable[[], float],
        *,
        waits_for_listener: bool,
    ) -> Parts:
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        link = CoordinatorLink(config, backoff, outputs)
        subscription = SubscriptionState(config.exclude_internal_topics)
        return cls(
            config=config,
            membership=membership,
            link=link,
            subscription=subscription,
            commits=Commits(config, link, membership, subscription, backoff, outputs),
            fetches=Fetches(config.group_id, link, membership, backoff, outputs),
            topic_metadata=TopicMetadata(bool(config.client_rack)),
            backoff=backoff,
            gate=ListenerGate(outputs, waits_for_listener),
            outputs=outputs,
        )


class GroupProtocol(ABC):
    """Joins, keeps up, reconciles and ends a membership. Defaults are those of either protocol."""

    __slots__ = ()

    # ------------------------------------------------------------ what it is

    @property
    def is_leader(self) -> bool:
        """True if the member assigned in this generation."""
        return False

    @property
    def can_subscribe(self) -> bool:
        """True if the member or the coordinator can assign."""
        return True

    @property
    @abstractmethod
    def heartbeat_interval_ms(self) -> int:
        """Interval of heartbeats, or 0 if it is unknown."""

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """True if polls have something to do before the assignment is complete."""

    # ------------------------------------------------------------ the application's polls

    @abstractmethod
    def polled(self, until_ms: int) -> None:
        """Set the end of the application's current poll."""

    @abstractmethod
    def progress(self, now_ms: int) -> bool:
        """Execute the work of a poll as far as possible; return whether all is done."""

    @abstractmethod
    def progress_deadline_ms(self) -> int:
        """Return when :meth:`progress` is due without any input."""

    # ------------------------------------------------------------ answers

    @abstractmethod
    def receive(self, send: Send, response: Response, now_ms: int) -> None:
        """Handle a response."""

    @abstractmethod
    def failed(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        """Handle a request without a response."""

    @abstractmethod
    def answered(self, send: Send, response: Response, now_ms: int) -> bool:
        """Handle a Heartbeat response of a quiet member if it changes nothing; return whether that is so."""

    @abstractmethod
    def coordinator_found(self, now_ms: int) -> None:
        """Handle that the coordinator is known again."""

    @abstractmethod
    def lookup_failed(self, error_code: ErrorCode, now_ms: int, *, may_repeat: bool) -> None:
        """Handle a failed lookup. ``may_repeat`` is False if the error is not retriable."""

    def metadata_updated(self, now_ms: int) -> None:  # noqa: B027
        """Handle new topic metadata before the next poll."""

    def assignment_computed(self, computed: ComputedAssignment, now_ms: int) -> None:  # noqa: B027
        """Handle the result of an assignor."""

    # ------------------------------------------------------------ time

    @abstractmethod
    def beat_on(self, now_ms: int) -> bool:
        """Send the heartbeat of a quiet member if nothing else is due; return whether that is so."""

    @abstractmethod
    def tick(self, now_ms: int) -> None:
        """Send due heartbeats, and leave after the poll deadline."""

    @abstractmethod
    def settle(self, now_ms: int) -> None:
        """Do what does not wait for a poll, after each input."""

    @abstractmethod
    def deadline_ms(self) -> int:
        """Return when :meth:`tick` is due."""

    # ------------------------------------------------------------ the end

    @abstractmethod
    def drop_all(self) -> None:
        """Emit the revocation of all partitions before leaving, or their loss if ownership is uncertain."""

    @abstractmethod
    def leave(self, operation: CloseOperation, reason: str, now_ms: int) -> None:
        """Leave the group if the member is in it."""

    def begin_closing(self) -> None:  # noqa: B027
        """Stop heartbeats that do not continue until the member leaves: the last commits are done."""

    def rest(self) -> None:  # noqa: B027
        """Report owned partitions as lost if the failed member can't recover."""

    @abstractmethod
    def recover(self) -> None:
        """Restart after a failure.

        Raises:
            IllegalCallError: the protocol can't recover.
        """
