"""Requests and timers of streams groups: who joins, stays or leaves, and what follows."""

from __future__ import annotations

from collections.abc import Collection

from attrs import define

from groupcoord.core.events import Cause
from groupcoord.core.groups.base.membership import ModernMembership, WhenDrafted
from groupcoord.core.groups.base.refusal import RefusedError
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.membership import allows_session_timeout
from groupcoord.core.groups.pending_groups import Creation
from groupcoord.core.groups.streams.conversion import StreamsConversion
from groupcoord.core.groups.streams.draft import StreamsDraft
from groupcoord.core.groups.streams.endpoints import EndpointError
from groupcoord.core.groups.streams.environment import StreamsGroupEnvironment
from groupcoord.core.groups.streams.group import StreamsGroup
from groupcoord.core.groups.streams.heartbeat import Step, beat
from groupcoord.core.groups.streams.leaving import leave, remove_members
from groupcoord.core.groups.streams.member_timers import StreamsTimers
from groupcoord.core.groups.streams.soft_state import StreamsMemory
from groupcoord.core.groups.streams.state import gone_members, is_empty_between, task_ids
from groupcoord.core.groups.streams.target import assign_target
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.host_queries import CreateInternalTopics, InternalTopicsCreated
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    JoinGroup,
    JoinGroupResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsStatus,
    StreamsStatusCode,
)
from groupcoord.core.replies import Token
from groupcoord.core.timers import NEVER_MS, TimerKey, TimerKind
from groupcoord.errors import ErrorCode


@define(eq=False)
class WhenStreamsGroupDrafted(WhenDrafted):
    """What was drafted for a streams group becomes its state."""


