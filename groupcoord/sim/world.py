"""Simulated world of one seed: a cluster, its actors, faults, and laws."""

from __future__ import annotations

from itertools import count

from attrs import frozen

from groupcoord.events import (
    Event,
    GroupLoaded,
    GroupRemoved,
    MemberAdded,
    MemberRemoved,
    MemberReplaced,
    RebalanceCompleted,
    RebalanceStarted,
)
from groupcoord.laws import errors_in, require
from groupcoord.member.membership import MemberState
from groupcoord.messages import Request, Response
from groupcoord.sim.actors.applications import ShareWorkers
from groupcoord.sim.actors.clients import Fault
from groupcoord.sim.actors.consumers import Consumer
from groupcoord.sim.actors.environment import Stage
from groupcoord.sim.actors.groups import Disturbances, FastForward, Population
from groupcoord.sim.actors.observations import Transactions
from groupcoord.sim.cluster.log import StoreFault
from groupcoord.sim.cluster.nodes import CoordinatorNode, SimulatedCluster
from groupcoord.sim.cluster.topics import Topics
from groupcoord.sim.kernel import WORLD_RANK, LineSink, Scheduler, Trace, ignore, rank_of_deadline, stream
from groupcoord.sim.laws.log_laws import ShareLaws
from groupcoord.sim.laws.run_laws import RunLaws
from groupcoord.sim.scenarios.faults import LogTrouble, WorldOptions

START_MS = 1_700_000_000_000
REST_STEP_MS = 997
"""Interval of checks for rest; a prime, so that they do not coincide with a periodic client."""


@frozen
class Outcome:
    """Result of a run.

    Attributes:
        seed: its seed.
        digest: digest of its trace and final durable state.
        line_count: number of lines of the trace.
        duration_ms: virtual duration.
        rest_ms: time from the last fault until all is at rest.
        heartbeats, commits: numbers of requests, skipped ones included.
        events: number of executed actions.
        looks: number of checks of the costly laws.
    """

    seed: int
    digest: str
    line_count: int
    duration_ms: int
    rest_ms: int
    heartbeats: int
    commits: int
    events: int
    looks: int


