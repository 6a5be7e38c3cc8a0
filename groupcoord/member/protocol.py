"""The seam between what all members do and what depends on ``group.protocol``: how a member gets its partitions.

Finding the coordinator, commits, questions for offsets, polls and closing are common. Joining, heartbeats, rebalances
and leaving are the protocol's own: see :mod:`groupcoord.member.classic.protocol` and
:mod:`groupcoord.member.consumer.protocol`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from attrs import frozen

from groupcoord.core.messages import Response
from groupcoord.errors import ErrorCode
from groupcoord.member.closing import CloseOperation
from groupcoord.member.commits import Commits
from groupcoord.member.config import MemberConfig
from groupcoord.member.fetches import Fetches
from groupcoord.member.link import CoordinatorLink
from groupcoord.member.membership import Membership
from groupcoord.member.outputs import ComputedAssignment, ListenerGate, Output, Send
from groupcoord.member.subscription import SubscriptionState
from groupcoord.member.timing import ExponentialBackoff
from groupcoord.member.topic_metadata import TopicMetadata


@frozen
class Parts:
    """The common parts of a member, with which a protocol works."""

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


class GroupProtocol(ABC):
    """How a member joins, stays in, follows and leaves its group."""

    __slots__ = ()

    # ------------------------------------------------------------ what it is

    @property
    @abstractmethod
    def member_id(self) -> str:
        """The member's id; empty if it has none."""

    @property
    @abstractmethod
    def generation_id(self) -> int:
        """The generation or member epoch that the member is in, or -1."""

    @property
    @abstractmethod
    def is_leader(self) -> bool:
        """Whether the member assigned in this generation."""

    @property
    @abstractmethod
    def can_subscribe(self) -> bool:
        """Whether somebody can assign."""

    @property
    @abstractmethod
    def heartbeat_interval_ms(self) -> int:
        """The time between two heartbeats, 0 if that is not known."""

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether there is something to do in polls before all partitions are as they should be."""

    # ------------------------------------------------------------ the application's polls

    @abstractmethod
    def polled(self, until_ms: int) -> None:
        """The application polls until then."""

    @abstractmethod
    def progress(self, now_ms: int) -> bool:
        """Do what belongs into the application's poll, as far as possible; return whether all is done."""

    @abstractmethod
    def progress_deadline_ms(self) -> int:
        """Return when :meth:`progress` has something to do without any input."""

    @abstractmethod
    def request_rejoin(self, reason: str) -> None:
        """The application wants a rebalance (KIP-568)."""

    # ------------------------------------------------------------ answers

    @abstractmethod
    def receive(self, send: Send, response: Response, now_ms: int) -> None:
        """Take the answer to one of the protocol's own requests."""

    @abstractmethod
    def failed(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        """One of the protocol's own requests has no answer."""

    @abstractmethod
    def answered(self, send: Send, response: Response, now_ms: int) -> bool:
        """In a quiet member: take the answer to a heartbeat if that changes nothing; return whether that is so."""

    @abstractmethod
    def coordinator_found(self, now_ms: int) -> None:
        """The coordinator is known again."""

    @abstractmethod
    def lookup_failed(self, error_code: ErrorCode, now_ms: int, *, may_repeat: bool) -> None:
        """The coordinator was not found. Without ``may_repeat`` the error is not one that passes."""

    @abstractmethod
    def metadata_updated(self, now_ms: int) -> None:
        """More is known of topics."""

    @abstractmethod
    def assignment_computed(self, computed: ComputedAssignment, now_ms: int) -> None:
        """An assignor is done."""

    # ------------------------------------------------------------ time

    @abstractmethod
    def beat_on(self, now_ms: int) -> bool:
        """In a quiet member: if nothing but a heartbeat is due, send it; return whether that is so."""

    @abstractmethod
    def tick(self, now_ms: int) -> None:
        """Do what is due apart from polls: heartbeats, and leaving when the application has not polled for too long."""

    @abstractmethod
    def settle(self, now_ms: int) -> None:
        """After each input: do what can't wait for a poll."""

    @abstractmethod
    def deadline_ms(self) -> int:
        """Return when :meth:`tick` has something to do."""

    # ------------------------------------------------------------ the end

    @abstractmethod
    def drop_all(self) -> None:
        """Before leaving: tell that all partitions are given up, or lost if the member is no sure owner of them."""

    @abstractmethod
    def leave(self, operation: CloseOperation, reason: str, now_ms: int) -> None:
        """Leave the group, if the member is in it."""

    @abstractmethod
    def begin_closing(self) -> None:
        """The last commits are done; the listener is about to be told."""

    @abstractmethod
    def rest(self) -> None:
        """The member has failed."""

    @abstractmethod
    def recover(self) -> None:
        """Begin anew after a failure.

        Raises:
            IllegalCallError: the protocol knows no way back.
        """
