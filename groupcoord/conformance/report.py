"""What came of a run: outcomes, counts, and failures in words."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from attrs import define, field, frozen

from groupcoord.conformance.entities import Plain
from groupcoord.conformance.matching import Difference
from groupcoord.conformance.server_facts import ServerFacts
from groupcoord.conformance.transcript import Transcript

_SHORT = 400
_LONG = 20_000


class Verdict(StrEnum):
    """How a transcript fared."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    EXPECTED = "expected"
    """It failed, as was expected."""


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
        late_by_ms: by how many milliseconds the answer came later than recorded, if that is what went wrong.
    """

    step: int
    action: str
    message: str
    difference: Difference | None = None
    expected: Plain = None
    got: Plain = None
    late_by_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the failure as JSON data."""
        data = {"step": self.step, "action": self.action, "message": self.message}
        if self.difference is not None:
            data |= {"path": self.difference.path, "expected": self.difference.expected, "got": self.difference.got}
        return data

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
        reason: why it was skipped or expected to fail, if it was.
        hints: what may help to understand why it failed: settings that it needs, versions that the server doesn't list.
        seconds: how long it took.
        failure_beside_others: why it failed at first, when others were replayed at the same time, if it passed alone.
    """

    transcript: Transcript
    verdict: Verdict
    failure: Failure | None = None
    reason: str = ""
    hints: tuple[str, ...] = ()
    seconds: float = 0.0
    failure_beside_others: Failure | None = None

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
        if self.hints:
            data["hints"] = list(self.hints)
        if self.failure is not None:
            data["failure"] = self.failure.to_json()
        if self.failure_beside_others is not None:
            data["failure_beside_others"] = self.failure_beside_others.to_json()
        return data


@define
class Report:
    """The outcomes of a run, in the order of the transcripts.

    Attributes:
        outcomes: what came of each.
        server: what the first server said of itself; None if there was none.
        left_behind: what the run could not take away again, in words.
    """

    outcomes: list[Outcome] = field(factory=list)
    server: ServerFacts | None = None
    left_behind: list[str] = field(factory=list)

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
        """Return the counts in one line: ``N passed, N failed, N skipped``, and ``N expected`` if there are such."""
        return ", ".join(f"{self.count(verdict)} {verdict}" for verdict in self.verdicts())

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts worth a column: all but that of expected failures, and that if there are such."""
        return [verdict for verdict in Verdict if verdict is not Verdict.EXPECTED or self.count(verdict)]

    def describe(self, *, verbose: bool = False) -> str:
        """Return every failure in words, and the counts."""
        lines: Iterable[str] = (
            f"{outcome.transcript}: {outcome.failure.describe(verbose=verbose)}"
            for outcome in self.failed()
            if outcome.failure is not None
        )
        return "\n".join([*lines, self.summary()])

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        counts = {verdict.value: self.count(verdict) for verdict in Verdict}
        about: dict[str, Any] = {"left_behind": self.left_behind}
        if self.server is not None:
            about["server"] = self.server.to_json()
        return {**counts, **about, "outcomes": [outcome.to_json() for outcome in self.outcomes]}


def _json(value: Plain, limit: int) -> str:
    text = value if isinstance(value, str) and value.startswith("(") else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
