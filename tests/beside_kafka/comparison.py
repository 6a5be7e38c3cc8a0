"""Comparison of one command's results: Kafka's classes and groupcoord. Responses and records are compared in bytes.
Where these differ, they are parsed, and lists compared in any order: most of them come from hash maps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from attrs import define, frozen

from groupcoord.conformance.entities import API_KEYS, decode_response, response_entity
from groupcoord.core.refusals import for_transaction_coordinator
from groupcoord.errors import ErrorCode
from groupcoord.records.describe import describe_record
from tests.beside_kafka.coordinator import Outcome, Step, Written

NOT_COMPARED = frozenset({"error_message", "status_detail"})
"""Fields of answers that say in other words what a code says."""

GROUP_METADATA, REGULAR_EXPRESSION = 2, 16
OPEN_LISTS = (
    *("topicPartitions", "assignedPartitions", "partitionsPendingRevocation"),
    *("initializingTopics", "initializedTopics", "deletingTopics"),
)


@frozen
class Difference:
    """One thing that came out differently."""

    what: str
    kafka: Any
    here: Any


@define
class Tally:
    """Number of comparisons, and of those equal to the byte."""

    answers: int = 0
    equal_answers: int = 0
    appends: int = 0
    equal_appends: int = 0

    def add(self, other: Tally) -> None:
        """Count in another tally."""
        self.answers += other.answers
        self.equal_answers += other.equal_answers
        self.appends += other.appends
        self.equal_appends += other.equal_appends


def differences(step: Step, outcome: Outcome, *, has_refused: bool, tally: Tally) -> list[Difference]:
    """Return what differs of the answers and the records of one step."""
    found = [*_of_answers(step, outcome, has_refused, tally), *_of_appends(step, outcome, tally)]
    refusals = sum("refused" in event for event in step["events"])
    if refusals != outcome.refusals:
        found.append(("how many appends are refused", refusals, outcome.refusals))
    return [Difference(f"{step.get('api', step['do'])}: {what}", kafka, here) for what, kafka, here in found]


# ---------------------------------------------------------------- answers


def _of_answers(step: Step, outcome: Outcome, has_refused: bool, tally: Tally) -> Iterator[tuple[str, Any, Any]]:
    events = {str(event["reply"]): event for event in step["events"] if "reply" in event}
    answers = {answer.token: answer for answer in outcome.answers}
    for token in {**events, **answers}:
        event, answer = events.get(token), answers.get(token)
        tally.answers += 1
        if event is None or answer is None:
            yield "an answer that one gives alone", event, answer
        elif event["at"] != answer.at_ms:
            yield f"when {event['api']} is answered", event["at"], answer.at_ms
        elif isinstance(answer.response, int):
            error_code = for_transaction_coordinator(ErrorCode(event["error"]))
            if error_code != answer.response:
                yield "error_code", error_code, answer.response
        elif answer.response[_header_bytes(event) :] != bytes.fromhex(event["hex"]):
            kafka, here = _canonical(_read(event, answer.response)), _canonical(_decoded(event, answer.response))
            if kafka != here and not (has_refused and _without_repetitions(kafka) == here):
                yield f"{event['api']}.{_where(kafka, here)}", kafka, here
            continue
        tally.equal_answers += 1


def _header_bytes(event: Step) -> int:
    """Return how long a response's header is: a correlation id, and tagged fields maybe."""
    schema = response_entity(API_KEYS[event["api"]], event["version"])
    return 5 if schema.__header_schema__.__flexible__ else 4


def _read(event: Step, response: bytes) -> Any:
    """Return Kafka's response, which comes without a header."""
    return _decoded(event, response[: _header_bytes(event)] + bytes.fromhex(event["hex"]))


def _decoded(event: Step, response: bytes) -> Any:
    return decode_response(event["api"], event["version"], response)[1]


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _canonical(inner) for name, inner in value.items() if name not in NOT_COMPARED}
    if isinstance(value, list):
        return sorted(map(_canonical, value), key=repr)
    return value


def _without_repetitions(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_repetitions(inner) for name, inner in value.items()}
    if isinstance(value, list):
        inner = list(map(_without_repetitions, value))
        return [element for number, element in enumerate(inner) if element not in inner[:number]]
    return value


def _where(kafka: Any, here: Any) -> str:
    """Return the path to the first difference."""
    if isinstance(kafka, dict) and isinstance(here, dict):
        for name, value in kafka.items():
            if value != here.get(name):
                return f"{name}.{_where(value, here.get(name))}".rstrip(".")
    if isinstance(kafka, list) and isinstance(here, list) and len(kafka) == len(here):
        return next((_where(one, other) for one, other in zip(kafka, here, strict=True) if one != other), "")
    return ""


# ---------------------------------------------------------------- records


def _of_appends(step: Step, outcome: Outcome, tally: Tally) -> Iterator[tuple[str, Any, Any]]:
    appends = [written_of(event) for event in step["events"] if "append" in event]
    for kafka, here in zip_longest(appends, outcome.appends):
        tally.appends += 1
        if kafka is None or here is None:
            yield "an append of one alone", kafka and described(kafka), here and described(here)
        elif kafka == here:
            tally.equal_appends += 1
        elif (kafka.at_ms, kafka.offset, kafka.producer) != (here.at_ms, here.offset, here.producer):
            yield "the place of an append", kafka, here
        else:
            yield from _of_records(described(kafka), described(here))


def _of_records(kafka: list[Any], here: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    for one, other in zip(kafka, here, strict=False):
        if one["key"] != other["key"]:
            break
        if one != other:
            yield f"record {one['key']['type']} {_where(one, other)}", one, other
    else:
        if len(kafka) == len(here):
            return
    yield "which records", kafka, here


def written_of(event: Step) -> Written:
    """Return what Kafka's append has written."""
    producer = (event.get("producer_id", -1), event.get("producer_epoch", -1))
    records: Any = event.get("marker")
    if records is None:
        records = tuple((bytes.fromhex(k), None if v is None else bytes.fromhex(v)) for k, v in event["records"])
    return Written(event["at"], event["offset"], records, producer)


def described(written: Written) -> list[Any]:
    """Return records in comparable form: those of one append are sorted by key."""
    if isinstance(written.records, str):
        return [{"key": {"type": written.records}, "value": None}]
    records = [describe_record(key, value) for key, value in written.records]
    for record in records:
        if record["value"] is not None:
            _make_canonical(record["key"]["type"], record["value"]["data"])
    return sorted(records, key=lambda record: repr(record["key"]))


def _make_canonical(kind: int, value: Any) -> None:
    if kind == REGULAR_EXPRESSION:
        del value["version"]  # that of the cluster's metadata, which is counted otherwise here
    if kind == GROUP_METADATA:
        value["members"].sort(key=repr)
    for topic in [*value.get("assignedPartitions", ()), *value.get("partitionsPendingRevocation", ())]:
        if topic.get("assignmentEpochs") is not None:
            topic["partitions"] = sorted(zip(topic["partitions"], topic.pop("assignmentEpochs"), strict=True))
    for name in OPEN_LISTS:
        if name in value:
            value[name].sort(key=repr)
