"""Share groups on a simulated node (KIP-932): leader of share-partitions, and share coordinator.

Sessions, waiting fetches and share-partitions are those of the server (:mod:`groupcoord.broker.share`). Requests
between nodes have latencies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Protocol

from attrs import define

from groupcoord.broker.share.coordination import Persister
from groupcoord.broker.share.dead_letters import DeadLetters
from groupcoord.broker.share.fetch import ShareRequests
from groupcoord.broker.topics.registry import Topic
from groupcoord.broker.work import Job, Token, Work, do_in_place
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.coordinator.share_coordinator import ShareCoordinator
from groupcoord.core.host_queries import AskShareCoordinator, ShareCoordinatorAnswered, known_ends
from groupcoord.core.messages.share_state import ShareStateRequest, ShareStateResponse
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.errors import ErrorCode
from groupcoord.messages import Response
from groupcoord.sim.cluster.log import NodeLog
from groupcoord.sim.cluster.topics import STATES_PARTITION, LedData, SharedTopics
from groupcoord.sim.kernel import Exchange, Latency, Scheduler, SimulatedConnection, rank_of_node, stable_number
from groupcoord.wire.share_messages import ShareFetch

RELOAD_PAUSE_MS = 1_000
"""Time until another load after a write with unknown outcome."""

Answered = Callable[[Exchange, Response], None]
Found = Callable[[ShareCoordinatorAnswered], None]


class LeaderView(Protocol):
    """Leaders of which a node has been notified, and whether its process is stalled."""

    node_id: int

    def leads(self, partition: int) -> bool: ...

    def led_epoch(self, partition: int) -> int | None: ...

    def known_leader(self, partition: int) -> int: ...

    def is_stalled(self, act: Callable[[Any], None], argument: Any) -> bool: ...


@define(eq=False)
class _Question:
    asker: ShareServer
    request: ShareStateRequest
    token: Token

    def answer(self, response: ShareStateResponse) -> None:
        self.asker.answered_later(self, response)


class ShareServer:
    """Share groups on a node; the :class:`~groupcoord.core.host_queries.ShareHost` of its group coordinator."""

    def __init__(
        self,
        node: LeaderView,
        shared: SharedTopics,
        scheduler: Scheduler,
        latency: Latency,
        answered: Answered,
        found: Found,
    ) -> None:
        self._node, self._shared, self._scheduler, self._latency = node, shared, scheduler, latency
        self._answered, self._found = answered, found
        self._rank = rank_of_node(node.node_id)
        self._key = stable_number("between nodes", node.node_id)
        self._log = NodeLog(
            shared.state_log, node.node_id, node.leads, scheduler, lambda _: self.settle(), self._failed
        )
        self.states = ShareCoordinator(
            config=shared.data.config, clock=scheduler, log_store=self._log, topics=shared.registry, partition_count=1
        )
        self._log.connect(self.states)
        data = LedData(shared, node.led_epoch)
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
            self._answered(exchange, begun)
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
                self._answered(exchange, done.value)
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
            self._scheduler.at(next_ms, self._rank, self._tick, next_ms)

    def _tick(self, due_ms: int) -> None:
        if not self._is_up or due_ms != self._tick_ms or self._node.is_stalled(self._tick, due_ms):
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
        self._scheduler.at(arrival_ms, self._rank, self._take_answer, (question, response))

    def _take_answer(self, answered: tuple[_Question, ShareStateResponse]) -> None:
        if self._is_up and not self._node.is_stalled(self._take_answer, answered):
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
        known = self._shared.registry.get(topic)
        if known is None or not known.has_partition(partition):
            return None
        return self._shared.log(known, partition).end_offset

    def ask(self, question: AskShareCoordinator) -> ShareCoordinatorAnswered | None:
        def answered(response: ShareStateResponse) -> None:
            ends = known_ends(question.ends_wanted(response), self._latest_offset)
            self._found(ShareCoordinatorAnswered(question, response, ends))

        self._persister.ask(question.request, answered)
        return None
