"""Who only looks changes nothing: recorded conversations go as ever on a server with rules that do nothing."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from groupcoord.conformance import InProcessTarget, Transcript, Verdict, load_transcripts, run
from groupcoord.conformance.in_process import InProcessServer
from groupcoord.conformance.targets import Settings
from groupcoord.faults import Rule, Rules
from groupcoord.host.broker import Broker
from groupcoord.wire.registry import APIS
from tests.host.driving import drain, feed
from tests.host.wire_world import HEARTBEAT, World, wire_frame

TRANSCRIPTS = load_transcripts()
EVERY = 60
"""Of so many conversations one is held in every run, all of them with ``-m slow``."""


class RuledTarget(InProcessTarget):
    """A server with two rules for each API, which see all its requests and answers and let them go on.

    Args:
        is_idle: the rules are removed before the first request.
    """

    def __init__(self, *, is_idle: bool) -> None:
        super().__init__()
        self._is_idle = is_idle

    def start(self, settings: Settings) -> InProcessServer:
        server = super().start(settings)
        make_broker = server._make_broker

        def make_ruled_broker() -> Broker:
            broker, rules = make_broker(), Rules()
            rules.follow(broker)
            for api in APIS.values():
                for after in (False, True):
                    rules.add(Rule(api.name, lambda call: None, after=after))
            if self._is_idle:
                rules.clear()
            return broker

        server._make_broker, server._broker = make_ruled_broker, make_ruled_broker()
        return server


def bytecodes_of_a_heartbeat(world: World) -> int:
    """Return how many instructions of the interpreter a heartbeat takes, from its bytes to those of the answer."""
    frame = wire_frame(12, 4, HEARTBEAT)
    connection = world.broker.connect("/127.0.0.1")
    for _ in range(2):  # now nobody is new, and everything that is kept for later is there
        feed(connection, frame)
        drain(connection)
    count = 0

    def trace(called: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        called.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        feed(connection, frame)
    finally:
        sys.settrace(before)
    assert drain(connection)
    return count


def test_idle_hooks_cost_nothing() -> None:
    """A request takes the same instructions on a server whose rules are all removed as on one that never had any."""
    plain, hooked = World(), World()
    rules = Rules()
    rules.follow(hooked.broker)
    rules.add(Rule("Heartbeat", lambda call: None))
    looking = bytecodes_of_a_heartbeat(hooked)
    rules.clear()

    idle = bytecodes_of_a_heartbeat(hooked)
    assert idle == bytecodes_of_a_heartbeat(plain) < looking


@pytest.mark.parametrize("is_idle", [False, True], ids=["looking", "idle"])
@pytest.mark.parametrize(
    "transcript",
    [pytest.param(t, marks=[pytest.mark.slow] if n % EVERY else [], id=str(t)) for n, t in enumerate(TRANSCRIPTS)],
)
def test_rules_that_do_nothing_change_nothing(transcript: Transcript, is_idle: bool) -> None:
    """What the real broker answered is answered, at the same moments."""
    (outcome,) = run([transcript], RuledTarget(is_idle=is_idle)).outcomes
    if outcome.verdict is Verdict.SKIPPED:
        pytest.skip(outcome.reason)
    assert outcome.failure is None, outcome.failure.describe()
