"""Copies of a coordinator: equal and independent behaviour, and equal fingerprints of equal states."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from enum import Enum
from types import MappingProxyType, MethodType
from typing import Any

import pytest

from groupcoord import Config, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.config.group_settings import AutoOffsetReset, GroupSettings
from groupcoord.forking.copies import PACKAGES, attributes_of, never_changes
from groupcoord.forking.fingerprints import Names
from groupcoord.messages import DeleteGroups, OffsetCommit, Request, TopicToCommit
from groupcoord.testing.exploring.scope import Process, Scope, Step, steps_of
from groupcoord.testing.exploring.stage import Stage
from tests.samples import seeds
from tests.tables import as_one_test

SEEDS = seeds(3)
SAMPLED = 12
PROTOCOLS = {
    "classic": ("classic", "classic"),
    "consumer": ("consumer", "consumer"),
    "mixed": ("classic", "consumer"),
    "share": ("share", "share"),
    "streams": ("streams", "streams"),
}
WORDS = ["start", "go", "go", "go", "go", "commit", "txn", "leave", "die"]
OTHERS = ["time 5000", "ack", "ack", "ack 2", "refuse", "crash 1", "move", "marker c1 commit", "delete", "commit"]


def a_scope(kind: str, *, is_late: bool = True) -> Scope:
    first, second = PROTOCOLS[kind]
    return Scope((Process("c1", first), Process("s1", second, "i1")), log_is_late=is_late)


def steps_by_chance(seed: int, count: int) -> Iterator[Step]:
    """Yield steps that mostly let processes go on."""
    chance = random.Random(seed)
    for _ in range(count):
        mine = f"{chance.choice(WORDS)} {chance.choice(['c1', 's1'])}"
        yield Step.of(chance.choice(OTHERS) if chance.random() < 0.35 else mine)


def mutable_parts(coordinator: GroupCoordinator) -> dict[int, Any]:
    """Return all that can change and belongs to a coordinator, by id: a walk over every attribute that there is.

    It ends at what is given to coordinators, and at what is named as unchanging where they are copied.
    """
    ends = [
        *coordinator._arguments.values(),
        coordinator.config,
        *coordinator._environments.consumer.assignors.values(),
    ]
    ends += [*coordinator._environments.share.assignors.values(), *coordinator._environments.streams.assignors.values()]
    given = {id(each) for each in ends if not isinstance(each, int | str)}
    found: dict[int, Any] = {}
    seen: set[int] = set()
    todo: list[Any] = [coordinator]
    while todo:
        each = todo.pop()
        if id(each) in seen or id(each) in given or isinstance(each, (type, Enum, AutoOffsetReset, GroupSettings)):
            continue
        seen.add(id(each))
        if type(each).__module__.startswith(PACKAGES) and never_changes(type(each)):
            continue
        if isinstance(each, MethodType):
            todo.append(each.__self__)
        elif isinstance(each, tuple | frozenset | list | set | deque | Mapping):
            todo += each.values() if isinstance(each, Mapping) else each
            if not isinstance(each, tuple | frozenset | MappingProxyType):
                found[id(each)] = each
        elif type(each).__module__.startswith("groupcoord."):
            found[id(each)] = each
            names = {*attributes_of(type(each)), *getattr(each, "__dict__", {})}
            todo += [getattr(each, name) for name in names if hasattr(each, name)]
    return found


@as_one_test
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_a_fork_goes_on_as_its_origin_does(kind: str) -> None:
    for seed in SEEDS:
        scope = a_scope(kind, is_late=seed % 2 == 0)
        stage, forked = Stage(scope), Stage(scope)
        kept: list[tuple[GroupCoordinator, bytes]] = []
        for number, step in enumerate(steps_by_chance(seed, 45)):
            if number % 15 == 14:
                origin = forked.coordinator
                kept.append((origin.fork(clock=ManualClock(forked.clock.now_ms())), origin.fingerprint()))
                forked.coordinator = origin.fork()
                forked.coordinator.check()
            stage.do(step)
            forked.do(step)

            assert forked.coordinator.fingerprint() == stage.coordinator.fingerprint(), (seed, number, step)
        assert forked.happenings == stage.happenings
        assert [coordinator.fingerprint() for coordinator, _ in kept] == [before for _, before in kept]


@as_one_test
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_nothing_is_shared_that_changes(kind: str) -> None:
    """No list, mapping or object that can change is both a fork's and its origin's, but requests and records."""
    for seed in SEEDS:
        stage = Stage(a_scope(kind))
        for step in steps_by_chance(seed, 40):
            stage.do(step)
        forked = stage.coordinator.fork()
        origins, forks = mutable_parts(stage.coordinator), mutable_parts(forked)

        assert len(origins) == len(forks) > 100
        assert not [origins[key] for key in origins.keys() & forks.keys()]


@as_one_test
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_a_new_attribute_is_copied_and_counted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attribute that a constructor makes is copied, and fingerprints differ by it, with no list to add it to."""
    stage = Stage(a_scope(kind))
    for step in steps_by_chance(0, 40):
        stage.do(step)
    found = {type(each) for each in mutable_parts(stage.coordinator).values() if hasattr(each, "__dict__")}
    classes = {each for each in found if each.__module__.startswith(PACKAGES)}
    assert len(classes) > 10
    for each in classes:
        monkeypatch.setattr(each, "__init__", planting(each.__init__))
    stage = Stage(a_scope(kind))
    for step in steps_by_chance(0, 40):
        stage.do(step)
    coordinator = stage.coordinator
    for of_class in classes:
        (origin, *_) = [each for each in mutable_parts(coordinator).values() if type(each) is of_class]
        before = coordinator.fingerprint()
        origin.planted["new"].append("a")
        copies = [each for each in mutable_parts(coordinator.fork()).values() if type(each) is of_class]

        assert {"new": ["a"]} in [each.planted for each in copies], of_class
        assert not {id(each.planted["new"]) for each in copies} & {id(origin.planted["new"])}
        assert coordinator.fingerprint() != before, of_class


