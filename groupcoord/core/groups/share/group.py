"""Share group (KIP-932): its durable and soft state."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.groups.base.assignor import Assignor
from groupcoord.core.groups.base.group import GroupEnvironment, ModernGroup
from groupcoord.core.groups.share.state import ShareState, StateChange
from groupcoord.core.log.records import CommitKind
from groupcoord.core.messages import (
    DescribedPartitions,
    DescribedShareGroup,
    DescribedShareMember,
    GroupToFetch,
    OffsetCommit,
    Reply,
    Token,
    TopicToCommit,
    TxnOffsetCommit,
)
from groupcoord.core.timers import TimerKind, TimerQueue
from groupcoord.errors import ErrorCode

ShareGroupEnvironment = GroupEnvironment[ShareGroupSettings, Assignor]


class ShareGroupState(Enum):
    """States of a share group by Kafka's names."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareGroup(ModernGroup[ShareState]):
    """One share group of one log partition.

    Attributes:
        changes: unanswered queries to the share coordinator.
        state_partitions_ms: time of the last write or load of the record of initialized partitions.
    """

    TYPE = GroupType.SHARE
    STATE = ShareState
    SESSION = TimerKind.SHARE_SESSION
    MEMBER_TIMERS = (TimerKind.SHARE_SESSION,)

    may_expire: ClassVar[bool] = False
    """Kafka keeps share groups until they are deleted."""

    def __init__(self, group_id: str, partition: int, environment: ShareGroupEnvironment) -> None:
        super().__init__(group_id, partition, environment)
        self.changes: list[StateChange] = []
        self.state_partitions_ms = 0

    @property
    def group_state(self) -> ShareGroupState:
        if self.is_dead:
            return ShareGroupState.DEAD
        # Nothing is revoked with consent, so there are no states in between.
        return ShareGroupState.STABLE if self.state.members else ShareGroupState.EMPTY

    @property
    def is_rebalancing(self) -> bool:
        state = self.state
        # Kafka has no such state of share groups; observers do.
        return state.epoch > state.assignment_epoch or any(
            member.member_epoch != state.assignment_epoch for member in state.members.values()
        )

    # ------------------------------------------------------------ offsets, which share groups do not commit

    def commit_error(
        self, request: OffsetCommit, topics: tuple[TopicToCommit, ...], timers: TimerQueue, now_ms: int
    ) -> ErrorCode:
        # For commits a share group does not exist in Kafka.
        return ErrorCode.GROUP_ID_NOT_FOUND

    def transactional_commit_error(self, request: TxnOffsetCommit) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def fetch_error(self, wanted: GroupToFetch) -> ErrorCode:
        return ErrorCode.NONE

    def offset_deletion_error(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def offset_age_base_ms(self, commit: CommitKind) -> int | None:
        return commit.commit_timestamp_ms

    # ------------------------------------------------------------ administration

    def described(self) -> DescribedShareGroup:
        state, topics = self.state, self._environment.topics
        return DescribedShareGroup(
            self.group_id,
            group_state=self.group_state.value,
            group_epoch=state.epoch,
            assignment_epoch=state.assignment_epoch,
            assignor_name=self._environment.default_assignor,
            members=tuple(
                [
                    DescribedShareMember(
                        member.member_id,
                        member.metadata.rack_id,
                        member.member_epoch,
                        member.metadata.client_id,
                        member.metadata.client_host,
                        member.metadata.subscribed_topic_names,
                        # A topic of which the member has nothing left is shown, empty.
                        tuple(
                            [
                                DescribedPartitions(topic_id, name, tuple(sorted(partitions)))
                                for topic_id, partitions in member.assignment.assigned.items()
                                if (name := topics.topic_name(topic_id)) is not None
                            ]
                        ),
                    )
                    for member in state.members.values()
                ]
            ),
        )

    def refuse_waiting(self, error_code: ErrorCode, *, names_members: bool = True) -> list[Reply]:
        return [reply for change in self.changes for reply in change.refuse(error_code)]

    def max_size(self, config: Config) -> int:
        return config.group_share_max_size

    def parked_tokens(self) -> list[Token]:
        """Return the tokens of all requests that wait for the log or the share coordinator."""
        # A draft's queries join ``changes`` when it is durable.
        drafted = [] if self.writing is None else self.writing.changes  # type: ignore[attr-defined]
        waiting = [token for change in (*self.changes, *drafted) for token in change.parked_tokens()]
        return super().parked_tokens() + waiting
