"""Handlers of streams groups (KIP-1071): heartbeats, leaves, timers, loads, and conversion of empty groups.

Sources: ``GroupMetadataManager`` (``streamsGroupLeave``, ``streamsGroupStaticMemberGroupLeave``,
``streamsGroupFenceMember``) of Apache Kafka 4.4.
"""

from __future__ import annotations

from groupcoord.core.fast_construct import define
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.conversion import ConvertibleGroups, WhenConverted
from groupcoord.core.groups.streams.group import (
    StreamsDraft,
    StreamsGroup,
    StreamsGroupEnvironment,
    StreamsMemory,
    gone_members,
    is_empty_between,
    task_ids,
)
from groupcoord.core.groups.streams.heartbeat import Step, assign_target, handle_heartbeat
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.host_queries import CreateInternalTopics, InternalTopicsCreated
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    DescribedStreamsGroup,
    JoinGroup,
    JoinGroupResponse,
    Reply,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsStatus,
    StreamsStatusCode,
    Token,
)
from groupcoord.core.messages.request import RefusedError
from groupcoord.core.timers import NEVER_MS, TimerKey, TimerKind
from groupcoord.errors import ErrorCode


@define(eq=False)
class WhenStreamsGroupConverted(WhenConverted):
    """Conversion between an empty classic group and a streams group, with the end of the new group's initial delay."""

    MODERN_CLASS = StreamsGroup

    delay_until_ms: int | None = None


def steady_until_ms(group: StreamsGroup, environment: StreamsGroupEnvironment) -> int | None:
    """Return forever, or None until the topology is configured without a problem."""
    configured = group.memory.configured
    # A heartbeat asks for missing topics again and again.
    return NEVER_MS if configured is not None and configured.is_ready else None


