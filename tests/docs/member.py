"""The drawing of a member's states, and the tables of reactions and settings, made from the tables in the code."""

from __future__ import annotations

from attrs import fields

from groupcoord.config import key_of
from groupcoord.errors import ErrorCode
from groupcoord.member import REACTIONS, TRANSITIONS, MemberConfig, MemberState, Reaction
from groupcoord.member.reactions import OTHERWISE

WORDS = {
    Reaction.RETRY: "repeat",
    Reaction.FIND_COORDINATOR: "find",
    Reaction.REJOIN: "rejoin",
    Reaction.RESET_GENERATION: "rejoin, same id",
    Reaction.RESET_MEMBER_ID: "rejoin, no id",
    Reaction.TAKE_MEMBER_ID: "take the id",
    Reaction.REPORT: "tell",
    Reaction.IGNORE: "nothing",
    Reaction.FAIL: "**fail**",
}


def diagram() -> str:
    """Return the states as a Mermaid drawing."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {MemberState.UNJOINED.value}"]
    for state in MemberState:
        targets = [to for to in MemberState if to in TRANSITIONS[state] and to is not state]
        lines += [f"    {state.value} --> {target.value}" for target in targets]
        if not targets:
            lines.append(f"    {state.value} --> [*]")
    return "\n".join([*lines, "```"])


def reactions() -> str:
    """Return a Markdown table: for each error that any API treats in a way of its own, what each API does."""
    lookup = next(iter(REACTIONS))
    apis = [api for api in REACTIONS if api is not lookup]
    own = {code for api in apis for code in REACTIONS[api] if REACTIONS[api][code] is not Reaction.RETRY}
    own |= {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    names = [api.__name__ for api in REACTIONS]
    lines = [f"| error | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for code in sorted(own):
        cells = [WORDS[REACTIONS[api].get(code, OTHERWISE[api])] for api in REACTIONS]
        lines.append(f"| {code.name} | {' | '.join(cells)} |")
    cells = [WORDS[OTHERWISE[api]] for api in REACTIONS]
    return "\n".join([*lines, f"| any other | {' | '.join(cells)} |"])


def settings() -> str:
    """Return a Markdown table of the settings with their defaults."""
    lines = ["| key | default |", "|---|---|"]
    for field in fields(MemberConfig):
        default = field.default
        shown = ",".join(default) if isinstance(default, tuple) else str(default).lower() if default != "" else ""
        lines.append(f"| `{key_of(field.name)}` | {shown} |".replace("|  |", "| |"))
    return "\n".join(lines)


if __name__ == "__main__":
    print(diagram(), reactions(), settings(), sep="\n\n")
