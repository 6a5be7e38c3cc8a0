"""Failures that have one cause: those that differ in the same way, said once."""

from __future__ import annotations

import re
from collections.abc import Iterable

from attrs import frozen

from groupcoord.conformance.report import Failure, Outcome

_INDEX = re.compile(r"\[\d+\]")
_REQUEST = re.compile(r"^(?:receive|send) (\w+)")
_NUMBER = re.compile(r"\d+")
_SAME_DELAY = 0.2


@frozen
class Cause:
    """What several failures have in common.

    Attributes:
        text: the difference, in a sentence.
        outcomes: the transcripts that failed by it, in the order of the run.
    """

    text: str
    outcomes: tuple[Outcome, ...]


def causes_of(outcomes: Iterable[Outcome]) -> list[Cause]:
    """Sort failures by what differs, the most frequent difference first; among equals the order is that of the run.

    Two failures have one cause if the same API answered another value in the same field, or if it answered late.
    """
    found: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.failure is not None:
            found.setdefault(_kind(outcome.failure), []).append(outcome)
    causes = [Cause(_text(alike), tuple(alike)) for alike in found.values()]
    return sorted(causes, key=lambda cause: -len(cause.outcomes))


def _kind(failure: Failure) -> tuple[object, ...]:
    api = _api(failure)
    if failure.late_by_ms is not None:
        return ("late", api)
    if failure.difference is not None:
        difference = failure.difference
        path = _INDEX.sub("[]", difference.path)
        return ("differs", api, path, shown(difference.expected), shown(difference.got))
    return ("other", api, _NUMBER.sub("#", failure.message))


def _text(alike: list[Outcome]) -> str:
    failures = [outcome.failure for outcome in alike if outcome.failure is not None]
    first = failures[0]
    delays = [failure.late_by_ms for failure in failures if failure.late_by_ms is not None]
    if delays:
        least, most = min(delays), max(delays)
        by = f"{least} ms" if least == most else f"{least} to {most} ms"
        text = f"{_api(first)} is answered {by} later than Kafka does"
        if _api(first) == "JoinGroup" and most - least <= _SAME_DELAY * most:
            round_ms = round(least, -2)
            text += f", as with group.initial.rebalance.delay.ms={round_ms}"
        return text
    if first.difference is not None:
        path = _INDEX.sub("[]", first.difference.path) or "the body"
        return f"{_api(first)}: {path} is {shown(first.difference.got)}, not {shown(first.difference.expected)}"
    return f"{_api(first)}: {first.message.splitlines()[0]}"


def _api(failure: Failure) -> str:
    found = _REQUEST.match(failure.action)
    return found[1] if found is not None else failure.action


def shown(value: object) -> str:
    """Return a value in short; of a variable only its name, since its value is another in each transcript."""
    text = value.split(" = ")[0] if isinstance(value, str) and value.startswith("$") else str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
