"""Text form of histories: read, written, and played with all laws checked."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from groupcoord.core.events import Cause
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.laws import require
from groupcoord.log_store import LogRecord, MemoryLogStore, Ticket
from groupcoord.messages import SyncGroupResponse
from groupcoord.testing.exploring.scope import WORDS, HistoryError, Scope, Step, Trace, steps_of
from groupcoord.testing.exploring.stage import BrokenLaw, Played, Stage, play
from tests.tables import as_one_test

STATIC = """
steps = ["start s1", "go s1", "ack 2", "start s1", "crash", "go s1", "recover"]
[scope]
log_is_late = true
[scope.processes.s1]
instance_id = "i1"
"""
"""A static member restarts in a Stable group, and its coordinator dies before the log has its new id (KAFKA-10284)."""

GROWS = ["start c1", "go c1", "go c1", "start c2", "go c2", "go c1", "go c1", "go c1", "go c2"]


def test_steps_are_words() -> None:
    """A step is written as it is read, with any operands."""
    for text in ("go c1", "time", "time 5000", "refuse MESSAGE_TOO_LARGE", "marker c1 abort", "topic create audit 2"):
        assert str(Step.of(text)) == text
    assert Step.of("crash 1") == Step("crash", (1,))


@as_one_test
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unknown word ''"),
        ("stop c1", "unknown word 'stop'"),
        ("go", "it is written go process"),
        ("crash one", "must be a whole number"),
        ("refuse NONSENSE", "must be one of NOT_ENOUGH_REPLICAS"),
        ("marker c1 perhaps", "must be one of commit, abort"),
    ],
)
def test_what_is_no_step(text: str, why: str) -> None:
    """A word that there is not, or what doesn't belong behind it, is named."""
    with pytest.raises(HistoryError, match=why):
        Step.of(text)


def test_a_history_is_a_file() -> None:
    """It is read from TOML, and written to JSON and back unchanged."""
    trace = Trace.of(tomllib.loads(STATIC))

    assert Trace.of(json.loads(json.dumps(trace.table()))) == trace
    assert [process.instance_id for process in trace.scope.processes] == ["i1"]


@as_one_test
@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({}, "a list of them"),
        ({"steps": ["go c9"]}, "there is no process 'c9'"),
        ({"steps": [], "scope": {"sise": 1}}, "scope.sise: is an unknown key"),
        ({"steps": [], "scope": {"settings": {"group.max.sise": 1}}}, "unknown setting 'group.max.sise'"),
        ({"steps": ["start c1"], "scope": {"processes": {"c1": {"protocol": "x"}}}}, "'x' is none of classic"),
        ({"steps": ["start c1"], "scope": {"processes": {"c1": {"speed": 1}}}}, "has no 'speed'"),
    ],
)
def test_what_is_no_history(table: dict[str, Any], why: str) -> None:
    """Unknown names are reported, at whatever point they are noticed."""
    with pytest.raises(HistoryError, match=why):
        play(Trace.of(table))


def test_a_group_grows() -> None:
    """Two consumers join, by their requests and responses; no law is broken."""
    played = play(Trace(Scope(), steps_of(GROWS)))

    assert played.broken is None
    told = [(seen.who, type(seen.value)) for seen in played.happenings if seen.what == "receives"]
    assert told[-2:] == [("c1", SyncGroupResponse), ("c2", SyncGroupResponse)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_every_word_is_played(protocol: str) -> None:
    """Each word can stand anywhere, and laws hold after it; some two of them."""
    lines = [*GROWS, "beat c1, commit c1, txn c2, txn, fetch c1, retry c1, topic create audit 1, topic grow orders"]
    lines += ["fail", "commit c1", "marker c2 commit", "pause c1", "start c1", "time 100", "go c1", "delete orders"]
    lines += ["move 1", "go c1", "unload", "load", "read_breaks 1", "crash", "crash", "go c2", "refuse", "ack 2"]
    lines += ["lose", "load", "leave c2", "die c1", "sweep", "delete", "commit", "topic delete orders", "start c1"]
    processes = {name: {"protocol": protocol} for name in ("c1", "c2")}
    steps = steps_of(lines)
    for is_late in (False, True):
        scope = Scope.of({"processes": processes, "log_is_late": is_late})
        assert play(Trace(scope, steps)).broken is None
    assert {step.word for step in steps} == WORDS.keys() - {"recover"}


class MisorderedOnLoad(MemoryLogStore):
    """Returns its records in order once after each append, and backwards from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.is_unread = False

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        self.is_unread = True
        return super().append(partition, ticket, records)

    def read(self, partition: int) -> Iterator[LogRecord]:
        records, self.is_unread = list(super().read(partition)) if self.is_unread else [], False
        return iter(records) if records else reversed(list(super().read(partition)))


def test_a_log_that_can_not_be_loaded_breaks_a_law() -> None:
    for word in ("crash", "move"):
        trace = Trace(Scope.of({"processes": {"c1": {}}}), steps_of(["start c1", "go c1", "go c1", word]))
        broken = play(trace, make_log_store=MisorderedOnLoad).broken
        assert broken == BrokenLaw(
            3,
            "check_log_can_be_loaded",
            "LawBrokenError: a restart can't load the log: log partition 0: record at offset 0 after 1",
        )
        breaks_off = Trace(trace.scope, (*trace.steps[:3], *steps_of(["read_breaks 1", word])))
        assert play(breaks_off).broken is None


def test_who_pauses_is_told_nothing_of_waiting() -> None:
    """A static member that waited for another's partitions pauses when those are free: no law is broken."""
    holder, waits = {"protocol": "consumer", "gives_back": 0}, {"protocol": "consumer", "instance_id": "i1"}
    scope = Scope.of({"processes": {"m1": holder, "s1": waits}})
    steps = steps_of(["start m1", "start s1", "go m1", "go s1", "leave m1", "pause s1"])

    assert play(Trace(scope, steps)).broken is None


def test_users_bring_laws_and_watch() -> None:
    """A custom law is checked after each step, and a history can be observed."""
    seen: list[int] = []

    def nobody_shares(stage: Stage) -> None:
        require(len(stage.fleet.ready("stable")) < 2, "two are too many")

    def watch(stage: Stage, number: int) -> None:
        seen.append(number)

    played: Played = play(Trace(Scope(), steps_of(GROWS)), laws=[nobody_shares], watch=watch)

    assert played.broken is not None
    assert (played.broken.step, played.broken.law) == (8, "nobody_shares")
    assert seen == list(range(9))


def test_an_exception_of_the_core_is_a_broken_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of the coordinator ends a history like a broken law."""

    def breaks(self: GroupMetadata, *arguments: object) -> None:
        raise KeyError(Cause.LEAVE)

    monkeypatch.setattr(GroupMetadata, "to_record", breaks)
    broken = play(Trace(Scope(), steps_of(["start c1", "go c1", "go c1"]))).broken

    assert broken is not None
    assert broken.law == "breaks"
