"""Clock, chance, network and log of the simulator."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from groupcoord import Config
from groupcoord.core.log.records import GroupTombstone, OffsetCommitRecord
from groupcoord.log_store import AppendTimedOutError, LogRecords, NotLeaderError, Ticket
from groupcoord.messages import (
    FindCoordinator,
    FindCoordinatorResponse,
    GroupToFetch,
    OffsetCommit,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    Request,
    Response,
    TopicToCommit,
)
from groupcoord.sim import ClusterOptions
from groupcoord.sim.actors.groups import Disturbances
from groupcoord.sim.cluster.log import ClusterLog, Leader, NodeLog, StoreFault
from groupcoord.sim.cluster.nodes import CoordinatorNode, SimulatedCluster
from groupcoord.sim.cluster.topics import Topics
from groupcoord.sim.kernel import (
    BURST_MAX,
    Chance,
    Exchange,
    Latency,
    LocalClock,
    Network,
    Scheduler,
    SimulatedConnection,
    mixed,
    stable_number,
)


def test_the_order_of_one_moment() -> None:
    """At the same time the lower rank comes first, and among equals the one that was scheduled first."""
    scheduler = Scheduler(1_000)
    seen: list[str] = []
    for time_ms, rank, name in [(1_005, 1, "c"), (1_005, 0, "a"), (1_005, 1, "d"), (1_005, 0, "b"), (900, 9, "past")]:
        scheduler.at(time_ms, rank, seen.append, name)

    scheduler.run_until(1_004)
    assert seen == ["past"]
    scheduler.run_until(1_005)

    assert seen == ["past", "a", "b", "c", "d"]
    assert scheduler.now_ms() == 1_005


def test_chance_is_the_same_everywhere() -> None:
    """Numbers for names and moments are fixed by this test: seeds in reports stay valid."""
    assert stable_number(7, "swarm") == 0xE28EE22B56EE288E
    assert [mixed(1, moment) for moment in range(3)] == [1452414493, 2433363437, 3203108256]
    assert 200 < sum(Chance(stable_number("x"), 0.25).strikes(moment) for moment in range(1_000)) < 300


@given(st.integers(0, 50), st.integers(0, 500), st.integers(0, 2**64 - 1), st.integers(0, 2**41))
def test_latencies_stay_in_their_bounds(least_ms: int, spread_ms: int, key: int, moment_ms: int) -> None:
    """A message takes no less than the least and no more than the most."""
    assert least_ms <= Latency(least_ms, least_ms + spread_ms).at(key, moment_ms) <= least_ms + spread_ms


@given(st.integers(-(10**6), 10**6), st.integers(-5_000, 5_000), st.integers(0, 10**9), st.integers(0, 10**6))
def test_a_clock_and_its_inverse(offset_ms: int, drift_ppm: int, passed_ms: int, skipped_ms: int) -> None:
    """The inverse gives the first time at which the clock shows a value."""
    clock = LocalClock(1_000, offset_ms, drift_ppm)
    clock.skipped_ms = skipped_ms
    local_ms = clock.at(1_000 + passed_ms)

    world_ms = clock.world_at(local_ms)

    assert clock.at(world_ms) >= local_ms
    assert clock.at(world_ms - 1) < local_ms


class Peer:
    """Both ends of connections."""

    node_id = 1
    is_up = True

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []
        self.answers: list[int] = []
        self.lost = 0
        self.scheduler = Scheduler(0)

    def receive(self, *arguments: object) -> None:
        """Note what comes."""
        first = arguments[0]
        if isinstance(first, Exchange):
            self.requests.append((first.connection.key, first.correlation_id))
        else:
            assert isinstance(arguments[1], int)
            self.answers.append(arguments[1])

    def disconnected(self, connection: SimulatedConnection) -> None:
        """Note what is lost."""
        self.lost += 1


REQUEST = FindCoordinator(0, ("g",))
RESPONSE: Response = FindCoordinatorResponse(())


def test_order_within_a_connection_and_across() -> None:
    """Requests of one connection keep their order; those of several need not."""
    peer = Peer()
    network = Network(peer.scheduler, 1, Latency(0, 1_000))
    connections = [network.connect(peer, number, peer) for number in range(8)]
    for correlation_id in range(50):
        for connection in connections:
            network.send(connection, correlation_id, REQUEST)
        peer.scheduler.run_until(peer.scheduler.time_ms + 1)
    peer.scheduler.run_until(10_000)

    for connection in connections:
        assert [c for key, c in peer.requests if key == connection.key] == list(range(50))
    correlation_ids = [c for _, c in peer.requests]
    assert correlation_ids != sorted(correlation_ids)


def test_time_goes_on_whatever_is_tried_again_at_once() -> None:
    """Without latency, a consumer that answers each response with a request does not stop the clock."""
    peer = Peer()
    network = Network(peer.scheduler, 1, Latency(0, 0))
    connection = network.connect(peer, 0, peer)
    arrived_ms = []

    def arrive(exchange: Exchange) -> None:
        arrived_ms.append(peer.scheduler.time_ms)
        network.send(connection, exchange.correlation_id + 1, REQUEST)

    peer.receive = arrive  # type: ignore[method-assign, assignment]
    network.send(connection, 0, REQUEST)
    peer.scheduler.run_until(3)
    assert Counter(arrived_ms).keys() == {0, 1, 2, 3}
    assert max(Counter(arrived_ms).values()) == BURST_MAX


def test_a_cut_connection_is_silent_for_good() -> None:
    """Everything sent while cut off is lost, and all that follows on that connection; a new one works."""
    peer = Peer()
    network = Network(peer.scheduler, 1, Latency(1, 1))
    connection = network.connect(peer, 0, peer)
    network.cut_off.add((0, 1))
    network.send(connection, 1, REQUEST)
    network.cut_off.clear()
    network.send(connection, 2, REQUEST)
    network.send(network.connect(peer, 0, peer), 3, REQUEST)
    peer.scheduler.run_until(100)

    assert [c for _, c in peer.requests] == [3]
    assert peer.lost == 0


def test_a_broken_connection_is_told_once() -> None:
    """The consumer hears of a reset; answers on their way are lost; what it sent before still arrives."""
    peer = Peer()
    network = Network(peer.scheduler, 1, Latency(5, 5))
    connection = network.connect(peer, 0, peer)
    network.answer(Exchange(connection, 1, REQUEST), RESPONSE)
    network.reset(connection)
    network.reset(connection)
    peer.scheduler.run_until(100)

    assert (peer.answers, peer.lost) == ([], 1)


class Coordinator:
    """Notes what becomes of appends."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, object]] = []

    def appended(self, ticket: Ticket, base_offset: int) -> None:
        """Note it."""
        self.answers.append((ticket.number, base_offset))

    def append_failed(self, ticket: Ticket, error: Exception) -> None:
        """Note it."""
        self.answers.append((ticket.number, type(error)))


