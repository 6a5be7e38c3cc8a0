"""Applications that form a group of their own: workers of a share group (KIP-932), and Kafka Streams (KIP-1071)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from random import Random

from attrs import define, field, frozen

from groupcoord.core.share_partition.in_flight import AcknowledgeType
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.errors import ErrorCode
from groupcoord.laws import require
from groupcoord.messages import (
    Response,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from groupcoord.sim.actors.clients import RETRY_MS, Ask, AskNode, Fault, HangUp, Pause, Script, ScriptedClient
from groupcoord.sim.actors.environment import Stage
from groupcoord.sim.actors.groups import Population
from groupcoord.sim.actors.observations import ShareRecords, StreamsTasks
from groupcoord.sim.cluster.share_groups import SharedTopics
from groupcoord.sim.kernel import stream
from groupcoord.wire.share_messages import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    AcknowledgementBatch,
    ShareAcknowledge,
    ShareAcknowledgeResponse,
    ShareFetch,
    ShareFetchPartition,
    ShareFetchResponse,
    TopicIdEntry,
)


@frozen(kw_only=True)
class Application(Fault):
    """Instances of a program, which start and stop together. They form a group, but are not simulated consumers.

    Attributes:
        restart_every_ms: interval between the restarts of two instances, until all have restarted.
    """

    group: str
    instances: int
    topics: tuple[str, ...]
    restart_from_ms: int | None = None
    restart_every_ms: int = 30_000
    down_ms: int = 5_000
    is_graceful: bool = True

    def restart_ms(self, index: int) -> int | None:
        if self.restart_from_ms is None:
            return None
        restart_ms = self.restart_from_ms + index * self.restart_every_ms
        return restart_ms if restart_ms < self.end_ms else None


WORKER = "share worker"
PRODUCER = "producer of jobs"

IDLE_MS = 100
MAX_WAIT_MS = 500
"""Longest wait of a fetch for records."""

MAX_BYTES = 1024 * 1024

Outcomes = dict[SharePartitionKey, dict[int, AcknowledgeType]]


@frozen(kw_only=True)
class ShareWorkers(Application):
    """Workers of a share group with a producer of records; they stop when all records are done.

    Attributes:
        write_every_ms: interval at which a batch is written to one of the partitions.
        batch_max: maximum records per batch.
        max_records: maximum records per fetch.
        is_limit: ``max_records`` is a strict limit (KIP-1206).
        work_ms: bounds of the time to process a fetch.
        release_percent, reject_percent: percentage of records released for another delivery; of the others, rejected.
        hang_percent: percentage of fetches that take longer to process.
        hang_ms: the additional time.
        renews: processing renews locks (KIP-1222).
        crash_percent: percentage of fetches after which the worker crashes before it acknowledges.
        vanish_percent: percentage of crashes in which the machine fails, too, so that nodes do not notice.
    """

    write_every_ms: int = 1_000
    batch_max: int = 10
    max_records: int = 500
    is_limit: bool = False
    work_ms: tuple[int, int] = (0, 0)
    release_percent: int = 0
    reject_percent: int = 0
    hang_percent: int = 0
    hang_ms: int = 60_000
    renews: bool = False
    crash_percent: int = 0
    vanish_percent: int = 0

    def begin(self, stage: Stage, population: Population) -> None:
        shared = stage.cluster.shared
        assert shared is not None, "a world with share groups has topics that hold something"
        records = stage.shares[self.group] = ShareRecords(self.group, self.topics, shared)
        guest = stage.guest(self.group)
        chance = stream(stage.seed, "jobs", self.group)
        ScriptedClient(stage, PRODUCER, guest, _produce(self, stage, shared, chance))
        for index in range(self.instances):
            worker = _Worker(self, index, stage, shared, records, stream(stage.seed, "worker", self.group, index))
            ScriptedClient(stage, WORKER, guest, worker.send_heartbeats())
            ScriptedClient(stage, WORKER, guest, worker.process_records())


def _produce(workers: ShareWorkers, stage: Stage, shared: SharedTopics, chance: Random) -> Script:
    end_ms = stage.start_ms + workers.end_ms
    while stage.scheduler.time_ms < end_ms:
        keys = shared.keys_of(workers.group, workers.topics)
        if keys:
            key = chance.choice(keys)
            topic = shared.topics.get_by_id(key.topic_id)
            assert topic is not None
            shared.produce(topic, key.partition, chance.randint(1, workers.batch_max))
        yield Pause(workers.write_every_ms)


@define
class _Session:
    """Share session with a node."""

    epoch: int = FIRST_EPOCH
    partitions: frozenset[SharePartitionKey] = frozenset()
    outcomes: Outcomes = field(factory=dict)


@define
class _Worker:
    """Worker, across its restarts, with one script for heartbeats and one for records."""

    workers: ShareWorkers
    index: int
    stage: Stage
    shared: SharedTopics
    records: ShareRecords
    chance: Random
    life: int = 0
    is_alive: bool = False
    is_over: bool = False
    was_restarted: bool = False
    epoch: int = 0
    is_unsure: bool = False
    assigned: tuple[SharePartitionKey, ...] = ()
    sessions: dict[int, _Session] = field(factory=dict)
    held: dict[SharePartitionKey, set[int]] = field(factory=dict)

    @property
    def _now_ms(self) -> int:
        return self.stage.scheduler.time_ms

    @property
    def _is_ending(self) -> bool:
        return self._now_ms >= self.stage.start_ms + self.workers.end_ms

    @property
    def _member_id(self) -> str:
        return f"{self.workers.group}-{self.index}-{self.life}"

    def _strikes(self, percent: int) -> bool:
        return not self._is_ending and self.chance.random() < percent / 100

    # ------------------------------------------------------------ the group

    def send_heartbeats(self) -> Script:
        group = self.workers.group
        while not self.is_over:
            if not self.is_alive:
                yield Pause(IDLE_MS)
                continue
            life = self.life
            # A heartbeat after a lost response repeats all fields, and gets a full response.
            names = self.workers.topics if self.epoch == 0 or self.is_unsure else None
            request = ShareGroupHeartbeat(
                group, self._member_id, self.epoch, subscribed_topic_names=names, client_id=self._member_id
            )
            answer = yield Ask(request, group)
            if life != self.life or not self.is_alive:  # restarted or dead meanwhile
                continue
            if isinstance(answer, ShareGroupHeartbeatResponse) and answer.error_code is ErrorCode.NONE:
                self.epoch, self.is_unsure = answer.member_epoch, False
                if answer.assignment is not None:
                    self.assigned = tuple(
                        SharePartitionKey(group, topic.topic_id, index)
                        for topic in answer.assignment
                        for index in topic.partitions
                    )
                yield Pause(answer.heartbeat_interval_ms)
                continue
            if isinstance(answer, ShareGroupHeartbeatResponse) and answer.error_code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.epoch, self.assigned = 0, ()
            self.is_unsure = True
            yield Pause(RETRY_MS)

    # ------------------------------------------------------------ records

    def process_records(self) -> Script:
        while not self.is_over:
            self.life += 1
            self.is_alive, self.epoch, self.assigned = True, 0, ()
            self.sessions, self.held = {}, {}
            yield from self._live()
            yield Pause(self.workers.down_ms)

    def _live(self) -> Script:
        while self.is_alive:
            if self._is_ending and self.records.are_done():
                self.is_over = True
                yield from self._close()
                return
            if self._is_restart_due():
                self.was_restarted = True
                yield from (self._close if self.workers.is_graceful else self._die)()
                return
            led = self._by_leader()
            if not led:
                yield Pause(IDLE_MS)
            for node_id, partitions in led.items():
                outcomes = yield from self._fetch(node_id, partitions)
                if outcomes:
                    yield from self._work(node_id, outcomes)
                else:
                    yield Pause(IDLE_MS)
                if not self.is_alive:
                    return

    def _is_restart_due(self) -> bool:
        restart_ms = self.workers.restart_ms(self.index)
        is_planned = restart_ms is not None and not self.was_restarted
        return is_planned and self._now_ms >= self.stage.start_ms + (restart_ms or 0)

    def _by_leader(self) -> dict[int, frozenset[SharePartitionKey]]:
        found: dict[int, set[SharePartitionKey]] = {}
        for key in self.assigned:
            topic = self.shared.topics.get_by_id(key.topic_id)
            leader_id = -1 if topic is None else self.shared.leader_of(topic, key.partition)
            if leader_id >= 0:
                found.setdefault(leader_id, set()).add(key)
        return {node_id: frozenset(found[node_id]) for node_id in sorted(found)}

    def _fetch(
        self, node_id: int, partitions: frozenset[SharePartitionKey]
    ) -> Generator[AskNode | Pause, Response | None, Outcomes]:
        session, workers = self.sessions.setdefault(node_id, _Session()), self.workers
        outcomes, session.outcomes = session.outcomes, {}
        request = ShareFetch(
            workers.group,
            self._member_id,
            session.epoch,
            MAX_WAIT_MS,
            1,
            MAX_BYTES,
            workers.max_records,
            workers.max_records,
            _topics(outcomes, partitions - session.partitions),
            _forgotten(session.partitions - partitions),
            int(workers.is_limit),
        )
        answer = yield AskNode(request, node_id)
        if not isinstance(answer, ShareFetchResponse) or answer.error_code is not ErrorCode.NONE:
            self.sessions[node_id] = _Session()
            yield Pause(RETRY_MS)
            return {}
        session.epoch, session.partitions = session.epoch + 1, partitions
        brought: Outcomes = {}
        for topic in answer.responses:
            for data in topic.partitions:
                key = SharePartitionKey(workers.group, topic.topic_id, data.partition_index)
                self._note_acknowledged(key, outcomes.get(key, {}), data.acknowledge_error_code)
                for first, last, count in data.acquired_records:
                    for offset in range(first, last + 1):
                        self.records.delivered(key, offset, count, self._now_ms)
                        brought.setdefault(key, {})[offset] = AcknowledgeType.ACCEPT
                        self.held.setdefault(key, set()).add(offset)
        return brought

    def _work(self, node_id: int, outcomes: Outcomes) -> Script:
        workers = self.workers
        until_ms = self._now_ms + self.chance.randint(*workers.work_ms)
        until_ms += workers.hang_ms if self._strikes(workers.hang_percent) else 0
        renewal_ms = max(self.shared.settings.record_lock_duration_ms // 2, 1)
        while self._now_ms < until_ms:
            yield Pause(min(until_ms - self._now_ms, renewal_ms))
            if self._is_restart_due() and not workers.is_graceful:
                self.was_restarted = True
                yield from self._die()
                return
            if workers.renews and self._now_ms < until_ms:
                renewals = {key: dict.fromkeys(offsets, AcknowledgeType.RENEW) for key, offsets in outcomes.items()}
                yield from self._acknowledge(node_id, renewals)
        if self._strikes(workers.crash_percent):
            yield from self._die()
            return
        for offsets in outcomes.values():
            for offset in offsets:
                if self._strikes(workers.release_percent):
                    offsets[offset] = AcknowledgeType.RELEASE
                elif self._strikes(workers.reject_percent):
                    offsets[offset] = AcknowledgeType.REJECT
        if self.chance.random() < 0.5:
            yield from self._acknowledge(node_id, outcomes)
        elif node_id in self.sessions:
            self.sessions[node_id].outcomes = outcomes

    def _acknowledge(self, node_id: int, outcomes: Outcomes, *, is_final: bool = False) -> Script:
        session = self.sessions.get(node_id)
        if session is None or session.epoch == FIRST_EPOCH:  # only an open session accepts acknowledgements
            return
        is_renewal = any(AcknowledgeType.RENEW in offsets.values() for offsets in outcomes.values())
        epoch = FINAL_EPOCH if is_final else session.epoch
        request = ShareAcknowledge(self.workers.group, self._member_id, epoch, _topics(outcomes, ()), is_renewal)
        answer = yield AskNode(request, node_id)
        if not isinstance(answer, ShareAcknowledgeResponse) or answer.error_code is not ErrorCode.NONE:
            self.sessions[node_id] = _Session()
            return
        session.epoch += 1
        for topic in answer.responses:
            for result in topic.partitions:
                key = SharePartitionKey(self.workers.group, topic.topic_id, result.partition_index)
                self._note_acknowledged(key, outcomes.get(key, {}), result.error_code)

    def _note_acknowledged(
        self, key: SharePartitionKey, outcomes: Mapping[int, AcknowledgeType], error_code: ErrorCode
    ) -> None:
        for offset, kind in outcomes.items():
            if kind is not AcknowledgeType.RENEW:
                self.held.get(key, set()).discard(offset)
            if kind is AcknowledgeType.ACCEPT and error_code is ErrorCode.NONE:
                self.records.accepted(key, offset, self._now_ms)

    # ------------------------------------------------------------ shutdown

    def _close(self) -> Script:
        for node_id, session in list(self.sessions.items()):
            yield from self._acknowledge(node_id, session.outcomes, is_final=True)
        self.is_alive = False
        yield HangUp(notifies=True)
        yield Ask(ShareGroupHeartbeat(self.workers.group, self._member_id, -1), self.workers.group)

    def _die(self) -> Script:
        self.is_alive = False
        for key, offsets in self.held.items():
            for offset in sorted(offsets):
                self.records.lost(key, offset, self._now_ms)
        yield HangUp(notifies=self.chance.random() >= self.workers.vanish_percent / 100)


def _topics(outcomes: Outcomes, new: Iterable[SharePartitionKey]) -> tuple[TopicIdEntry[ShareFetchPartition], ...]:
    topics: dict[object, list[ShareFetchPartition]] = {}
    keys = {key: outcomes.get(key, {}) for key in sorted({*outcomes, *new})}
    for key, offsets in keys.items():
        topics.setdefault(key.topic_id, []).append(ShareFetchPartition(key.partition, _batches(offsets)))
    return tuple(TopicIdEntry(topic_id, tuple(found)) for topic_id, found in topics.items())  # type: ignore[arg-type]


def _batches(offsets: Mapping[int, AcknowledgeType]) -> tuple[AcknowledgementBatch, ...]:
    runs: list[tuple[int, list[int]]] = []
    for offset, kind in sorted(offsets.items()):
        if runs and runs[-1][0] + len(runs[-1][1]) == offset:
            runs[-1][1].append(kind)
        else:
            runs.append((offset, [kind]))
    return tuple(AcknowledgementBatch(first, first + len(kinds) - 1, tuple(kinds)) for first, kinds in runs)


def _forgotten(keys: Iterable[SharePartitionKey]) -> tuple[TopicIdEntry[int], ...]:
    return tuple(TopicIdEntry(key.topic_id, (key.partition,)) for key in sorted(keys))


INSTANCE = "streams instance"

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
