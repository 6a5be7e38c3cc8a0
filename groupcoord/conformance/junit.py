"""A report as JUnit XML, which build servers show: a test suite for each area, a test case for each transcript."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

from groupcoord.conformance.causes import shown
from groupcoord.conformance.report import Failure, Outcome, Report, Verdict

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: Report) -> str:
    """Return a report as JUnit XML. A failure that was expected counts as skipped, as in pytest."""
    root = Xml.Element("testsuites", {"name": "groupcoord conformance", **_counts(report.outcomes)})
    for area in report.areas():
        outcomes = [outcome for outcome in report.outcomes if outcome.transcript.area == area]
        suite = Xml.SubElement(root, "testsuite", {"name": area, **_counts(outcomes)})
        for outcome in outcomes:
            _add_case(suite, outcome)
    Xml.indent(root)
    return Xml.tostring(root, "unicode", xml_declaration=True) + "\n"


def _counts(outcomes: list[Outcome]) -> dict[str, str]:
    verdicts = [outcome.verdict for outcome in outcomes]
    return {
        "tests": str(len(outcomes)),
        "failures": str(verdicts.count(Verdict.FAILED)),
        "errors": "0",
        "skipped": str(verdicts.count(Verdict.SKIPPED) + verdicts.count(Verdict.EXPECTED)),
        "time": f"{sum(outcome.seconds for outcome in outcomes):.3f}",
    }


def _add_case(suite: Xml.Element, outcome: Outcome) -> None:
    transcript = outcome.transcript
    case = Xml.SubElement(
        suite, "testcase", classname=transcript.area, name=transcript.name, time=f"{outcome.seconds:.3f}"
    )
    match outcome.verdict:
        case Verdict.FAILED if outcome.failure is not None:
            shows = f" ({transcript.shows})" if transcript.shows else ""
            message = _in_a_sentence(outcome.failure) + shows
            failure = Xml.SubElement(case, "failure", message=_clean(message), type=outcome.verdict)
            lines = (transcript.shows or str(transcript), outcome.failure.describe(verbose=True), *outcome.hints)
            failure.text = _clean("\n".join(lines))
        case Verdict.SKIPPED:
            Xml.SubElement(case, "skipped", message=_clean(outcome.reason))
        case Verdict.EXPECTED:
            Xml.SubElement(case, "skipped", message=_clean(f"failed as expected: {outcome.reason}".rstrip(": ")))
        case _:
            pass


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