def node_log(log: ClusterLog) -> tuple[NodeLog, Coordinator, list[int]]:
    """Return node 1's way to a log that it leads, its coordinator, and the partitions that failed."""
    log.leaders[0] = Leader(1, 0)
    failed: list[int] = []
    node: Any = SimpleNamespace(node_id=1, leads=lambda index: log.leaders[index].node_id == 1)
    way, coordinator = NodeLog(log, node, lambda _: None, failed.append), Coordinator()
    way.connect(coordinator)
    return way, coordinator, failed


def records() -> LogRecords:
    """Return something to write."""
    return LogRecords([GroupTombstone("g")], 0)


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 300), st.integers(0, 200)), max_size=4),
    st.lists(st.integers(0, 800), min_size=1, max_size=40),
    st.sampled_from([0, 7]),
)
def test_writes_never_overtake_each_other(faults: list[tuple[int, int, int]], times: list[int], flush_ms: int) -> None:
    """However slow the log, writes are answered in order, with growing offsets."""
    scheduler = Scheduler(0)
    log = ClusterLog(
        scheduler, 1, seed=1, flush_ms=flush_ms, faults=[StoreFault(s, s + d, slow_ms) for s, d, slow_ms in faults]
    )
    way, coordinator, _ = node_log(log)
    for number, time_ms in enumerate(sorted(times)):
        scheduler.run_until(time_ms)
        base_offset = way.append(0, Ticket(0, number), records())
        if base_offset is not None:
            coordinator.appended(Ticket(0, number), base_offset)
    scheduler.run_until(10_000)

    assert coordinator.answers == [(number, number) for number in range(len(times))]


