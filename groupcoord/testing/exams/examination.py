"""Examination of a program by scenarios, with results as text, HTML and JUnit XML."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from attrs import field, frozen

from groupcoord.conformance.report import Case, to_junit
from groupcoord.testing.asserting.report import known_client_bugs
from groupcoord.testing.exams.scenarios import BASELINE, SCENARIOS, Scenario
from groupcoord.testing.exams.stage import OUTPUT, TOPIC, Plan, Stage
from groupcoord.testing.exams.trace import Breach, Event, Law, Place, Trace, Verdict, judge, numbers_in_value

LISTED_MAX = 5
MARKERS_WITHIN_S = 5.0
"""Offsets may see the end of a transaction slightly before its records do."""
LOOK_UP_S = 0.2
"""Poll interval: Python handles signals in the main thread, which a signal to another thread does not wake."""
NEED_AN_OUTPUT = (Law.ACCEPTED, Law.AFTERWARDS)


@frozen
class Result:
    """Result of one scenario.

    Attributes:
        has_begun: the instances started to work and committed; otherwise the scenario was not played.
        trouble: why nothing could be judged, or empty.
        last_words: the end of each instance's log, by name.
        known_bugs: sentences about known client bugs, by instance.
    """

    scenario: Scenario
    verdicts: tuple[Verdict, ...]
    events: tuple[Event, ...]
    seconds: float
    has_begun: bool
    trouble: str
    last_words: dict[str, str]
    known_bugs: Mapping[str, Sequence[str]] = field(factory=dict)

    @property
    def broken(self) -> tuple[Verdict, ...]:
        """Verdicts of broken laws that no other breach explains."""
        return tuple(verdict for verdict in self.verdicts if verdict.is_broken)

    @property
    def is_passed(self) -> bool:
        return not self.trouble and not self.broken


def scenarios_for(plan: Plan, only: Sequence[str] = ()) -> list[Scenario]:
    """Return the scenarios that apply to a plan."""
    try:
        patterns = [re.compile(text) for text in only]
    except re.error as error:
        raise ValueError(f"{error.pattern!r} is no regular expression: {error}") from None
    played = [scenario for scenario in SCENARIOS if not _left_out(plan, scenario)]
    for pattern in patterns:
        if not any(pattern.search(scenario.name) for scenario in played):
            raise ValueError(_none_called(pattern.pattern, plan, played))
    return [one for one in played if not patterns or any(pattern.search(one.name) for pattern in patterns)]


def _left_out(plan: Plan, scenario: Scenario) -> str:
    if plan.protocol not in scenario.protocols:
        return f"it is for protocol {' or '.join(scenario.protocols)}, not {plan.protocol}"
    if scenario.declared and plan.declared not in scenario.declared:
        return f"it is for programs that declare {' or '.join(scenario.declared)}, not {plan.declared}"
    if scenario.needs_login and not plan.logs_in:
        return f"it needs a log-in: security_protocol SASL_PLAINTEXT or SASL_SSL, not {plan.security_protocol}"
    return ""


def _none_called(pattern: str, plan: Plan, played: Sequence[Scenario]) -> str:
    named = [scenario for scenario in SCENARIOS if re.search(pattern, scenario.name)]
    if named:
        return "; ".join(f"{scenario.name} is not played: {_left_out(plan, scenario)}" for scenario in named)
    return f"no scenario's name matches {pattern!r}; there are {', '.join(scenario.name for scenario in played)}"


def examine(plan: Plan, only: Sequence[str] = (), *, jobs: int = 1, plays_all: bool = False) -> Iterator[Result]:
    """Play the scenarios of a plan, each with its own server and instances, and yield the results in order.

    The first scenario, ``quiet`` unless ``only`` excludes it, is played alone. If the program does not start there, the
    others are omitted unless ``plays_all``.

    Args:
        plan: the plan.
        only: see :func:`scenarios_for`.
        jobs: scenarios at the same time; an overloaded machine makes a program late.
        plays_all: play all scenarios in any case.
    """
    first, *others = scenarios_for(plan, only)
    with ThreadPoolExecutor(jobs) as executor:
        try:
            result = _result_of(executor.submit(play, plan, first))
            yield result
            if result.has_begun or plays_all:
                yield from map(_result_of, [executor.submit(play, plan, scenario) for scenario in others])
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


def _result_of(playing: Future[Result]) -> Result:
    while not playing.done():
        wait([playing], LOOK_UP_S)
    return playing.result()


def play(plan: Plan, scenario: Scenario) -> Result:
    """Play one scenario and return the result.

    Raises:
        CommandError: the program cannot be started.
    """
    start_s = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="groupcoord-exam-")))
        stage = stack.enter_context(Stage(plan, folder, scenario.settings))
        has_begun, trouble = stage.start_all(), ""
        if has_begun:
            breaches = _act(stage, scenario)
        elif uncommitted := stage.uncommitted():
            breaches = _breaches_so_far(stage, uncommitted)
        else:
            breaches, trouble = {}, f"the instances did not come to work: {_standing(stage)}"
        return Result(
            scenario,
            tuple(judge(breaches)),
            tuple(stage.trace.events),
            time.monotonic() - start_s,
            has_begun,
            trouble,
            {name: instance.last_words() for name, instance in stage.instances.items()},
            {name.lower(): found for name, found in known_client_bugs(stage.server.requests).items()},
        )


def _act(stage: Stage, scenario: Scenario) -> dict[Law, list[Breach]]:
    stage.trace.note("", f"{scenario.name} begins")
    scenario.happen(stage)
    stage.trace.note("", f"{scenario.name} is over")
    stage.pause(0.5)
    stage.stop_feeding()
    stage.wait(partial(_is_over, stage), stage.plan.within_s)
    breaches = _breaches(stage)
    for instance in stage.running:
        stage.end(instance)
    return breaches


def _is_over(stage: Stage) -> bool:
    """Return whether the program has recovered, so that instances can be stopped."""
    return stage.is_caught_up() and not stage.fenced() and not stage.seeking() and stage.is_at_rest()


def _breaches_so_far(stage: Stage, uncommitted: Sequence[int] = ()) -> dict[Law, list[Breach]]:
    trace, now_s = stage.trace, stage.trace.now_s
    breaches = {
        **(_of_shared_records(stage) if stage.plan.protocol == "share" else _of_owned_partitions(trace)),
        Law.FENCED: [
            Breach(
                now_s,
                name,
                f"got {trace.seats[name].fenced_by} {now_s - (trace.seats[name].fenced_s or now_s):.1f} s ago, "
                "and has neither rejoined nor exited",
            )
            for name in stage.fenced()
        ],
        Law.COMMITTED: [Breach(now_s, "", _nothing_committed(stage, uncommitted))] if uncommitted else [],
    }
    if stage.plan.declared == "nothing":
        return {law: found for law, found in breaches.items() if law not in NEED_AN_OUTPUT}
    return breaches


def _breaches(stage: Stage) -> dict[Law, list[Breach]]:
    breaches = _breaches_so_far(stage)
    breaches[Law.CAUGHT_UP] = [] if stage.is_caught_up() else [Breach(stage.trace.now_s, "", _standing(stage))]
    breaches |= stage.breaches
    if stage.plan.declared == "nothing":
        return breaches
    written = None
    if stage.plan.declared == "exactly-once":
        stage.wait(lambda: not any(_missing(stage, _committed_counts(stage))), MARKERS_WITHIN_S)
        written = _committed_counts(stage)
        breaches[Law.ONCE] = list(_doubled(stage, written))
    if stage.is_caught_up():
        breaches[Law.PROCESSED] = list(_missing(stage, written))
    return breaches


def _of_owned_partitions(trace: Trace) -> dict[Law, list[Breach]]:
    return {Law.OWNED: trace.trespasses, Law.AHEAD: trace.ahead, Law.BACKWARD: trace.backward}


def _of_shared_records(stage: Stage) -> dict[Law, list[Breach]]:
    shared, reached = stage.trace.shared, stage.places()
    given_up = [f"{index}-{offset}" for index, end in reached.items() for offset in shared.given_up(index, end)]
    text = f"records {_some(given_up)} are given up without acceptance"
    return {
        Law.ACCEPTED: shared.ahead,
        Law.AFTERWARDS: shared.afterwards,
        Law.GIVEN_UP: [Breach(stage.trace.now_s, "", text)] if given_up else [],
    }


def _some(records: Sequence[str]) -> str:
    more = f" and {len(records) - LISTED_MAX} more" if len(records) > LISTED_MAX else ""
    return ", ".join(records[:LISTED_MAX]) + more


def _committed_counts(stage: Stage) -> Mapping[Place, int]:
    records = stage.server.records(OUTPUT, isolation_level="read_committed")
    return Counter(number for record in records for number in numbers_in_value(record.value, record.key))


def _missing(stage: Stage, written: Mapping[Place, int] | None) -> Iterator[Breach]:
    for index, count in enumerate(stage.counts):
        missing = stage.trace.unprocessed(index, count, written)
        if missing:
            listed = _some([f"{index}-{offset}" for offset in missing])
            yield Breach(stage.trace.now_s, "", f"records {listed} are done with, and were never processed")


def _doubled(stage: Stage, written: Mapping[Place, int]) -> Iterator[Breach]:
    doubled = sorted(place for place, count in written.items() if count > 1)
    if doubled:
        listed = _some([f"{index}-{offset}" for index, offset in doubled])
        yield Breach(stage.trace.now_s, "", f"records {listed} stand in the output more than once")


def _standing(stage: Stage) -> str:
    group = stage.group()
    reached = stage.places()
    places = ", ".join(f"{TOPIC}-{index} at {reached.get(index, 0)} of {end}" for index, end in enumerate(stage.counts))
    ends = "".join(f"; {one.name} has exited {one.ends} times" for one in stage.running if one.ends)
    return f"{'there is no group' if group is None else group}; {_taken(stage)}: {places}{ends}"


def _nothing_committed(stage: Stage, uncommitted: Sequence[int]) -> str:
    with_output = stage.plan.declared != "nothing"
    processed = Counter(index for index, _ in list(stage.trace.processed))
    places = ", ".join(f"{processed[index]} of {TOPIC}-{index}" for index in uncommitted)
    waited_s = stage.trace.now_s - min(stage.trace.first_work_s[index] for index in uncommitted)
    return (
        f"nothing is {_taken(stage)}: {places} are {'processed' if with_output else 'read'}, "
        f"the first {waited_s:.0f} s ago"
    )


def _taken(stage: Stage) -> str:
    return "accepted" if stage.plan.protocol == "share" else "committed"


STORY_MAX = 14
BREACHES_MAX = 3
LINE_MAX = 150
PROGRAM = "the program"


def story(result: Result, breach: Breach) -> list[Event]:
    """Return a breach's causes and the last events before: faults and its instance's requests, or else all errors."""
    before = [event for event in result.events if event.at_s <= breach.at_s]
    own = [event for event in before if event.who in ("", breach.who) or (not breach.who and event.is_error)]
    shown = own[-STORY_MAX:]
    causes = [event for event in breach.causes if event not in shown]
    shown = sorted([*causes, *shown], key=lambda event: event.at_s)
    return [*shown, Event(breach.at_s, breach.who or PROGRAM, breach.text, is_error=True)]


def baseline_of(results: Iterable[Result]) -> Result | None:
    return next((result for result in results if result.scenario.name == BASELINE), None)


def in_lines(result: Result, baseline: Result | None = None) -> list[str]:
    """Return a result as lines: each broken law, with the story of its first breach; those of ``baseline`` are only
    named.
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
    found = {} if result.is_passed else result.known_bugs
    return [f"{name} {sentence}" for name, sentences in found.items() for sentence in sentences]


