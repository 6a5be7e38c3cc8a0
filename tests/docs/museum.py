"""Makes ``docs/museum.md``, the exhibits of the museum, from their files: ``python -m tests.docs.museum``."""

from __future__ import annotations

from collections.abc import Iterator

from groupcoord.testing.museum import SEARCHERS, Exhibit, exhibits

from .markdown import DOCS

PAGE = DOCS / "museum.md"

HEAD = """# A museum of coordinators' bugs

Bugs of group coordination that really happened, in Kafka, its peers, client libraries and monitors:
what was wrong in our words, what has to happen, what users lost, and the law that it breaks.
`groupcoord museum` has them at hand:

```console
$ groupcoord museum list
$ groupcoord museum show KAFKA-16147
$ groupcoord museum play KAFKA-16147
$ groupcoord museum play --all --html museum.html
$ groupcoord museum hunt KAFKA-16147 --with explore,machine,member,swarm --cpu 60
```

Where a bug has a place in this package, it is there as a *plant*: a small change of one module,
which a process of its own makes while it imports that module.
`play` lets the shortest history happen twice, without the bug and with it, looks at every law after each step
and says which one breaks.
`hunt` looks for the bug without knowing it:
`explore` looks at every history in which what the exhibit's history is made of happens, in any order;
`machine` is [the published state machine](testing.md),
`member` are random lives of one member (`groupcoord.testing.member_life`),
`swarm` are [the simulator's small fleets](simulator.md).
The suite's mutants are these plants too.

The page is made from the exhibits by `python -m tests.docs.museum`, and a test compares it with them.
"""


def page() -> str:
    """Return the whole page."""
    shown = exhibits()
    rooms = dict.fromkeys(one.room for one in shown)
    parts = [HEAD, "## All of them\n", *_table(shown), "## Time to find\n", *_times(shown)]
    for room in rooms:
        parts.append(f"## {room[0].upper()}{room[1:]}\n")
        parts += [_told(one) for one in shown if one.room == room]
    return "\n".join(parts)


def _table(shown: tuple[Exhibit, ...]) -> Iterator[str]:
    yield "| exhibit | what happened | where | in this package |"
    yield "|---|---|---|---|"
    for one in shown:
        here = "plays" if one.play is not None else "can be hunted" if one.plant is not None else ""
        yield f"| {one.id} | {one.title} | {_cell(one.versions)} | {here} |"
    yield ""


def _times(shown: tuple[Exhibit, ...]) -> Iterator[str]:
    yield "CPU seconds until a law broke, in brackets: until the bug was noticed in another way."
    yield "`-` stands for: not in 60 s; where nothing stands, nobody has hunted yet."
    yield "One run each on two busy cores, so take them as an order of magnitude."
    yield ""
    yield f"| exhibit | {' | '.join(SEARCHERS)} |"
    yield f"|---|{'---|' * len(SEARCHERS)}"
    for one in shown:
        if one.found:
            yield f"| {one.id} | {' | '.join(one.found.get(searcher, '') for searcher in SEARCHERS)} |"
    yield ""


def _told(one: Exhibit) -> str:
    lines = [
        f"### {one.id}: {one.title}\n",
        f"*{one.versions}; {', '.join(one.references)}*\n",
        f"{one.story}\n",
        f"- What has to happen: {one.history}.",
        f"- What users lost: {one.loses}.",
        f"- The law: {one.law}.",
    ]
    if one.plant is not None:
        lines.append(f"- The plant: `groupcoord/{one.plant.file}`.")
    else:
        lines.append(f"- Not in this package: {one.absent}.")
    if one.play is not None:
        lines.append(f"- The history: `{', '.join(one.play['steps'])}`.")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
