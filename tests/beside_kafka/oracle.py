"""Kafka's own classes in a process that takes commands, and histories that are recorded with it.

The process is whatever the environment names in ``KAFKA_ORACLE``. It reads one command per line and writes what came of
it, one event per line, and a last line with ``done``, the time and the timers that are left (milliseconds from then).
"""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import Any

from tests.beside_kafka.coordinator import Command, Step

METRICS_TIMER = "group-size-counter"
NEVER_MS = 1 << 62


class Oracle:
    """The process. Use it in a ``with`` block."""

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def do(self, command: Command) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the events that a command brought about, and the last line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        events = []
        while "done" not in (event := json.loads(self._process.stdout.readline())):
            events.append(event)
        if "failed" in event:
            raise RuntimeError(f"{event['failed']} in {command}")
        return events, event


class Recording:
    """A history that is being made."""

    def __init__(self, oracle: Oracle, name: str, **new: Any) -> None:
        self._oracle = oracle
        command = {"do": "new", **new}
        _, end = oracle.do({**command, "bytes": True})
        self.topic_ids: dict[str, str] = end["topics"]
        self.history: dict[str, Any] = {"name": name, "steps": [{**command, "ids": dict(self.topic_ids)}]}
        self.timers: dict[str, int] = {}
        self.now_ms: int = end["now"]
        self.refuses = 0
        self.wanted: dict[str, Any] = {}
        self.log_end = 0

    def do(self, command: Command) -> list[dict[str, Any]]:
        """Do a command, and write down what came of it; return the events with answers as Kafka's JSON."""
        events, end = self._oracle.do(command)
        self.now_ms = end["now"]
        for event in events:
            if "append" in event:
                self.log_end = event["offset"] + len(event.get("records", ["a marker"]))
        self.refuses = command.get("refuse", self.refuses) - sum("refused" in event for event in events)
        self.timers = {name: self.now_ms + left_ms for left_ms, name in end["timers"] if name != METRICS_TIMER}
        self.wanted |= end.get("wanted", {})
        step: Step = {**command, "events": list(map(_kept, events)), "timers": self.timers}
        if "topics" in end:
            self.topic_ids = end["topics"]
            step["ids"] = dict(self.topic_ids)
        self.history["steps"].append(step)
        return events

    def next_timer_ms(self) -> int:
        return min(self.timers.values(), default=NEVER_MS)


def _kept(event: dict[str, Any]) -> dict[str, Any]:
    """Return what a history keeps of an event."""
    if event.get("api") == "CompleteTransaction":
        return {**_without(event, "body"), "error": event["body"]["errorCode"]}
    if "records" in event:
        return {**event, "records": [[record["key_hex"], record.get("value_hex")] for record in event["records"]]}
    return _without(event, "body")


def _without(event: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != name}
