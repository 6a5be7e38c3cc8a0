"""What came of an exam, for people and for build servers: verdicts, and the story of each law that was broken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from groupcoord.analysis.report.html.elements import Html, element, joined
from groupcoord.analysis.report.html.layout import Section, page, paragraph, pill, soft, table
from groupcoord.conformance.junit import Case, to_junit
from groupcoord.testing.exams.examination import Result
from groupcoord.testing.exams.laws import Breach, Event, Verdict
from groupcoord.testing.exams.scenarios import BASELINE

STORY_MAX = 14
BREACHES_MAX = 3
LINE_MAX = 150
PROGRAM = "the program"


def story(result: Result, breach: Breach) -> list[Event]:
    """Return the last events before a law was broken that have to do with it: what was done to whom, and its requests.

    They are those of the instance, and of the exam itself; if no instance is named, the errors of all. The causes that
    the breach names come before them, however early they were.
    """
    before = [event for event in result.events if event.at_s <= breach.at_s]
    own = [event for event in before if event.who in ("", breach.who) or (not breach.who and event.is_error)]
    told = own[-STORY_MAX:]
    causes = [event for event in breach.causes if event not in told]
    told = sorted([*causes, *told], key=lambda event: event.at_s)
    return [*told, Event(breach.at_s, breach.who or PROGRAM, breach.text, is_error=True)]


def baseline_of(results: Iterable[Result]) -> Result | None:
    """Return the result of the scenario in which nothing goes wrong; None if it was not played."""
    return next((result for result in results if result.scenario.name == BASELINE), None)


def in_lines(result: Result, baseline: Result | None = None) -> list[str]:
    """Return a result in lines: what is broken, with the story of the first breach of each law.

    Args:
        result: of a scenario.
        baseline: that of the scenario in which nothing goes wrong; a law that is broken there is only named.
    """
    if result.trouble:
        lines = [f"  {result.trouble}"]
        for name, words in result.last_words.items():
            lines += [f"  {name} printed last: {line}" for line in words.splitlines()[-3:]]
        return lines + [f"  {sentence}" for sentence in _known_bugs(result)]
    new, known = _by_novelty(result, baseline)
    lines = [line for verdict in new for line in _verdict_in_lines(result, verdict)]
    lines += [f"  {sentence}" for sentence in _known_bugs(result) if new]
    return lines + [f"  broken in {BASELINE}, too: {verdict.law}" for verdict in known]


def _known_bugs(result: Result) -> list[str]:
    """Return sentences about client bugs whose symptoms were seen, if the scenario failed."""
    found = {} if result.is_passed else result.known_bugs
    return [f"{name} {sentence}" for name, sentences in found.items() for sentence in sentences]


def is_like_baseline(result: Result, baseline: Result | None) -> bool:
    """Return whether a scenario failed with nothing but what fails in the one in which nothing goes wrong."""
    new, known = _by_novelty(result, baseline)
    return bool(known) and not new


def _by_novelty(result: Result, baseline: Result | None) -> tuple[list[Verdict], list[Verdict]]:
    """Return the verdicts of broken laws: those of laws that hold in the baseline, and those of the others."""
    other = baseline is not None and baseline.scenario.name != result.scenario.name
    known = {verdict.law for verdict in baseline.broken} if baseline is not None and other else set()
    new = [verdict for verdict in result.broken if verdict.law not in known]
    return new, [verdict for verdict in result.broken if verdict.law in known]


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
    """Return results as one page: a table of scenarios, failed ones first, and a diagram for each broken law."""
    passed = sum(result.is_passed for result in results)
    lead = [
        paragraph(element("code", command)),
        paragraph(f"{passed} of {len(results)} scenarios passed."),
    ]
    baseline = baseline_of(results)
    failed = [result for result in results if not result.is_passed]
    told = [result for result in failed if not is_like_baseline(result, baseline)]
    folded = [result for result in failed if is_like_baseline(result, baseline)]
    sections = [Section("scenarios", "Scenarios", _overview(results, baseline))]
    sections += [Section(result.scenario.name, result.scenario.name, _told(result, baseline)) for result in told]
    sections.append(Section("as-in-baseline", f"As in {BASELINE}", joined(map(_folded, folded))))
    return page("Exam", lead, sections)


def _overview(results: Sequence[Result], baseline: Result | None) -> Html:
    rows = []
    for result in sorted(results, key=lambda result: result.is_passed):
        name = result.scenario.name
        verdict = pill("passed", "good") if result.is_passed else pill("FAILED", "bad")
        title = name if result.is_passed else element("a", name, href=f"#{name}")
        scenario = joined([title, soft(result.scenario.why)])
        duration = element("div", f"{result.seconds:.0f} s", class_="soft")
        rows.append([joined([verdict, duration]), scenario, _in_a_cell(result, baseline)])
    return table(["@", "scenario", "broken laws"], rows)


def _in_a_cell(result: Result, baseline: Result | None) -> Html:
    if result.trouble:
        return joined([result.trouble])
    new, known = _by_novelty(result, baseline)
    lines = [element("b", str(verdict.law), class_="bad") for verdict in new]
    lines += [joined([f"{verdict.law} (in {BASELINE}, too)"]) for verdict in known]
    lines += [
        element("span", f"{verdict.law}: follows from the others", class_="soft")
        for verdict in result.verdicts
        if verdict.explained_by
    ]
    return joined(lines, "<br>")


def _told(result: Result, baseline: Result | None) -> Html:
    parts = [soft(result.scenario.why)]
    if result.trouble:
        parts.append(paragraph(result.trouble))
    parts += map(paragraph, _known_bugs(result))
    new, known = _by_novelty(result, baseline)
    parts += [_breach(result, verdict) for verdict in new]
    parts += [_in_details(result, verdict) for verdict in known]
    return joined(parts)


def _folded(result: Result) -> Html:
    name = result.scenario.name
    return element("div", element("h3", name), *(_in_details(result, verdict) for verdict in result.broken), id=name)


def _breach(result: Result, verdict: Verdict) -> Html:
    first = verdict.breaches[0]
    heading = element("h3", f"Broken: {verdict.law}")
    return joined([heading, paragraph(_named(first)), _diagram(story(result, first), first.who)])


def _in_details(result: Result, verdict: Verdict) -> Html:
    first = verdict.breaches[0]
    summary = element("summary", f"Broken in {BASELINE}, too: {verdict.law}")
    return element("details", summary, paragraph(_named(first)), _diagram(story(result, first), first.who))


def _diagram(events: Sequence[Event], who: str) -> Html:
    """Return a sequence diagram, as a list whose lines wrap: an instance's requests, and what was done to it."""
    ends = element("div", element("span", who or "instances"), element("span", "broker"), class_="ends")
    steps = [
        element(
            "li",
            element("time", f"{event.at_s:.2f} s"),
            " ",
            "" if event.who == who else element("b", f"{event.who or 'the exam'}: "),
            event.text,
            class_="finding-step" if event.is_error else None if event.who else "soft",
        )
        for event in events
    ]
    return element("div", ends, element("ol", *steps), class_="sequence")
