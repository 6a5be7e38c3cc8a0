"""Results of a run: outcomes, groups of failures with one cause, expected failures, JUnit XML, comparison of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

from attrs import define, evolve, field, frozen

from groupcoord.config.files import parse_json, read_text
from groupcoord.conformance.client import ServerFacts
from groupcoord.conformance.entities import Plain
from groupcoord.conformance.matching import Difference
from groupcoord.conformance.transcript import Transcript
from groupcoord.errors import GroupcoordError

_SHORT = 400
_LONG = 20_000


class Verdict(StrEnum):
    """Verdict on a transcript."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    EXPECTED = "expected"
    """Failed as expected."""


@frozen
class Failure:
    """Failure of a transcript.

    Attributes:
        step: number of the step, from 1; 0 before the first.
        difference: first difference of the response, or None.
        expected: recorded response, or None.
        got: the server's response, or None.
        late_by_ms: milliseconds by which a response was later than recorded, or None.
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
    """Result of one transcript.

    Attributes:
        reason: why it was skipped or expected to fail.
        hints: possible causes of a failure: required settings, unlisted versions.
        failure_beside_others: failure in a concurrent replay, if the transcript passed alone.
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
    """Outcomes of a run in the order of the transcripts.

    Attributes:
        server: facts about the first server, or None.
        left_behind: descriptions of what the run could not remove.
    """

    outcomes: list[Outcome] = field(factory=list)
    server: ServerFacts | None = None
    left_behind: list[str] = field(factory=list)

    @property
    def ok(self) -> bool:
        """True if nothing failed."""
        return self.count(Verdict.FAILED) == 0

    def count(self, verdict: Verdict, area: str | None = None) -> int:
        """Return the number of transcripts with a verdict, in one area or in all."""
        return sum(outcome.verdict is verdict and area in (None, outcome.transcript.area) for outcome in self.outcomes)

    def areas(self) -> list[str]:
        """Return the areas, sorted."""
        return sorted({outcome.transcript.area for outcome in self.outcomes})

    def failed(self) -> list[Outcome]:
        """Return the failed outcomes."""
        return [outcome for outcome in self.outcomes if outcome.verdict is Verdict.FAILED]

    def summary(self) -> str:
        """Return the counts in one line: ``N passed, N failed, N skipped``, with ``N expected`` if any."""
        return ", ".join(f"{self.count(verdict)} {verdict}" for verdict in self.verdicts())

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts to show: all, but ``expected`` only if it occurs."""
        return [verdict for verdict in Verdict if verdict is not Verdict.EXPECTED or self.count(verdict)]

    def describe(self, *, verbose: bool = False) -> str:
        """Return every failure and the counts as text."""
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


_INDEX = re.compile(r"\[\d+\]")
_REQUEST = re.compile(r"^(?:receive|send) (\w+)")
_NUMBER = re.compile(r"\d+")
_SAME_DELAY = 0.2


@frozen
class Cause:
    """Common cause of several failures.

    Attributes:
        text: the difference as a sentence.
        outcomes: the failed transcripts in the order of the run.
    """

    text: str
    outcomes: tuple[Outcome, ...]


def causes_of(outcomes: Iterable[Outcome]) -> list[Cause]:
    """Return failures grouped by cause, the most frequent first.

    Failures of an API have one cause if their difference or message is equal, or all are late.
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
    """Return a short form of a value; of a variable only the name, since values differ between transcripts."""
    text = value.split(" = ")[0] if isinstance(value, str) and value.startswith("$") else str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


class ExpectationsError(GroupcoordError):
    """A file of expected failures is invalid; the message has the line."""


@frozen
class Expectations:
    """Expected failures: patterns such as ``static/*`` with optional reasons."""

    patterns: dict[str, str]

    @classmethod
    def load(cls, path: Path, transcripts: Iterable[Transcript]) -> Expectations:
        """Read a file with a name or pattern on each line, and a reason after ``#``.

        Args:
            path: the file.
            transcripts: the transcripts to match.

        Raises:
            ExpectationsError: the file cannot be read, or a line matches no transcript.
        """
        try:
            lines = read_text(path).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ExpectationsError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from None
        names = [str(transcript) for transcript in transcripts]
        patterns = {}
        for number, line in enumerate(lines, 1):
            pattern, _, reason = (part.strip() for part in line.partition("#"))
            if not pattern:
                continue
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ExpectationsError(f"{path}: line {number}: there is no transcript {pattern!r}")
            patterns[pattern] = reason
        return cls(patterns)

    def expects(self, transcript: Transcript) -> bool:
        """Return whether a transcript is expected to fail."""
        return self._pattern(transcript) is not None

    def apply(self, report: Report) -> Report:
        """Return a report with expected failures marked."""
        return evolve(report, outcomes=[self._judge(outcome) for outcome in report.outcomes])

    def passed_unexpectedly(self, report: Report) -> list[Transcript]:
        """Return the transcripts that passed although expected to fail."""
        passed = (outcome.transcript for outcome in report.outcomes if outcome.verdict is Verdict.PASSED)
        return [transcript for transcript in passed if self.expects(transcript)]

    def _judge(self, outcome: Outcome) -> Outcome:
        pattern = self._pattern(outcome.transcript)
        if outcome.verdict is not Verdict.FAILED or pattern is None:
            return outcome
        return evolve(outcome, verdict=Verdict.EXPECTED, reason=self.patterns[pattern])

    def _pattern(self, transcript: Transcript) -> str | None:
        return next((pattern for pattern in self.patterns if fnmatchcase(str(transcript), pattern)), None)