def test_a_node_that_was_replaced_writes_nothing() -> None:
    """Appends that wait when another node becomes the leader fail, in order; what comes then is refused at once."""
    scheduler = Scheduler(0)
    log = ClusterLog(scheduler, 1, seed=1, flush_ms=10)
    way, coordinator, _ = node_log(log)
    assert [way.append(0, Ticket(0, number), records()) for number in range(2)] == [None, None]
    log.leaders[0] = Leader(2, 1)
    with pytest.raises(NotLeaderError):
        way.append(0, Ticket(0, 2), records())
    scheduler.run_until(10)

    assert coordinator.answers == [(number, NotLeaderError) for number in range(2)]
    assert log.memory.end_offset(0) == 0


def test_an_unknown_outcome_fails_the_partition() -> None:
    """With an append of unknown outcome, all that wait are answered by the load that must follow."""
    scheduler = Scheduler(0)
    log = ClusterLog(scheduler, 1, seed=1, flush_ms=10)
    way, coordinator, failed = node_log(log)
    log.refusal = lambda partition, now_ms: AppendTimedOutError("injected")  # type: ignore[method-assign]
    for number in range(5):
        way.append(0, Ticket(0, number), records())
    scheduler.run_until(10)

    assert coordinator.answers == [(0, AppendTimedOutError)]
    assert failed == [0]
    assert log.memory.end_offset(0) <= 5


def test_when_something_happens_next() -> None:
    """Between faults the next one counts; while one is under way, it is now; after all, the end."""
    disturbances = Disturbances([(100, 200), (120, 130), (400, 400)], 1_000)

    next_ms = {now_ms: disturbances.next_ms(now_ms) for now_ms in (0, 100, 125, 131, 200, 201, 399, 400, 401)}

    assert next_ms == {0: 100, 100: 100, 125: 125, 131: 131, 200: 200, 201: 400, 399: 400, 400: 400, 401: 1_000}


def test_an_answer_is_judged_by_the_log_of_its_moment() -> None:
    """When a flush lets several waiting requests in, no answer is judged after what the next one has written."""
    fault = StoreFault(100, 1_100, flush_ms=10_000)
    scheduler = Scheduler(0)
    options = ClusterOptions(node_count=1, config=Config(offsets_topic_num_partitions=1))
    cluster = SimulatedCluster(scheduler, options, seed=1, topics=Topics({"t": 1}), store_faults=[fault])
    cluster.start()
    scheduler.run_until(99)
    (node,) = cluster.nodes
    judged: list[tuple[int, int]] = []

    def judge(_: CoordinatorNode, request: Request, response: Response) -> None:
        if isinstance(response, OffsetFetchResponse):
            records = list(cluster.log.memory.read(0))
            last = next(r.record for r in reversed(records) if isinstance(r.record, OffsetCommitRecord))
            judged.append((response.groups[0].topics[0].partitions[0].committed_offset, last.offset))

    def commit(offset: int) -> OffsetCommit:
        return OffsetCommit("g", (TopicToCommit("t", (OffsetToCommit(0, offset),)),))

    cluster.on_answer = judge
    requests: list[Request] = [commit(1), commit(2), OffsetFetch((GroupToFetch("g", None),)), commit(3)]
    connections = [cluster.network.connect(Peer(), number, node) for number in (0, 1)]
    scheduler.run_until(200)
    for number, request in enumerate(requests):
        node.receive(Exchange(connections[number % 2], number, request))
    assert judged == []
    scheduler.run_until(1_200)
    assert judged == [(2, 2)]
