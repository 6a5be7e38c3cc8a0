"""Scheduling of connections: bounded turns, and cheap clients before expensive ones."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings, strategies as st

from groupcoord.broker.work import HALF_LIFE_S, LEVELS_S, PATIENCE_S, PORTION_S, TURN_S, Turns


class Stopwatch:
    """Clock that advances with the workers' cost."""

    def __init__(self) -> None:
        self.time_s = 1_000.0

    def __call__(self) -> float:
        return self.time_s


class Worker:
    """Connection with requests of a fixed cost; each turn handles what fits, at least one."""

    def __init__(self, name: str, world: ScheduledWorkers, cost_s: float, requests: int) -> None:
        self.name = name
        self.cost_s = 0.0
        self.cost_at_s = 0.0
        self.is_queued = False
        self.queued_at_s = 0.0
        self.requests = requests
        self._world = world
        self._request_s = cost_s

    def take_turn(self) -> bool:
        world = self._world
        while self.requests:
            self.requests -= 1
            world.stopwatch.time_s += self._request_s
            world.handled.append(self.name)
            if world.turns.is_time_up():
                break
        return self.requests > 0


class ScheduledWorkers:
    """Turns over a stopwatch."""

    def __init__(self) -> None:
        self.stopwatch = Stopwatch()
        self.turns = Turns(self.stopwatch)
        self.handled: list[str] = []

    def add(self, name: str, cost_s: float, requests: int) -> Worker:
        worker = Worker(name, self, cost_s, requests)
        self.turns.add(worker)
        return worker


def test_everybody_gets_a_turn() -> None:
    """Of many who have as much to do, none is served twice a portion more than another."""
    world = ScheduledWorkers()
    for number in range(5):
        world.add(f"peer {number}", PORTION_S / 4, 100)
    world.turns.run()
    served = Counter(world.handled)
    assert len(served) == min(5, round(TURN_S / PORTION_S))
    while world.turns.run():
        served = Counter(world.handled)
        assert max(served.values()) - min(served.values()) <= 8
    assert set(Counter(world.handled).values()) == {100}


def test_a_turn_ends() -> None:
    """A turn lasts no longer than it may, and one request."""
    world = ScheduledWorkers()
    for number in range(50):
        world.add(f"peer {number}", 0.014, 100)
    begin_s = world.stopwatch.time_s
    assert world.turns.run()
    assert world.stopwatch.time_s - begin_s <= TURN_S + 0.014


def test_who_has_cost_little_goes_first() -> None:
    """A late cheap client waits for one expensive request at most."""
    world = ScheduledWorkers()
    for number in range(50):
        world.add(f"heavy {number}", 0.014, 100)
    for _ in range(400):
        world.turns.run()
    world.handled.clear()
    world.add("light", 0.0001, 1)
    world.turns.run()
    assert world.handled[0] == "light"


def test_who_has_just_asked_goes_before_who_wants_more() -> None:
    """A client with one request at a time is served at once beside a new crowd, though it has cost more so far."""
    world = ScheduledWorkers()
    for number in range(50):
        world.add(f"peer {number}", PORTION_S / 4, 10_000)
    for _ in range(50):
        world.turns.run()
    client = Worker("client", world, 0.0001, 1)
    client.cost_s, client.cost_at_s = 2 * LEVELS_S[1], world.stopwatch.time_s
    world.turns.add(client)
    world.handled.clear()
    world.turns.run()
    assert world.handled.index("client") <= 4


def test_who_wants_more_gets_it_though_others_ask_without_end() -> None:
    """Against any number of cheap requests, a long one gets a portion in each turn after its patience."""
    world = ScheduledWorkers()
    long = world.add("long", PORTION_S, 20)
    world.turns.run()
    turns = 0
    while long.requests:
        turns += 1
        for number in range(10):
            world.add(f"short {turns}.{number}", PORTION_S, 1)
        world.turns.run()
        assert turns <= 20 * (2 + PATIENCE_S / TURN_S)


def test_a_newcomer_shortens_the_turn() -> None:
    """After a connection was accepted only who asks little is served, so that fifty can come in a moment."""
    world = ScheduledWorkers()
    for number in range(50):
        world.add(f"peer {number}", PORTION_S, 100)
    world.turns.run()
    while len(set(world.handled)) < 50:
        world.turns.run()
    world.handled.clear()
    begin_s = world.stopwatch.time_s
    for number in range(50):
        world.add(f"new {number}", PORTION_S / 10, 1)
        world.turns.has_newcomer = True
        assert world.turns.run()
    assert world.stopwatch.time_s - begin_s <= 50 * 1.5 * PORTION_S
    assert {name for name in world.handled if name.startswith("new")} == {f"new {number}" for number in range(50)}
    world.handled.clear()
    world.turns.run()
    assert len(world.handled) >= round(TURN_S / PORTION_S)


def test_what_one_big_request_cost_counts() -> None:
    world = ScheduledWorkers()
    heavy = world.add("heavy", 0.05, 1)
    world.turns.run()
    world.add("waiting", 0.001, 1)
    assert not world.turns.go_first(heavy, world.stopwatch.time_s)


def test_who_has_waited_long_enough_is_served() -> None:
    """Cost decays, so an expensive client gets a turn though others never stop."""
    world = ScheduledWorkers()
    heavy = world.add("heavy", 1.0, 3)
    while not heavy.cost_s:
        world.turns.run()
    light = world.add("light", PORTION_S, 10**9)
    begin_s = world.stopwatch.time_s
    while heavy.requests:
        world.turns.run()
        assert world.stopwatch.time_s - begin_s < 40 * HALF_LIFE_S
    assert light.requests


def test_the_first_of_a_turn_need_not_queue() -> None:
    """A request that arrives is handled at once until the turn has lasted long enough; then all wait for the next."""
    world = ScheduledWorkers()
    peer = Worker("peer", world, 0.001, 1)
    now_s = world.stopwatch.time_s
    assert world.turns.go_first(peer, now_s)
    assert world.turns.go_first(peer, now_s + TURN_S * 0.9)
    assert not world.turns.is_over
    assert not world.turns.go_first(peer, now_s + TURN_S)
    assert world.turns.is_over
    assert not world.turns.run()
    assert not world.turns.is_over
    assert world.turns.go_first(peer, now_s + TURN_S)


def test_who_has_cost_much_queues_behind_others() -> None:
    """While others wait, only those go first who have cost little lately."""
    world = ScheduledWorkers()
    world.add("waiting", 0.001, 1)
    cheap, dear = Worker("cheap", world, 0.001, 1), Worker("dear", world, 0.001, 1)
    dear.cost_s, dear.cost_at_s = LEVELS_S[0] * 2, world.stopwatch.time_s
    assert world.turns.go_first(cheap, world.stopwatch.time_s)
    assert not world.turns.go_first(dear, world.stopwatch.time_s)


@given(st.lists(st.tuples(st.floats(0.00001, 0.05), st.integers(1, 20)), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_all_is_handled_in_the_end(peers: list[tuple[float, int]]) -> None:
    """With any costs, each request is handled once, and the queue is empty afterwards."""
    world = ScheduledWorkers()
    for number, (cost_s, requests) in enumerate(peers):
        world.add(str(number), cost_s, requests)
    while world.turns.run():
        pass
    assert world.turns.waiting == 0
    assert Counter(world.handled) == {str(number): requests for number, (_, requests) in enumerate(peers)}
