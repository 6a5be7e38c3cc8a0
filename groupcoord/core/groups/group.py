"""Interface of a group of any type, deletion of groups, and limits of requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol

from attrs import field

from groupcoord.config import Config, GroupType
from groupcoord.core.fast_construct import define
from groupcoord.core.log.records import CommitKind, Record, RecordsOfGroup
from groupcoord.core.messages import (
    DeletedGroup,
    DeleteGroupsResponse,
    GroupToFetch,
    ListedGroup,
    OffsetCommit,
    Reply,
    Token,
    TopicToCommit,
    TxnOffsetCommit,
    Waiting,
)
from groupcoord.core.timers import Timer, TimerKey, TimerQueue
from groupcoord.errors import ErrorCode

# Below every append number, so a group from the log is visible at once.
BEFORE_ALL_APPENDS = -1


class Group(Protocol):
    """Interface of a group of any type: commits, retention, administration, checks.

    :class:`~groupcoord.core.handler_context.GroupKind` has the handlers of a type.

    Attributes:
        first_append: readers see the group when the append with this number or a later one is durable.
        waiting, overdue: requests and fired timers that wait for a write of the group.
    """

    group_id: str
    first_append: int
    waiting: list[Waiting]
    overdue: list[TimerKey]

    @property
    def may_expire(self) -> bool:
        """True if an empty group without offsets is deleted."""

    @property
    def is_empty(self) -> bool:
        """True without members, so that the group may be deleted or expire."""

    # ------------------------------------------------------------ offsets

    def commit_error(
        self, request: OffsetCommit, topics: tuple[TopicToCommit, ...], timers: TimerQueue, now_ms: int
    ) -> ErrorCode:
        """Return NONE if the request may commit, which renews the member's session in classic groups."""

    def transactional_commit_error(self, request: TxnOffsetCommit) -> ErrorCode:
        """Return NONE if the request may commit in a transaction."""

    def fetch_error(self, wanted: GroupToFetch) -> ErrorCode:
        """Return NONE if the request may see the group's offsets."""

    def offset_deletion_error(self) -> ErrorCode:
        """Return NONE if offsets of unused topics may be deleted on request."""

    def uses_topic(self, topic: str) -> bool:
        """Return whether members use a topic, so that its offsets are not deleted on request."""

    def offset_age_base_ms(self, commit: CommitKind) -> int | None:
        """Return the start of an offset's retention, or None if it must not expire now (KIP-211)."""

    # ------------------------------------------------------------ administration

    def listed(self) -> ListedGroup:
        """Return the group as ListGroups shows it."""

    def tombstones(self) -> list[Record]:
        """Return the tombstones of all records of the group but its offsets, in Kafka's order."""

    def end(self, now_ms: int) -> None:
        """Mark the group as gone."""

    # ------------------------------------------------------------ what waits in it

    def take_waiting(self) -> list[Waiting]:
        """Remove and return the requests that wait for a write of the group, and forget fired timers."""

    def refuse_waiting(self, error_code: ErrorCode, *, names_members: bool = True) -> list[Reply]:
        """Return error responses for requests that wait for members of the group."""

    def topics_changed(self, names: Collection[str]) -> None:
        """Note that topics were created, extended or deleted."""

    # ------------------------------------------------------------ looking inside

    def timers(self) -> Iterator[Timer]:
        """Return all timers of the group, armed or not."""

    def parked_tokens(self) -> list[Token]:
        """Return the tokens of all requests that wait in the group."""

    def member_ids(self) -> Collection[str]:
        """Return the ids of all members."""

    def counted_size(self) -> int:
        """Return the number of members that count for the size limit."""

    def max_size(self, config: Config) -> int:
        """Return the size limit."""

    def check(self) -> None:
        """Check the group's invariants."""

    def check_durable(self, records: RecordsOfGroup | None) -> None:
        """Check that the log has everything that members have received."""


@define(eq=False)
class Deletion:
    """DeleteGroups request for one log partition, which may wait for external state of ``awaited`` groups.

    ``group_ids`` can be deleted so far; ``results`` are those of the other groups.
    """

    group_ids: list[str]
    token: Token
    finish: Callable[[Deletion], None]
    results: list[DeletedGroup] = field(factory=list)
    awaited: int = 0
    is_refused: bool = False

    def go_on(self, group_id: str, error_code: ErrorCode) -> None:
        """Continue after external state of a group was deleted, or could not be."""
        if self.is_refused:
            # The request timed out, or the log partition was unloaded.
            return
        if error_code is not ErrorCode.NONE:
            self.group_ids.remove(group_id)
            self.results.append(DeletedGroup(group_id, error_code))
        self.awaited -= 1
        # The tombstones of all groups of a log partition share one append.
        if not self.awaited:
            self.finish(self)

    def refuse(self, error_code: ErrorCode) -> list[Reply]:
        """Return the error response, or nothing if there was one."""
        if self.is_refused:
            return []
        self.is_refused = True
        results = (*self.results, *(DeletedGroup(group_id, error_code) for group_id in self.group_ids))
        return [Reply(self.token, DeleteGroupsResponse(results))]


def session_timeouts_ms(config: Config) -> range:
    """Return the session timeouts that a join may have; both bounds are allowed."""
    return range(config.group_min_session_timeout_ms, config.group_max_session_timeout_ms + 1)


def why_not_found(group: Group | None, group_id: str, group_type: GroupType) -> str:
    """Return Kafka's message for a group id without a group of a type."""
    return f"Group {group_id} not found." if group is None else f"Group {group_id} is not a {group_type} group."


def says_more(value: tuple[Any, ...], limit: int) -> bool:
    """Return whether a tuple with all tuples in it has more values than this."""
    # Stops early: a request may name millions of values.
    left = limit
    tuples: list[tuple[Any, ...]] = [value]
    while tuples and (left := left - sum(map(len, tuples))) >= 0:
        tuples = [entry for entries in tuples for entry in entries if isinstance(entry, tuple)]
    return left < 0
