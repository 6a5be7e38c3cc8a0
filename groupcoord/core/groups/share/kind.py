"""Handlers of share groups (KIP-932): heartbeats, offsets, and queries to the share coordinator.

The intention of a query is written before it, and the result after it, so a restart in between repeats it.
"""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from groupcoord.core.events import Cause
from groupcoord.core.groups.base.kind import ModernGroups, WhenDrafted
from groupcoord.core.groups.base.state import find_member
from groupcoord.core.groups.group import Deletion, Group
from groupcoord.core.groups.share.group import (
    ShareDraft,
    ShareGroup,
    ShareGroupEnvironment,
    StateChange,
)
from groupcoord.core.groups.share.heartbeat import handle_heartbeat
from groupcoord.core.groups.share.offsets import (
    OffsetsToDescribe,
    altered,
    deleted_topics,
    described_offsets,
    draft_alteration,
    draft_deletion,
    draft_group_deletion,
    first_error,
    forgotten,
    initialized_partitions,
    partitions_of,
    refused_description,
    summary_request,
)
from groupcoord.core.groups.share.records import ShareGroupStatePartitionMetadataRecord
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.host_queries import AskShareCoordinator, ShareCoordinatorAnswered
from groupcoord.core.log.records import Record
from groupcoord.core.messages import (
    LEAVE_GROUP_MEMBER_EPOCH,
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResponse,
    DescribedShareGroup,
    JoinGroup,
    JoinGroupResponse,
    Reply,
    Response,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    Token,
)
from groupcoord.core.messages.share_groups import DescribeOneShareGroup
from groupcoord.core.messages.share_state import InitializeShareGroupState, ReadShareGroupStateSummaryResponse
from groupcoord.core.timers import NEVER_MS
from groupcoord.errors import ErrorCode


def steady_until_ms(group: ShareGroup, environment: ShareGroupEnvironment) -> int:
    """Return the last millisecond before a heartbeat retries to initialize states."""
    if not group.state.state_partitions.initializing:
        return NEVER_MS
    # The retry is due at the end of the interval itself.
    return group.state_partitions_ms + environment.config.group_share_initialize_retry_interval_ms - 1


