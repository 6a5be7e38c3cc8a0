"""Swarm scenarios: small worlds drawn from a seed, each with its own choice of faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from attrs import evolve, frozen

from groupcoord.cluster.slot_store import SNAPSHOT_BYTES_MIN
from groupcoord.config import Config, MigrationPolicy
from groupcoord.member import MemberConfig
from groupcoord.sim.actors.applications import ShareWorkers, StreamsApplication
from groupcoord.sim.actors.clients import (
    FOREIGN,
    AdminAction,
    Administrator,
    Fault,
    ForeignRecords,
    SimpleConsumer,
    TransactionalProducer,
)
from groupcoord.sim.actors.environment import GroupOptions, GroupProtocol
from groupcoord.sim.cluster.leading import ClusterOptions, ReplicaOptions
from groupcoord.sim.kernel import stream
from groupcoord.sim.scenarios.faults import (
    SETTLE_MS,
    BrokenConnections,
    BusyApplication,
    ClockJump,
    ConsumerCrash,
    ConsumerPause,
    ConsumerStop,
    CutOff,
    LogTrouble,
    LossyNetwork,
    Migration,
    NodeCrash,
    NodeStall,
    TopicCreation,
    TopicDeletion,
    TopicGrowth,
    WorldOptions,
    rolling_restart,
)

ASSIGNORS = (
    ("range",),
    ("roundrobin",),
    ("sticky",),
    ("cooperative-sticky",),
    ("range", "cooperative-sticky"),
)


def swarm_options(seed: int) -> WorldOptions:
    """Return the small world of a seed. The choice of faults is drawn, too, so that none hides another."""
    return _SmallWorld(seed).draw()


class _SmallWorld:
    """World of a seed while it is drawn. Each part has another random generator."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        chance = self._chance()
        self.topics = {f"topic{number}": chance.randint(1, 8) for number in range(chance.randint(1, 3))}
        groups = [_group(chance, number, tuple(self.topics)) for number in range(chance.randint(1, 3))]
        clocks = self._chance("clocks")
        skew_ms, drift_ppm = clocks.choice((0, 3_600_000)), clocks.choice((0, 0, 500))
        groups = [evolve(group, clock_skew_ms=skew_ms, clock_drift_ppm=drift_ppm) for group in groups]
        self.groups = tuple(self._with_protocols(group) for group in groups)
        self.largest_group = max(group.consumer_count for group in self.groups)
        self.cluster = _cluster(chance, self.largest_group)
        self._set_limits()
        self.duration_ms = chance.randint(60, 300) * 1_000
        self.faults: list[Fault] = []
        self._base = chance

    def draw(self) -> WorldOptions:
        chance = self._base
        kinds = [kind for kind in KINDS if chance.random() < 0.5]
        self._draw_faults(chance, kinds, chance.randint(0, 14) if kinds else 0, 5_000, 15_000)
        is_mixed = self._change_protocols()
        self._delete_topics()
        self._set_consumer_groups(is_mixed=is_mixed)
        if self.faults:  # without faults no consumers start or stop
            self._start_and_stop()
        self._set_owner()
        others = self._chance("others")
        kinds = [kind for kind in OTHERS if others.random() < 0.5]
        self._draw_faults(others, kinds, others.choice((0, 2, 6)) if kinds else 0, 2_000, 20_000)
        self._add_applications()
        self._break_reads()
        has_shares = self._add_workers()
        if not has_shares:
            self._set_replicas()
        return WorldOptions(
            cluster=self.cluster,
            topics=self.topics,
            groups=self.groups,
            faults=tuple(sorted(self.faults, key=lambda fault: fault.start_ms)),
            duration_ms=self.duration_ms,
            # A few remaining workers have to process a queue, and after a bad batch they get one record at a time.
            settle_ms=8 * SETTLE_MS if has_shares else SETTLE_MS,
            law_interval_ms=chance.choice((0, 100, 1_000, 1_000)),
        )

    def _chance(self, *names: str) -> Random:
        return stream(self.seed, "swarm", *names)

    def _configure(self, **settings: Any) -> None:
        self.cluster = evolve(self.cluster, config=evolve(self.cluster.config, **settings))

    def _draw_faults(self, chance: Random, kinds: list[Drawn], count: int, earliest_ms: int, mean_ms: int) -> None:
        for _ in range(count):
            start_ms = chance.randint(earliest_ms, self.duration_ms - 10_000)
            end_ms = min(start_ms + int(chance.expovariate(1 / mean_ms)), self.duration_ms - 1_000)
            self.faults += chance.choice(kinds)(Draw(chance, start_ms, end_ms, self))

    def _break_reads(self) -> None:
        chance = self._chance("reads")
        self.faults = [
            evolve(fault, broken_read_percent=chance.choice((0, 50, 100)))
            if isinstance(fault, LogTrouble) and fault.refusal_percent
            else fault
            for fault in self.faults
        ]

    def _with_protocols(self, group: GroupOptions) -> GroupOptions:
        chance = self._chance("protocols", group.group_id)
        count = chance.choice((0, 0, group.consumer_count, chance.randint(0, group.consumer_count)))
        assignor = chance.choice((None, None, "uniform", "range"))
        group = evolve(group, consumer_protocol_count=count, remote_assignor=assignor)
        if chance.random() < 0.2:
            group = evolve(group, regex=chance.choice(("topic.*", "topic[0-9]", "topic0|new.*")))
            group = evolve(group, topics=group.subscribed(self.topics))
        return group

    def _change_protocols(self) -> bool:
        """Add restarts with another protocol, and topics for regular expressions; return whether there are any."""
        chance = self._chance("protocol changes")
        found: list[Fault] = []
        first = 0
        for group in self.groups:
            numbers = range(first, first + group.consumer_count)
            first += group.consumer_count
            for _ in range(chance.choice((0, 0, 0, 1, 2))):
                start_ms, at_once = chance.randint(5_000, self.duration_ms - 40_000), chance.randint(1, 3)
                step_ms, down_ms = chance.choice((500, 3_000, 6_000)), chance.choice((0, 500, 4_000))
                chosen = chance.sample(numbers, chance.choice((len(numbers), chance.randint(1, len(numbers)))))
                how: dict[str, Any] = {"protocol": chance.choice(list(GroupProtocol))}
                how["is_graceful"] = chance.random() < 0.8
                found += rolling_restart(group.group_id, chosen, start_ms, at_once, step_ms, down_ms, **how)
            if group.regex:
                start_ms, name = chance.randint(5_000, self.duration_ms - 10_000), f"new{chance.randint(0, 2)}"
                count = chance.randint(1, 4)
                found.append(TopicCreation(start_ms=start_ms, end_ms=start_ms, topic=name, partition_count=count))
        self.faults += found
        return bool(found)

    def _delete_topics(self) -> None:
        chance = self._chance("topic deletions")
        for _ in range(chance.choice((0, 0, 0, 0, 0, 0, 1, 2))):
            topic, start_ms = chance.choice(sorted(self.topics)), chance.randint(5_000, self.duration_ms - 40_000)
            end_ms = start_ms + chance.choice((0, 0, 500, 5_000, 30_000))
            count = chance.choice((0, self.topics[topic], self.topics[topic], chance.randint(1, 8)))
            self.faults.append(TopicDeletion(start_ms=start_ms, end_ms=end_ms, topic=topic, partition_count=count))

    def _start_and_stop(self) -> None:
        """Add consumers that stop soon after their start, so that busy ones get back partitions to be revoked."""
        chance, config = self._chance("comings and goings"), self.cluster.config
        several = [group for group in self.groups if group.consumer_count > 1]
        chosen = [group for group in several if group.consumer_protocol_count > 1] or several
        if not chosen or chance.random() >= 1 / 2:
            return
        group = chance.choice(chosen)
        of_each = [of for of in self.groups for _ in range(of.consumer_count)]
        numbers = [number for number, of in enumerate(of_each) if of is group]
        who, *others = chance.sample(numbers, len(numbers))
        heard_ms = config.group_consumer_heartbeat_interval_ms + config.group_consumer_assignment_interval_ms
        found: list[Fault] = []
        stops_ms = chance.randint(5_000, self.duration_ms // 2)
        for _ in range(chance.randint(2, 4)):
            starts_ms = stops_ms + chance.choice((500, 2_000, 5_000))
            found.append(ConsumerStop(start_ms=stops_ms, end_ms=starts_ms, consumer=who, group=group.group_id))
            stops_ms = starts_ms + chance.choice((500, heard_ms + 500, heard_ms + 500))
            busy_ms = min(stops_ms - starts_ms + chance.randint(200, 3_000), group.member.max_poll_interval_ms * 3 // 4)
            end_ms = starts_ms + busy_ms
            for other in others:
                if end_ms < self.duration_ms and chance.random() < 0.7:
                    busy = BusyApplication(start_ms=starts_ms, end_ms=end_ms, consumer=other, group=group.group_id)
                    found.append(busy)
        self.faults += [fault for fault in found if fault.end_ms < self.duration_ms]

    def _set_consumer_groups(self, *, is_mixed: bool) -> None:
        chance = self._chance("consumer groups")
        is_mixed = is_mixed or any(0 < each.consumer_protocol_count < each.consumer_count for each in self.groups)
        policies = (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.BIDIRECTIONAL, *MigrationPolicy)
        self._configure(
            **_times_of_members(chance, "consumer"),
            group_consumer_assignment_interval_ms=chance.choice((0, 1_000, 5_000)),
            group_consumer_regex_refresh_interval_ms=chance.choice((10_000, 60_000)),
            group_consumer_assignors=chance.choice((("uniform", "range"), ("range", "uniform"))),
            group_consumer_migration_policy=chance.choice(policies),
        )
        if is_mixed:
            # A consumer group with more members than a classic one may have could not be converted back.
            self._configure(group_max_size=1_000)
        elif chance.random() < 0.15:
            self._configure(group_consumer_max_size=max(self.largest_group - 1, 1))

    def _set_owner(self) -> None:
        """Set one owner of the log in one world of six, where nodes stall."""
        chance = self._chance("owners")
        if chance.random() < 1 / 6:
            self._stall_nodes(chance)
            self.cluster = evolve(self.cluster, lease_ms=chance.choice((600, 1_500, 4_000)))

    def _stall_nodes(self, chance: Random) -> None:
        for _ in range(chance.randint(0, 4)):
            start_ms = chance.randint(5_000, self.duration_ms - 10_000)
            end_ms = start_ms + chance.choice((200, 2_000, 10_000))
            node_id = chance.randint(1, self.cluster.node_count)
            self.faults.append(NodeStall(start_ms=start_ms, end_ms=end_ms, node_id=node_id))

    def _set_replicas(self) -> None:
        """Replace the log by replicas in one world of four without an owner. They do not support share groups."""
        chance = self._chance("replicas")
        if self.cluster.lease_ms is not None or chance.random() >= 1 / 4:
            return
        lease_ms, dead_ms = chance.choice(((600, 900), (1_000, 1_500), (3_000, 4_500)))
        replicas = ReplicaOptions(
            lease_ms=lease_ms,
            dead_ms=dead_ms,
            beat_ms=chance.choice((100, 250, 250)),
            snapshot_bytes_min=chance.choice((0, 5_000, SNAPSHOT_BYTES_MIN)),
            stale_percent=chance.choice((0, 30)),
            late_percent=chance.choice((0, 20)),
        )
        self.cluster = evolve(self.cluster, replicas=replicas)
        self._stall_nodes(chance)

    def _add_applications(self) -> None:
        """Add Kafka Streams applications in one world of three, with settings of streams groups."""
        chance = self._chance("streams")
        if chance.random() >= 1 / 3:
            return
        self._configure(
            **_times_of_members(chance, "streams"),
            group_streams_initial_rebalance_delay_ms=chance.choice((0, 500, 3_000)),
            group_streams_num_standby_replicas=chance.choice((0, 0, 1, 2)),
            group_streams_assignment_interval_ms=chance.choice((0, 1_000, 5_000)),
        )
        for number in range(chance.randint(1, 2)):
            start_ms = chance.randint(0, self.duration_ms // 2)
            self.faults.append(
                StreamsApplication(
                    start_ms=start_ms,
                    group=f"application{number}",
                    **self._extent(chance, start_ms),
                    threads=chance.choice((1, 1, 2)),
                    restore_ms=chance.choice((0, 2_000, 60_000)),
                    **_restarts(chance, start_ms),
                )
            )

    def _add_workers(self) -> bool:
        """Add one or two share groups in one world of three, with their settings; return whether there are any."""
        chance = self._chance("shares")
        if chance.random() >= 1 / 3:
            return False
        self._configure(
            **_times_of_members(chance, "share"),
            group_share_assignment_interval_ms=chance.choice((0, 1_000)),
            group_share_initialize_retry_interval_ms=chance.choice((1_000, 30_000)),
            group_share_delivery_count_limit=chance.choice((2, 3, 5)),
            group_share_min_record_lock_duration_ms=1_000,
            group_share_record_lock_duration_ms=chance.choice((1_000, 5_000, 30_000)),
            group_share_partition_max_record_locks=chance.choice((100, 2_000)),
            share_coordinator_snapshot_update_records_per_snapshot=chance.choice((0, 3, 500)),
        )
        for number in range(chance.randint(1, 2)):
            start_ms = chance.randint(0, self.duration_ms // 2)
            work_ms = chance.choice((0, 100, 2_000))
            self.faults.append(
                ShareWorkers(
                    start_ms=start_ms,
                    group=f"jobs{number}",
                    **self._extent(chance, start_ms),
                    **_restarts(chance, start_ms),
                    write_every_ms=chance.choice((500, 2_000)),
                    batch_max=chance.choice((1, 10)),
                    max_records=chance.choice((1, 20, 500)),
                    is_limit=chance.random() < 0.3,
                    work_ms=(0, work_ms),
                    release_percent=chance.choice((0, 5, 30)),
                    reject_percent=chance.choice((0, 5)),
                    hang_percent=chance.choice((0, 10)),
                    hang_ms=chance.choice((500, 40_000)),
                    renews=chance.random() < 0.3,
                    crash_percent=chance.choice((0, 2, 10)),
                    vanish_percent=chance.choice((0, 50, 100)),
                )
            )
        return True

    def _extent(self, chance: Random, start_ms: int) -> dict[str, Any]:
        return {
            "end_ms": chance.randint(start_ms + 10_000, self.duration_ms - 1_000),
            "instances": chance.randint(1, 4),
            "topics": tuple(sorted(chance.sample(sorted(self.topics), chance.randint(1, len(self.topics))))),
        }

    def _set_limits(self) -> None:
        chance = self._chance("limits")
        session_timeouts_ms = [group.member.session_timeout_ms for group in self.groups]
        if chance.random() < 0.3:
            bounds_ms = min(session_timeouts_ms), max(session_timeouts_ms)
            self._configure(group_min_session_timeout_ms=bounds_ms[0], group_max_session_timeout_ms=bounds_ms[1])
        if chance.random() < 0.3:
            self._configure(offset_metadata_max_bytes=chance.choice((0, 16)))
        if chance.random() < 0.15:
            self._configure(group_max_size=max(self.largest_group - 1, 1))


def _group(chance: Random, number: int, topics: tuple[str, ...]) -> GroupOptions:
    session_timeout_ms = chance.choice((6_000, 10_000, 30_000, 45_000))
    max_poll_interval_ms = chance.choice((10_000, 30_000, 60_000))
    heartbeat_interval_ms = chance.choice((1_000, session_timeout_ms // 4, session_timeout_ms // 3))
    return GroupOptions(
        group_id=chance.choice(("orders", "billing", "audit")) + str(number),
        consumer_count=chance.randint(1, 6),
        topics=tuple(sorted(chance.sample(topics, chance.randint(1, len(topics))))),
        is_static=chance.random() < 0.3,
        member=MemberConfig(
            session_timeout_ms=session_timeout_ms,
            # Members that learn of a rebalance only after its timeout never all join the same one, in Kafka too.
            heartbeat_interval_ms=min(heartbeat_interval_ms, max_poll_interval_ms // 2),
            max_poll_interval_ms=max_poll_interval_ms,
            partition_assignment_strategy=chance.choice(ASSIGNORS),
            enable_auto_commit=chance.random() < 0.8,
            auto_commit_interval_ms=chance.choice((1_000, 5_000)),
            request_timeout_ms=chance.choice((5_000, 30_000)),
        ),
        start_spread_ms=chance.choice((0, 2_000, 30_000)),
    )


def _cluster(chance: Random, largest_group: int) -> ClusterOptions:
    return ClusterOptions(
        node_count=chance.randint(1, 4),
        config=Config(
            offsets_topic_num_partitions=chance.randint(1, 6),
            group_initial_rebalance_delay_ms=chance.choice((0, 500, 3_000)),
            group_max_size=chance.choice((largest_group, 1_000)),
            offsets_retention_minutes=chance.choice((1, 10_080)),
            offsets_retention_check_interval_ms=chance.choice((20_000, 600_000)),
        ),
        least_latency_ms=chance.choice((0, 1, 5)),
        most_latency_ms=chance.choice((5, 50, 500)),
        flush_ms=chance.choice((0, 0, 3, 50)),
        failure_detection_ms=chance.choice((None, 1_000, 8_000)),
        metadata_delay_max_ms=chance.choice((1, 50, 2_000)),
        load_step_records=chance.choice((1, 10, 1_000)),
        load_step_ms=chance.choice((1, 50)),
    )


def _times_of_members(chance: Random, kind: str) -> dict[str, Any]:
    session_timeout_ms = chance.choice((6_000, 10_000, 30_000))
    return {
        f"group_{kind}_min_session_timeout_ms": 1_000,
        f"group_{kind}_session_timeout_ms": session_timeout_ms,
        f"group_{kind}_min_heartbeat_interval_ms": 100,
        f"group_{kind}_heartbeat_interval_ms": chance.choice((500, 2_000, session_timeout_ms // 3)),
    }


def _restarts(chance: Random, start_ms: int) -> dict[str, Any]:
    return {
        "restart_from_ms": chance.choice((None, start_ms + chance.randint(0, 40_000))),
        "restart_every_ms": chance.choice((500, 5_000, 20_000)),
        "down_ms": chance.choice((0, 1_000, 15_000)),
        "is_graceful": chance.random() < 0.5,
    }


@frozen
class Draw:
    """Input of random faults."""

    chance: Random
    start_ms: int
    end_ms: int
    world: _SmallWorld

    def node_id(self) -> int:
        return self.chance.randint(1, self.world.cluster.node_count)

    def node_ids(self) -> tuple[int, ...]:
        return self._some(range(1, self.world.cluster.node_count + 1))

    def partition(self) -> int:
        return self.chance.randrange(self.world.cluster.config.offsets_topic_num_partitions)

    def group_id(self) -> str:
        return self.chance.choice(self.world.groups).group_id

    def consumers(self) -> list[tuple[int, str]]:
        names = [group.group_id for group in self.world.groups for _ in range(group.consumer_count)]
        return list(enumerate(names))

    def consumer_numbers(self) -> tuple[int, ...]:
        return self._some([number for number, _ in self.consumers()])

    def _some(self, numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(self.chance.sample(numbers, self.chance.randint(1, len(numbers)))))


Drawn = Callable[[Draw], list[Fault]]
"""Function that draws the faults of one kind."""


def _fault(
    kind: type[Fault], /, *, lasts: bool = True, of_consumer: bool = False, **arguments: Callable[[Draw], Any]
) -> Drawn:
    """Return a function that draws a fault, with arguments drawn in the given order, after a consumer and its group."""

    def drawn(draw: Draw) -> list[Fault]:
        chosen: dict[str, Any] = {"start_ms": draw.start_ms, "end_ms": draw.end_ms if lasts else draw.start_ms}
        if of_consumer:
            chosen["consumer"], chosen["group"] = draw.chance.choice(draw.consumers())
        for name, choose in arguments.items():
            chosen[name] = choose(draw)
        return [kind(**chosen)]

    return drawn


def _one_of(*choices: Any) -> Callable[[Draw], Any]:
    return lambda draw: draw.chance.choice(choices)


def _topic_growth(draw: Draw) -> list[Fault]:
    topic = draw.chance.choice(sorted(draw.world.topics))
    count = draw.world.topics[topic] + draw.chance.randint(1, 4)
    return [TopicGrowth(start_ms=draw.start_ms, end_ms=draw.start_ms, topic=topic, partition_count=count)]


def _rolling_restart(draw: Draw) -> list[Fault]:
    group_id = draw.group_id()
    numbers = [number for number, name in draw.consumers() if name == group_id]
    at_once, step_ms = draw.chance.randint(1, 2), draw.chance.choice((1_000, 5_000))
    down_ms = draw.chance.choice((0, 500, 4_000))
    return rolling_restart(group_id, numbers, draw.start_ms, at_once, step_ms, down_ms)


KINDS: tuple[Drawn, ...] = (
    _fault(NodeCrash, node_id=Draw.node_id),
    _fault(Migration, lasts=False, partition=Draw.partition, node_id=Draw.node_id),
    _fault(CutOff, consumers=Draw.consumer_numbers, node_ids=Draw.node_ids),
    _fault(LossyNetwork, probability=_one_of(0.01, 0.05, 0.3)),
    _fault(LogTrouble, flush_ms=_one_of(200, 2_000, 10_000)),
    _fault(LogTrouble, refusal_percent=_one_of(5, 30, 100), flush_ms=_one_of(0, 0, 100)),
    _fault(ConsumerCrash, of_consumer=True, stays_dead=lambda draw: draw.chance.random() < 0.3),
    _fault(ConsumerStop, of_consumer=True),
    _fault(ConsumerPause, of_consumer=True),
    _fault(BusyApplication, of_consumer=True),
    _fault(BrokenConnections, lasts=False, of_consumer=True),
    _fault(ClockJump, lasts=False, of_consumer=True, duration_ms=_one_of(1_000, 20_000, 600_000)),
    _topic_growth,
    _rolling_restart,
)

OTHERS: tuple[Drawn, ...] = (
    _fault(TransactionalProducer, group=Draw.group_id, producer_id=lambda draw: draw.chance.randint(1, 2**31)),
    _fault(Administrator, lasts=False, group=Draw.group_id, action=_one_of(*AdminAction)),
    _fault(
        SimpleConsumer, group=lambda draw: draw.chance.choice([*(each.group_id for each in draw.world.groups), "tool"])
    ),
    _fault(ForeignRecords, lasts=False, partition=Draw.partition, kind=_one_of(*FOREIGN)),
)
"""Other clients."""
