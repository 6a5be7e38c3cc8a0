"""Stories of played histories: lines of text and a diagram."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen

from groupcoord.analysis.report.html.layout import Html, element, label, line, picture, titled
from groupcoord.analysis.report.text import counted
from groupcoord.laws import errors_in, served_partitions
from groupcoord.testing.exploring.scope import Trace
from groupcoord.testing.exploring.stage import LOG_PARTITION, Happening, Played, Stage, play
from groupcoord.testing.machine.consumers import Consumer

RECEIVES, IS_ASKED = "receives", "is asked"
REPEATED_MAX = 12
"""Limit on lines shown of a step."""

_ROW, _TOP, _LEFT, _LETTER = 24, 40, 150, 6.9
_LANE, _TOLD, _WRITTEN = 90, 310, 350
"""Widths between lanes: processes, the last process to the coordinator, the coordinator to the log."""

GROUPS = ("ConsumerGroup", "ShareGroup", "StreamsGroup")
"""Prefixes that are omitted from names of records."""


@frozen
class Line:
    """Visible effect as text."""

    who: str
    what: str
    text: str
    is_error: bool = False


@frozen
class StoryStep:
    """Step with its effects."""

    step: str
    at_ms: int
    lines: tuple[Line, ...]
    state: str


@frozen
class Story:
    """Played history as text, up to the step that broke a law."""

    processes: tuple[str, ...]
    steps: tuple[StoryStep, ...]
    law: str = ""
    message: str = ""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Story:
        """Return the story from values of :func:`attrs.asdict`."""
        steps = [
            StoryStep(**{**entry, "lines": tuple(Line(**seen) for seen in entry["lines"])}) for entry in values["steps"]
        ]
        return cls(tuple(values["processes"]), tuple(steps), values["law"], values["message"])


def draw_story(trace: Trace, **options: Any) -> Story:
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
        steps.append(StoryStep(str(step), max(at_ms - start_ms, 0), tuple(lines), state))
    names = tuple(process.name for process in played.trace.scope.processes)
    broken = played.broken
    return Story(names, tuple(steps), *(("", "") if broken is None else (broken.law, broken.message)))


def _line(happening: Happening) -> Line:
    error = "" if happening.what != RECEIVES else _error_of(happening.value)
    return Line(happening.who, happening.what, _short(happening) + error, bool(error))


def _error_of(answer: Any) -> str:
    if answer is None:
        return ""
    errors = errors_in(answer)
    return f": {', '.join(error.name for error in errors)}" if errors else ""


def _short(happening: Happening) -> str:
    value = happening.value
    if happening.what == IS_ASKED:
        kinds = Counter(_kind(record) for record in value)
        return ", ".join(kind if count == 1 else f"{count} {kind}s" for kind, count in kinds.items())
    if value is None:
        return "nothing, ever"
    parts = [type(value).__name__.removesuffix("Response")]
    for name, word in (("generation_id", "generation"), ("member_epoch", "epoch")):
        number = getattr(value, name, None)
        if number is not None and number != -1:
            parts.append(f"{word} {number}")
    if happening.what == RECEIVES and getattr(value, "member_id", None):
        parts.append(f"as {value.member_id}")
    return " ".join(parts)


def _kind(record: Any) -> str:
    name = type(record).__name__.removesuffix("Record")
    return next((name.removeprefix(group) for group in GROUPS if name.startswith(group)), name)


def _state_of(stage: Stage) -> str:
    parts = []
    for partition in served_partitions(stage.coordinator):
        for group in partition.groups.values():
            members = group.members if hasattr(group, "members") else group.state.members  # type: ignore[attr-defined]
            parts.append(f"{group!r} of {', '.join(members) or 'nobody'}")
    if not any(True for _ in served_partitions(stage.coordinator)):
        parts.append("not served here")
    parts = parts or ["no group"]
    written, waiting = sum(1 for _ in stage.store.store.read(LOG_PARTITION)), len(stage.store.waiting())
    parts.append(
        f"{counted(written, 'record')} in the log" + (f", {counted(waiting, 'append')} on the way" if waiting else "")
    )
    return "; ".join([*parts, *(_of_consumer(name, consumer) for name, consumer in stage.consumers.items())])


def _of_consumer(name: str, consumer: Consumer) -> str:
    owned = getattr(consumer, "owned", None) or ()
    indexes = [index for each in owned.values() for index in each] if isinstance(owned, dict) else owned
    has = f" and has {', '.join(map(str, sorted(indexes)))}" if indexes else ""
    return f"{name} is {consumer.phase}{has}{', and waits' if consumer.is_waiting else ''}"


# ---------------------------------------------------------------- in lines


def in_lines(story: Story) -> Iterable[str]:
    for number, entry in enumerate(story.steps, 1):
        yield f"{number:>3}. {entry.step:<24} {entry.at_ms / 1000:>8.1f} s"
        shown = entry.lines[:REPEATED_MAX]
        for seen in shown:
            yield f"       {_as_text(seen)}"
        if len(entry.lines) > len(shown):
            yield f"       and {len(entry.lines) - len(shown)} more"
        if entry.state:
            yield f"       {entry.state}"
    yield f"     BROKEN {story.law}: {story.message}" if story.law else "     every law holds"


def _as_text(seen: Line) -> str:
    if seen.what == IS_ASKED:
        return f"the log receives {seen.text}"
    return f"{seen.who or 'somebody'} {seen.what} {seen.text}"


# ---------------------------------------------------------------- as a picture


def diagram(story: Story) -> Html:
    """Return a sequence diagram with a lane for each process, the coordinator and the log."""
    lanes = {name: _LEFT + _LANE * number for number, name in enumerate(story.processes)}
    coordinator = _LEFT + _LANE * max(len(lanes) - 1, 0) + _TOLD
    log = coordinator + _WRITTEN
    parts, y = [], _TOP
    for entry in story.steps:
        y += _ROW // 2
        parts.append(titled(entry.state, [label(8, y, entry.step, "start")]))
        for seen in entry.lines[:REPEATED_MAX]:
            source, end = (coordinator, log) if seen.what == IS_ASKED else (lanes.get(seen.who, 8), coordinator)
            text = _fitting(f"{'◀' if seen.what == RECEIVES else '▶'} {seen.text}", end - coordinator or _TOLD)
            shapes = [line(source, y + 5, end, y + 5, "finding-line" if seen.is_error else "axis")]
            parts.append(titled(_as_text(seen), [*shapes, label(end - 8, y, text, "end")]))
            y += _ROW
        y += 0 if entry.lines else _ROW
    if story.law:
        y += _ROW // 2
        broken = _fitting(f"BROKEN {story.law}: {story.message}", log)
        shapes = [line(8, y + 6, log, y + 6, "finding-line"), label(8, y, broken, "start")]
        parts.append(element("g", *shapes, class_="finding"))
        y += _ROW
    others = {**lanes, "coordinator": coordinator, "log": log}
    names = [label(x, 18, name, "middle") for name, x in others.items()]
    grid = [line(x, 26, x, y - _ROW // 2, "grid") for x in others.values()]
    return picture(log + 30, y, "requests, responses and records, step by step", [*grid, *names, *parts])


def _fitting(text: str, width: int) -> str:
    count = int(width / _LETTER)
    return text if len(text) <= count else f"{text[: count - 1]}…"
