"""Kafka Streams applications (KIP-1071): instances that share the tasks of a topology and restart in turn."""

from __future__ import annotations

from attrs import define, field, frozen

from groupcoord.errors import ErrorCode
from groupcoord.laws import require
from groupcoord.messages import (
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from groupcoord.sim.actors.environment import Stage
from groupcoord.sim.actors.groups import Population
from groupcoord.sim.actors.observations import StreamsTasks
from groupcoord.sim.actors.scripted_clients import Application, Ask, Pause, Script, ScriptedClient

INSTANCE = "streams instance"

RETRY_MS = 500
REBALANCE_TIMEOUT_MS = 300_000
SUBTOPOLOGY_ID = "0"

_FENCING = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


@frozen(kw_only=True)
class StreamsApplication(Application):
    """Application of one subtopology with several instances.

    Attributes:
        threads: number of consecutive instances that are threads of one process with one disk.
        restore_ms: time to read the whole state of a task; 0: tasks have none.
    """

    threads: int = 1
    restore_ms: int = 0

    def begin(self, stage: Stage, population: Population) -> None:
        counts = [stage.topics.partition_count(topic) or 0 for topic in self.topics]
        # A subtopology has a task for each partition of its largest topic.
        tasks = StreamsTasks(max(counts), stage.scheduler.time_ms, self.restore_ms)
        stage.applications[self.group] = tasks
        session_ms = stage.cluster.config.group_streams_session_timeout_ms
        instances = [_Instance(self, index, stage, tasks, session_ms) for index in range(self.instances)]
        for instance in instances:
            instance.others = [other for other in instances if other is not instance]
            ScriptedClient(stage, INSTANCE, stage.guest(self.group), instance.script())

    def end(self, stage: Stage, population: Population) -> None:
        stage.applications[self.group].finish(stage.scheduler.time_ms)

    def topology(self) -> Topology:
        """Return the topology of its members."""
        changelogs = (TopicInfo(f"{self.group}-store-changelog"),) if self.restore_ms else ()
        return Topology(0, (Subtopology(SUBTOPOLOGY_ID, self.topics, state_changelog_topics=changelogs),))


@define
class _Instance:
    """Instance, across its restarts; ``taken_ms`` is the time of the last accepted heartbeat."""

    application: StreamsApplication
    index: int
    stage: Stage
    tasks: StreamsTasks
    session_ms: int
    active: frozenset[int] = frozenset()
    standby: frozenset[int] = frozenset()
    taken_ms: int = -1
    others: list[_Instance] = field(factory=list)

    def script(self) -> Script:
        application, start_ms = self.application, self.stage.start_ms
        end_ms = start_ms + application.end_ms
        restart_ms = application.restart_ms(self.index)
        if restart_ms is not None:
            yield from self._life(1, start_ms + restart_ms, leaves=application.is_graceful)
            yield Pause(application.down_ms)
        yield from self._life(2, end_ms, leaves=True)

    @property
    def process(self) -> int:
        """Number of its process, which has the disk and counts as the instance for :class:`.StreamsTasks`."""
        return self.index // self.application.threads

    @property
    def _now_ms(self) -> int:
        return self.stage.scheduler.time_ms

    def _life(self, life: int, until_ms: int, *, leaves: bool) -> Script:
        # ``reports_tasks``: the next heartbeat includes the tasks.
        member_id, epoch, reports_tasks = f"{self.application.group}-{self.index}-{life}", 0, True
        while self._now_ms < until_ms:
            sent_ms = self._now_ms
            answer = yield Ask(self._heartbeat(member_id, epoch, reports_tasks=reports_tasks), self.application.group)
            if not isinstance(answer, StreamsGroupHeartbeatResponse) or answer.error_code is not ErrorCode.NONE:
                if isinstance(answer, StreamsGroupHeartbeatResponse) and answer.error_code in _FENCING:
                    self._have(frozenset(), frozenset())
                    epoch = 0
                reports_tasks = True  # the last response may be lost
                yield Pause(RETRY_MS)
                continue
            epoch, self.taken_ms, reports_tasks = answer.member_epoch, sent_ms, False
            if answer.active_tasks is not None:
                self._have(_numbers(answer.active_tasks), _numbers(answer.standby_tasks or ()))
                reports_tasks = True  # at once, so that others get the revoked tasks
                continue
            yield Pause(max(1, min(answer.heartbeat_interval_ms, until_ms - self._now_ms)))
        self._have(frozenset(), frozenset())
        self.taken_ms = -1
        if leaves:
            yield Ask(StreamsGroupHeartbeat(self.application.group, member_id, -1), self.application.group)

    def _heartbeat(self, member_id: str, epoch: int, *, reports_tasks: bool) -> StreamsGroupHeartbeat:
        request = StreamsGroupHeartbeat(self.application.group, member_id, epoch, client_id=member_id)
        if epoch == 0:
            self._have(frozenset(), frozenset())
            request.topology = self.application.topology()
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.process_id = f"{self.application.group}-{self.process}"
        if epoch == 0 or reports_tasks:
            request.active_tasks, request.standby_tasks = _task_ids(self.active), _task_ids(self.standby)
            request.warmup_tasks = ()
        return request

    def _have(self, active: frozenset[int], standby: frozenset[int]) -> None:
        """Apply an assignment, revocations first, and check that no task is active or copied twice."""
        now_ms = self._now_ms
        for number in sorted(self.active - active):
            self.tasks.give_up(number, self.process, now_ms)
        for number in sorted(self.standby - standby):
            self.tasks.stop_copying(number, self.process, now_ms)
        self._check(active, standby)
        for number in sorted(active - self.active):
            is_ready = self.tasks.take(number, self.process, now_ms) == 0
            self.stage.count(INSTANCE, "takes a task", "with its state" if is_ready else "reads its state")
        for number in sorted(standby - self.standby):
            self.tasks.copy(number, self.process, now_ms)
        self.active, self.standby = active, standby

    def _check(self, active: frozenset[int], standby: frozenset[int]) -> None:
        name = f"{self.application.group}-{self.index}"
        require(not active & standby, f"{name} has a standby of its own active task")
        for other in self.others:
            if self._now_ms - other.taken_ms >= self.session_ms:
                continue
            twice = other.active & active
            require(not twice, f"{name} has the tasks {set(twice)}, which are active at instance {other.index}")
            if other.process == self.process:
                beside = (other.standby & active) | (other.active & standby)
                require(not beside, f"{name} has the tasks {set(beside)}, and so has {other.index} in its process")


def _numbers(tasks: tuple[TaskIds, ...]) -> frozenset[int]:
    return frozenset(number for each in tasks for number in each.partitions)


def _task_ids(numbers: frozenset[int]) -> tuple[TaskIds, ...]:
    return (TaskIds(SUBTOPOLOGY_ID, tuple(sorted(numbers))),) if numbers else ()
