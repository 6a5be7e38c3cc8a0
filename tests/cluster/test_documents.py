"""Shared documents in a slot log: two nodes write and read them, and the engine fails now and then."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from groupcoord.broker.topics.registry import TopicFileError, TopicRegistry
from groupcoord.cluster import documents as documents_module
from groupcoord.cluster.documents import SlotDocuments
from groupcoord.cluster.slot_log import DOCUMENTS_PARTITION, MalformedSlotError, MemorySlotLog, Slot, SlotLogError

from .nodes import at_once


class MoodySlotLog(MemorySlotLog):
    """Engine with scripted results of puts. Attributes: moods: the result of each put: ``"lost"`` is not done,
    ``"late"`` is, and neither is answered; ``"silent"`` never answers. is_away: whether reads fail.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moods: list[str] = []
        self.is_away = False

    async def read(self, partition: int, from_slot: int) -> list[Slot]:
        if self.is_away:
            raise SlotLogError("it is away")
        return await super().read(partition, from_slot)

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        mood = self.moods.pop(0) if self.moods else ""
        if mood == "silent":
            await asyncio.Event().wait()
        if mood != "lost":
            result = await super().put(partition, slot, payload)
        if mood:
            raise SlotLogError(mood)
        return result


@contextmanager
def opened(slot_log: MemorySlotLog) -> Iterator[SlotDocuments]:
    @asynccontextmanager
    async def engine() -> AsyncIterator[MemorySlotLog]:
        yield slot_log

    documents = SlotDocuments(engine)
    documents.open()
    try:
        yield documents
    finally:
        documents.close()


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "LOOK_S", 0.002)
    monkeypatch.setattr(documents_module, "AGAIN_S", 0.0)


def write(documents: SlotDocuments, name: str, text: str) -> object:
    return documents.write(name, text, documents.stamp(name))


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_what_one_writes_all_read() -> None:
    """Topics of one node are known to the other after its notification; a later node knows them at once."""
    slot_log = MemorySlotLog()
    with opened(slot_log) as one, opened(slot_log) as other:
        told = threading.Event()
        other.on_changed = told.set
        ours, theirs = TopicRegistry(one), TopicRegistry(other)
        ours.ensure("orders", 3)
        assert told.wait(30)
        theirs.reload()
        assert theirs.get("orders") == ours.get("orders")
        assert theirs.cluster_id == ours.cluster_id
        wait_until(lambda: len(at_once(slot_log.read(DOCUMENTS_PARTITION, 0))) == 1)  # what is outdated is purged
    with opened(slot_log) as third:
        assert TopicRegistry(third).partition_count("orders") == 3


def test_the_slower_of_two_is_refused_and_knows_better() -> None:
    """Nothing that another node has written is overwritten; the refused one sees it, and can write then."""
    slot_log = MemorySlotLog()
    with opened(slot_log) as one, opened(slot_log) as other:
        one.on_changed = other.on_changed = lambda: None
        state = other._state
        write(one, "a", "1")
        other._state = state  # it has not looked yet
        with pytest.raises(OSError, match="another node has written before"):
            write(other, "b", "2")
        assert (other.refusals, other.read("a"), other.stamp("b")) == (1, "1", None)
        with pytest.raises(OSError, match="another node has written before"):
            other.write("a", "2", None)  # it has looked, and what is written was made before
        assert (other.refusals, other.read("a")) == (2, "1")
        write(other, "b", "2")
        wait_until(lambda: one.stamp("b") is not None)
        assert (one.read("a"), one.read("b"), one.stamp("a")) == ("1", "2", 0)


def test_what_comes_right_after_is_not_missed() -> None:
    """A node that has written a topic, and was notified of another one since, still reads the document again."""
    slot_log = MemorySlotLog()
    with opened(slot_log) as one, opened(slot_log) as other:
        ours, theirs = TopicRegistry(one), TopicRegistry(other)
        write_one = one.write

        def write_and_see_more(name: str, text: str, seen: object) -> object:
            stamp = write_one(name, text, seen)
            wait_until(lambda: other.stamp(name) == stamp)
            theirs.reload()
            theirs.ensure("b", 1)
            wait_until(lambda: one.stamp(name) != stamp)
            return stamp

        one.write = write_and_see_more  # type: ignore[method-assign]
        ours.ensure("a", 1)
        assert ours.get("b") is None
        ours.reload()
        assert ours.get("b") == theirs.get("b") is not None


def test_an_unknown_outcome_is_found_out() -> None:
    """A lost write is repeated, and one with a lost answer is not reported as failed."""
    slot_log = MoodySlotLog()
    with opened(slot_log) as one:
        slot_log.moods = ["lost", "late"]
        write(one, "a", "1")
        write(one, "a", "2")
        assert (one.read("a"), one.refusals, one.stamp("a")) == ("2", 0, 1)


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write without an answer fails after a timeout, and the next one continues."""
    monkeypatch.setattr(documents_module, "WRITE_S", 0.01)
    slot_log = MoodySlotLog()
    with opened(slot_log) as one:
        slot_log.moods = ["silent"]
        with pytest.raises(OSError, match="the engine does not answer"):
            write(one, "a", "1")
        monkeypatch.setattr(documents_module, "WRITE_S", 30.0)
        write(one, "a", "2")
        assert one.read("a") == "2"


def test_while_it_is_away_nobody_waits(caplog: pytest.LogCaptureFixture) -> None:
    """A write fails at once, the known content stays, and the outage is logged once."""
    slot_log = MoodySlotLog()
    with caplog.at_level(logging.WARNING), opened(slot_log) as one:
        write(one, "a", "1")
        slot_log.is_away = True
        wait_until(lambda: bool(caplog.messages))
        with pytest.raises(OSError, match="does not respond"):
            write(one, "a", "2")
        assert one.read("a") == "1"
        slot_log.is_away = False
        wait_until(lambda: one._is_seen)
        write(one, "a", "2")
        assert one.read("a") == "2"
    assert len(caplog.messages) == 1


def test_what_nobody_wrote_is_refused() -> None:
    """A slot or document with foreign content raises an error."""
    slot_log = MemorySlotLog()
    with opened(slot_log) as one:
        write(one, "topics.json", "{}")
        with pytest.raises(TopicFileError, match=r"topics\.json of the cluster: does not hold a list of topics"):
            TopicRegistry(one)
        with pytest.raises(FileNotFoundError):
            one.read("acls.json")
    at_once(slot_log.put(DOCUMENTS_PARTITION, 1, b"[]"))
    with pytest.raises(MalformedSlotError), opened(slot_log):
        pass


def test_who_has_closed_writes_no_more() -> None:
    """A write after the end fails, as one on a disk that is gone."""
    with opened(MemorySlotLog()) as one:
        pass
    with pytest.raises(OSError, match="was closed"):
        write(one, "a", "1")
