"""Hypothesis state machine for a log store, transport or service: random groups of every type, with faults.

Subclass :class:`CoordinatorMachine`, override :meth:`~CoordinatorMachine.make_log_store` and other hooks, and let
pytest run its ``TestCase``: ``TestMyStore = MyMachine.TestCase``. After every step the laws of ``docs/design.md`` are
checked, such as: the hard state equals a replay of the durable log.
"""

from __future__ import annotations

from collections.abc import Callable
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

GROUPS = ("alpha", "beta")
STREAMS_GROUP, SHARE_GROUP = "word-count", "queue"
PRODUCERS = (7, 8)
CONSUMERS_MAX = 8
ERRORS = (NotEnoughReplicasError, NotLeaderError, RecordTooLargeError)
DURATIONS_MS = (1, 500, 3_000, 9_999, 10_000, 20_000, 60_000, 300_000)
PROTOCOLS = (("range", "roundrobin"), ("roundrobin", "range"), ("range", "roundrobin", "sticky"))
"""All contain every protocol that can be chosen: a loaded group rejects members without its protocol."""

SUBSCRIPTIONS = (((TOPIC,), ""), ((TOPIC, "audit"), ""), ((TOPIC,), "audit|pay.*"), ((), "o.*"), ((TOPIC,), "("))
"""Topics and regular expressions of consumers; the last expression is invalid."""
INSTANCES = (None, None, "i1", "i2")
ASSIGNORS = (None, None, "range")
"""Requested assignors: at most one name, since a tied vote changes the epoch with every heartbeat in Kafka."""
GIVES_BACK = (None, None, 1, 0)
"""Partitions revoked with each heartbeat: all, one or none."""

_partitions = st.integers(0, PARTITIONS - 1)
_log_partitions = st.integers(0, LOG_PARTITIONS - 1)
_offsets = st.integers(0, 1000)
_choices = st.integers(0, CONSUMERS_MAX - 1)


