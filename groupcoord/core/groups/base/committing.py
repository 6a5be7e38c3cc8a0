"""A group whose members commit offsets with their epochs: who may commit and see them, and when they expire."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from groupcoord.core.groups.base.draft import StateT
from groupcoord.core.groups.base.group import ModernGroup
from groupcoord.core.log.records import CommitKind
from groupcoord.core.messages import GroupToFetch, OffsetCommit, TopicToCommit, TxnOffsetCommit
from groupcoord.core.offsets.drafting import accept_metadata
from groupcoord.core.timers import TimerQueue
from groupcoord.errors import NO_ERROR, ErrorCode


class CommittingGroup(ModernGroup[StateT]):
    """See :class:`~groupcoord.core.groups.base.group.ModernGroup`."""

    def uses_classic_protocol(self, member: Any) -> bool:
        """Tell whether a member speaks the classic protocol, and so has a generation."""
        return False

    @abstractmethod
    def held_since(self, member: Any, topic: TopicToCommit) -> Callable[[int], int | None]:
        """Return what tells since which epoch a member has a partition of a topic; None if it doesn't have it."""

    def _stale(self, member: Any) -> ErrorCode:
        return ErrorCode.ILLEGAL_GENERATION if self.uses_classic_protocol(member) else ErrorCode.STALE_MEMBER_EPOCH

    def commit_error(
        self, request: OffsetCommit, topics: tuple[TopicToCommit, ...], timers: TimerQueue, now_ms: int
    ) -> ErrorCode:
        """Return NONE if the request may commit. A commit is no sign of life: heartbeats are (KIP-848)."""
        if request.generation_id < 0 and not self.state.members:
            return ErrorCode.NONE
        member = self.state.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not request.supports_member_epoch and not self.uses_classic_protocol(member):
            return ErrorCode.UNSUPPORTED_VERSION
        return self._epoch_error(member, request.generation_id, topics)

    def transactional_commit_error(self, request: TxnOffsetCommit) -> ErrorCode:
        """Return NONE if the request may commit in its producer's transaction. It need not name a member."""
        if request.generation_id < 0 and not self.state.members:
            return ErrorCode.NONE
        if request.generation_id == -1 and not request.member_id and request.group_instance_id is None:
            return ErrorCode.NONE
        member = self.state.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._epoch_error(member, request.generation_id, request.topics)

    def _epoch_error(self, member: Any, epoch: int, topics: tuple[TopicToCommit, ...]) -> ErrorCode:
        """Return NONE if a member may commit with an epoch.

        An epoch that is over is good for what the member has had since then (KIP-1251, Kafka 4.3).
        """
        member_epoch = member.assignment.member_epoch
        if epoch == member_epoch:
            return NO_ERROR
        if epoch > member_epoch:
            return self._stale(member)
        limit = self._environment.config.offset_metadata_max_bytes
        for topic in topics:
            held_since = self.held_since(member, topic)
            columns, _ = accept_metadata(topic.columns, limit)  # others are refused for that
            # Each partition once: a request may name few of them a million times.
            for partition in set(columns.partition_indexes):
                since = held_since(partition)
                if since is None or epoch < since:
                    return self._stale(member)
        return ErrorCode.NONE

    def fetch_error(self, wanted: GroupToFetch) -> ErrorCode:
        """Return NONE if the request may see the offsets: it names no member, or one with its epoch."""
        if wanted.member_id is None:
            return ErrorCode.NONE if wanted.member_epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
        member = self.state.members.get(wanted.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if wanted.member_epoch == member.member_epoch else self._stale(member)

    def offset_deletion_error(self) -> ErrorCode:
        """Return NONE: what members use is known."""
        return ErrorCode.NONE

    def offset_age_base_ms(self, commit: CommitKind) -> int | None:
        """Return the moment of the commit; None for topics that members use, whose offsets don't expire."""
        return None if self.uses_topic(commit.topic) else commit.commit_timestamp_ms