class StreamsMembership(ModernMembership[StreamsGroup, StreamsDraft]):
    """Handles the streams groups of one log partition."""

    GROUP = StreamsGroup
    DRAFT = StreamsDraft
    WHEN_DRAFTED = WhenStreamsGroupDrafted
    HEARTBEAT = StreamsGroupHeartbeat

    def __init__(
        self,
        context: HandlerContext,
        creation: Creation,
        environment: StreamsGroupEnvironment,
        timers: StreamsTimers,
        conversion: StreamsConversion,
    ) -> None:
        super().__init__(context, creation, environment, timers)
        self._environment: StreamsGroupEnvironment = environment
        self._member_timers = timers
        self._conversion = conversion
        self.judges = {StreamsGroupHeartbeat: self._judge_heartbeat}

    # ------------------------------------------------------------ requests

    def meet_no_group(self, request: StreamsGroupHeartbeat, token: Token, now_ms: int) -> None:
        """Take a heartbeat that meets no streams group: whoever joins takes the place of an empty classic one."""
        group = self._context.groups.get(request.group_id)
        joins = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        if isinstance(group, GroupMetadata) and group.is_empty and joins:
            self._upgrade(group, request, token, now_ms)
        else:
            self.refuse_without_group(request, token)

    def _upgrade(self, classic: GroupMetadata, request: StreamsGroupHeartbeat, token: Token, now_ms: int) -> None:
        group = StreamsGroup(request.group_id, self._context.partition, self._environment)
        draft = StreamsDraft(group.state)
        try:
            response = self._judge_heartbeat(group, draft, request, now_ms)
        except RefusedError as error:
            self._member_timers.take_delay(group)
            self.refuse(request, token, error)
        else:
            self._conversion.upgrade(classic, group, draft, token, response)

    def join(self, request: JoinGroup, token: Token, now_ms: int) -> None:
        """Take a join with the classic protocol. If nobody is in the group, it ends, and the joiner begins another."""
        group = self._groups[request.group_id]
        if not allows_session_timeout(self._environment.config, request.session_timeout_ms):
            error_code, member_id = ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id
        elif not group.is_empty:
            error_code, member_id = ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""
        elif request.member_id:
            error_code, member_id = ErrorCode.UNKNOWN_MEMBER_ID, request.member_id
        else:
            self._conversion.replace(group, request, token, now_ms)
            return
        self._context.effects.reply(token, JoinGroupResponse(error_code, member_id))

    def steady_until_ms(self, group: StreamsGroup) -> int | None:
        """Return until when a heartbeat changes nothing: for ever, unless topics are not in order."""
        configured = group.memory.configured
        return NEVER_MS if configured is not None and configured.is_ready else None

    def _judge_heartbeat(
        self, group: StreamsGroup, draft: StreamsDraft, request: StreamsGroupHeartbeat, now_ms: int
    ) -> StreamsGroupHeartbeatResponse:
        known = self._groups.get(group.group_id)
        is_made_by_this = known is not group
        # Kafka forgets what the heartbeat has noted that makes a group: it makes another of what was written.
        memory = StreamsMemory() if is_made_by_this else group.memory
        if request.shutdown_application and request.member_epoch < JOIN_GROUP_MEMBER_EPOCH:
            self._ask_for_shutdown(group, memory, request)
        if request.member_epoch < JOIN_GROUP_MEMBER_EPOCH:
            return leave(draft, request)
        settings = self._environment.settings_of(group.group_id)
        was_empty = not draft.state.members
        writer, found = self._context.writer, memory.found
        try:
            step = beat(
                draft,
                request,
                memory,
                self._environment,
                is_look_due=group.is_topics_look_due,
                begins_delay=lambda: self._member_timers.is_delayed(
                    group, was_empty=was_empty, delay_ms=settings.initial_rebalance_delay_ms, now_ms=now_ms
                ),
                now_ms=now_ms,
            )
        finally:
            memory.note_finding(found, writer.next_number, writer.last_durable)
        member_id = step.member.member_id
        if request.shutdown_application:
            self._ask_for_shutdown(group, memory, request)
        if step.has_changed_endpoint:
            memory.endpoint_epoch += 1
            group.steady.clear()
        if member_id in group.state.members:
            self._timers.start_session(group, step.member, now_ms)
        shows_tasks = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH or step.has_changed_tasks
        assigned = step.member.assignment.assigned
        endpoints = None
        if memory.endpoint_epoch != request.endpoint_information_epoch:
            try:
                endpoints = memory.endpoints.partitions(draft.state.members, step.configured, self._environment.topics)
            except EndpointError:
                self._go_on_untold(group, step, now_ms)
                raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
        if not is_made_by_this:
            group.is_topics_look_due = False
        return StreamsGroupHeartbeatResponse(
            ErrorCode.NONE,
            None,
            member_id,
            step.member.member_epoch,
            settings.heartbeat_interval_ms,
            settings.acceptable_recovery_lag,
            settings.task_offset_interval_ms,
            self._status(group, memory, step, request, now_ms),
            task_ids(assigned.active) if shows_tasks else None,
            task_ids(assigned.standby) if shows_tasks else None,
            task_ids(assigned.warmup) if shows_tasks else None,
            endpoint_information_epoch=0 if known is None else memory.endpoint_epoch,
            partitions_by_user_endpoint=endpoints,
        )

    def _ask_for_shutdown(self, group: StreamsGroup, memory: StreamsMemory, request: StreamsGroupHeartbeat) -> None:
        """A member wants all of the application to stop."""
        if memory.shutdown_by is None:
            memory.shutdown_by = request.member_id
            group.steady.clear()

    def _go_on_untold(self, group: StreamsGroup, step: Step, now_ms: int) -> None:
        """What a heartbeat has brought about can't be told, and so is not written; its timers run all the same."""
        if step.member.member_id in group.state.members and step.member.assignment != step.before.assignment:
            self._member_timers.follow_assignment(group, step.member, now_ms)

    def _status(
        self, group: StreamsGroup, memory: StreamsMemory, step: Step, request: StreamsGroupHeartbeat, now_ms: int
    ) -> tuple[StreamsStatus, ...]:
        """Return what a member should know of its group, in Kafka's order."""
        found = []
        if step.is_stale:
            detail = (
                f"The member's topology epoch {step.member.metadata.topology_epoch} is behind the group's topology "
                f"epoch {step.configured.epoch}."
            )
            found.append(StreamsStatus(StreamsStatusCode.STALE_TOPOLOGY, detail))
        if step.is_delayed:
            waits = group.timer(TimerKind.ASSIGNMENT_DELAY, "").deadline_ms is not None
            reason = "initial rebalance delay" if waits else "assignment interval"
            detail = f"Assignment delayed due to the configured {reason}."
            found.append(StreamsStatus(StreamsStatusCode.ASSIGNMENT_DELAYED, detail))
        problem = step.configured.problem
        if problem is not None:
            detail = problem.detail + self._ask_for_topics(group, step, request, now_ms)
            found.append(StreamsStatus(StreamsStatusCode(problem.kind), detail))
        if memory.shutdown_by is not None:
            detail = f"Streams group member {memory.shutdown_by} encountered a fatal error and requested a shutdown."
            found.append(StreamsStatus(StreamsStatusCode.SHUTDOWN_APPLICATION, detail))
        tags = {tag.key for tag in step.member.metadata.client_tags}
        settings = self._environment.settings_of(group.group_id)
        missing = [tag for tag in settings.rack_aware_assignment_tags if tag not in tags]
        if missing:
            detail = f"The member lacks the client tags {', '.join(missing)}."
            found.append(StreamsStatus(StreamsStatusCode.MISSING_CLIENT_TAGS, detail))
        return tuple(found)

    # ------------------------------------------------------------ internal topics

    def _ask_for_topics(self, group: StreamsGroup, step: Step, request: StreamsGroupHeartbeat, now_ms: int) -> str:
        """Ask the host for the internal topics that are missing; return what there is to say of them."""
        if not step.configured.missing:
            return ""
        interval_ms = self._environment.settings_of(group.group_id).heartbeat_interval_ms
        topics, detail = self._environment.internal_topics.ask(
            step.configured.missing.values(), request.permissions, interval_ms, now_ms
        )
        if topics:
            self._context.effects.questions.append(
                CreateInternalTopics(self._context.partition, group.group_id, topics, request.principal)
            )
        return detail

    def internal_topics_created(self, answer: InternalTopicsCreated, now_ms: int) -> None:
        """The host has created topics, or could not. That they are there shows when they are seen."""
        interval_ms = self._environment.settings_of(answer.question.group_id).heartbeat_interval_ms
        self._environment.internal_topics.created(answer, interval_ms, now_ms)

    # ------------------------------------------------------------ writes and timers

    def write(self, group: StreamsGroup, draft: StreamsDraft, now_ms: int) -> None:
        """Let the log have what was drafted; a group for which that is nothing never was.

        What a member that goes has told of its tasks is forgotten with that, be it taken or refused, and also if it
        comes back with it. So is the wish that all stop, with the last member.
        """
        gone = gone_members(draft.records)
        for member_id in gone:
            group.memory.task_offsets.pop(member_id, None)
        if gone and len(gone) >= len(group.state.members) and is_empty_between(group.state.members, draft.records):
            group.memory.shutdown_by = None
        super().write(group, draft, now_ms)
        if self._groups.get(group.group_id) is not group:
            self._member_timers.take_delay(group)

    def on_failure(self, written: WhenDrafted, error_code: ErrorCode, now_ms: int) -> None:
        """What was drafted never was."""
        written.group.memory.forget_refused(self._context.writer.last_durable)
        super().on_failure(written, error_code, now_ms)

    def remove_members(self, draft: StreamsDraft, member_ids: Collection[str], cause: Cause, now_ms: int) -> None:
        """Write that members are gone, and the group's next epoch."""
        remove_members(draft, member_ids, cause)

    def fence(self, group: StreamsGroup, draft: StreamsDraft, key: TimerKey, now_ms: int) -> None:
        """A timer has fired: of a member, or of the group, which has waited for more members."""
        if key.kind is not TimerKind.ASSIGNMENT_DELAY:
            super().fence(group, draft, key, now_ms)
            return
        configured = group.memory.configured
        if configured is not None and draft.state.assignment_epoch < draft.state.epoch:
            draft.mark()
            try:
                assign_target(draft, group.memory, configured, self._environment, now_ms)
            except RefusedError:
                draft.roll_back()
