"""Simulated consumers: a real :class:`groupcoord.member.Member`, with its host and application."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from groupcoord.errors import ErrorCode
from groupcoord.laws import check_reaction
from groupcoord.member import Member, SubscriptionPattern, TopicPartition
from groupcoord.member.assignors import CooperativeStickyAssignor
from groupcoord.member.membership import MemberState
from groupcoord.member.outputs import (
    AssignmentNeeded,
    Closed,
    CommitCompleted,
    CoordinatorFound,
    CoordinatorLost,
    Failed,
    Joined,
    LeftGroup,
    MetadataNeeded,
    OffsetAndMetadata,
    OffsetsFetched,
    Output,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RejoinRequested,
    RequestRefused,
    Send,
)
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    Heartbeat,
    HeartbeatResponse,
    Node,
    OffsetCommit,
    Request,
    Response,
)
from groupcoord.sim.actors.environment import Claim, GroupProtocol, PartitionOfGroup, listed
from groupcoord.sim.actors.observations import head
from groupcoord.sim.cluster.topics import indices_of
from groupcoord.sim.kernel import LocalClock, SimulatedConnection, mixed, rank_of_deadline, stable_number, stream

if TYPE_CHECKING:
    from groupcoord.sim.actors.groups import SimulatedGroup

FOREVER_MS = 10**12
"""Poll timeout of an application that only polls."""

RESTART_PAUSE_MS = 3_000
"""Time after which a supervisor restarts a failed consumer."""

COMMITS_BEFORE_IT_GIVES_UP = (MemberState.PREPARING_REBALANCE, MemberState.RECONCILING)
"""States in which a member commits before a revocation."""


class Consumer:
    """Consumer, across its restarts.

    Attributes:
        is_frozen: True while its process gets no CPU time.
        is_busy: True while its application does unusual work and does not poll.
        is_restless: True while it wants to rejoin or closes.
        has_assigned: True if it leads its generation and computed the assignment, so that it watches the topics.
        owned: owned partitions with the first offset, or None until it is known.
        given_up: partitions revoked for other members, with the generation at that time.
    """

    def __init__(self, number: int, index: int, group: SimulatedGroup) -> None:
        options, stage = group.options, group.stage
        self.number = number
        self.name = f"{options.group_id}-{index}"
        self.is_alive = self.is_frozen = self.is_busy = self.is_processing = False
        self.is_closing = self.is_ending = self.is_restless = False
        self.has_assigned = self.will_restart = False
        self.member: Member | None = None
        self.owned: dict[TopicPartition, int | None] = {}
        self.given_up: dict[TopicPartition, int] = {}
        self.in_flight = 0
        skew_ms, drift_ppm = options.clock_skew_ms, options.clock_drift_ppm
        chance = stream(stage.seed, "clock", number)
        self.clock = LocalClock(
            stage.start_ms, chance.randint(-skew_ms, skew_ms), chance.randint(-drift_ppm, drift_ppm)
        )
        self.protocol = options.first_protocol_of(index)
        self.heartbeats_sent = self.commits_sent = self.requests_sent = 0
        self._options = options
        self._stage = stage
        self._observations = group.observations
        self._group = group
        self._network = stage.cluster.network
        self._scheduler = stage.scheduler
        self.config = options.config_of(self.name, self.protocol)
        self._life = 0
        self._key = stable_number(stage.seed, "consumer", number)
        self._rank = rank_of_deadline(number)
        self._connections: dict[Node | None, SimulatedConnection] = {}
        self._requests: dict[SimulatedConnection, dict[int, Request]] = {}
        self._inbox: list[tuple[SimulatedConnection, int, Response | None]] = []
        self._wake_ms: int | None = None
        self._waiting_since_ms = 0
        self._owes_poll = False
        self._generation_id = self._reported_generation_id = -1
        self._granted: set[tuple[UUID, int]] = set()
        self._topic_ids: dict[TopicPartition, UUID | None] = {}
        self._taken: dict[TopicPartition, int] = {}
        self._is_cooperative = set(options.member.partition_assignment_strategy) == {CooperativeStickyAssignor.name}
        self._processes = options.processing_ms[1] > 0
        self._batch = 0

    @property
    def member_id(self) -> str:
        return "" if self.member is None else self.member.member_id

    def record(self, what: str) -> None:
        self._stage.trace.record(self._scheduler.time_ms, self.name, what)
        self._group.disturbed()

    # ------------------------------------------------------------ life

    def start(self) -> None:
        if self.is_alive:
            return
        self._life += 1
        self.is_alive, self.will_restart = True, False
        self.is_frozen = self.is_busy = self.is_closing = self.is_restless = self.has_assigned = False
        self._generation_id = self._reported_generation_id = -1
        self._granted = set()
        self.is_processing = self.is_ending = self._owes_poll = False
        self.config = self._options.config_of(self.name, self.protocol)
        self.record("starts" if self.protocol is GroupProtocol.CLASSIC else "starts with the consumer protocol")
        self._observations.begin(self._scheduler.time_ms)
        now_ms = self._now_ms()
        jitter = stream(self._stage.seed, "jitter", self.number, self._life).random
        self.member = Member(self.config, now_ms=now_ms, random=jitter)
        self._subscribe(self.member, now_ms)
        self.member.poll(now_ms, FOREVER_MS)
        self._after_input()

    def _subscribe(self, member: Member, now_ms: int) -> None:
        regex = self._options.regex
        if not regex:
            member.subscribe(self._options.topics, now_ms)
        elif self.protocol is GroupProtocol.CONSUMER:
            member.subscribe_pattern(SubscriptionPattern(regex), now_ms)
        else:
            member.update_metadata(self._stage.topics.metadata, now_ms)
            member.subscribe_pattern(regex, now_ms)

    def crash(self) -> None:
        self.will_restart = False
        if self.is_alive:
            self.record("crashes")
            self._end()

    def close(self) -> None:
        """Close the consumer after its present work, so that this is committed."""
        if self.member is not None and not self.is_frozen and not self.is_closing:
            if self.is_processing:
                self.is_ending = True
                self.record("closes after what it works on")
                return
            self.is_closing = self.is_restless = True
            self.record("closes")
            self._report_positions()
            self.member.close(self._now_ms())
            self._after_input()

    def _end(self) -> None:
        for partition in list(self.owned):
            self._give_up(partition)
        self.is_processing = False
        for connection in self._connections.values():
            self._network.close(connection)
        self._connections.clear()
        self._requests.clear()
        self._inbox.clear()
        self.in_flight = 0
        self.is_alive, self.member, self._wake_ms = False, None, None

    def freeze(self) -> None:
        if self.is_alive and not self.is_frozen:
            self.record("stands still")
            self.is_frozen = True

    def thaw(self) -> None:
        """Continue the process; the seed decides whether it handles received messages or due timers first."""
        if not self.is_frozen or self.member is None:
            return
        self.record("goes on")
        self.is_frozen = False
        inbox, self._inbox = self._inbox, []
        life, looks_at_clock_first = self._life, mixed(self._key, self._scheduler.time_ms) % 2
        if looks_at_clock_first:
            self.member.tick(self._now_ms())
            self._after_input()
        self.metadata_changed()
        if self._owes_poll:
            self._owes_poll = False
            self._poll()
        for connection, correlation_id, response in inbox:
            if life != self._life or not self.is_alive:
                return
            if response is None:
                self.disconnected(connection)
            else:
                self.receive(connection, correlation_id, response)
        if self.is_alive:
            self._wake_ms = None
            self._schedule()

    def work(self) -> None:
        if self.member is not None and not self.is_frozen and not self.is_closing:
            self.record("is busy")
            self.is_busy = True
            self.member.poll(self._now_ms(), 0)
            self._after_input()

    def poll_again(self) -> None:
        if self.is_busy and self.member is not None and not self.is_closing:
            self.is_busy = False
            if self.is_frozen:
                self._owes_poll = True
                return
            self.record("polls again")
            self._poll()

    def _poll(self) -> None:
        """End the processing of the last records, then poll again, or close if that is due."""
        assert self.member is not None
        if self.is_processing:
            self.is_processing = False
            self.member.consumed({p: OffsetAndMetadata(taken) for p, taken in self._taken.items()})
            for partition in self._taken:
                self._observations.caught_up(partition, self._scheduler.time_ms)
        if self.is_ending:
            self.close()
            return
        self.member.poll(self._now_ms(), FOREVER_MS)
        self._after_input()

    def _take_batch(self, member: Member) -> None:
        """End the poll with the new records of its partitions, and process them. A member that commits before a
        revocation gets none (KAFKA-14196).
        """
        gives_all_up = self.is_restless and self.protocol is GroupProtocol.CLASSIC and not self._is_cooperative
        if self.is_busy or self.is_closing or gives_all_up or member.state in COMMITS_BEFORE_IT_GIVES_UP:
            return
        now_ms = self._scheduler.time_ms
        taken = {p: head(now_ms, self._stage.start_ms) for p, started in self.owned.items() if started is not None}
        if not taken:
            return
        self._taken, self.is_processing = taken, True
        self._batch += 1
        least_ms, most_ms = self._options.processing_ms
        lasts_ms = stream(self._stage.seed, "processing", self.number, self._batch).randint(least_ms, most_ms)
        self._scheduler.at(now_ms + lasts_ms, self._rank, self._batch_done, (self._life, self._batch))
        member.poll(self._now_ms(), 0)
        self._after_input()

    def _batch_done(self, due: tuple[int, int]) -> None:
        if due != (self._life, self._batch) or not self.is_processing or self.is_closing:
            return
        if self.is_frozen:
            self._owes_poll = True
        elif not self.is_busy:
            self._poll()

    def metadata_changed(self) -> None:
        if self.member is not None and not self.is_frozen:
            self.member.update_metadata(self._stage.topics.metadata, self._now_ms())
            self._after_input()

    def is_connected(self) -> bool:
        """Return whether its connections work, and no request has waited longer than usual."""
        is_waiting = self.in_flight and self._scheduler.time_ms - self._waiting_since_ms > self._stage.round_trip_ms
        return not is_waiting and not any(c.is_silent or c.is_dead for c in self._connections.values())

    def break_connections(self) -> None:
        for connection in self._connections.values():
            self._network.reset(connection)

    # ------------------------------------------------------------ time

    def _now_ms(self) -> int:
        return self.clock.at(self._scheduler.time_ms)

    def _schedule(self) -> None:
        assert self.member is not None
        deadline_ms = self.member.next_deadline_ms()
        if deadline_ms is None:
            return
        wake_ms = self.clock.world_at(deadline_ms)
        if self._wake_ms is None or wake_ms < self._wake_ms:
            self._wake_ms = wake_ms
            self._scheduler.at(wake_ms, self._rank, self._wake, (self._life, wake_ms))

    def skip(self, duration_ms: int) -> None:
        """Skip time, and count its heartbeats and commits (``FastForward``)."""
        assert self.member is not None
        self.clock.skipped_ms += duration_ms
        heartbeats, commits = duration_ms // self.member.heartbeat_interval_ms, 0
        if self.config.enable_auto_commit and self.owned:
            commits = duration_ms // max(self.config.auto_commit_interval_ms, 1)
        self.heartbeats_sent += heartbeats
        self.commits_sent += commits
        self.requests_sent += heartbeats + commits
        self._wake_ms = None
        self._schedule()

    def jump(self, duration_ms: int) -> None:
        if self.is_alive and not self.is_frozen:
            self.record(f"has a clock that jumps by {duration_ms} ms")
            self.clock.jump(duration_ms)
            self._wake_ms = None
            self._schedule()

    def _wake(self, due: tuple[int, int]) -> None:
        life, wake_ms = due
        if life != self._life or wake_ms != self._wake_ms or self.member is None or self.is_frozen:
            return
        self._wake_ms = None
        deadline_ms = self.member.next_deadline_ms()
        now_ms = self._now_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self._report_positions()
            self.member.tick(now_ms)
            self._after_input()
        else:
            self._schedule()

    def _report_positions(self) -> None:
        if self.owned and not self.is_busy and not self._processes:
            assert self.member is not None
            position = OffsetAndMetadata(head(self._scheduler.time_ms, self._stage.start_ms))
            self.member.consumed({p: position for p, started in self.owned.items() if started is not None})

    # ------------------------------------------------------------ the network

    def receive(self, connection: SimulatedConnection, correlation_id: int, response: Response) -> None:
        if self.is_frozen:
            self._inbox.append((connection, correlation_id, response))
            return
        requests = self._requests.get(connection)
        if self.member is None or requests is None or correlation_id not in requests:
            return
        request, member = requests.pop(correlation_id), self.member
        self.in_flight -= 1
        if isinstance(response, ConsumerGroupHeartbeatResponse) and response.assignment is not None:
            self._granted = indices_of(response.assignment)
        before = member.generation_id, member.member_id
        member.receive(correlation_id, response, self._now_ms())
        if self.protocol is GroupProtocol.CLASSIC:
            goes_on = not self.is_closing and member.state is not MemberState.FAILED
            check_reaction(request, response, before, (member.generation_id, member.member_id) if goes_on else None)
        self._after_input()
        if isinstance(response, HeartbeatResponse | ConsumerGroupHeartbeatResponse):
            self._group.on_heartbeat(self)

    def disconnected(self, connection: SimulatedConnection) -> None:
        if self.is_frozen:
            self._inbox.append((connection, 0, None))
            return
        if self.member is None:
            return
        for node, other in list(self._connections.items()):
            if other is not connection:
                continue
            lost = self._hang_up(node)
            if node is None:
                for request_id in lost:
                    self.member.request_failed(request_id, ErrorCode.NETWORK_EXCEPTION, self._now_ms())
            else:
                self.member.disconnected(self._now_ms())
            self._after_input()

    def _hang_up(self, node: Node | None) -> list[int]:
        connection = self._connections.pop(node, None)
        if connection is None:
            return []
        self._network.close(connection)
        lost = list(self._requests.pop(connection, ()))
        self.in_flight -= len(lost)
        return lost

    def _send(self, send: Send) -> None:
        connection = self._connections.get(send.to)
        if send.to is None and connection is not None:
            # Each lookup opens a new connection.
            self._hang_up(None)
            connection = None
        if connection is None:
            nodes = self._stage.cluster.nodes
            index = mixed(self._key, self._scheduler.time_ms) % len(nodes) if send.to is None else send.to.node_id - 1
            connection = self._network.connect(self, self.number, nodes[index])
            self._connections[send.to] = connection
            self._requests[connection] = {}
        self._requests[connection][send.request_id] = send.request
        if not self.in_flight:
            self._waiting_since_ms = self._scheduler.time_ms
        self.in_flight += 1
        self.requests_sent += 1
        if isinstance(send.request, ConsumerGroupHeartbeat) and send.request.topic_partitions is not None:
            self._granted &= indices_of(send.request.topic_partitions)
        if isinstance(send.request, Heartbeat | ConsumerGroupHeartbeat):
            self.heartbeats_sent += 1
        elif type(send.request) is OffsetCommit:
            self.commits_sent += 1
        self._network.send(connection, send.request_id, send.request)

    # ------------------------------------------------------------ what the member puts out

    def _after_input(self) -> None:
        member = self.member
        while member is not None and (outputs := member.take_outputs()):
            for output in outputs:
                if type(output) is Send:
                    self._send(output)
                else:
                    self._react(output, member)
            member = self.member
        if member is None:
            return
        if self._generation_id != self._reported_generation_id:
            # Before the assignment arrives, owned partitions belong to the previous generation. The new one may never
            # reach the log, and its number may be reused.
            self._reported_generation_id = self._generation_id
            for partition in self.owned:
                self._claim(partition, self._generation_id)
        self._schedule()
        if self._processes and not self.is_processing:
            self._take_batch(member)

    def _react(self, output: Output, member: Member) -> None:
        match output:
            case PartitionsAssigned(partitions=partitions):
                self._assigned(partitions, member)
            case PartitionsRevoked(partitions=partitions):
                if not self.is_closing:
                    self.given_up |= dict.fromkeys(partitions, self._generation_id)
                self._gave_up("gives up", partitions)
            case PartitionsLost(partitions=partitions):
                self._gave_up("has lost", partitions)
            case OffsetsFetched():
                self._fetched(output)
            case Joined():
                self._stage.ownership.joined(self._options.group_id, output.generation_id)
                self.is_restless = False
                self._generation_id = output.generation_id
                role = ", leads" if output.is_leader else ""
                self.record(
                    f"is {output.member_id} in generation {output.generation_id} ({output.protocol_name}{role})"
                )
            case AssignmentNeeded():
                self.has_assigned = True
                member.assignment_computed(output.compute(), self._now_ms())
            case MetadataNeeded():
                member.update_metadata(self._stage.topics.metadata, self._now_ms())
            case CoordinatorFound(node=node):
                self.record(f"finds its coordinator, node {node.node_id}")
            case CoordinatorLost():
                self._hang_up(output.node)
                self.record(f"loses its coordinator: {output.reason}")
            case RejoinRequested(reason=reason):
                self.is_restless, self.has_assigned = True, False
                self.record(f"wants to join: {reason}")
            case RequestRefused():
                self.record(f"is refused: {output.api} {output.error_code.name}")
            case CommitCompleted(failure=failure) if failure is not None:
                self.record(f"could not commit: {failure.value} {output.error_code.name}")
            case LeftGroup(reason=reason):
                self.has_assigned = False
                self.record(f"leaves: {reason}")
            case Failed():
                name = output.error_code.name
                self.record(f"fails: {output.api} {name}" + (f" {output.message}" if output.message != name else ""))
                self._stage.count("consumer", f"{output.api} failed".strip(), name)
                self._end()
                self.will_restart = True
                self._scheduler.at(self._scheduler.time_ms + RESTART_PAUSE_MS, self._rank, self._restart, self._life)
            case Closed():
                self.record("is closed")
                self._end()

    def _restart(self, life: int) -> None:
        if life == self._life and self.will_restart:
            self.start()

    # ------------------------------------------------------------ partitions

    def _key_of(self, partition: TopicPartition) -> PartitionOfGroup:
        return (self._options.group_id, partition.topic, partition.partition)

    def _claim(self, partition: TopicPartition, generation_id: int) -> None:
        topic_id = self._topic_ids[partition]
        is_stale = self.protocol is GroupProtocol.CONSUMER and (topic_id, partition.partition) not in self._granted
        claim = Claim(self.name, self.member_id, self.protocol, generation_id, topic_id, is_stale)
        self._stage.ownership.assigned(claim, self._key_of(partition))

    def _assigned(self, partitions: tuple[TopicPartition, ...], member: Member) -> None:
        now_ms = self._scheduler.time_ms
        for partition in partitions:
            self.owned[partition] = None
            self._topic_ids[partition] = self._stage.topics.topic_id(partition.topic)
            self._claim(partition, member.generation_id)
            self._observations.assigned(self.name, partition, now_ms)
        if partitions:
            self.record(f"gets {listed(partitions)}")
            member.fetch_offsets(partitions, self._now_ms(), FOREVER_MS)

    def _gave_up(self, verb: str, partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            self._give_up(partition)
        if partitions:
            self.record(f"{verb} {listed(partitions)}")

    def _give_up(self, partition: TopicPartition) -> None:
        if partition in self.owned:
            started = self.owned.pop(partition)
            del self._topic_ids[partition]
            self._stage.ownership.given_up(self.name, self._key_of(partition))
            processed_to = self._taken.pop(partition, started) if self._processes else None
            self._observations.given_up(self.name, partition, self._scheduler.time_ms, processed_to)

    def _fetched(self, fetched: OffsetsFetched) -> None:
        if fetched.error_code is not ErrorCode.NONE:
            self.record(f"could not fetch offsets: {fetched.error_code.name}")
            return
        started = []
        for partition, found in fetched.offsets.items():
            if partition in self.owned:
                offset = self.owned[partition] = 0 if found is None else found.offset
                self._observations.started(self.name, partition, offset, self._scheduler.time_ms)
                if not self._processes:
                    self._observations.caught_up(partition, self._scheduler.time_ms)
                started.append(f"{partition.topic}-{partition.partition}:{offset}")
        more = f" and {len(started) - 8} more" if len(started) > 8 else ""
        self.record(f"goes on at {' '.join(started[:8])}{more}")
