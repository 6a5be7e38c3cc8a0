"""Diagrams of a member's states, and tables of reactions and settings, generated from the code."""

from __future__ import annotations

from attrs import fields

from groupcoord.config import key_of
from groupcoord.errors import ErrorCode
from groupcoord.member import CONSUMER_TRANSITIONS, TRANSITIONS, MemberConfig, MemberState, Reaction
from groupcoord.member.error_handling import CLASSIC, CONSUMER, Reactions
from groupcoord.member.membership import Transitions

WORDS = {
    Reaction.RETRY: "repeat",
    Reaction.FIND_COORDINATOR: "find",
    Reaction.REJOIN: "rejoin",
    Reaction.RESET_GENERATION: "rejoin, same id",
    Reaction.RESET_MEMBER_ID: "rejoin, no id",
    Reaction.TAKE_MEMBER_ID: "take the id",
    Reaction.TAKE_EPOCH: "new epoch",
    Reaction.OUT_OF_GROUP: "report",
    Reaction.REPORT: "report",
    Reaction.IGNORE: "nothing",
    Reaction.FAIL: "**fail**",
}


def classic_diagram() -> str:
    """Return the states of the classic protocol as a Mermaid drawing."""
    return _diagram(MemberState.UNJOINED, TRANSITIONS)


def consumer_diagram() -> str:
    """Return the states of members of consumer groups, without the transitions to Failed and Closed."""
    ends = (MemberState.FAILED, MemberState.CLOSED)
    inner = {state: tuple(to for to in targets if to not in ends) for state, targets in CONSUMER_TRANSITIONS.items()}
    return _diagram(MemberState.UNSUBSCRIBED, {state: targets for state, targets in inner.items() if targets})


def _diagram(start: MemberState, transitions: Transitions) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start.value}"]
    for state, following in transitions.items():
        targets = [to for to in MemberState if to in following and to is not state]
        lines += [f"    {state.value} --> {target.value}" for target in targets]
        if not targets:
            lines.append(f"    {state.value} --> [*]")
    return "\n".join([*lines, "```"])


def classic_reactions() -> str:
    """Return a Markdown table of each API's reaction to the errors that some API treats specially."""
    return _reactions(CLASSIC)


def consumer_reactions() -> str:
    return _reactions(CONSUMER)


def _reactions(reactions: Reactions) -> str:
    table, otherwise = reactions
    lookup = next(iter(table))
    apis = [api for api in table if api is not lookup]
    own = {code for api in apis for code in table[api] if table[api][code] is not Reaction.RETRY}
    own |= {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    names = [api.__name__ for api in table]
    lines = [f"| error | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for code in sorted(own):
        cells = [WORDS[reactions.to(api, code)] for api in table]
        lines.append(f"| {code.name} | {' | '.join(cells)} |")
    cells = [WORDS[otherwise[api]] for api in table]
    return "\n".join([*lines, f"| any other | {' | '.join(cells)} |"])


def settings() -> str:
    lines = ["| key | default |", "|---|---|"]
    for field in fields(MemberConfig):
        default = field.default
        shown = ",".join(default) if isinstance(default, tuple) else str(default).lower() if default != "" else ""
        lines.append(f"| `{key_of(field.name)}` | {shown} |".replace("|  |", "| |"))
    return "\n".join(lines)


if __name__ == "__main__":
    made = (classic_diagram, consumer_diagram, classic_reactions, consumer_reactions, settings)
    print(*(make() for make in made), sep="\n\n")