def planting(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that makes one attribute more."""

    def plant(self: Any, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        self.planted = {"new": []}

    return plant


@as_one_test
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_what_was_handed_over_stays_as_it_was(kind: str) -> None:
    """A state that was handed over, and not copied, can be gone back to as often as is wanted."""
    for seed in SEEDS:
        stage = Stage(a_scope(kind))
        for step in steps_by_chance(seed, 40):
            stage.do(step)
        coordinator, requests = stage.coordinator, requests_of(stage)
        before, handed_over = coordinator.fingerprint(), coordinator.hand_over()
        after = set()
        for _ in range(3):
            coordinator.restore(handed_over)
            coordinator.check()

            assert coordinator.fingerprint() == before
            for request in requests:
                coordinator.submit(request, "asks")
            after.add(coordinator.fingerprint())
        assert len(after) == 1
        assert after != {before} or not requests_of(stage)[:-2]


def successors(kept: GroupCoordinator, requests: list[Request]) -> list[bytes]:
    """Return what a coordinator comes to by each of some requests, at once and ten seconds later."""
    found = []
    for request in requests:
        clock = ManualClock(kept.clock.now_ms())
        fork = kept.fork(clock=clock, log_store=deepcopy(kept.log_store))
        fork.submit(request, "asks")
        found.append(fork.fingerprint())
        clock.advance(10_000)
        fork.tick()
        found.append(fork.fingerprint())
    return found


def requests_of(stage: Stage) -> list[Request]:
    """Return what members and others could send now."""
    own = [consumer.next_request() for _, consumer in sorted(stage.consumers.items()) if consumer.is_alive]
    return [*own, DeleteGroups((stage.scope.group_id,)), OffsetCommit("g", (TopicToCommit("orders", ()),), 9, "nobody")]


@as_one_test
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_equal_fingerprints_have_equal_successors(kind: str) -> None:
    """States with one fingerprint have equal successors, whatever led to them."""
    met: dict[bytes, tuple[GroupCoordinator, list[Request]]] = {}
    again = 0
    for seed in SEEDS:
        stage = Stage(a_scope(kind, is_late=False))
        for step in steps_by_chance(seed, 30):
            stage.do(step)
            key = stage.coordinator.fingerprint()
            if key in met and again < SAMPLED:
                again += 1
                other, requests = met[key]
                kept = stage.coordinator.fork(clock=ManualClock(stage.clock.now_ms()))
                assert successors(kept, requests) == successors(other, requests), (seed, step)
            elif key not in met:
                clock, log_store = ManualClock(stage.clock.now_ms()), deepcopy(stage.store.store)
                met[key] = stage.coordinator.fork(clock=clock, log_store=log_store), requests_of(stage)
    assert again > 5


def test_members_can_change_places() -> None:
    """With renamed member ids, states that differ only in these have equal fingerprints."""

    class ByPlace(Names):
        def __init__(self, *ids: str) -> None:
            self._places = {member_id: place for place, member_id in enumerate(ids)}

        def text(self, text: str) -> object:
            return self._places.get(text, text)

    stages = [Stage(Scope((Process("c1"),))) for _ in range(2)]
    stages[1].new_member_id("c1")
    for stage in stages:
        for step in steps_of(["start c1", "go c1", "go c1", "commit c1"]):
            stage.do(step)
    one, other = (stage.coordinator for stage in stages)
    ids = [stage.consumers["c1"].member_id for stage in stages]

    assert one.fingerprint() != other.fingerprint()
    assert one.fingerprint(ByPlace(ids[0])) == other.fingerprint(ByPlace(ids[1]))


def test_generations_and_time_count_from_now() -> None:
    """A group that has come to rest once more, in another generation and later, is in the state that it was in."""
    stage = Stage(Scope((Process("s1", instance_id="i1"),), settings={"offsets.retention.check.interval.ms": 5_000}))
    for step in steps_of(["start s1", "go s1", "time", "go s1"]):
        stage.do(step)
    before = stage.coordinator.fingerprint(FromNowOn())
    for step in steps_of(["time", "go s1"]):
        stage.do(step)

    assert stage.coordinator.fingerprint(FromNowOn()) == before
    assert stage.coordinator.fingerprint() != before


class FromNowOn(Names):
    """Nothing is older than anything else."""

    age_max_ms = 0


def test_what_cannot_be_copied() -> None:
    """A load in progress reads from a log, which can't be done twice."""
    coordinator = GroupCoordinator(config=Config(offsets_topic_num_partitions=1), log_store=MemoryLogStore())
    coordinator.begin_load(0)

    with pytest.raises(RuntimeError, match="is loading"):
        coordinator.fork()
