"""One line per event, with what everybody is doing beside it."""

from __future__ import annotations

from groupcoord.member.membership import MemberState
from groupcoord.sim.actors.consumers import Consumer
from groupcoord.sim.world import World

LEGEND = (
    "nodes: digit up, x down · consumers: . dead  ? outside  j joins  s syncs  r reconciles  l leaves  "
    "0-9 owns so many (+: more)  z stands still  b is busy"
)

_LETTERS = {
    MemberState.UNJOINED: "?",
    MemberState.UNSUBSCRIBED: "?",
    MemberState.FENCED: "?",
    MemberState.STALE: "?",
    MemberState.PREPARING_REBALANCE: "j",
    MemberState.JOINING: "j",
    MemberState.RECONCILING: "r",
    MemberState.ACKNOWLEDGING: "r",
    MemberState.PREPARE_LEAVING: "l",
    MemberState.LEAVING: "l",
    MemberState.COMPLETING_REBALANCE: "s",
    MemberState.FAILED: "!",
    MemberState.CLOSED: ".",
}
WIDEST = 60


def picture(world: World) -> str:
    """Return one letter for each node and consumer; consumers beyond :data:`WIDEST` are left out."""
    nodes = "".join(str(node.node_id % 10) if node.is_up else "x" for node in world.cluster.nodes)
    groups = []
    left = WIDEST
    for group in world.groups:
        shown = group.consumers[:left]
        left -= len(shown)
        if shown:
            groups.append("".join(_letter(consumer) for consumer in shown))
    return f"{nodes} {' '.join(groups)}"


def _letter(consumer: Consumer) -> str:
    if consumer.member is None:
        return "."
    if consumer.is_frozen:
        return "z"
    if consumer.is_busy:
        return "b"
    if consumer.member.state is MemberState.STABLE:
        return str(len(consumer.owned)) if len(consumer.owned) < 10 else "+"
    return _LETTERS[consumer.member.state]
