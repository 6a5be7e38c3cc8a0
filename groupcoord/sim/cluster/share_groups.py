"""Share groups of a simulated cluster (KIP-932): topics with records, and the share server of each node.

A share server leads share-partitions and is a share coordinator. Sessions, waiting fetches and share-partitions are
those of the server (:mod:`groupcoord.broker.share`). Requests between nodes have latencies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from attrs import define, evolve

from groupcoord.broker.records.topic_data import NotLeaderError, TopicData
from groupcoord.broker.share.coordination import Persister
from groupcoord.broker.share.dead_letters import DeadLetters
from groupcoord.broker.share.fetch import ShareRequests
from groupcoord.broker.topics.registry import Topic
from groupcoord.broker.work import Job, Token, Work, do_in_place
from groupcoord.config.group_settings import EARLIEST, ShareGroupSettings
from groupcoord.coordinator.share_coordinator import ShareCoordinator
from groupcoord.core.host_queries import AskShareCoordinator, ShareCoordinatorAnswered, known_ends
from groupcoord.core.messages.share_state import ShareStateRequest, ShareStateResponse
from groupcoord.core.share_partition.in_flight import FINISHED
from groupcoord.core.share_state.records import (
    DeliveryState,
    SharePartitionKey,
    ShareSnapshot,
    ShareStates,
    ShareUpdate,
    StateBatch,
)
from groupcoord.errors import ErrorCode
from groupcoord.log_store import LogRecord
from groupcoord.records.batches import encode_batch
from groupcoord.sim.cluster.log import ClusterLog, NodeLog, StoreFault
from groupcoord.sim.kernel import Exchange, Latency, SimulatedConnection, ignore, rank_of_node, stable_number
from groupcoord.wire.share_messages import ShareFetch

if TYPE_CHECKING:
    from groupcoord.sim.cluster.nodes import CoordinatorNode, SimulatedCluster
    from groupcoord.storage.log.memory_log import PartitionLog

RELOAD_PAUSE_MS = 1_000
"""Time until another load after a write with unknown outcome."""


GIVEN_UP = (DeliveryState.ARCHIVING, DeliveryState.ARCHIVED)

STATES_PARTITION = 0
"""Log partition with a leader that is also the share coordinator, with a single partition of states."""


class SharedTopics:
    """Logs of topics, and the log of the states of share-partitions, for all nodes of a cluster.

    The leader of a partition is the leader of a certain log partition of the groups, so leaders move and crash with
    these. Logs of topics lose nothing; that of the states has the groups' faults except broken reads.

    Attributes:
        given_up: by share-partition, archived records that were not accepted.
        worked_off: by share-partition, the end offset when all records were accepted or archived.
        written_ms: by topic id and partition, the times of its records, by offset.
    """

    def __init__(self, cluster: SimulatedCluster, faults: Iterable[StoreFault]) -> None:
        self.scheduler = cluster.scheduler
        self.topics = cluster.topics
        self._leaders = leaders = cluster.log.leaders
        self.data = TopicData(cluster.config, cluster.scheduler, cluster.topics)
        faults = [evolve(fault, broken_read_percent=0) for fault in faults]
        seed, flush_ms = cluster.seed, cluster.options.flush_ms
        self.state_log = ClusterLog(
            cluster.scheduler, 1, seed=seed, flush_ms=flush_ms, faults=faults, leaders=leaders, is_compacted=False
        )
        self.servers: dict[int, ShareServer] = {}
        self.settings = ShareGroupSettings.of(cluster.config, {"auto_offset_reset": EARLIEST})
        self.written_ms: dict[tuple[UUID, int], list[int]] = {}
        self.on_written: Callable[[SharePartitionKey, tuple[StateBatch, ...]], None] = ignore
        self.on_emptied: Callable[[SharePartitionKey], None] = ignore
        self.given_up: dict[SharePartitionKey, set[int]] = {}
        self.worked_off: dict[SharePartitionKey, int] = {}
        self._states = ShareStates()

    # ------------------------------------------------------------ topics

    def delete_topic(self, topic: Topic) -> None:
        self.data.delete(topic)
        for server in self.servers.values():
            server.topic_deleted(topic)

    def log_partition_of(self, topic: Topic, index: int) -> int:
        return (stable_number(topic.name) + index) % len(self._leaders)

    def leader_of(self, topic: Topic, index: int) -> int:
        """Return the elected leader of a partition, notified or not, or -1."""
        return self._leaders[self.log_partition_of(topic, index)].node_id

    # ------------------------------------------------------------ records

    def log(self, topic: Topic, index: int) -> PartitionLog:
        log = self.data.log(topic, index)
        assert log is not None
        return log

    def produce(self, topic: Topic, index: int, count: int) -> None:
        log, now_ms = self.log(topic, index), self.scheduler.time_ms
        batch = encode_batch(
            log.end_offset, [(None, b"job", now_ms)] * count, leader_epoch=log.leader_epoch, base_sequence=-1
        )
        self.written_ms.setdefault((topic.topic_id, index), []).extend([now_ms] * count)
        log.append_encoded(batch, count, now_ms, self.data.settings_of(topic))

    # ------------------------------------------------------------ states

    def follow(self) -> ShareStates:
        """Apply the states written since the last call; return all states."""
        fresh: list[LogRecord] = self.state_log.fresh[0]
        for entry in fresh:
            record: Any = entry.record
            self._states.apply(record, entry.offset)
            if isinstance(record, ShareSnapshot) and _is_blank(record):
                # A request repeated after a lost response initializes the share-partition again, as in Kafka.
                self.worked_off.pop(record.key, None)
                self.on_emptied(record.key)
            if isinstance(record, ShareSnapshot | ShareUpdate):
                self.on_written(record.key, record.state_batches)
                for first, last, state, _ in record.state_batches:
                    if state in GIVEN_UP:
                        self.given_up.setdefault(record.key, set()).update(range(first, last + 1))
        fresh.clear()
        return self._states

    def end_offset(self, key: SharePartitionKey) -> int:
        topic = self.topics.get_by_id(key.topic_id)
        return 0 if topic is None else self.log(topic, key.partition).end_offset

    def unfinished(self, key: SharePartitionKey, end_offset: int) -> int | None:
        """Return the first offset before ``end_offset`` that was neither accepted nor archived, or None."""
        if self.topics.get_by_id(key.topic_id) is None:
            return None
        state = self.follow().states.get(key)
        offset = 0 if state is None else max(state.snapshot.start_offset, 0)
        for batch in () if state is None else state.snapshot.state_batches:
            if batch.first_offset > offset or batch.delivery_state not in FINISHED:
                break
            offset = max(offset, batch.last_offset + 1)
        return offset if offset < end_offset else None

    def start_offset(self, key: SharePartitionKey) -> int:
        topic = self.topics.get_by_id(key.topic_id)
        server = None if topic is None else self.servers.get(self.leader_of(topic, key.partition))
        return -1 if server is None else server.start_offset(key)

    def keys_of(self, group_id: str, names: Iterable[str]) -> list[SharePartitionKey]:
        topics = [topic for topic in map(self.topics.get, names) if topic is not None]
        return [
            SharePartitionKey(group_id, topic.topic_id, index)
            for topic in topics
            for index in range(topic.partition_count)
        ]


def _is_blank(snapshot: ShareSnapshot) -> bool:
    return not snapshot.state_batches and snapshot.start_offset <= 0 and snapshot.delivery_complete_count <= 0


class LedData(TopicData):
    """Topic data of one node: only the partitions that it leads and has been notified of."""

    def __init__(self, shared: SharedTopics, node: CoordinatorNode) -> None:
        whole = shared.data
        super().__init__(whole.config, whole.clock, whole.topics, all_logs=whole.all_logs)
        self._shared = shared
        self._node = node

    def log(self, topic: Topic, partition_index: int) -> PartitionLog | None:
        if self._node.led_epoch(self._shared.log_partition_of(topic, partition_index)) is None:
            raise NotLeaderError
        return super().log(topic, partition_index)

    def log_with_epoch(self, topic: Topic, partition_index: int) -> tuple[PartitionLog | None, int]:
        return self.log(topic, partition_index), self.leader_epoch(topic, partition_index)

    def leader_epoch(self, topic: Topic, partition_index: int) -> int:
        return self._node.led_epoch(self._shared.log_partition_of(topic, partition_index)) or 0


@define(eq=False)
class _Question:
    asker: ShareServer
    request: ShareStateRequest
    token: Token

    def answer(self, response: ShareStateResponse) -> None:
        self.asker.answered_later(self, response)


class ShareServer:
    """Share groups on a node; the :class:`~groupcoord.core.host_queries.ShareHost` of its group coordinator."""

    def __init__(self, node: CoordinatorNode, shared: SharedTopics, latency: Latency) -> None:
        self._node, self._shared, self._latency = node, shared, latency
        self._scheduler = scheduler = shared.scheduler
        self._rank = rank_of_node(node.node_id)
        self._key = stable_number("between nodes", node.node_id)
        self._log = NodeLog(shared.state_log, node, lambda _: self.settle(), self._failed)
        self.states = ShareCoordinator(
            config=shared.data.config, clock=scheduler, log_store=self._log, topics=shared.topics, partition_count=1
        )
        self._log.connect(self.states)
        data = LedData(shared, node)
        self._persister = Persister(self._query_coordinator, scheduler.now_ms)
        self.requests = ShareRequests(data, self._persister, self.settings_of, DeadLetters(data))
        self._works: dict[Exchange, Work[Any]] = {}
        self._ready: deque[Exchange] = deque()
        self._questions: dict[_Question, None] = {}
        self._is_up = True
        self._is_settling = False
        self._tick_ms: int | None = None
        shared.servers[node.node_id] = self

    def crash(self) -> None:
        self._is_up = False
        self._log.cut()
        self.requests.partitions.close()
        del self._shared.servers[self._node.node_id]
        for question in self._questions:
            question.answer(question.request.refused(ErrorCode.NOT_COORDINATOR))

    def leader_changed(self, partition: int, epoch: int, *, leads: bool) -> None:
        if partition == STATES_PARTITION:
            self.states.unload(STATES_PARTITION)
            if leads:
                self.states.load(STATES_PARTITION, epoch)
        self.settle()

    def start_offset(self, key: SharePartitionKey) -> int:
        known = self.requests.partitions.known(key)
        return -1 if known is None or known.records is None else known.records.start_offset

    def topic_deleted(self, topic: Topic) -> None:
        self.states.topic_deleted(topic.topic_id)
        self.settle()

    # ------------------------------------------------------------ clients

    def submit(self, exchange: Exchange) -> None:
        exchange.connection.is_watched = True  # sessions end with their connection
        # Sessions compare connections by identity only.
        connection: Any = exchange.connection
        request: Any = exchange.request
        is_fetch = isinstance(request, ShareFetch)
        begun: Any = (self.requests.fetch if is_fetch else self.requests.acknowledge)(connection, request)
        if not isinstance(begun, Generator):
            self._node.send_answer(exchange, begun)
            return
        self._works[exchange] = begun
        self._ready.append(exchange)
        self.settle()

    def disconnected(self, closed: SimulatedConnection) -> None:
        connection: Any = closed
        for exchange in [exchange for exchange in self._works if exchange.connection is connection]:
            self._works.pop(exchange).close()
        self.requests.disconnected(connection)
        self.settle()

    def settle(self) -> None:
        if self._is_settling or not self._is_up:
            return
        self._is_settling = True
        while True:
            replies = self.states.take_replies()
            for question, response in replies:
                del self._questions[question]
                question.answer(response)
            if self._ready:
                self._go_on(self._ready.popleft())
            elif not replies:
                break
        self._is_settling = False
        self._schedule_tick()

    def _go_on(self, exchange: Exchange) -> None:
        work = self._works.get(exchange)
        while work is not None:
            try:
                awaited = next(work)
            except StopIteration as done:
                del self._works[exchange]
                self._node.send_answer(exchange, done.value)
                return
            if isinstance(awaited, Job):
                do_in_place(awaited)
            elif awaited is not None and not awaited.is_done:
                awaited.on_done = lambda: self._ready.append(exchange)
                return

    # ------------------------------------------------------------ time

    def _schedule_tick(self) -> None:
        timed = self.requests.timers, self.states, self._persister.timers
        deadlines_ms = [each.next_deadline_ms() for each in timed]
        next_ms = min((each for each in deadlines_ms if each is not None), default=None)
        if next_ms is not None and (self._tick_ms is None or next_ms < self._tick_ms):
            self._tick_ms = next_ms
            self._node.at(next_ms, self._tick, next_ms)

    def _tick(self, due_ms: int) -> None:
        if due_ms != self._tick_ms:
            return
        self._tick_ms = None
        self._persister.timers.tick(self._scheduler.time_ms)
        self.requests.timers.tick(self._scheduler.time_ms)
        self.states.tick()
        self.settle()

    # ------------------------------------------------------------ the share coordinator

    def _query_coordinator(self, request: ShareStateRequest, token: Token) -> None:
        target = self._node.known_leader(STATES_PARTITION)
        arrival_ms = self._scheduler.time_ms + self._travel_ms(target)
        # Without a known leader (-1), the request fails on arrival.
        self._scheduler.at(arrival_ms, rank_of_node(max(target, 1)), self._arrive, (target, self, request, token))

    def _travel_ms(self, node_id: int) -> int:
        if node_id == self._node.node_id:
            return 0
        return self._latency.at(self._key + node_id, self._scheduler.time_ms)

    def _arrive(self, sent: tuple[int, ShareServer, ShareStateRequest, Token]) -> None:
        target, asker, request, token = sent
        question = _Question(asker, request, token)
        server = self._shared.servers.get(target)
        if server is None:
            question.answer(request.refused(ErrorCode.NOT_COORDINATOR))
        else:
            server.take(question)

    def take(self, question: _Question) -> None:
        self._questions[question] = None
        self._submit_question(question)

    def _submit_question(self, question: _Question) -> None:
        if self._is_up and not self._node.is_stalled(self._submit_question, question):
            self.states.submit(question.request, question, is_own=True)
            self.settle()

    def answered_later(self, question: _Question, response: ShareStateResponse) -> None:
        """Schedule the arrival of a response, with the latency of the leader that is known now."""
        arrival_ms = self._scheduler.time_ms + self._travel_ms(self._node.known_leader(STATES_PARTITION))
        self._node.at(arrival_ms, self._take_answer, (question, response))

    def _take_answer(self, answered: tuple[_Question, ShareStateResponse]) -> None:
        if self._is_up:
            question, response = answered
            question.token.answer(response)
            self.settle()

    def _failed(self, partition: int) -> None:
        self._scheduler.at(self._scheduler.time_ms + RELOAD_PAUSE_MS, self._rank, self._reload, partition)

    def _reload(self, partition: int) -> None:
        epoch = self._node.led_epoch(partition)
        if self._is_up and epoch is not None and self.states.failed_partitions():
            self.states.load(partition, epoch)

    # ------------------------------------------------------------ the group coordinator

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        return self._shared.settings

    def _latest_offset(self, topic: str, partition: int) -> int | None:
        known = self._shared.topics.get(topic)
        if known is None or not known.has_partition(partition):
            return None
        return self._shared.log(known, partition).end_offset

    def ask(self, question: AskShareCoordinator) -> ShareCoordinatorAnswered | None:
        def answered(response: ShareStateResponse) -> None:
            ends = known_ends(question.ends_wanted(response), self._latest_offset)
            self._node.found_out(ShareCoordinatorAnswered(question, response, ends))

        self._persister.ask(question.request, answered)
        return None
