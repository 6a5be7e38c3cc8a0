"""A whole simulated world: one seed, one story."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

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
from groupcoord.laws import require
from groupcoord.member import Cluster as TopicMetadata
from groupcoord.member import TopicPartition
from groupcoord.messages import Request, Response
from groupcoord.sim.answers import errors_of
from groupcoord.sim.cluster import Cluster
from groupcoord.sim.cluster_log import StoreFault
from groupcoord.sim.consumers import Consumer
from groupcoord.sim.elision import Disturbances, Elision
from groupcoord.sim.faults import Fault, LogTrouble, touched
from groupcoord.sim.groups import SimulatedGroup
from groupcoord.sim.laws import Laws
from groupcoord.sim.nodes import CoordinatorNode
from groupcoord.sim.options import WorldOptions
from groupcoord.sim.randomness import stream
from groupcoord.sim.scheduler import WORLD_RANK, Scheduler, rank_of_deadline
from groupcoord.sim.story import LineSink, Story
from groupcoord.sim.transactions import Transactions

START_MS = 1_700_000_000_000
REST_STEP_MS = 1_000


class Deed(NamedTuple):
    """Something that a client did and that is counted: of consumers what made them fail, of others everything.

    Attributes:
        who: what kind of client.
        what: the request's type, or what else was done.
        outcome: the first error in the answer, ``NONE``, or what else came of it.
    """

    who: str
    what: str
    outcome: str


@frozen
class Outcome:
    """How a story ended.

    Attributes:
        seed: whose story it is.
        digest: stands for the whole of it.
        line_count: how many lines it has.
        duration_ms: how much virtual time it took.
        rest_ms: how long everything took to come to rest after the last fault.
        heartbeats, commits: how many were sent, those that were left out included.
        events: how many things the simulator did.
        looks: how often it looked at the costly laws.
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
    """Consumers, a cluster and their faults on one virtual clock.

    Args:
        seed: everything that is left to chance comes from it.
        options: what the world is like.
        sink: takes each line of the story as it happens.

    Attributes:
        scheduler: the clock.
        cluster: nodes, network and log.
        topics: the topics there are.
        groups: in the order of the options.
        consumers: all of them, by number.
        story, laws: what happened, and whether it may.
        transactions: those of all producers.
        deeds: how often clients did what.
        round_trip_ms: no answer takes longer while nothing is wrong, but for those that wait for others.
    """

    def __init__(self, seed: int, options: WorldOptions, sink: LineSink | None = None) -> None:
        self.seed = seed
        self.options = options
        self.start_ms = START_MS
        self.scheduler = Scheduler(START_MS)
        self.story = Story(START_MS, sink)
        self._counts = dict(options.topics)
        self.topics = TopicMetadata.of(self._counts)
        troubles = [fault for fault in options.faults if isinstance(fault, LogTrouble)]
        self.cluster = Cluster(
            self.scheduler,
            options.cluster,
            seed=seed,
            store_faults=[
                StoreFault(START_MS + f.start_ms, START_MS + f.end_ms, f.flush_ms, f.refusal_percent) for f in troubles
            ],
        )
        cluster = options.cluster
        self.round_trip_ms = 2 * cluster.most_latency_ms + 2 * cluster.flush_ms
        self.transactions = Transactions()
        self.deeds: Counter[Deed] = Counter()
        self.cluster.verify_transaction = self.transactions.verify
        self.laws = Laws(self.cluster, options.law_interval_ms, self.transactions)
        self.groups: list[SimulatedGroup] = []
        for group_options in options.groups:
            self.groups.append(SimulatedGroup(group_options, self, sum(len(g.consumers) for g in self.groups)))
        self.consumers: list[Consumer] = [consumer for group in self.groups for consumer in group.consumers]
        self._group_of = {group.options.group_id: group for group in self.groups}
        self._client_count = len(self.consumers)
        self._is_calm = False
        self.cluster.on_event = self._on_event
        self.cluster.on_answer = self._on_answer
        self.cluster.on_change = self._on_change
        self.cluster.on_crash = self.laws.crashed

    def group(self, group_id: str) -> SimulatedGroup:
        """Return the group of this name."""
        return self._group_of[group_id]

    def next_client_number(self) -> int:
        """Return a number for a client that is no consumer."""
        self._client_count += 1
        return self._client_count

    def count(self, who: str, what: str, outcome: str) -> None:
        """Count something that a client did (see :class:`Deed`)."""
        self.deeds[Deed(who, what, outcome)] += 1

    # ------------------------------------------------------------ topics

    def partitions_of(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        """Return all partitions of topics."""
        return tuple(TopicPartition(name, index) for name in topics for index in range(self._counts[name]))

    def grow(self, topic: str, partition_count: int) -> None:
        """Give a topic more partitions."""
        old_count = self._counts[topic]
        if partition_count <= old_count:
            return
        self.tell(f"{topic} grows from {old_count} to {partition_count} partitions")
        self._counts[topic] = partition_count
        self.topics = TopicMetadata.of(self._counts)
        added = tuple(TopicPartition(topic, index) for index in range(old_count, partition_count))
        for group in self.groups:
            if topic in group.options.topics:
                group.observations.add_partitions(added, self.scheduler.time_ms)
        for consumer in self.consumers:
            consumer.metadata_changed()

    # ------------------------------------------------------------ the story

    def tell(self, what: str) -> None:
        """Add a line about the world."""
        self.story.tell(self.scheduler.time_ms, "world", what)

    def _on_change(self, who: str, what: str) -> None:
        self.story.tell(self.scheduler.time_ms, who, what)
        for group in self.groups:
            group.disturbed()

    def _on_event(self, node: CoordinatorNode, event: Event) -> None:
        self.laws.on_event(node, event)
        group = self._group_of.get(event.group_id)
        if group is not None:
            group.disturbed()
        if isinstance(event, RebalanceStarted):
            require(not self._is_calm, f"{event.group_id!r} rebalances without a cause: {event.trigger}")
        elif isinstance(event, RebalanceCompleted) and group is not None:
            causes = tuple(trigger.cause.value for trigger in event.triggers)
            group.observations.rebalanced(event.duration_ms, causes)
        self.story.tell(event.at_ms, node.name, f"{event.group_id}: {described(event)}")

    def _on_answer(self, node: CoordinatorNode, request: Request, response: Response) -> None:
        errors = errors_of(response)
        self.laws.on_answer(node, request, response, is_clean=not errors)
        for error in errors:
            name, who = type(request).__name__, getattr(request, "member_id", "")
            self.story.tell(self.scheduler.time_ms, node.name, f"answers {name} of {who or 'somebody'}: {error}")

    # ------------------------------------------------------------ running

    def run(self) -> Outcome:
        """Let everything happen.

        Raises:
            LawBrokenError: a law does not hold, or the world does not come to rest.
        """
        options = self.options
        end_ms = START_MS + max([options.duration_ms, *(fault.end_ms + 1 for fault in options.faults)])
        self.cluster.start()
        self._lay_down(end_ms)
        self.scheduler.run_until(end_ms, self.laws.after_event)
        for group in self.groups:
            group.elision = None
        rest_ms = self._come_to_rest(end_ms)
        self._is_calm = True
        self.scheduler.run_until(self.scheduler.time_ms + options.calm_ms, self.laws.after_event)
        self.laws.conclude()
        return self._conclude(rest_ms)

    def _lay_down(self, end_ms: int) -> None:
        for fault in self.options.faults:
            self.scheduler.at(START_MS + fault.start_ms, WORLD_RANK, self._begin, fault)
            self.scheduler.at(START_MS + fault.end_ms, WORLD_RANK, self._end, fault)
        for group in self.groups:
            chance = stream(self.seed, "starts", group.options.group_id)
            starts = [START_MS + chance.randint(0, group.options.start_spread_ms) for _ in group.consumers]
            for consumer, start_ms in zip(group.consumers, starts, strict=True):
                self.scheduler.at(start_ms, rank_of_deadline(consumer.number), _start, consumer)
            if self.options.elides:
                windows = [
                    (START_MS + fault.start_ms, START_MS + fault.end_ms)
                    for fault in self.options.faults
                    if touched(fault, group)
                ]
                windows += [(start_ms, start_ms) for start_ms in starts]
                group.elision = Elision(group, Disturbances(windows, end_ms), self.options.cluster.most_latency_ms)

    def _begin(self, fault: Fault) -> None:
        self._disturb(fault)
        fault.begin(self)

    def _end(self, fault: Fault) -> None:
        self._disturb(fault)
        fault.end(self)

    def _disturb(self, fault: Fault) -> None:
        for group in self.groups:
            if touched(fault, group):
                group.disturbed()

    def _come_to_rest(self, end_ms: int) -> int:
        while not all(group.is_at_rest() for group in self.groups):
            waiting = [group.options.group_id for group in self.groups if not group.is_at_rest()]
            rest_ms = self.scheduler.time_ms - end_ms
            require(rest_ms < self.options.settle_ms, f"{', '.join(waiting)} did not come to rest in {rest_ms} ms")
            self.scheduler.run_until(self.scheduler.time_ms + REST_STEP_MS, self.laws.after_event)
        return self.scheduler.time_ms - end_ms

    def _conclude(self, rest_ms: int) -> Outcome:
        now_ms = self.scheduler.time_ms
        for group in self.groups:
            group.observations.finish(now_ms)
        self.story.conclude(self.laws.log.told())
        return Outcome(
            seed=self.seed,
            digest=self.story.digest(),
            line_count=self.story.line_count,
            duration_ms=now_ms - START_MS,
            rest_ms=rest_ms,
            heartbeats=sum(consumer.heartbeats_sent for consumer in self.consumers),
            commits=sum(consumer.commits_sent for consumer in self.consumers),
            events=self.scheduler.executed,
            looks=self.laws.looks,
        )


def _start(consumer: Consumer) -> None:
    consumer.start()


def described(event: Event) -> str:
    """Return what happened to a group, in words."""
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
