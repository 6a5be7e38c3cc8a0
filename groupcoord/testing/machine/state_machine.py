"""A state machine for Hypothesis: random lives of groups of every kind over your log store, under every fault there is.

class TestMyStore(CoordinatorMachine.TestCase): ...

Subclass :class:`CoordinatorMachine`, override :meth:`~CoordinatorMachine.make_log_store` (and what else is yours), and
let pytest run its ``TestCase``. After every step the laws of ``docs/design.md`` are checked, among them: hard state ==
replay(durable log).
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from groupcoord.config import MigrationPolicy
from groupcoord.core.messages import (
    CompleteTransaction,
    ConsumerGroupDescribe,
    DeleteGroups,
    DescribeGroups,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
)
from groupcoord.errors import ErrorCode
from groupcoord.laws import check_log_can_be_loaded, require
from groupcoord.laws.modern_groups import check_members_are_served
from groupcoord.log_store import LogStoreError, NotEnoughReplicasError, NotLeaderError, RecordTooLargeError, close_store
from groupcoord.testing.machine.consumers import PARTITIONS, TOPIC, ClassicConsumer, Consumer
from groupcoord.testing.machine.modern_members import Kip848Consumer, ShareMember, StreamsMember
from groupcoord.testing.machine.world import LOG_PARTITIONS, OTHER_TOPICS, World

__all__ = ["CoordinatorMachine"]

GROUPS = ("alpha", "beta")
STREAMS_GROUP, SHARE_GROUP = "word-count", "queue"
PRODUCERS = (7, 8)
CONSUMERS_MAX = 8
ERRORS = (NotEnoughReplicasError, NotLeaderError, RecordTooLargeError)
DURATIONS_MS = (1, 500, 3_000, 9_999, 10_000, 20_000, 60_000, 300_000)
PROTOCOLS = (("range", "roundrobin"), ("roundrobin", "range"), ("range", "roundrobin", "sticky"))
"""All share those that can be chosen: after a load the group knows only the chosen one, and refuses who lacks it."""

SUBSCRIPTIONS = (((TOPIC,), ""), ((TOPIC, "audit"), ""), ((TOPIC,), "audit|pay.*"), ((), "o.*"), ((TOPIC,), "("))
"""What consumers of consumer groups subscribe to: names, and an expression. The last one is none."""
INSTANCES = (None, None, "i1", "i2")
ASSIGNORS = (None, None, "range")
"""What members vote for: one name at most, as tied votes give Kafka's groups a new epoch with every heartbeat."""
GIVES_BACK = (None, None, 1, 0)
"""Partitions that a consumer gives back with each heartbeat: all, one, none ever."""

_partitions = st.integers(0, PARTITIONS - 1)
_log_partitions = st.integers(0, LOG_PARTITIONS - 1)
_offsets = st.integers(0, 1000)
_choices = st.integers(0, CONSUMERS_MAX - 1)


