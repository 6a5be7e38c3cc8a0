"""Reports of a run: common causes, expected failures, JUnit XML, changes since another run."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from attrs import evolve

from groupcoord.conformance import (
    Expectations,
    Report,
    Verdict,
    causes_of,
    compare_runs,
    junit_xml,
    run,
)

from .scripted import ScriptedTarget
from .test_runner import HEARTBEAT, JOIN, JOINED, answer, transcript

RIGHT = transcript(HEARTBEAT, answer(), name="right", area="a")
WRONG = [transcript(HEARTBEAT, answer(error_code=code), name=code, area="b") for code in ("ILLEGAL_GENERATION",) * 3]
ALSO_WRONG = transcript(HEARTBEAT, answer(error_code="FENCED_INSTANCE_ID"), name="other", area="b")


def report_of(*transcripts: object, delay_ms: int = 0) -> Report:
    target = ScriptedTarget(Heartbeat=lambda body: {"error_code": "NONE"}, JoinGroup=lambda body: (delay_ms, JOINED))
    return run(transcripts, target)  # type: ignore[arg-type]


def test_failures_with_one_cause_are_told_together() -> None:
    """Failures with the same differing field and values have one cause; the most frequent comes first."""
    first, second = causes_of(report_of(RIGHT, ALSO_WRONG, *WRONG).failed())

    assert first.text == "Heartbeat: error_code is NONE, not ILLEGAL_GENERATION"
    assert [outcome.transcript for outcome in first.outcomes] == WRONG
    assert second.text == "Heartbeat: error_code is NONE, not FENCED_INSTANCE_ID"


def test_a_delay_is_one_cause() -> None:
    """Joins that are all late by the same time are reported with the setting that explains it."""
    joins = [transcript(JOIN, answer(took_ms, **JOINED), name=f"after-{took_ms}") for took_ms in (0, 10, 40)]
    (cause,) = causes_of(report_of(*joins, delay_ms=1500).failed())

    expected = (
        "JoinGroup is answered 1460 to 1500 ms later than Kafka does, as with group.initial.rebalance.delay.ms=1500"
    )
    assert (cause.text, len(cause.outcomes)) == (expected, 3)


def test_junit_xml() -> None:
    """Each transcript is a test case of its area, with the failure's words; what XML can't hold is replaced."""
    wrong = evolve(WRONG[0], shows="It is a test.")
    odd = transcript(HEARTBEAT, answer(error_code="\x01"), name="odd", area="b")
    report = Expectations({"b/other": "known"}).apply(report_of(RIGHT, ALSO_WRONG, wrong, odd))

    root = Xml.fromstring(junit_xml(report))

    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("4", "2", "1")
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert [child.tag for child in cases["right"]] == []
    assert cases["other"][0].get("message") == "failed as expected: known"
    failure = cases["ILLEGAL_GENERATION"][0]
    assert failure.tag == "failure"
    assert failure.get("message") == (
        "the response differs at error_code: expected ILLEGAL_GENERATION, got NONE (It is a test.)"
    )
    lines = (failure.text or "").splitlines()
    assert lines[0] == "It is a test."
    assert {'  expected "ILLEGAL_GENERATION"', '  got      "NONE"'} <= set(lines)
    assert [line.split()[:2] for line in lines[-2:]] == [["expected", "body"], ["got", "body"]]


def test_what_changed_since_another_run() -> None:
    before = report_of(RIGHT, ALSO_WRONG, transcript(HEARTBEAT, answer(), name="gone", area="a")).to_json()
    mended = transcript(HEARTBEAT, answer(), name="other", area="b")
    broken = transcript(HEARTBEAT, answer(error_code="FENCED_INSTANCE_ID"), name="right", area="a")
    after = report_of(broken, mended).to_json()

    assert compare_runs(before, before) == []
    gone, right, other = compare_runs(before, after)
    assert (gone.name, gone.after, gone.is_worse, gone.is_better) == ("a/gone", "", False, False)
    assert (right.name, right.before, right.is_worse) == ("a/right", "passed", True)
    assert right.after == "failed at step 2, receive Heartbeat v4 on a: the response differs"
    assert (other.name, other.is_better) == ("b/other", True)


def test_a_failure_beside_others_is_tried_alone() -> None:
    """A transcript that fails in parallel and passes alone has passed; the report has both."""
    asked = []

    def answer_first_wrong(body: dict[str, object]) -> dict[str, str]:
        asked.append(body)
        return {"error_code": "UNKNOWN_MEMBER_ID" if len(asked) == 1 else "NONE"}

    others = [transcript(HEARTBEAT, answer(), name=name) for name in ("one", "two")]
    report = run(others, ScriptedTarget(shared=True, Heartbeat=answer_first_wrong), jobs=1)

    assert [outcome.verdict for outcome in report.outcomes] == [Verdict.PASSED] * 2
    (unlucky,) = [outcome for outcome in report.outcomes if outcome.failure_beside_others]
    assert unlucky.to_json()["failure_beside_others"]["path"] == "error_code"