class World:
    """Consumers, a cluster and faults on one virtual clock.

    Args:
        seed: determines all random choices.
        options: options of the world.
        sink: receives each line of the trace.

    Attributes:
        start_ms: start of the run, in milliseconds since the Unix epoch.
        scheduler: the clock.
        cluster: nodes, network and log.
        stage: environment of actors.
        population: the groups of consumers.
        groups: in the order of the options.
        consumers: by number.
        trace, laws: events and laws of the run.
        requests_before, records_before: by group, the numbers at the start of measuring.
    """

    def __init__(self, seed: int, options: WorldOptions, sink: LineSink | None = None) -> None:
        self.seed = seed
        self.options = options
        self.start_ms = START_MS
        self.scheduler = Scheduler(START_MS)
        self.trace = Trace(START_MS, sink)
        share_workers = [fault for fault in options.faults if isinstance(fault, ShareWorkers)]
        self.cluster = SimulatedCluster(
            self.scheduler,
            options.cluster,
            seed=seed,
            topics=Topics(options.topics),
            store_faults=[
                StoreFault(
                    *(START_MS + fault.start_ms, START_MS + fault.end_ms),
                    *(fault.flush_ms, fault.refusal_percent, fault.broken_read_percent),
                )
                for fault in options.faults
                if isinstance(fault, LogTrouble)
            ],
            has_share_groups=bool(share_workers),
        )
        transactions = Transactions()
        self.laws = RunLaws(self.cluster, options.law_interval_ms, transactions)
        if self.cluster.shared is not None:
            self.laws.shares = ShareLaws(self.cluster.shared, max(workers.batch_max for workers in share_workers))
        client_numbers = count(sum(group.consumer_count for group in options.groups) + 1)
        self.stage = Stage(self.cluster, self.trace, self.laws, transactions, client_numbers)
        self.population = Population(options.groups, self.stage)
        self.groups = self.population.groups
        self.consumers = self.population.consumers
        self.requests_before: dict[str, int] = {}
        self.records_before: dict[str, int] = {}
        self._is_calm = False
        self.cluster.verify_transaction = transactions.verify
        self.cluster.on_event = self._on_event
        self.cluster.on_answer = self._on_answer
        self.cluster.on_change = self._on_change
        self.cluster.on_crash = self.laws.crashed

    # ------------------------------------------------------------ what the cluster does

    def _on_change(self, who: str, what: str) -> None:
        self.trace.record(self.scheduler.time_ms, who, what)
        for group in self.groups:
            group.disturbed()

    def _on_event(self, node: CoordinatorNode, event: Event) -> None:
        self.laws.on_event(node, event)
        group = self.population.by_id.get(event.group_id)
        if group is not None:
            group.coordinator_event(event)
        if isinstance(event, RebalanceStarted):
            require(not self._is_calm, f"{event.group_id!r} rebalances without a cause: {event.trigger}")
        elif isinstance(event, RebalanceCompleted) and group is not None:
            causes = tuple(trigger.cause.value for trigger in event.triggers)
            group.observations.rebalanced(event.at_ms, event.duration_ms, causes)
        self.trace.record(event.at_ms, node.name, f"{event.group_id}: {describe(event)}")

    def _on_answer(self, node: CoordinatorNode, request: Request, response: Response) -> None:
        errors = errors_in(response)
        self.laws.on_answer(node, request, response, is_clean=not errors)
        for error in errors:
            name, who = type(request).__name__, getattr(request, "member_id", "")
            self.trace.record(self.scheduler.time_ms, node.name, f"answers {name} of {who or 'somebody'}: {error.name}")

    # ------------------------------------------------------------ running

    def run(self) -> Outcome:
        """Run the world to its end.

        Raises:
            LawBrokenError: a law is broken, or the world does not come to rest.
        """
        options = self.options
        end_ms = START_MS + max([options.duration_ms, *(fault.end_ms + 1 for fault in options.faults)])
        self.cluster.start()
        self._schedule(end_ms)
        self.scheduler.run_until(end_ms, self.laws.after_event)
        for group in self.groups:
            group.on_heartbeat = ignore
        rest_ms = self._come_to_rest(end_ms)
        self._is_calm = True
        self.laws.begin_calm({group.options.group_id: group.member_ids() for group in self.groups})
        self.scheduler.run_until(self.scheduler.time_ms + options.calm_ms, self.laws.after_event)
        self.laws.conclude()
        return self._conclude(rest_ms)

    def _schedule(self, end_ms: int) -> None:
        for fault in self.options.faults:
            self.scheduler.at(START_MS + fault.start_ms, WORLD_RANK, self._begin, fault)
            self.scheduler.at(START_MS + fault.end_ms, WORLD_RANK, self._end, fault)
        measure_from_ms = START_MS + self.options.measure_from_ms
        if self.options.measure_from_ms:
            self.scheduler.at(measure_from_ms, WORLD_RANK, self._begin_measuring, None)
        for group in self.groups:
            chance = stream(self.seed, "starts", group.options.group_id)
            starts = [START_MS + chance.randint(0, group.options.start_spread_ms) for _ in group.consumers]
            for consumer, start_ms in zip(group.consumers, starts, strict=True):
                self.scheduler.at(start_ms, rank_of_deadline(consumer.number), Consumer.start, consumer)
            if self.options.fast_forwards and self.options.cluster.replicas is None:
                windows = [
                    (START_MS + fault.start_ms, START_MS + fault.end_ms)
                    for fault in self.options.faults
                    if fault.affects(group.options.group_id)
                ]
                windows += [(start_ms, start_ms) for start_ms in (*starts, measure_from_ms)]
                group.on_heartbeat = FastForward(group, self.stage, Disturbances(windows, end_ms)).consider

    def _begin_measuring(self, _: None) -> None:
        self.stage.operations.clear()
        for tasks in self.stage.applications.values():
            tasks.begin_measuring(self.scheduler.time_ms)
        for records in self.stage.shares.values():
            records.begin_measuring()
        for group in self.groups:
            group_id = group.options.group_id
            group.observations.begin_measuring(self.scheduler.time_ms)
            self.requests_before[group_id] = group.requests_sent
            self.records_before[group_id] = self.laws.log.group_records[group_id]

    def _begin(self, fault: Fault) -> None:
        self._disturb(fault)
        fault.begin(self.stage, self.population)

    def _end(self, fault: Fault) -> None:
        self._disturb(fault)
        fault.end(self.stage, self.population)

    def _disturb(self, fault: Fault) -> None:
        for group in self.groups:
            if fault.affects(group.options.group_id):
                group.disturbed()

    def _restless(self) -> list[str]:
        consumers = [group.options.group_id for group in self.groups if not group.is_at_rest()]
        return consumers + [guest.group_id for guest in self.stage.guests.values() if not guest.is_at_rest()]

    def _come_to_rest(self, end_ms: int) -> int:
        while waiting := self._restless():
            rest_ms = self.scheduler.time_ms - end_ms
            require(rest_ms < self.options.settle_ms, f"{', '.join(waiting)} did not come to rest in {rest_ms} ms")
            self.scheduler.run_until(self.scheduler.time_ms + REST_STEP_MS, self.laws.after_event)
        return self.scheduler.time_ms - end_ms

    def _conclude(self, rest_ms: int) -> Outcome:
        now_ms = self.scheduler.time_ms
        for group in self.groups:
            group.observations.finish(now_ms)
        self.trace.conclude(self.laws.log.describe())
        return Outcome(
            seed=self.seed,
            digest=self.trace.digest(),
            line_count=self.trace.line_count,
            duration_ms=now_ms - START_MS,
            rest_ms=rest_ms,
            heartbeats=sum(consumer.heartbeats_sent for consumer in self.consumers),
            commits=sum(consumer.commits_sent for consumer in self.consumers),
            events=self.scheduler.executed,
            looks=self.laws.looks,
        )


