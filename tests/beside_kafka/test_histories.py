"""Histories that Kafka's own classes have answered, record by record and timer by timer."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.beside_kafka.__main__ import main
from tests.beside_kafka.histories import ARCHIVES, follow, read
from tests.samples import portion, sampled
from tests.tables import as_one_test

HISTORIES = [history for archive in ARCHIVES for history in read(archive)]
ALTERED = 6
COMMANDS = {"new", "request", "advance", "topics", "group_config", "log", "unload", "load", "loaded", "reload"}


@sampled
@as_one_test
@pytest.mark.parametrize("history", portion(HISTORIES), ids=lambda history: history["name"])
def test_the_same_answers_records_and_timers(history: dict[str, Any]) -> None:
    """All that a command brings about is what it brought about with Kafka, or is different on purpose."""
    verdict = follow(history)
    assert verdict.difference is None or verdict.known is not None, verdict
    assert verdict.steps > 0


def test_what_the_histories_hold() -> None:
    """Groups of all kinds with settings of their own, transactions, topics that come, grow and go, refusals, loads."""
    steps = [step for history in HISTORIES for step in history["steps"]]
    assert {step["do"] for step in steps} == COMMANDS
    apis = {step["api"] for step in steps if step["do"] == "request"}
    assert {"JoinGroup", "ConsumerGroupHeartbeat", "TxnOffsetCommit", "CompleteTransaction", "DeleteGroups"} <= apis
    assert {"StreamsGroupHeartbeat", "StreamsGroupDescribe"} <= apis
    assert {"ShareGroupHeartbeat", "AlterShareGroupOffsets", "DeleteShareGroupOffsets"} <= apis
    changes = [step for step in steps if step["do"] == "topics"]
    assert all(any(step[what] for step in changes) for what in ("create", "grow", "delete"))
    assert any("refused" in event for step in steps for event in step.get("events", ()))


def alterations(history: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a history with the last of its answers, of its records and of its timers altered."""
    for kind in ("reply", "append", "timers"):
        altered = copy.deepcopy(history)
        steps = altered["steps"][1:]
        found = [event for step in steps for event in step["events"] if kind in event and event.get("records", True)]
        if kind == "timers":
            found = [step["timers"] for step in steps if step["timers"]]
            name = min(found[-1], key=found[-1].__getitem__)
            found[-1][name] += 1
        elif kind == "append":
            event = next(event for event in reversed(found) if "records" in event)
            event["records"][-1][0] = event["records"][-1][0][:-2] + "7a"
        else:
            event = next(event for event in reversed(found) if "hex" in event)
            event["at"] += 1
        yield altered


@as_one_test
@pytest.mark.parametrize("history", HISTORIES[:ALTERED], ids=lambda history: history["name"])
def test_what_is_altered_is_noticed(history: dict[str, Any]) -> None:
    """An answer a millisecond off, a record with another key and a timer for another moment are differences."""
    for altered in alterations(history):
        verdict = follow(altered)
        assert verdict.difference is not None
        assert verdict.known is None


def test_the_command_sorts_what_differs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints the number of comparisons and of differences, and exits with 1 if there are any."""
    altered = next(alterations(HISTORIES[0]))
    monkeypatch.setattr("tests.beside_kafka.__main__.read", lambda path: [HISTORIES[0], altered])
    assert main(["any"]) == 1
    out = capsys.readouterr().out
    assert "2 histories, " in out
    assert ": 1 differ (" in out
    assert f"    {altered['name']} after " in out