class CoordinatorMachine(World, RuleBasedStateMachine):
    """Consumers, administrators, producers, a log store and a clock, in any order.

    Override the hooks that are yours: :meth:`make_log_store`, :meth:`settle_log_store`, :meth:`crash_log_store`,
    :meth:`make_coordinator`, :meth:`send` and :meth:`receive`. Rules and invariants can be added, as to any machine of
    Hypothesis.

    Attributes:
        coordinator: the coordinator of the moment.
        store: what it writes to: yours, with faults around it.
        clock: its clock.
        fleet: the consumers, and the requests that wait.
    """

    consumers: Bundle[Consumer] = Bundle("consumers")
    group_ids = GROUPS

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        self._is_started = False

    @initialize(
        initial_delay_ms=st.sampled_from([0, 3_000]),
        log_is_late=st.booleans(),
        policy=st.sampled_from([MigrationPolicy.BIDIRECTIONAL, *MigrationPolicy]),
        assignment_interval_ms=st.sampled_from([0, 0, 5_000]),
    )
    def start(
        self,
        initial_delay_ms: int,
        log_is_late: bool,
        policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL,
        assignment_interval_ms: int = 0,
    ) -> None:
        """Start a coordinator on an empty log."""
        config = self.make_config(initial_delay_ms, policy, assignment_interval_ms)
        self.begin(config, log_is_late=log_is_late)
        self._is_started = True

    # ------------------------------------------------------------ the process

    @rule(written=st.integers(0, 3))
    def process_is_killed(self, written: int) -> None:
        """The process dies; of the appends that wait, the oldest ones have reached the log."""
        self.kill(written)
        check_log_can_be_loaded(self.coordinator.load_all)
        self.deliver()
        self.leader_epoch = 0

    @rule(partition=_log_partitions)
    def log_partition_moves_away(self, partition: int) -> None:
        """Another coordinator takes a log partition over."""
        self.leader_epoch += 1
        self.coordinator.unload(partition, self.leader_epoch)
        self.deliver()

    @rule(partition=_log_partitions, is_outdated=st.booleans())
    def log_partition_moves_here(self, partition: int, is_outdated: bool) -> None:
        """A log partition is to be served here (again); or was to be, and the word comes late."""
        if is_outdated:
            self.coordinator.load(partition, self.leader_epoch - 1)
            self.deliver()
        elif not self.store.waiting():
            self.load(partition)

    # ------------------------------------------------------------ consumers

    @rule(
        target=consumers,
        group_id=st.sampled_from(GROUPS),
        instance_id=st.sampled_from([None, "i1", "i2"]),
        protocols=st.sampled_from(PROTOCOLS),
    )
    def consumer_starts(self, group_id: str, instance_id: str | None, protocols: tuple[str, ...]) -> Any:
        """A consumer is started, which has sent nothing yet. A static one stands in for those of its instance."""
        if self._is_crowded():
            return self.fleet.consumers[-1]
        return self.start_consumer(ClassicConsumer(f"c{len(self.fleet.consumers)}", group_id, instance_id, protocols))

    @rule(
        target=consumers,
        group_id=st.sampled_from(GROUPS),
        instance_id=st.sampled_from(INSTANCES),
        subscription=st.sampled_from(SUBSCRIPTIONS),
        assignor=st.sampled_from(ASSIGNORS),
        gives_back=st.sampled_from(GIVES_BACK),
        brings_id=st.booleans(),
    )
    def modern_consumer_starts(
        self,
        group_id: str,
        instance_id: str | None,
        subscription: tuple[tuple[str, ...], str],
        assignor: str | None,
        gives_back: int | None,
        brings_id: bool,
    ) -> Any:
        """A consumer of the protocol of KIP-848 is started; where the group is a classic one, it may convert that."""
        if self._is_crowded():
            return self.fleet.consumers[-1]
        topics, regex = subscription
        name = f"m{len(self.fleet.consumers)}"
        started = Kip848Consumer(
            name,
            group_id,
            instance_id,
            topics,
            regex,
            assignor=assignor,
            gives_back=gives_back,
            brings_id=brings_id,
        )
        return self.start_consumer(started)

    @rule(
        target=consumers,
        instance_id=st.sampled_from(INSTANCES),
        process_id=st.sampled_from(["p1", "p2"]),
        lags=st.sampled_from([0, 0, 1, 3]),
    )
    def streams_member_starts(self, instance_id: str | None, process_id: str, lags: int) -> Any:
        """A thread of an application of Kafka Streams is started (KIP-1071)."""
        if self._is_crowded():
            return self.fleet.consumers[-1]
        name = f"t{len(self.fleet.consumers)}"
        return self.start_consumer(StreamsMember(name, STREAMS_GROUP, instance_id, process_id=process_id, lags=lags))

    @rule(
        processes=st.lists(st.sampled_from(["p1", "p2"]), min_size=1, max_size=3),
        lags=st.sampled_from([0, 0, 1, 3]),
        share_count=st.integers(0, 2),
        rounds=st.integers(1, 8),
    )
    def newer_groups_come_to_be(self, processes: list[str], lags: int, share_count: int, rounds: int) -> None:
        """Threads of an application, and members of a share group, start together and go on for a while."""
        for process_id in processes:
            self.streams_member_starts(None, process_id, lags)
        for _ in range(share_count):
            self.share_member_starts((TOPIC,))
        self.live_on(rounds, 1_000)

    @rule(target=consumers, topics=st.sampled_from([(TOPIC,), (TOPIC, "audit")]))
    def share_member_starts(self, topics: tuple[str, ...]) -> Any:
        """A member of a share group is started (KIP-932)."""
        if self._is_crowded():
            return self.fleet.consumers[-1]
        return self.start_consumer(ShareMember(f"s{len(self.fleet.consumers)}", SHARE_GROUP, topics=topics))

    @rule(consumer=consumers, commits=st.booleans())
    def consumer_goes_on(self, consumer: Consumer, commits: bool) -> None:
        """A consumer sends what comes next: a join, a sync, a heartbeat, or a commit in its place."""
        self.go_on(consumer, commits=commits)

    @rule(rounds=st.integers(1, 8), interval_ms=st.sampled_from([0, 1_000, 3_000]), commits=st.booleans())
    def everybody_goes_on(self, rounds: int, interval_ms: int, commits: bool) -> None:
        """All consumers go on, several times, with pauses."""
        for _ in range(rounds):
            self.all_go_on(commits=commits)
            self.advance(interval_ms)

    @rule(consumer=consumers)
    def consumer_repeats_its_request(self, consumer: Consumer) -> None:
        """A waiting join or sync is sent a second time, as after a broken connection."""
        if not isinstance(consumer, ClassicConsumer):
            return
        if consumer.is_alive and consumer.is_waiting and consumer.phase != "stable" and consumer.member_id:
            self.submit(consumer.next_request())

    @rule(target=consumers, consumer=consumers, protocols=st.sampled_from(PROTOCOLS))
    def static_consumer_restarts(self, consumer: Consumer, protocols: tuple[str, ...]) -> Any:
        """A static member comes back without its member id (KIP-345); its old self may still wait."""
        if not (consumer.is_alive and consumer.instance_id and consumer.member_id):
            return consumer
        changes = {"protocols": protocols} if isinstance(consumer, ClassicConsumer) else {}
        return self.restart_static(consumer, **changes)

    @rule(
        group_id=st.sampled_from(GROUPS),
        are_modern=st.lists(st.booleans(), min_size=1, max_size=3),
        instance_id=st.sampled_from(INSTANCES),
        gives_back=st.sampled_from(GIVES_BACK),
        rounds=st.integers(1, 6),
    )
    def group_comes_to_be(
        self, group_id: str, are_modern: list[bool], instance_id: str | None, gives_back: int | None, rounds: int
    ) -> None:
        """Consumers of both protocols start together, one of them static perhaps, and go on for a while."""
        for number, is_modern in enumerate(are_modern):
            if is_modern:
                topics, regex = SUBSCRIPTIONS[number]
                self.modern_consumer_starts(group_id, instance_id, (topics, regex), None, gives_back, True)
            else:
                self.consumer_starts(group_id, instance_id, PROTOCOLS[0])
            instance_id = None
        self.live_on(rounds, 1_000)

    @rule(target=consumers, consumer=consumers, says=st.sampled_from(["goodbye", "see you", "nothing"]))
    def consumer_changes_its_protocol(self, consumer: Consumer, says: str) -> Any:
        """A consumer is started again with the other protocol, as in a rolling upgrade or its way back."""
        if not consumer.is_alive or consumer.is_waiting or consumer.group_id not in GROUPS:
            return consumer
        if says == "goodbye":
            self.leave(consumer)
        elif says == "see you" and isinstance(consumer, Kip848Consumer) and consumer.instance_id is not None:
            self.submit(consumer.leave_request(for_good=False))
        kind = Kip848Consumer if isinstance(consumer, ClassicConsumer) else ClassicConsumer
        consumer.is_alive = False
        changed = self.start_consumer(kind(f"x{len(self.fleet.consumers)}", consumer.group_id, consumer.instance_id))
        self.go_on(changed)
        return changed

    @rule(group_id=st.sampled_from(GROUPS), rounds=st.integers(0, 4))
    def group_changes_its_protocol(self, group_id: str, rounds: int) -> None:
        """Consumers of a group are started again with the other protocol, one after the other."""
        for consumer in self.fleet.living(group_id):
            self.consumer_changes_its_protocol(consumer, "goodbye")
            self.live_on(rounds, 1_000)

    @rule(who=_choices, subscription=st.sampled_from(SUBSCRIPTIONS), assignor=st.sampled_from(ASSIGNORS))
    def member_subscribes(self, who: int, subscription: tuple[tuple[str, ...], str], assignor: str | None) -> None:
        """A member of a consumer group wants other topics, and perhaps another assignor."""
        for member in self._one_of_the_members(who):
            (member.topics, member.regex), member.assignor = subscription, assignor
            self.go_on(member)

    @rule(who=_choices)
    def static_member_pauses(self, who: int) -> None:
        """A static member leaves for a while: its place is kept."""
        for member in self._one_of_the_members(who):
            if member.instance_id is not None and not member.is_waiting:
                member.is_alive = False
                self.submit(member.leave_request(for_good=False))

    @rule(who=_choices, behind=st.integers(0, 2))
    def late_requests_arrive(self, who: int, behind: int) -> None:
        """A member's requests of now or of an earlier epoch come (once more); nobody reads the answers.

        Such as that of a new assignment, which is told once. So the member says everything next, as a client does that
        waits for an answer in vain.
        """
        for member in self._one_of_the_members(who):
            member.asked = None
            epoch = max(member.epoch - behind, 1)
            self.submit(member.heartbeat(epoch))
            self.submit(OffsetCommit(member.group_id, member.offsets(), epoch, member.member_id))
            self.submit(member.fetch_request(epoch))

    @rule(group_id=st.sampled_from(GROUPS))
    def group_is_looked_at(self, group_id: str) -> None:
        """What a group is said to be, whatever it is asked, agrees."""
        call = self.coordinator.call
        listed = {group.group_id: group for group in call(ListGroups()).groups}.get(group_id)
        (as_consumer_group,) = call(ConsumerGroupDescribe((group_id,))).groups
        (as_classic_group,) = call(DescribeGroups((group_id,))).groups
        is_one = as_consumer_group.error_code is ErrorCode.NONE
        require(
            listed is None or (listed.group_type == "consumer") == is_one,
            f"{listed!r} is described as {as_consumer_group!r}",
        )
        require(
            not is_one or as_classic_group.group_state == "Dead",
            f"{group_id!r} is described as {as_consumer_group!r} and as {as_classic_group!r}",
        )

    @rule(consumer=consumers)
    def consumer_dies(self, consumer: Consumer) -> None:
        """A consumer falls silent."""
        consumer.is_alive = False

    @rule(consumer=consumers)
    def consumer_leaves(self, consumer: Consumer) -> None:
        """A consumer leaves its group in an orderly way."""
        self.leave(consumer)

    def _one_of_the_members(self, who: int) -> list[Kip848Consumer]:
        """Return one of those who were told that they are in a consumer group; nobody if there is nobody."""
        found = [c for c in self.fleet.consumers if isinstance(c, Kip848Consumer) and c.is_alive and c.epoch > 0]
        return [found[who % len(found)]] if found else []

    def _is_crowded(self) -> bool:
        return sum(consumer.is_alive for consumer in self.fleet.consumers) >= CONSUMERS_MAX

    # ------------------------------------------------------------ administrators and producers

    @rule(group_id=st.sampled_from(GROUPS), partition=_partitions, offset=_offsets)
    def commit_from_outside(self, group_id: str, partition: int, offset: int) -> None:
        """Somebody who is no member commits; that is accepted while the group is empty."""
        self.submit(OffsetCommit(group_id, _one_offset(partition, offset)))

    @rule(group_ids=st.permutations(GROUPS))
    def groups_are_deleted(self, group_ids: list[str]) -> None:
        """An administrator deletes groups."""
        self.submit(DeleteGroups(tuple(group_ids)))

    @rule(group_id=st.sampled_from(GROUPS), partitions=st.sets(_partitions, min_size=1))
    def offsets_are_deleted(self, group_id: str, partitions: set[int]) -> None:
        """An administrator deletes offsets (KIP-496)."""
        self.submit(OffsetDelete(group_id, (TopicToDelete(TOPIC, tuple(sorted(partitions))),)))

    @rule()
    def topic_is_deleted(self) -> None:
        """The topic is deleted, and its offsets with it; at once there is another one of that name."""
        if TOPIC in self.topics.ids:
            self.delete_topic(TOPIC)
        self.create_topic(TOPIC, PARTITIONS)

    @rule(name=st.sampled_from(sorted(OTHER_TOPICS)), grows=st.booleans())
    def other_topic_changes(self, name: str, grows: bool) -> None:
        """A topic grows, goes, or is there again."""
        if name not in self.topics.ids:
            self.create_topic(name, OTHER_TOPICS.get(name, 1))
        elif grows:
            self.grow_topic(name)
        else:
            self.delete_topic(name)

    @rule(
        producer_id=st.sampled_from(PRODUCERS), group_id=st.sampled_from(GROUPS), partition=_partitions, offset=_offsets
    )
    def producer_commits(self, producer_id: int, group_id: str, partition: int, offset: int) -> None:
        """A producer commits an offset in a transaction (KIP-98)."""
        self.submit(TxnOffsetCommit(group_id, _one_offset(partition, offset), producer_id, 0))

    @rule(producer_id=st.sampled_from(PRODUCERS), partition=_log_partitions, is_committed=st.booleans())
    def transaction_ends(self, producer_id: int, partition: int, is_committed: bool) -> None:
        """A producer's transaction is committed or aborted on a log partition."""
        self.submit(CompleteTransaction(partition, producer_id, 0, is_committed))

    # ------------------------------------------------------------ time and the log
    #
    # Rules that have nothing to do do nothing: with preconditions Hypothesis finds it harder to make a story short.

    @rule(duration_ms=st.sampled_from(DURATIONS_MS))
    def time_passes(self, duration_ms: int) -> None:
        """Time passes, and then the timers are looked at."""
        self.advance(duration_ms)

    @rule(count=st.integers(1, 5))
    def log_writes(self, count: int) -> None:
        """The log writes the oldest appends that wait."""
        self.write(count)

    @rule(error=st.sampled_from(ERRORS))
    def log_refuses(self, error: type[LogStoreError]) -> None:
        """The log refuses all appends that wait."""
        self.refuse(error("refused by the test"))

    @rule(is_written=st.booleans())
    def log_times_out(self, is_written: bool) -> None:
        """Nobody knows what became of an append: its log partition fails, and must be loaded again."""
        if self.store.waiting():
            self.pass_on(self.store.time_out(is_written=is_written))

    @rule(error=st.sampled_from(ERRORS))
    def next_append_fails(self, error: type[LogStoreError]) -> None:
        """The log refuses the next append at once, also while others wait."""
        self.store.fail_next(error("refused by the test"))

    # ------------------------------------------------------------ laws

    @invariant()
    def laws_hold(self) -> None:
        """The laws that hold at every moment."""
        if self._is_started:
            self.check_laws()

    def teardown(self) -> None:
        """Once faults stop, every live consumer gets its share and every group comes to rest.

        A store that has ``close()`` is closed then.
        """
        if not self._is_started:
            return
        try:
            self.check_laws()  # if a step has broken one, that is what is to be told
            self.recover()
            self.check_laws()
            for group_id in self.group_ids:
                self.check_all_are_served(group_id)
            self.check_all_members_are_served()
        finally:
            close_store(self.store.store)

    def check_all_members_are_served(self) -> None:
        """The living members of the streams group and of the share group are at the target, and all tasks run.

        Raises:
            LawBrokenError: they aren't, or don't.
        """
        for group_id in (STREAMS_GROUP, SHARE_GROUP):
            member_ids = [member.member_id for member in self.fleet.living(group_id)]
            check_members_are_served(self.coordinator, group_id, member_ids)


def _one_offset(partition: int, offset: int) -> tuple[TopicToCommit, ...]:
    return (TopicToCommit(TOPIC, (OffsetToCommit(partition, offset),)),)