_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@frozen
class Case:
    """Test case."""

    suite: str
    name: str
    seconds: float
    failure: str = ""
    details: str = ""
    skipped: str = ""


def junit_xml(report: Report) -> str:
    """Return a report as JUnit XML; an expected failure counts as skipped, as in pytest."""
    outcomes = sorted(report.outcomes, key=lambda outcome: outcome.transcript.area)
    return to_junit("groupcoord conformance", map(_case, outcomes))


def to_junit(title: str, cases: Iterable[Case]) -> str:
    by_suite: dict[str, list[Case]] = {}
    for case in cases:
        by_suite.setdefault(case.suite, []).append(case)
    every = [case for of_suite in by_suite.values() for case in of_suite]
    root = Xml.Element("testsuites", {"name": title, **_counts(every)})
    for name, of_suite in by_suite.items():
        suite = Xml.SubElement(root, "testsuite", {"name": name, **_counts(of_suite)})
        for case in of_suite:
            made = Xml.SubElement(suite, "testcase", classname=name, name=case.name, time=f"{case.seconds:.3f}")
            if case.failure:
                failure = Xml.SubElement(made, "failure", message=_clean(case.failure), type="failed")
                failure.text = _clean(case.details)
            elif case.skipped:
                Xml.SubElement(made, "skipped", message=_clean(case.skipped))
    Xml.indent(root)
    return Xml.tostring(root, "unicode", xml_declaration=True) + "\n"


def _counts(cases: list[Case]) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(bool(case.failure) for case in cases)),
        "errors": "0",
        "skipped": str(sum(bool(case.skipped) for case in cases)),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }


def _case(outcome: Outcome) -> Case:
    transcript = outcome.transcript
    case = Case(transcript.area, transcript.name, outcome.seconds)
    match outcome.verdict:
        case Verdict.FAILED if outcome.failure is not None:
            shows = f" ({transcript.shows})" if transcript.shows else ""
            lines = (transcript.shows or str(transcript), outcome.failure.describe(verbose=True), *outcome.hints)
            return evolve(case, failure=_in_a_sentence(outcome.failure) + shows, details="\n".join(lines))
        case Verdict.SKIPPED:
            return evolve(case, skipped=outcome.reason)
        case Verdict.EXPECTED:
            return evolve(case, skipped=f"failed as expected: {outcome.reason}".rstrip(": "))
        case _:
            return case


def _in_a_sentence(failure: Failure) -> str:
    difference = failure.difference
    if difference is None:
        return failure.message
    expected, got = shown(difference.expected), shown(difference.got)
    return f"{failure.message} at {difference.path or 'the body'}: expected {expected}, got {got}"


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)


FAILED = "failed"


class RunFileError(GroupcoordError):
    """A file is not output of ``groupcoord conformance --json``."""


@frozen
class Change:
    """Transcript with another result in the second run.

    Attributes:
        before, after: verdict of each run with its reason; empty if missing.
        is_worse: it fails now, and did not.
        is_better: it failed, and has another verdict now.
    """

    name: str
    before: str
    after: str
    is_worse: bool
    is_better: bool


def load_run(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(read_text(path))
        _by_name(found)
    except OSError as error:
        raise RunFileError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunFileError(f"{path} is not output of groupcoord conformance --json") from None
    return dict(found)


def compare_runs(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return the transcripts with another verdict or failure, by name.

    Args:
        before: the first run, from :meth:`Report.to_json`.
        after: the second run.
    """
    old, new = _by_name(before), _by_name(after)
    changes = []
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if _essence(was) == _essence(now):
            continue
        failed_before, fails_now = _verdict(was) == FAILED, _verdict(now) == FAILED
        is_worse, is_better = fails_now and not failed_before, failed_before and not fails_now and now is not None
        changes.append(Change(name, _words(was), _words(now), is_worse, is_better))
    return changes


def _by_name(run: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = {f"{outcome['area']}/{outcome['name']}": outcome for outcome in run["outcomes"]}
    for outcome in found.values():
        _essence(outcome)
    return found


def _verdict(outcome: Mapping[str, Any] | None) -> str:
    return str(outcome["verdict"]) if outcome is not None else ""


def _essence(outcome: Mapping[str, Any] | None) -> tuple[object, ...]:
    """Return the parts of an outcome to compare, without durations and ids."""
    if outcome is None:
        return ()
    failure = outcome.get("failure") or {}
    return (outcome["verdict"], failure.get("step"), failure.get("path"))


def _words(outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return ""
    failure = outcome.get("failure")
    if failure is not None:
        return f"{outcome['verdict']} at step {failure['step']}, {failure['action']}: {failure['message']}"
    reason = outcome.get("reason")
    return f"{outcome['verdict']} ({reason})" if reason else str(outcome["verdict"])
