"""What came of a run: outcomes, counts, and failures in words."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from attrs import define, field, frozen

from groupcoord.conformance.entities import Plain
from groupcoord.conformance.matching import Difference
from groupcoord.conformance.transcript import Transcript

_SHORT = 400
_LONG = 20_000


class Verdict(StrEnum):
    """How a transcript fared."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@frozen
class Failure:
    """Why a transcript failed.

    Attributes:
        step: the step's number, counted from 1; 0 if it failed before the first.
        action: what was being done, as in ``receive JoinGroup v9 on b``.
        message: what went wrong.
        difference: where the response first differs, if that is what went wrong.
        expected: the recorded response, if there is one.
        got: the server's response, if there is one.
    """

    step: int
    action: str
    message: str
    difference: Difference | None = None
    expected: Plain = None
    got: Plain = None

    def describe(self, *, verbose: bool = False) -> str:
        """Return the failure in a few lines; ``verbose`` adds both bodies."""
        where = f"step {self.step}, {self.action}" if self.step else self.action
        lines = [f"{where}: {self.message}"]
        if self.difference is not None:
            lines.append(f"  at       {self.difference.path or 'the body'}")
            lines.append(f"  expected {_json(self.difference.expected, _SHORT)}")
            lines.append(f"  got      {_json(self.difference.got, _SHORT)}")
        if verbose and self.expected is not None:
            lines.append(f"  expected body {_json(self.expected, _LONG)}")
        if verbose and self.got is not None:
            lines.append(f"  got body      {_json(self.got, _LONG)}")
        return "\n".join(lines)


@frozen
class Outcome:
    """What came of one transcript.

    Attributes:
        transcript: which one.
        verdict: how it fared.
        failure: why it failed, if it did.
        reason: why it was skipped, if it was.
        seconds: how long it took.
    """

    transcript: Transcript
    verdict: Verdict
    failure: Failure | None = None
    reason: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON data."""
        data: dict[str, Any] = {
            "area": self.transcript.area,
            "name": self.transcript.name,
            "verdict": self.verdict.value,
            "seconds": round(self.seconds, 3),
        }
        if self.reason:
            data["reason"] = self.reason
        if self.failure is not None:
            failure = self.failure
            data["failure"] = {"step": failure.step, "action": failure.action, "message": failure.message}
            if failure.difference is not None:
                data["failure"]["path"] = failure.difference.path
                data["failure"]["expected"] = failure.difference.expected
                data["failure"]["got"] = failure.difference.got
        return data


@define
class Report:
    """The outcomes of a run, in the order of the transcripts."""

    outcomes: list[Outcome] = field(factory=list)

    @property
    def ok(self) -> bool:
        """True if nothing failed."""
        return self.count(Verdict.FAILED) == 0

    def count(self, verdict: Verdict, area: str | None = None) -> int:
        """Return how many transcripts fared so, in one area or in all."""
        return sum(outcome.verdict is verdict and area in (None, outcome.transcript.area) for outcome in self.outcomes)

    def areas(self) -> list[str]:
        """Return the areas, sorted."""
        return sorted({outcome.transcript.area for outcome in self.outcomes})

    def failed(self) -> list[Outcome]:
        """Return the outcomes that failed."""
        return [outcome for outcome in self.outcomes if outcome.verdict is Verdict.FAILED]

    def summary(self) -> str:
        """Return the counts in one line: ``N passed, N failed, N skipped``."""
        return ", ".join(f"{self.count(verdict)} {verdict}" for verdict in Verdict)

    def describe(self, *, verbose: bool = False) -> str:
        """Return every failure in words, and the counts."""
        lines: Iterable[str] = (
            f"{outcome.transcript}: {outcome.failure.describe(verbose=verbose)}"
            for outcome in self.outcomes
            if outcome.failure is not None
        )
        return "\n".join([*lines, self.summary()])

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        counts = {verdict.value: self.count(verdict) for verdict in Verdict}
        return {**counts, "outcomes": [outcome.to_json() for outcome in self.outcomes]}


def _json(value: Plain, limit: int) -> str:
    text = value if isinstance(value, str) and value.startswith("(") else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