def describe(event: Event) -> str:
    """Return a description of an event of a group."""
    match event:
        case MemberAdded(member_id=member_id):
            return f"{member_id} joins"
        case MemberRemoved(member_id=member_id, cause=cause):
            return f"{member_id} is out ({cause.value})"
        case MemberReplaced(old_member_id=old, member_id=new):
            return f"{new} stands for {old}"
        case RebalanceStarted(trigger=trigger):
            return f"rebalance: {trigger.cause.value} {trigger.member_id}".rstrip()
        case RebalanceCompleted():
            return f"generation {event.generation_id} with {event.member_count} members after {event.duration_ms} ms"
        case GroupLoaded():
            return f"loaded in generation {event.generation_id} with {event.member_count} members"
        case GroupRemoved(cause=cause):
            return f"is gone ({cause.value})"
        case _:
            return repr(event)


LEGEND = (
    "nodes: digit up, x down · consumers: . dead  ? outside  j joins  s syncs  r reconciles  l leaves  "
    "0-9 owns so many (+: more)  z stands still  b is busy  ! failed"
)

_LETTERS = {
    MemberState.UNJOINED: "?",
    MemberState.UNSUBSCRIBED: "?",
    MemberState.FENCED: "?",
    MemberState.STALE: "?",
    MemberState.PREPARING_REBALANCE: "j",
    MemberState.JOINING: "j",
    MemberState.RECONCILING: "r",
    MemberState.ACKNOWLEDGING: "r",
    MemberState.PREPARE_LEAVING: "l",
    MemberState.LEAVING: "l",
    MemberState.COMPLETING_REBALANCE: "s",
    MemberState.FAILED: "!",
    MemberState.CLOSED: ".",
}
WIDEST = 60
"""Number of consumers in a :func:`picture`."""


def picture(world: World) -> str:
    """Return one letter for each node and consumer; consumers beyond :data:`WIDEST` are left out."""
    nodes = "".join(str(node.node_id % 10) if node.is_up else "x" for node in world.cluster.nodes)
    groups = []
    left = WIDEST
    for group in world.groups:
        shown = group.consumers[:left]
        left -= len(shown)
        if shown:
            groups.append("".join(_letter(consumer) for consumer in shown))
    return f"{nodes} {' '.join(groups)}"


def _letter(consumer: Consumer) -> str:
    if consumer.member is None:
        return "."
    if consumer.is_frozen:
        return "z"
    if consumer.is_busy:
        return "b"
    if consumer.member.state is MemberState.STABLE:
        return str(len(consumer.owned)) if len(consumer.owned) < 10 else "+"
    return _LETTERS[consumer.member.state]
