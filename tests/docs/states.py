"""The drawing and the table of a group's states for the design page, made from the table in the code."""

from __future__ import annotations

from groupcoord import GroupState
from groupcoord.core.groups.classic.group import LEGAL_TRANSITIONS


def transitions() -> list[tuple[GroupState, list[GroupState]]]:
    """Return each state with the states it may move to, both in the order of :class:`GroupState`."""
    return [(state, [to for to in GroupState if to in LEGAL_TRANSITIONS[state]]) for state in GroupState]


def diagram() -> str:
    """Return the states as a Mermaid drawing."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {GroupState.EMPTY.value}"]
    for state, targets in transitions():
        lines += [f"    {state.value} --> {target.value}" for target in targets]
        if not targets:
            lines.append(f"    {state.value} --> [*]")
    return "\n".join([*lines, "```"])


def table() -> str:
    """Return the states as a Markdown table: a mark for every legal move from the row to the column."""
    names = [state.value for state in GroupState]
    lines = [f"| from \\ to | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for state, targets in transitions():
        marks = ["yes" if target in targets else "" for target in GroupState]
        lines.append(f"| {state.value} | {' | '.join(marks)} |".replace("|  |", "| |").replace("|  |", "| |"))
    return "\n".join(lines)


if __name__ == "__main__":
    print(diagram(), table(), sep="\n\n")
