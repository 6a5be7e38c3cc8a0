"""The museum as one HTML page: exhibits that play step by step, without scripts from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from groupcoord.analysis.report.html import Html, element, joined
from groupcoord.analysis.report.layout import Section, page, paragraph, soft
from groupcoord.testing.exploring.telling import Story, diagram
from groupcoord.testing.museum.exhibit import Exhibit

__all__ = ["museum_page"]


def museum_page(played: Iterable[tuple[Exhibit, Story]]) -> str:
    """Return a page that tells exhibits, with what happens step by step where the bug is.

    Args:
        played: each exhibit with its history as it was played with the bug.
    """
    shown = list(played)
    lead = [
        paragraph(
            "Bugs of group coordination that really happened, each played on a coordinator that has it: "
            "what was asked, answered and written, how the group is after each step, and the law that breaks."
        ),
        paragraph(f"{len(shown)} exhibits; open a step to see how the group, its members and the log are then."),
    ]
    return page("A museum of coordinators' bugs", lead, [_section(exhibit, story) for exhibit, story in shown])


def _section(shown: Exhibit, story: Story) -> Section:
    parts = [
        soft(f"{shown.room}; {shown.versions}; {', '.join(shown.references)}"),
        paragraph(shown.story),
        paragraph(element("b", "Users lose: "), shown.loses),
        paragraph(element("b", "The law: "), shown.law),
        element("div", diagram(story), class_="plot"),
        *(_step(number, story) for number in range(len(story.steps))),
        paragraph(element("b", f"Broken: {story.law} ", class_="bad"), story.message),
    ]
    return Section(shown.id, f"{shown.id}: {shown.title}", joined(parts))


def _step(number: int, story: Story) -> Html:
    told = story.steps[number]
    is_last = number == len(story.steps) - 1 and bool(story.law)
    summary = element("summary", f"{number + 1}. {told.step}", **({"class_": "bad"} if is_last else {}))
    return element("details", summary, paragraph(told.state or "it comes no further"))
