"""Sections of the site's museum page, generated from the exhibits after docs/museum.md."""

from __future__ import annotations

from collections.abc import Iterator

from groupcoord.testing.museum import SEARCHERS, Exhibit, exhibits


def sections() -> str:
    """Return all sections as Markdown."""
    shown = exhibits()
    rooms = dict.fromkeys(one.room for one in shown)
    parts = ["## All of them\n", *_table(shown), "## Time to find\n", *_times(shown)]
    for room in rooms:
        parts.append(f"## {room[0].upper()}{room[1:]}\n")
        parts += [_section(one) for one in shown if one.room == room]
    return "\n".join(parts)


def _table(shown: tuple[Exhibit, ...]) -> Iterator[str]:
    yield "| exhibit | what happened | where | in this package |"
    yield "|---|---|---|---|"
    for one in shown:
        here = "plays" if one.play is not None else "can be hunted" if one.plant is not None else ""
        yield f"| {one.id} | {one.title} | {_cell(one.versions)} | {here} |"
    yield ""


def _times(shown: tuple[Exhibit, ...]) -> Iterator[str]:
    yield "CPU seconds until a law broke, or in brackets until the bug was detected in another way."
    yield "`-` means not within 60 s; an empty cell was not tried."
    yield "One run each on two busy cores: these are orders of magnitude."
    yield ""
    yield f"| exhibit | {' | '.join(SEARCHERS)} |"
    yield f"|---|{'---|' * len(SEARCHERS)}"
    for one in shown:
        if one.found:
            yield f"| {one.id} | {' | '.join(one.found.get(searcher, '') for searcher in SEARCHERS)} |"
    yield ""


def _section(one: Exhibit) -> str:
    lines = [
        f"### {one.id}: {one.title}\n",
        f"*{one.versions}; {', '.join(one.references)}*\n",
        f"{one.story}\n",
        f"- What has to happen: {one.history}.",
        f"- What users lost: {one.loses}.",
        f"- The law: {one.law}.",
    ]
    if one.plant is not None:
        lines.append(f"- The plant: `{one.plant.target}`.")
    else:
        lines.append(f"- Not in this package: {one.absent}.")
    if one.play is not None:
        lines.append(f"- The history: `{', '.join(one.play['steps'])}`.")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
