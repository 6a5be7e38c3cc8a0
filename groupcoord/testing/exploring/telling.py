"""Tells a history that was played: what each step did, in lines for a terminal and as a sequence diagram."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen

from groupcoord.analysis.report.html import Html
from groupcoord.analysis.report.svg import label, line, picture, titled
from groupcoord.laws import errors_in, served_partitions
from groupcoord.testing.exploring.playing import Played, play
from groupcoord.testing.exploring.scope import Trace
from groupcoord.testing.exploring.stage import Happening, Stage

__all__ = ["Line", "Story", "diagram", "in_lines", "tell"]

SENDS, IS_TOLD, IS_ASKED = "sends", "is told", "is asked"
REPEATED_MAX = 12
"""A step in which everybody goes on for minutes is told by its beginning."""

_LANE, _ROW, _TOP, _LEFT, _TEXT_MAX = 190, 26, 44, 150, 60


@frozen
class Line:
    """One thing that was seen from the outside.

    Attributes:
        who: the process that sends or is told; empty for who is none, and for the log.
        what: ``sends``, ``is told``, or (of the log) ``is asked``.
        text: the request, the answer or the records, in short.
        is_error: it is an answer with an error.
    """

    who: str
    what: str
    text: str
    is_error: bool = False


@frozen
class StepTold:
    """One step.

    Attributes:
        step: as it is written.
        at_ms: how much time had passed when it was done, in milliseconds.
        lines: what was seen of it.
        state: how the group, its members and the log are then.
    """

    step: str
    at_ms: int
    lines: tuple[Line, ...]
    state: str


@frozen
class Story:
    """A history that was played.

    Attributes:
        processes: their names.
        steps: what was done, up to the step that broke a law.
        law: the name of the law that was broken; empty: all hold.
        message: what it says.
    """

    processes: tuple[str, ...]
    steps: tuple[StepTold, ...]
    law: str = ""
    message: str = ""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Story:
        """Return the story that :func:`attrs.asdict` has made plain values of."""
        steps = [
            StepTold(**{**told, "lines": tuple(Line(**seen) for seen in told["lines"])}) for told in values["steps"]
        ]
        return cls(tuple(values["processes"]), tuple(steps), values["law"], values["message"])


def tell(trace: Trace, **options: Any) -> Story:
    """Play a history, and tell it.

    Args:
        trace: the history.
        options: what :func:`~groupcoord.testing.exploring.playing.play` takes besides.

    Raises:
        HistoryError: the history names what there is not.
    """
    states: list[tuple[int, str]] = []

    def watch(stage: Stage, number: int) -> None:
        states.append((stage.clock.now_ms(), _state_of(stage)))

    played = play(trace, watch=watch, **options)
    return _story(played, states)


def _story(played: Played, states: Sequence[tuple[int, str]]) -> Story:
    seen: dict[int, list[Happening]] = {}
    for happening in played.happenings:
        seen.setdefault(happening.step, []).append(happening)
    count = len(played.trace.steps) if played.broken is None else played.broken.step + 1
    start_ms = played.happenings[0].at_ms if played.happenings else 0
    steps = []
    for number, step in enumerate(played.trace.steps[:count]):
        at_ms, state = states[number] if number < len(states) else (start_ms, "")
        lines = [_line(happening) for happening in seen.get(number, ())]
        steps.append(StepTold(str(step), max(at_ms - start_ms, 0), tuple(lines), state))
    names = tuple(process.name for process in played.trace.scope.processes)
    broken = played.broken
    return Story(names, tuple(steps), *(("", "") if broken is None else (broken.law, broken.message)))


def _line(happening: Happening) -> Line:
    error = "" if happening.what != IS_TOLD else _error_of(happening.value)
    return Line(happening.who, happening.what, _short(happening) + error, bool(error))


def _error_of(answer: Any) -> str:
    if answer is None:
        return ""
    errors = errors_in(answer)
    return f": {', '.join(error.name for error in errors)}" if errors else ""


def _short(happening: Happening) -> str:
    """Return what was sent, told or written in few words: its kind, and whose it is."""
    value = happening.value
    if happening.what == IS_ASKED:
        kinds = Counter(type(record).__name__.removesuffix("Record") for record in value)
        return ", ".join(kind if count == 1 else f"{count} {kind}s" for kind, count in kinds.items())
    if value is None:
        return "nothing, ever"
    parts = [type(value).__name__.removesuffix("Response")]
    for name, word in (("generation_id", "generation"), ("member_epoch", "epoch")):
        number = getattr(value, name, None)
        if number is not None and number != -1:
            parts.append(f"{word} {number}")
    if happening.what == IS_TOLD and getattr(value, "member_id", None):
        parts.append(f"as {value.member_id}")
    return " ".join(parts)


def _state_of(stage: Stage) -> str:
    """Return how the group, its members and the log are."""
    parts = []
    for partition in served_partitions(stage.coordinator):
        for group in partition.groups.values():
            members = group.members if hasattr(group, "members") else group.state.members  # type: ignore[attr-defined]
            parts.append(f"{group!r} of {', '.join(members) or 'nobody'}")
    if not any(True for _ in served_partitions(stage.coordinator)):
        parts.append("not served here")
    waiting = len(stage.store.waiting())
    return "; ".join([*(parts or ["no group"]), *([f"{waiting} appends wait"] if waiting else [])])


# ---------------------------------------------------------------- in lines


def in_lines(story: Story) -> Iterable[str]:
    """Return a story in lines of text."""
    for number, told in enumerate(story.steps, 1):
        yield f"{number:>3}. {told.step:<24} {told.at_ms / 1000:>8.1f} s"
        shown = told.lines[:REPEATED_MAX]
        for seen in shown:
            yield f"       {_in_words(seen)}"
        if len(told.lines) > len(shown):
            yield f"       and {len(told.lines) - len(shown)} more"
        if told.state:
            yield f"       {told.state}"
    yield f"     BROKEN {story.law}: {story.message}" if story.law else "     every law holds"


def _in_words(seen: Line) -> str:
    if seen.what == IS_ASKED:
        return f"the log is asked to write {seen.text}"
    return f"{seen.who or 'somebody'} {seen.what} {seen.text}"


# ---------------------------------------------------------------- as a picture


def diagram(story: Story) -> Html:
    """Return a story as a sequence diagram: a line down for each process, for the coordinator and for the log."""
    lanes = {name: _LEFT + _LANE * number for number, name in enumerate(story.processes)}
    coordinator, log = (_LEFT + _LANE * (len(lanes) + more) for more in (0, 1))
    others = {**lanes, "coordinator": coordinator, "log": log}
    parts, y = [], _TOP
    for told in story.steps:
        y += _ROW
        parts.append(titled(told.state, [label(8, y, told.step, "start")]))
        for seen in told.lines[:REPEATED_MAX]:
            source, end = (coordinator, log) if seen.what == IS_ASKED else (lanes.get(seen.who, 8), coordinator)
            style = "finding-line" if seen.is_error else "axis"
            text = seen.text if len(seen.text) <= _TEXT_MAX else f"{seen.text[: _TEXT_MAX - 1]}…"
            arrow = "◀ " if seen.what == IS_TOLD else "▶ "
            shapes = [line(source, y + 5, end, y + 5, style), label(source + 6, y, arrow + text, "start")]
            parts.append(titled(_in_words(seen), shapes))
            y += _ROW
    if story.law:
        y += _ROW
        parts += [line(8, y + 6, log, y + 6, "finding-line"), label(8, y, f"BROKEN: {story.law}", "start")]
    height = y + _ROW
    for name, x in others.items():
        parts += [label(x, 18, name, "middle"), line(x, 26, x, height - 8, "grid")]
    return picture(log + _LANE, height, "what was asked, answered and written, step by step", parts)