class StreamsGroups(ConvertibleGroups[StreamsGroup, StreamsDraft]):
    """Handlers of streams groups."""

    group_class = StreamsGroup
    draft_class = StreamsDraft
    converted_class = WhenStreamsGroupConverted
    heartbeat_request = StreamsGroupHeartbeat
    response_class = StreamsGroupHeartbeatResponse
    describe_request = StreamsGroupDescribe
    described_class = DescribedStreamsGroup
    answer_class = InternalTopicsCreated
    announces_assignments = False
    _environment: StreamsGroupEnvironment
    steady_until_ms = staticmethod(steady_until_ms)

    def __init__(self, context: HandlerContext, environment: StreamsGroupEnvironment, classic: ClassicGroups) -> None:
        super().__init__(context, environment, classic)
        self.rules = {StreamsGroupHeartbeat: self._handle_heartbeat}
        self.guest_handlers = {JoinGroup: self.join_as_guest, **self.refuse_classic_members()}

    # ------------------------------------------------------------ requests

    def meet_no_group(self, request: StreamsGroupHeartbeat, token: Token, now_ms: int) -> None:
        group = self._context.groups.get(request.group_id)
        joins = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        # Unlike consumer groups, streams groups take over no members.
        if isinstance(group, GroupMetadata) and group.is_empty and joins:
            self._upgrade(group, request, token, now_ms)
        else:
            super().meet_no_group(request, token, now_ms)

    def _upgrade(self, classic: GroupMetadata, request: StreamsGroupHeartbeat, token: Token, now_ms: int) -> None:
        group = StreamsGroup(request.group_id, self._context.partition, self._environment)
        draft = StreamsDraft(group.state)
        try:
            response = self._handle_heartbeat(group, draft, request, now_ms)
        except RefusedError as error:
            # The group was not created, so its delay must not fire.
            self.take_delay(group)
            self.refuse(request, token, error)
            return
        written = WhenStreamsGroupConverted(classic, draft.events, None, self.take_delay(group))
        self.begin_conversion(written, [*classic.tombstones(), *draft.records], (Reply(token, response),))

    def join_members(self, group: StreamsGroup, request: JoinGroup, token: Token, now_ms: int) -> None:
        self._context.effects.reply(token, JoinGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))

    def _handle_heartbeat(
        self, group: StreamsGroup, draft: StreamsDraft, request: StreamsGroupHeartbeat, now_ms: int
    ) -> StreamsGroupHeartbeatResponse:
        memory = group.memory
        if request.member_epoch < JOIN_GROUP_MEMBER_EPOCH:
            # Remembered even if the leave fails, as in Kafka.
            if request.shutdown_application:
                self._ask_for_shutdown(group, request)
            response: StreamsGroupHeartbeatResponse = self.leave_by_heartbeat(draft, request, now_ms)
            return response
        settings = self._environment.settings_of(group.group_id)
        was_empty = not draft.state.members
        writer, findings = self._context.writer, memory.findings
        try:
            step = handle_heartbeat(
                group,
                draft,
                request,
                now_ms,
                begins_delay=lambda: self.is_delayed(
                    group, was_empty=was_empty, delay_ms=settings.initial_rebalance_delay_ms, now_ms=now_ms
                ),
            )
        finally:
            # Also after a refusal: Kafka keeps the topology that it has configured.
            memory.note_findings(findings, writer.next_number, writer.last_durable)
        member_id = step.member.member_id
        if request.shutdown_application:
            self._ask_for_shutdown(group, request)
        # All members have to learn the new endpoints, so cached responses are void.
        if step.has_changed_endpoint:
            memory.endpoint_epoch += 1
            group.steady.clear()
        if member_id in group.state.members:
            self.start_session(group, step.member, now_ms)
        shows_tasks = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH or step.has_changed_tasks
        active = standby = warmup = None
        if shows_tasks:
            active, standby, warmup = map(task_ids, step.member.assignment.assigned.by_role)
        endpoints = None
        # Endpoints are sent until the member reports the present epoch.
        if memory.endpoint_epoch != request.endpoint_information_epoch:
            try:
                endpoints = memory.endpoints.partitions(draft.state.members, step.configured, self._environment.topics)
            except RefusedError:
                # Kafka has set the revocation timer by now, although this heartbeat fails and is not written.
                if member_id in group.state.members and step.member.assignment != step.before.assignment:
                    self.follow_assignment(group, step.member, now_ms)
                raise
        self.looked_at_topics(group)
        return StreamsGroupHeartbeatResponse(
            ErrorCode.NONE,
            None,
            member_id,
            step.member.member_epoch,
            settings.heartbeat_interval_ms,
            settings.acceptable_recovery_lag,
            settings.task_offset_interval_ms,
            self._status(group, step, request, now_ms),
            active,
            standby,
            warmup,
            # Kafka answers the creating heartbeat with 0.
            endpoint_information_epoch=memory.endpoint_epoch if group.group_id in self._groups else 0,
            partitions_by_user_endpoint=endpoints,
        )

    def _ask_for_shutdown(self, group: StreamsGroup, request: StreamsGroupHeartbeat) -> None:
        if group.memory.shutdown_by is None:
            group.memory.shutdown_by = request.member_id
            group.steady.clear()

    def _status(
        self, group: StreamsGroup, step: Step, request: StreamsGroupHeartbeat, now_ms: int
    ) -> tuple[StreamsStatus, ...]:
        """Return the statuses of a group for a member, in Kafka's order."""
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
        if group.memory.shutdown_by is not None:
            detail = (
                f"Streams group member {group.memory.shutdown_by} encountered a fatal error and requested a shutdown."
            )
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
        """Emit a query for missing internal topics; return the text of failed creations."""
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

    def found_out(self, answer: InternalTopicsCreated, now_ms: int) -> None:
        interval_ms = self._environment.settings_of(answer.question.group_id).heartbeat_interval_ms
        self._environment.internal_topics.created(answer, interval_ms, now_ms)

    # ------------------------------------------------------------ writes and timers

    def write(self, group: StreamsGroup, draft: StreamsDraft, now_ms: int) -> None:
        """Append a draft, after forgetting the soft state of members that leave with it."""
        # Before the write, for any outcome, and even if the member returns with it.
        gone = gone_members(draft.records)
        for member_id in gone:
            group.memory.task_offsets.pop(member_id, None)
        if gone and len(gone) >= len(group.state.members) and is_empty_between(group.state.members, draft.records):
            group.memory.shutdown_by = None
        is_new = group.group_id not in self._groups
        super().write(group, draft, now_ms)
        if is_new:
            # Kafka builds the new group from its records, so the first heartbeat's soft state is lost.
            group.memory = StreamsMemory()
        if self._groups.get(group.group_id) is not group:
            # A group without records was not created, and loses its delay.
            self.take_delay(group)

    def is_delayed(self, group: StreamsGroup, *, was_empty: bool, delay_ms: int, now_ms: int) -> bool:
        """Return whether a group still waits for more members before it assigns tasks."""
        timer = group.timer(TimerKind.ASSIGNMENT_DELAY, "")
        # A timer that runs is not restarted: the delay is that of the first member.
        if was_empty and delay_ms > 0 and timer.deadline_ms is None:
            self._timers.arm(timer, now_ms + delay_ms)
        return timer.deadline_ms is not None

    def take_delay(self, group: StreamsGroup) -> int | None:
        """Cancel the delay of a group that was not created; return its deadline, or None."""
        timer = group.timer(TimerKind.ASSIGNMENT_DELAY, "")
        until_ms = timer.deadline_ms
        self._timers.cancel(timer)
        return until_ms

    def append_refused(self) -> None:
        # Kafka reverts the whole log partition to its last write, so every streams group loses its findings.
        for group in self._context.groups.values():
            if isinstance(group, StreamsGroup):
                group.memory.revert(self._context.writer.last_durable)

    def fence(self, group: StreamsGroup, draft: StreamsDraft, key: TimerKey, now_ms: int) -> None:
        if key.kind is not TimerKind.ASSIGNMENT_DELAY:
            super().fence(group, draft, key, now_ms)
            return
        configured = group.memory.configured
        # After a load or a first heartbeat there is no topology in memory, and Kafka does nothing.
        if configured is not None and draft.state.assignment_epoch < draft.state.epoch:
            draft.mark()
            try:
                assign_target(group, draft, configured, now_ms)
            except RefusedError:
                # The target stays due, and a later heartbeat computes it.
                draft.roll_back()

    # ------------------------------------------------------------ groups as they are read and loaded

    def go_on_as_modern_group(self, written: WhenStreamsGroupConverted, group: StreamsGroup, now_ms: int) -> None:
        super().go_on_as_modern_group(written, group, now_ms)
        if written.delay_until_ms is not None:
            self._context.timers.arm(group.timer(TimerKind.ASSIGNMENT_DELAY, ""), written.delay_until_ms)

    def described(self, group: StreamsGroup) -> DescribedStreamsGroup:
        return group.described(self._context.writer.last_durable)
