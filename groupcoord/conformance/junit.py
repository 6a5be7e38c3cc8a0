"""Results as JUnit XML, which build servers show: a test suite for each area, a test case for each thing tried."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree as Xml

from attrs import evolve, frozen

from groupcoord.conformance.causes import shown
from groupcoord.conformance.report import Failure, Outcome, Report, Verdict

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@frozen
class Case:
    """One thing that was tried.

    Attributes:
        suite: its suite.
        name: its name in the suite.
        seconds: how long it took.
        failure: why it failed, in a line; empty if it did not.
        details: the same at length.
        skipped: why it was skipped; empty if it was not.
    """

    suite: str
    name: str
    seconds: float
    failure: str = ""
    details: str = ""
    skipped: str = ""


def junit_xml(report: Report) -> str:
    """Return a report as JUnit XML. A failure that was expected counts as skipped, as in pytest."""
    outcomes = sorted(report.outcomes, key=lambda outcome: outcome.transcript.area)
    return to_junit("groupcoord conformance", map(_case, outcomes))


def to_junit(title: str, cases: Iterable[Case]) -> str:
    """Return cases as JUnit XML, with a suite for each name of a suite, in the order in which they come."""
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
    """Return what went wrong, with what was expected and what came, as build servers show it in a list."""
    difference = failure.difference
    if difference is None:
        return failure.message
    expected, got = shown(difference.expected), shown(difference.got)
    return f"{failure.message} at {difference.path or 'the body'}: expected {expected}, got {got}"


def _clean(text: str) -> str:
    """Replace characters that XML can't hold."""
    return _NOT_IN_XML.sub("\ufffd", text)