def is_like_baseline(result: Result, baseline: Result | None) -> bool:
    new, known = _by_novelty(result, baseline)
    return bool(known) and not new


def _by_novelty(result: Result, baseline: Result | None) -> tuple[list[Verdict], list[Verdict]]:
    other = baseline is not None and baseline.scenario.name != result.scenario.name
    known = {verdict.law for verdict in baseline.broken} if baseline is not None and other else set()
    new = [verdict for verdict in result.broken if verdict.law not in known]
    return new, [verdict for verdict in result.broken if verdict.law in known]


def _verdict_in_lines(result: Result, verdict: Verdict) -> list[str]:
    lines = [f"  broken: {verdict.law}"]
    lines += [f"    {_named(breach)}" for breach in verdict.breaches[:BREACHES_MAX]]
    if len(verdict.breaches) > BREACHES_MAX:
        lines.append(f"    and {len(verdict.breaches) - BREACHES_MAX} times more")
    lines.append("    events before it:")
    return [*lines, *(f"      {_in_a_line(event)}" for event in story(result, verdict.breaches[0]))]


def _named(breach: Breach) -> str:
    return f"{breach.at_s:.1f} s: {breach.who} {breach.text}" if breach.who else f"{breach.at_s:.1f} s: {breach.text}"


def _in_a_line(event: Event) -> str:
    who = event.who or "the exam"
    text = f"{event.at_s:7.2f} s  {who}: {event.text}"
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"


def exam_junit(results: Iterable[Result]) -> str:
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
    """Return results as an HTML page: a table of scenarios, and a diagram for each broken law."""
    from groupcoord.analysis.report.html.rendering import render  # a test of a consumer needs no jinja2

    return render(
        "testing/exams/exam.html.jinja",
        results=results,
        command=command,
        baseline=baseline_of(results),
        by_novelty=_by_novelty,
        is_like_baseline=is_like_baseline,
        known_bugs=_known_bugs,
        named=_named,
        story=story,
    )
