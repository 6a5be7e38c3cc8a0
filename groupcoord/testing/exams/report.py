"""What came of an exam, for people and for build servers: verdicts, and the story of each law that was broken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from groupcoord.analysis.report.html import Html, element, joined
from groupcoord.analysis.report.layout import Section, page, paragraph, soft, table
from groupcoord.analysis.report.svg import label, line, picture, titled
from groupcoord.conformance.junit import Case, to_junit
from groupcoord.testing.exams.examination import Result
from groupcoord.testing.exams.laws import Breach, Law, Verdict
from groupcoord.testing.exams.trace import Event

STORY_MAX = 14
BREACHES_MAX = 3
LINE_MAX = 150

_WIDTH, _ROW, _TOP, _MARGIN = 900, 22, 40, 80


def story(result: Result, breach: Breach) -> list[Event]:
    """Return the last events before a law was broken that have to do with it: what was done to whom, and its requests.

    An error that an instance was told, and what the exam did, always belong to it.
    """
    before = [event for event in result.events if event.at_s <= breach.at_s + 0.001]
    own = [event for event in before if event.who in ("", breach.who) or (not breach.who and event.is_error)]
    return [*own[-STORY_MAX:], Event(breach.at_s, breach.who, breach.text, is_error=True)]


def in_lines(result: Result) -> list[str]:
    """Return a result in lines: what is broken, with the story of the first breach of each law."""
    if result.trouble:
        lines = [f"  {result.trouble}"]
        for name, words in result.last_words.items():
            lines += [f"  {name} printed last: {line}" for line in words.splitlines()[-3:]]
        return lines
    return [line for verdict in result.broken for line in _verdict_in_lines(result, verdict)]


def _verdict_in_lines(result: Result, verdict: Verdict) -> list[str]:
    lines = [f"  broken: {verdict.law}"]
    lines += [f"    {_named(breach)}" for breach in verdict.breaches[:BREACHES_MAX]]
    if len(verdict.breaches) > BREACHES_MAX:
        lines.append(f"    and {len(verdict.breaches) - BREACHES_MAX} times more")
    lines.append("    how it came to that:")
    return [*lines, *(f"      {_in_a_line(event)}" for event in story(result, verdict.breaches[0]))]


def _named(breach: Breach) -> str:
    return f"{breach.at_s:.1f} s: {breach.who} {breach.text}" if breach.who else f"{breach.at_s:.1f} s: {breach.text}"


def _in_a_line(event: Event) -> str:
    who = event.who or "the exam"
    text = f"{event.at_s:7.2f} s  {who}: {event.text}"
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"


def exam_junit(results: Iterable[Result]) -> str:
    """Return results as JUnit XML, a test case for each scenario."""
    return to_junit(
        "groupcoord exam",
        [
            Case(
                "exam",
                result.scenario.name,
                result.seconds,
                failure=result.trouble or "; ".join(str(verdict.law) for verdict in result.broken),
                details="\n".join([result.scenario.why, *in_lines(result)]),
            )
            for result in results
        ],
    )


# ---------------------------------------------------------------- the page


def exam_page(results: Sequence[Result], command: str) -> str:
    """Return results as one page: a table of scenarios and laws, and a diagram for each law that was broken."""
    passed = sum(result.is_passed for result in results)
    lead = [
        paragraph(element("code", command)),
        paragraph(f"{passed} of {len(results)} scenarios passed."),
    ]
    failed = [result for result in results if not result.is_passed]
    sections = [Section("scenarios", "Scenarios", _overview(results))]
    sections += [Section(result.scenario.name, result.scenario.name, _told(result)) for result in failed]
    return page("Exam", lead, sections)


def _overview(results: Sequence[Result]) -> Html:
    laws = [law for law in Law if any(verdict.law is law for result in results for verdict in result.verdicts)]
    rows = []
    for result in results:
        verdicts = {verdict.law: verdict for verdict in result.verdicts}
        name = result.scenario.name
        title = name if result.is_passed else element("a", name, href=f"#{name}")
        rows.append([title, result.scenario.why, *(_mark(verdicts.get(law)) for law in laws)])
    return table(["@scenario", "why it happens", *(str(law) for law in laws)], rows)


def _mark(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not judged"
    if verdict.is_broken:
        return element("b", "broken", class_="bad")
    return f"follows from: {verdict.explained_by}" if verdict.explained_by else "holds"


def _told(result: Result) -> Html:
    parts = [soft(result.scenario.why)]
    if result.trouble:
        parts.append(paragraph(result.trouble))
    for verdict in result.broken:
        first = verdict.breaches[0]
        parts.append(element("h3", f"Broken: {verdict.law}"))
        parts.append(paragraph(_named(first)))
        parts.append(element("div", _diagram(story(result, first), first.who), class_="plot"))
    return joined(parts)


def _diagram(events: Sequence[Event], who: str) -> Html:
    """Return a sequence diagram: what an instance asked and was told, and what was done to it."""
    height = _TOP + _ROW * (len(events) + 1)
    left, right = _MARGIN, _WIDTH - _MARGIN
    parts = [
        label(left, 16, who or "instances", "middle"),
        label(right, 16, "broker", "middle"),
        line(left, 24, left, height, "axis"),
        line(right, 24, right, height, "axis"),
    ]
    for number, event in enumerate(events):
        y = _TOP + _ROW * (number + 1)
        style = "finding-line" if event.is_error else "axis" if event.who else "grid"
        words = f"{event.at_s:.2f} s  {'' if event.who == who else (event.who or 'the exam') + ': '}{event.text}"
        shapes = [line(left, y, right, y, style), label(left + 8, y - 5, words[:LINE_MAX], "start")]
        parts.append(titled(event.text, shapes))
    return picture(_WIDTH, height, "what was asked and answered until the law was broken", parts)
