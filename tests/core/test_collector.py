"""Memory: Python's garbage collector while much is made at once, and freed memory that is kept."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest

from groupcoord import Config, GroupCoordinator, LogRecord, ManualClock, MemoryLogStore
from groupcoord.broker.groups import Reloading
from groupcoord.core.fast_construct import MANY_OBJECTS, collector_paused


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """Return the generations that are collected from now on.

    All that the tests of this process keep is frozen again afterwards: to look through it takes seconds.
    """
    begun: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun.append(info["generation"])

    gc.unfreeze()  # a program that keeps frozen objects is another test's
    gc.collect(1)
    gc.callbacks.append(note)
    yield begun
    gc.callbacks.remove(note)
    gc.freeze()


def make_lists(count: int) -> list[list[int]]:
    return [[number] for number in range(count)]


def test_many_objects_are_not_looked_through(collections: list[int]) -> None:
    """Neither while they are made nor when the pause ends, and the collector works as before then."""
    with collector_paused():
        kept = make_lists(2 * MANY_OBJECTS)
    more = make_lists(100)
    assert collections == []
    assert gc.isenabled()
    assert len(kept) + len(more) == 2 * MANY_OBJECTS + 100


def test_few_objects_are_looked_through_as_usual(collections: list[int]) -> None:
    """Small loads do not keep the collector from running."""
    with collector_paused():
        kept = make_lists(MANY_OBJECTS // 2)
        assert collections == []
    more = make_lists(100)
    assert collections[:1] == [0]
    assert len(kept) + len(more) == MANY_OBJECTS // 2 + 100


def test_a_program_without_collector_stays_without() -> None:
    """After the pause the collector is as the program had set it."""
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_frozen_objects_stay_frozen() -> None:
    gc.freeze()
    with collector_paused():
        kept = make_lists(2 * MANY_OBJECTS)
    assert gc.get_freeze_count() > 0
    assert len(kept) == 2 * MANY_OBJECTS


class WatchingStore(MemoryLogStore):
    """Notes whether the collector is at work while a log partition is read."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bool] = []

    def read(self, partition: int) -> Iterator[LogRecord]:
        self.seen.append(gc.isenabled())
        yield from ()


@pytest.fixture
def store() -> WatchingStore:
    return WatchingStore()


@pytest.fixture
def coordinator(store: WatchingStore) -> GroupCoordinator:
    return GroupCoordinator(config=Config(offsets_topic_num_partitions=3), log_store=store)


def test_a_load_leaves_the_collector_alone(coordinator: GroupCoordinator, store: WatchingStore) -> None:
    """It belongs to the embedding program."""
    coordinator.load_all()
    assert store.seen == [True] * 3


def test_the_server_loads_without_the_collector(coordinator: GroupCoordinator, store: WatchingStore) -> None:
    Reloading(coordinator, ManualClock(0)).load_all(dict.fromkeys(range(3), 0))
    assert store.seen == [False] * 3
    assert gc.isenabled()


# ---------------------------------------------------------------- freed memory


FAULTS = """\
import resource
from groupcoord.core.fast_construct import keep_freed_memory
{keep}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(1_000_000)
before = faults()
for _ in range(100):
    bytearray(1_000_000), bytearray(1_000_000)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is nothing to tell another C library")
@pytest.mark.parametrize(("keep", "keeps"), [("keep_freed_memory()", True), ("", False)])
def test_freed_memory_is_used_again(keep: str, keeps: bool) -> None:
    """A buffer takes the pages of the one before it, which otherwise are given back and cleared each time."""
    done = subprocess.run([sys.executable, "-c", FAULTS.format(keep=keep)], check=True, capture_output=True, text=True)
    assert (int(done.stdout) < 2_000) is keeps
