"""HTML page of the museum: exhibits that play step by step, without scripts."""

from __future__ import annotations

from collections.abc import Iterable

from groupcoord.analysis.report.html.layout import Html, Section, element, joined, listing, page, paragraph, soft
from groupcoord.analysis.report.text import counted
from groupcoord.testing.exploring.story import Story, diagram
from groupcoord.testing.museum.exhibit import Exhibit


def museum_page(played: Iterable[tuple[Exhibit, Story]]) -> str:
    shown = list(played)
    lead = [
        paragraph(
            "Real bugs of group coordination, each replayed on a coordinator that has it: "
            "requests, responses, records, the state of the group after each step, and the broken law."
        ),
        paragraph(f"{counted(len(shown), 'exhibit')}; open a step to see the state after it."),
    ]
    return page("Museum of coordinator bugs", lead, [_section(exhibit, story) for exhibit, story in shown])


def _section(shown: Exhibit, story: Story) -> Section:
    parts = [
        soft(f"{shown.room}; {shown.versions}; {', '.join(shown.references)}"),
        paragraph(shown.story),
        paragraph(element("b", "Damage: "), shown.loses),
        paragraph(element("b", "The law: "), shown.law),
        element("div", diagram(story), class_="plot"),
        *(_step(shown.id, number, story) for number in range(len(story.steps))),
        paragraph(element("b", f"Broken: {story.law} ", class_="bad"), story.message),
    ]
    return Section(shown.id, f"{shown.id}: {shown.title}", joined(parts))


def _step(of: str, number: int, story: Story) -> Html:
    """Return one step; opening it closes the other steps of the exhibit."""
    entry = story.steps[number]
    is_last = number == len(story.steps) - 1 and bool(story.law)
    summary = element("summary", f"{number + 1}. {entry.step}", class_="bad" if is_last else None)
    return element("details", summary, listing((entry.state or "not reached").split("; ")), name=f"steps-{of}")
