"""Variables in place of the ids that differ from run to run."""

from __future__ import annotations

from groupcoord.conformance import Transcript
from groupcoord.conformance.entities import Plain
from groupcoord.conformance.matching import ANYTHING, Bindings
from groupcoord.conformance.transcript import Receive

from .rendering import Rendered, UnfitRecordError

_LITERAL_PRODUCER = 1 << 40
"""Producer ids from here up are made up by a transcript and stay as they are."""


def with_variables(records: list[Rendered], transcript: Transcript, bindings: Bindings) -> list[Rendered]:
    """Return rendered records with variables for group, member, producer and topic ids.

    A leader whom Kafka picked out of a hash map becomes ``$any``: where the transcript's answer to a join says so.

    Args:
        records: what the broker left.
        transcript: the conversation.
        bindings: the values of its variables; other ids get names that are free.
    """
    names = _Names(bindings)
    named = [{key: names.replace(value, key, record) for key, value in record.items()} for record in records]
    arbitrary = _generations_with_any_leader(transcript)
    return [
        {**record, "leader": ANYTHING} if record.get("leader") and record["generation_id"] in arbitrary else record
        for record in named
    ]


def _generations_with_any_leader(transcript: Transcript) -> set[int]:
    return {
        step.body["generation_id"]
        for step in transcript.steps
        if isinstance(step, Receive) and step.body.get("leader") == ANYTHING
    }


class _Names:
    def __init__(self, bindings: Bindings) -> None:
        self._group_id = str(bindings["$g"])
        self._names: dict[str | int, str] = {value: name for name, value in bindings.items()}

    def replace(self, value: Plain, key: str, record: Rendered) -> Plain:
        """Return a field's value with variables; ``record`` is what it belongs to."""
        if key == "members":
            # A new member's number must not depend on its random id, nor on the order of Kafka's hash map.
            members = sorted(value, key=lambda member: [str(v) for k, v in sorted(member.items()) if k != "member_id"])
            return [{k: self.replace(v, k, member) for k, v in member.items()} for member in members]
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            is_given_out = key == "producer_id" and 0 <= value < _LITERAL_PRODUCER
            return self._name(value, "$p") if is_given_out else value
        if key in ("member_id", "leader"):
            return self._name(value, "$m")
        if key == "topic_id":
            return self._name(value, f"$topic:{record['topic']}")
        if value.startswith(self._group_id):
            return f"$g{value.removeprefix(self._group_id)}"
        if value.startswith("$"):
            raise UnfitRecordError(f"{key} {value!r} would look like a variable")
        return value

    def _name(self, value: str | int, prefix: str) -> str:
        if value not in self._names:
            taken = set(self._names.values())
            number = next(n for n in range(1, len(taken) + 2) if f"{prefix}{_suffix(prefix, n)}" not in taken)
            self._names[value] = f"{prefix}{_suffix(prefix, number)}"
        return self._names[value]


def _suffix(prefix: str, number: int) -> str:
    if prefix.startswith("$topic:"):
        return "" if number == 1 else f"#{number}"  # a topic that was deleted and created anew
    return str(number)