class ShareGroups(ModernGroups[ShareGroup, ShareDraft]):
    """Handlers of share groups.

    Attributes:
        describing: descriptions of offsets that wait for the share coordinator.
    """

    NOT_COUNTED = ("describing",)

    group_class = ShareGroup
    draft_class = ShareDraft
    heartbeat_request = ShareGroupHeartbeat
    describe_request = ShareGroupDescribe
    described_class = DescribedShareGroup
    answer_class = ShareCoordinatorAnswered
    _environment: ShareGroupEnvironment
    steady_until_ms = staticmethod(steady_until_ms)

    def __init__(self, context: HandlerContext, environment: ShareGroupEnvironment) -> None:
        super().__init__(context, environment)
        self.describing: list[OffsetsToDescribe] = []
        self.rules = {
            ShareGroupHeartbeat: self._handle_heartbeat,
            AlterShareGroupOffsets: lambda _, draft, request, __: draft_alteration(draft, request, environment.topics),
            DeleteShareGroupOffsets: lambda _, draft, request, __: draft_deletion(draft, request, environment.topics),
            ShareCoordinatorAnswered: self._take_state_change,
            UUID: self._take_topic_gone,
        }
        self.handlers |= {
            AlterShareGroupOffsets: self.change_offsets,
            DeleteShareGroupOffsets: self.change_offsets,
            DescribeOneShareGroup: self.describe_offsets,
        }
        self.guest_handlers = {JoinGroup: self.join_as_guest, **self.refuse_classic_members()}

    # ------------------------------------------------------------ requests that may write

    def change_offsets(
        self, request: AlterShareGroupOffsets | DeleteShareGroupOffsets, token: Token, now_ms: int
    ) -> None:
        """Alter or delete a group's offsets; an alteration creates a missing group."""
        group = self._groups.get(request.group_id)
        if group is None and isinstance(request, AlterShareGroupOffsets):
            group = ShareGroup(request.group_id, self._context.partition, self._environment)
        if isinstance(group, ShareGroup):
            self.take_or_wait(group, request, token, now_ms)
        else:
            self.meet_no_group(request, token, now_ms)

    def _handle_heartbeat(
        self, group: ShareGroup, draft: ShareDraft, request: ShareGroupHeartbeat, now_ms: int
    ) -> ShareGroupHeartbeatResponse:
        if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
            find_member(draft.state, request.member_id)  # no epoch is checked
            self.remove_members(draft, (request.member_id,), Cause.LEAVE, now_ms)
            return ShareGroupHeartbeatResponse(ErrorCode.NONE, None, request.member_id, request.member_epoch)
        response, member = handle_heartbeat(group, draft, request, now_ms)
        self.looked_at_topics(group)
        # A new member's session begins when it is durable.
        if request.member_id in group.state.members:
            self.start_session(group, member, now_ms)
        return response

    def describe_offsets(self, request: DescribeOneShareGroup, token: Token, now_ms: int) -> None:
        # As in Kafka also for groups that do not exist: the share coordinator may know them.
        topics, known, group = request.topics, self._environment.topics, self._context.visible(request.group_id)
        if topics is None:
            topics = initialized_partitions(group, known) if isinstance(group, ShareGroup) else ()
        topic_ids = {
            topic.topic_name: topic_id
            for topic in topics
            if (topic_id := known.resolver.topic_id(topic.topic_name)) is not None and topic_id.int
        }
        purpose = OffsetsToDescribe(token, request.group_id, topics, topic_ids)
        summary = summary_request(purpose)
        if not summary.topics:
            self._context.effects.reply(token, described_offsets(purpose, {}, {}))
        # In Kafka an empty group id fails, but only with topics.
        elif not request.group_id:
            self._context.effects.replies.append(refused_description(purpose, ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            self.describing.append(purpose)
            names = {topic_id: name for name, topic_id in topic_ids.items()}
            question = AskShareCoordinator(self._context.partition, request.group_id, summary, purpose, names)
            self._context.effects.questions.append(question)

    # ------------------------------------------------------------ writes and queries

    def hold(self, draft: ShareDraft, token: Token, response: Response) -> None:
        """Hold a response until the draft is durable, or until the share coordinator has answered its change."""
        change = draft.changes[-1] if draft.changes else None
        # Alterations and deletions are answered with the share coordinator's results.
        if change is not None and change.response is response:
            change.token = token
        else:
            super().hold(draft, token, response)

    def adopt(self, group: ShareGroup, draft: ShareDraft, now_ms: int) -> None:
        super().adopt(group, draft, now_ms)
        if ShareGroupStatePartitionMetadataRecord in map(type, draft.records):
            # The record has no time; the retry interval counts from here.
            group.state_partitions_ms = now_ms
        # Sent when the intention is durable, as Kafka does after the append.
        changes, draft.changes = draft.changes, []
        for change in changes:
            group.changes.append(change)
            question = AskShareCoordinator(self._context.partition, group.group_id, change.request, change)
            self._context.effects.questions.append(question)

    def on_failure(self, group: ShareGroup, error_code: ErrorCode, now_ms: int) -> None:
        # First: the base class drops the draft with its queries.
        self._refuse_changes(group, error_code)
        super().on_failure(group, error_code, now_ms)

    def on_overdue(self, group: ShareGroup, error_code: ErrorCode, now_ms: int) -> None:
        # The write may still succeed; its query is then sent, but no request waits for it.
        self._refuse_changes(group, error_code)
        super().on_overdue(group, error_code, now_ms)

    def _refuse_changes(self, group: ShareGroup, error_code: ErrorCode) -> None:
        for change in cast(ShareDraft, group.writing).changes:
            self._context.effects.replies += change.refuse(error_code)

    # ------------------------------------------------------------ results of queries

    def found_out(self, answer: ShareCoordinatorAnswered, now_ms: int) -> None:
        if isinstance(answer.question.purpose, OffsetsToDescribe):
            self._take_summaries(answer, answer.question.purpose)
            return
        group: Any = self._groups.get(answer.question.group_id)
        change = answer.question.purpose
        is_known = isinstance(group, ShareGroup) and change in group.changes
        if is_known:
            group.changes.remove(change)
        if change.deletion is not None:
            change.deletion.go_on(answer.question.group_id, first_error(answer.error_codes()))
        elif is_known:
            self.answered(group, answer, now_ms)
        else:
            # The group was deleted meanwhile. If it was loaded again, nothing waits any more.
            self._context.effects.replies += change.refuse(ErrorCode.GROUP_ID_NOT_FOUND)

    def _take_summaries(self, answer: ShareCoordinatorAnswered, purpose: OffsetsToDescribe) -> None:
        if purpose not in self.describing:
            # Refused when the log partition was unloaded.
            return
        self.describing.remove(purpose)
        response = answer.response
        if not isinstance(response, ReadShareGroupStateSummaryResponse):
            self._context.effects.replies.append(refused_description(purpose, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        summaries = {
            (topic_id, summary.partition): summary for topic_id, results in response.results for summary in results
        }
        described = described_offsets(purpose, summaries, answer.latest_offsets)
        self._context.effects.reply(purpose.token, described)

    def _take_topic_gone(self, group: ShareGroup, draft: ShareDraft, topic_id: UUID, now_ms: int) -> None:
        known = draft.state.state_partitions
        left = known.without_topics((topic_id,))
        if left != known:
            draft.write(left.to_record(group.group_id))

    def _take_state_change(
        self, group: ShareGroup, draft: ShareDraft, answer: ShareCoordinatorAnswered, now_ms: int
    ) -> None:
        known = draft.state.state_partitions
        change, error_codes = answer.question.purpose, answer.error_codes()
        response = change.response
        if isinstance(change.request, InitializeShareGroupState):
            partitions = partitions_of(change.request)
            # All or nothing: a failed partition is initialized again by a later heartbeat.
            if first_error(error_codes) is ErrorCode.NONE:
                left = known.complete(partitions, self._environment.topics.resolver.topic_name)
            else:
                left = known.give_up(partitions)
            if isinstance(response, AlterShareGroupOffsetsResponse):
                response = altered(response, error_codes)
        else:
            left = known.forgotten(deleted_topics(error_codes))
            if isinstance(response, DeleteShareGroupOffsetsResponse):
                response = forgotten(response, error_codes)
        draft.write(left.to_record(group.group_id))
        if change.token is not None:
            # The response waits for this write, too.
            draft.held.append(Reply(change.token, response))

    def topic_deleted(self, topic_id: UUID, now_ms: int) -> None:
        """Remove a deleted topic from all groups in one write (Kafka 4.4), or after a group's write in flight."""
        records: list[Record] = []
        drafted: list[ShareGroup] = []
        for group in self._groups.values():
            if not isinstance(group, ShareGroup):
                continue
            if group.writing is not None:
                # Its draft may begin to initialize the topic.
                group.answers.append(topic_id)
                continue
            draft = ShareDraft(group.state)
            self._take_topic_gone(group, draft, topic_id, now_ms)
            if draft.records:
                group.writing = draft
                records += draft.records
                drafted.append(group)
        if drafted:
            self._context.writer.begin(records, WhenDrafted(tuple(drafted)))

    def delete_external_state(self, group: Group, deletion: Deletion, now_ms: int) -> bool:
        if not isinstance(group, ShareGroup):
            return False
        draft = ShareDraft(group.state)
        request = draft_group_deletion(draft, self._environment.topics)
        if request is None:
            # No record of states, so the share coordinator has none.
            return False
        draft.changes.append(StateChange(request, deletion=deletion))
        self.write(group, draft, now_ms)
        return True

    def revive(self, group: ShareGroup, now_ms: int) -> None:
        group.state_partitions_ms = now_ms
        super().revive(group, now_ms)

    def parked_tokens(self) -> list[Token]:
        return [purpose.token for purpose in self.describing]

    def refuse_waiting(self, error_code: ErrorCode) -> list[Reply]:
        describing, self.describing = self.describing, []
        return [refused_description(purpose, error_code) for purpose in describing]

    def join(self, group: ShareGroup, request: JoinGroup, token: Token, now_ms: int) -> None:
        # Unlike other types, an empty share group is not converted.
        self._context.effects.reply(token, JoinGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