class CoordinatorMachine(World, RuleBasedStateMachine):
    """Consumers, administrators, producers, a log store and a clock, in random order.

    Override the hooks :meth:`make_log_store`, :meth:`settle_log_store`, :meth:`crash_log_store`,
    :meth:`make_coordinator`, :meth:`send` and :meth:`receive`. Subclasses may add rules and invariants.

    Attributes:
        coordinator: the present coordinator.
        store: its log store, with faults around yours.
        clock: its clock.
        fleet: the consumers and their requests in flight.
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
        """Crash the process; the oldest ``written`` waiting appends have reached the log."""
        self.kill(written)
        check_log_can_be_loaded(self.coordinator.load_all)
        self.deliver()
        self.leader_epoch = 0

    @rule(partition=_log_partitions)
    def log_partition_moves_away(self, partition: int) -> None:
        """Unload a log partition with a new leader epoch."""
        self.leader_epoch += 1
        self.coordinator.unload(partition, self.leader_epoch)
        self.deliver()

    @rule(partition=_log_partitions, is_outdated=st.booleans())
    def log_partition_moves_here(self, partition: int, is_outdated: bool) -> None:
        """Load a log partition, or try to with an outdated leader epoch."""
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
        """Start a consumer, which sends nothing yet; a static one replaces its predecessor."""
        return self._start("c", lambda name: ClassicConsumer(name, group_id, instance_id, protocols))

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
        """Start a consumer of KIP-848, which may convert a classic group."""
        options: dict[str, Any] = {"assignor": assignor, "gives_back": gives_back, "brings_id": brings_id}
        return self._start("m", lambda name: Kip848Consumer(name, group_id, instance_id, *subscription, **options))

    @rule(
        target=consumers,
        instance_id=st.sampled_from(INSTANCES),
        process_id=st.sampled_from(["p1", "p2"]),
        lags=st.sampled_from([0, 0, 1, 3]),
    )
    def streams_member_starts(self, instance_id: str | None, process_id: str, lags: int) -> Any:
        """Start a thread of a Kafka Streams application (KIP-1071)."""
        options: dict[str, Any] = {"process_id": process_id, "lags": lags}
        return self._start("t", lambda name: StreamsMember(name, STREAMS_GROUP, instance_id, **options))

    @rule(
        processes=st.lists(st.sampled_from(["p1", "p2"]), min_size=1, max_size=3),
        lags=st.sampled_from([0, 0, 1, 3]),
        share_count=st.integers(0, 2),
        rounds=st.integers(1, 8),
    )
    def newer_groups_come_to_be(self, processes: list[str], lags: int, share_count: int, rounds: int) -> None:
        """Start members of a streams and a share group, and let them run."""
        for process_id in processes:
            self.streams_member_starts(None, process_id, lags)
        for _ in range(share_count):
            self.share_member_starts((TOPIC,))
        self.live_on(rounds, 1_000)

    @rule(target=consumers, topics=st.sampled_from([(TOPIC,), (TOPIC, "audit")]))
    def share_member_starts(self, topics: tuple[str, ...]) -> Any:
        """Start a member of a share group (KIP-932)."""
        return self._start("s", lambda name: ShareMember(name, SHARE_GROUP, topics=topics))

    @rule(consumer=consumers, commits=st.booleans())
    def consumer_goes_on(self, consumer: Consumer, commits: bool) -> None:
        """Send a consumer's next request: join, sync, heartbeat or commit."""
        self.go_on(consumer, commits=commits)

    @rule(rounds=st.integers(1, 8), interval_ms=st.sampled_from([0, 1_000, 3_000]), commits=st.booleans())
    def everybody_goes_on(self, rounds: int, interval_ms: int, commits: bool) -> None:
        """Run all consumers for several rounds."""
        for _ in range(rounds):
            self.all_go_on(commits=commits)
            self.advance(interval_ms)

    @rule(consumer=consumers)
    def consumer_repeats_its_request(self, consumer: Consumer) -> None:
        """Repeat a pending join or sync, as after a broken connection."""
        if not isinstance(consumer, ClassicConsumer):
            return
        if consumer.is_alive and consumer.is_waiting and consumer.phase != "stable" and consumer.member_id:
            self.submit(consumer.next_request())

    @rule(target=consumers, consumer=consumers, protocols=st.sampled_from(PROTOCOLS))
    def static_consumer_restarts(self, consumer: Consumer, protocols: tuple[str, ...]) -> Any:
        """Restart a static member without its member id (KIP-345); its predecessor may still wait."""
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
        """Start consumers of both protocols together, and let them run."""
        for number, is_modern in enumerate(are_modern):
            if is_modern:
                self.modern_consumer_starts(group_id, instance_id, SUBSCRIPTIONS[number], None, gives_back, True)
            else:
                self.consumer_starts(group_id, instance_id, PROTOCOLS[0])
            instance_id = None
        self.live_on(rounds, 1_000)

    @rule(target=consumers, consumer=consumers, says=st.sampled_from(["goodbye", "see you", "nothing"]))
    def consumer_changes_its_protocol(self, consumer: Consumer, says: str) -> Any:
        """Restart a consumer with the other protocol, as in a rolling upgrade or downgrade."""
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
        """Restart the consumers of a group with the other protocol, one after the other."""
        for consumer in self.fleet.living(group_id):
            self.consumer_changes_its_protocol(consumer, "goodbye")
            self.live_on(rounds, 1_000)

    @rule(who=_choices, subscription=st.sampled_from(SUBSCRIPTIONS), assignor=st.sampled_from(ASSIGNORS))
    def member_subscribes(self, who: int, subscription: tuple[tuple[str, ...], str], assignor: str | None) -> None:
        """Change the subscription and assignor of a member."""
        for member in self._one_of_the_members(who):
            (member.topics, member.regex), member.assignor = subscription, assignor
            self.go_on(member)

    @rule(who=_choices)
    def static_member_pauses(self, who: int) -> None:
        """Stop a static member with a temporary leave."""
        for member in self._one_of_the_members(who):
            if member.instance_id is not None and not member.is_waiting:
                member.is_alive = False
                self.submit(member.leave_request(for_good=False))

    @rule(who=_choices, behind=st.integers(0, 2))
    def late_requests_arrive(self, who: int, behind: int) -> None:
        """Send requests of a member's present or earlier epoch and ignore the responses.

        A response may have the only copy of a new assignment, so the member's next heartbeat is full.
        """
        for member in self._one_of_the_members(who):
            member.subscribed = None
            epoch = max(member.epoch - behind, 1)
            self.submit(member.heartbeat(epoch))
            self.submit(OffsetCommit(member.group_id, member.offsets(), epoch, member.member_id))
            self.submit(member.fetch_request(epoch))

    @rule(group_id=st.sampled_from(GROUPS))
    def group_is_looked_at(self, group_id: str) -> None:
        """Check that all descriptions of a group agree."""
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
        """Stop a consumer without leaving."""
        consumer.is_alive = False

    @rule(consumer=consumers)
    def consumer_leaves(self, consumer: Consumer) -> None:
        """Stop a consumer with a leave."""
        self.leave(consumer)

    def _one_of_the_members(self, who: int) -> list[Kip848Consumer]:
        found = [c for c in self.fleet.consumers if isinstance(c, Kip848Consumer) and c.is_alive and c.epoch > 0]
        return [found[who % len(found)]] if found else []

    def _start(self, prefix: str, make: Callable[[str], Consumer]) -> Consumer:
        """Start a consumer with an unused name; with ``CONSUMERS_MAX`` alive, return the last one started."""
        if sum(consumer.is_alive for consumer in self.fleet.consumers) >= CONSUMERS_MAX:
            return self.fleet.consumers[-1]
        return self.start_consumer(make(f"{prefix}{len(self.fleet.consumers)}"))

    # ------------------------------------------------------------ administrators and producers

    @rule(group_id=st.sampled_from(GROUPS), partition=_partitions, offset=_offsets)
    def commit_from_outside(self, group_id: str, partition: int, offset: int) -> None:
        """Commit without a member, which succeeds while the group is empty."""
        self.submit(OffsetCommit(group_id, _one_offset(partition, offset)))

    @rule(group_ids=st.permutations(GROUPS))
    def groups_are_deleted(self, group_ids: list[str]) -> None:
        """Delete groups."""
        self.submit(DeleteGroups(tuple(group_ids)))

    @rule(group_id=st.sampled_from(GROUPS), partitions=st.sets(_partitions, min_size=1))
    def offsets_are_deleted(self, group_id: str, partitions: set[int]) -> None:
        """Delete offsets (KIP-496)."""
        self.submit(OffsetDelete(group_id, (TopicToDelete(TOPIC, tuple(sorted(partitions))),)))

    @rule()
    def topic_is_deleted(self) -> None:
        """Delete the topic with its offsets, and create another one with its name."""
        if TOPIC in self.topics.ids:
            self.delete_topic(TOPIC)
        self.create_topic(TOPIC, PARTITIONS)

    @rule(name=st.sampled_from(sorted(OTHER_TOPICS)), grows=st.booleans())
    def other_topic_changes(self, name: str, grows: bool) -> None:
        """Extend, delete or recreate a topic."""
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
        """Commit an offset in a transaction (KIP-98)."""
        self.submit(TxnOffsetCommit(group_id, _one_offset(partition, offset), producer_id, 0))

    @rule(producer_id=st.sampled_from(PRODUCERS), partition=_log_partitions, is_committed=st.booleans())
    def transaction_ends(self, producer_id: int, partition: int, is_committed: bool) -> None:
        """Commit or abort a transaction on a log partition."""
        self.submit(CompleteTransaction(partition, producer_id, 0, is_committed))

    # ------------------------------------------------------------ time and the log
    # Rules that can't act return: preconditions would make shrinking harder.

    @rule(duration_ms=st.sampled_from(DURATIONS_MS))
    def time_passes(self, duration_ms: int) -> None:
        """Advance the clock, then fire due timers."""
        self.advance(duration_ms)

    @rule(count=st.integers(1, 5))
    def log_writes(self, count: int) -> None:
        """Write the oldest waiting appends."""
        self.write(count)

    @rule(error=st.sampled_from(ERRORS))
    def log_refuses(self, error: type[LogStoreError]) -> None:
        """Fail all waiting appends."""
        self.refuse(error("refused by the test"))

    @rule(is_written=st.booleans())
    def log_times_out(self, is_written: bool) -> None:
        """Time out an append; its log partition must be loaded again."""
        if self.store.waiting():
            self.pass_on(self.store.time_out(is_written=is_written))

    @rule(error=st.sampled_from(ERRORS))
    def next_append_fails(self, error: type[LogStoreError]) -> None:
        """Fail the next append at once."""
        self.store.fail_next(error("refused by the test"))

    # ------------------------------------------------------------ laws

    @invariant()
    def laws_hold(self) -> None:
        """Check the laws that always hold."""
        if self._is_started:
            self.check_laws()

    def teardown(self) -> None:
        """Stop the faults and check that every consumer gets its assignment and every group becomes stable.

        A store with ``close()`` is closed.
        """
        if not self._is_started:
            return
        try:
            self.check_laws()  # reports a law broken by the last step first
            self.recover()
            self.check_laws()
            for group_id in self.group_ids:
                self.check_all_are_served(group_id)
            self.check_all_members_are_served()
        finally:
            close_store(self.store.store)

    def check_all_members_are_served(self) -> None:
        """Check that the living members of the streams and share groups have their target and that all tasks run.

        Raises:
            LawBrokenError: they do not.
        """
        for group_id in (STREAMS_GROUP, SHARE_GROUP):
            member_ids = [member.member_id for member in self.fleet.living(group_id)]
            check_members_are_served(self.coordinator, group_id, member_ids)


def _one_offset(partition: int, offset: int) -> tuple[TopicToCommit, ...]:
    return (TopicToCommit(TOPIC, (OffsetToCommit(partition, offset),)),)
