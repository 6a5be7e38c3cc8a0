"""A sample of each attack on a running server, and that an attack which does harm is found out.

What is judged here is what holds at any speed: answers, what is acknowledged, the log, connections. How long a healthy
client waits is for ``python -m tests.attack`` to measure.
"""

from __future__ import annotations

import math
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.attack import connections, disk, followers, operators
from tests.attack.amplify import Amplification, amplify
from tests.attack.batches import HOSTILE, send_hostile
from tests.attack.flood import FLOODS, Flood, flood
from tests.attack.fuzz import fuzz
from tests.attack.layouts import layout, repeated
from tests.attack.logins import attack_logins
from tests.attack.owners import attack_owners
from tests.attack.preparation import CROWDED
from tests.attack.report import Result
from tests.attack.sharing import SETTINGS, SHARING, attack_sharing
from tests.attack.siege import Attack, Bounds, Siege
from tests.attack.target import Target
from tests.wire.sample_requests import BODIES

SIEGE = Siege(Bounds(slowest_ms=math.inf, end_s=math.inf))
FRAMES = 2_000
LOGINS = 300
OWNER_ROUNDS = 5


@dataclass(frozen=True)
class Together(Siege):
    """Attacks that are carried out one after the other on one server, since starting servers takes long."""

    attacks: list[Attack] = field(default_factory=list)

    def run(self, result: Result, attack: Attack, data_dir: Path | None = None) -> Result:
        """Keep it for later."""
        self.attacks.append(attack)
        return result

    def carry_out(self, siege: Siege) -> Result:
        """Carry out all of them."""

        def attack_all(target: Target, result: Result) -> None:
            for attack in self.attacks:
                attack(target, result)

        return siege.run(Result("test", "together", "again"), attack_all)


@pytest.mark.ci
def test_fuzzed_frames() -> None:
    """Each request is answered in order, or its connection is closed; nothing else is harmed."""
    result = fuzz(SIEGE, FRAMES, seed=1)
    assert not result.faults, result.replay
    assert result.inputs["frames"] >= FRAMES
    assert result.inputs["answers read field by field"] > FRAMES / 200


@pytest.mark.ci
def test_floods() -> None:
    """All that is asked at a time, or by few bytes, is answered; connections that come and go leave nothing behind."""
    together = Together(SIEGE.bounds)
    values = {**BODIES[15], "groups": [CROWDED]}
    case = Amplification("DescribeGroups, 100 times", lambda: repeated(layout(15, 5, values), 100))
    amplify(together, case, "again")
    flood(together, Flood("heartbeats", 5, 1_000, FLOODS[0].request), "again")
    connections.churn(together, "again", 200, seed=1)
    result = together.carry_out(SIEGE.ended_by_signal())
    assert not result.faults, result.faults
    assert result.inputs["bytes answered"] > 10_000_000


@pytest.mark.ci
def test_hostile_batches() -> None:
    """Whatever a batch claims, or is when it is decompressed, it is answered and harms nobody."""
    together = Together(SIEGE.bounds)
    for case in HOSTILE:
        if case.name.startswith(("67 bytes", "gzip, empty", "snappy, claims", "zstd, windows")):
            send_hostile(together, case, "again")
    result = together.carry_out(SIEGE)
    assert not result.faults, result.faults
    assert result.inputs["requests"] > 40


@pytest.mark.ci
def test_share_groups() -> None:
    """Waiting sessions, locks, states and records without end and without sense are answered, and harm nobody."""
    together = Together(SIEGE.bounds)
    for name in SHARING:
        attack_sharing(together, name, "again")
    result = together.carry_out(replace(SIEGE, settings=SETTINGS))
    assert not result.faults, result.faults
    assert result.inputs["locks renewed"] > 100_000
    assert result.inputs["records given up"] > 0


@pytest.mark.ci
def test_followers() -> None:
    """Readers of the log of groups see each commit, whatever becomes of segments; one server has it, as one topic."""
    together = Together(SIEGE.bounds)
    for case in (followers.compacted, followers.started_in_vain, followers.second_server):
        case(together, "again")
    result = together.carry_out(replace(SIEGE, settings=followers.COMPACTING))
    assert not result.faults, result.faults
    assert result.inputs["servers refused"] == 2


@pytest.mark.ci
def test_owners() -> None:
    """A replica that stood still until the other one had taken over answers nothing but NOT_COORDINATOR."""
    result = attack_owners(OWNER_ROUNDS, seed=1, replay="again")
    assert not result.faults, result.faults
    if not result.inputs:
        pytest.skip(result.notes[0])
    assert result.inputs["take-overs"] > 0


@pytest.mark.ci
def test_log_ins_and_handshakes() -> None:
    """Garbage at any step of a log-in or a handshake is answered or ends its connection, and harms nobody."""
    result = attack_logins(SIEGE, LOGINS, seed=1)
    assert not result.faults, result.faults
    assert sum(result.inputs.values()) >= LOGINS


@pytest.mark.ci
def test_too_many_connections() -> None:
    """Those beyond ``max.connections``, or beyond the descriptors, are refused; a few lines say so, and it passes."""
    together = Together(SIEGE.bounds)
    connections.too_many(together, "again")
    connections.descriptors(together, "again")
    settings: dict[str, str | int] = {"max.connections": connections.CONNECTIONS_MAX}
    assert not together.carry_out(replace(SIEGE, settings=settings, connects=False)).faults


@pytest.mark.ci
@pytest.mark.parametrize("attack", [connections.idle_pages, connections.years_pass, operators.names])
def test_what_operators_see_and_open(attack: Callable[[Siege, str], Result]) -> None:
    """Idle connections to the metrics and years that pass take nothing from clients; names steer no terminal."""
    assert not attack(SIEGE, "again").faults


@pytest.mark.ci
def test_a_log_that_can_not_be_written() -> None:
    """Commits are refused while no file may grow or the segments are gone; none is acknowledged that no file holds."""
    together = Together(SIEGE.bounds)
    disk.small_files(together, "again")
    disk.removed(together, "again", directory=False)
    assert not together.carry_out(replace(SIEGE, may_be_refused=True, survives=False)).faults


def _kill_and_lose(target: Target, result: Result) -> None:
    shutil.rmtree(target.data_dir)
    target.kill()


def test_a_loss_is_found_out() -> None:
    """A server that died, or lost something, doesn't pass."""
    result = SIEGE.run(Result("test", "harm", "again"), _kill_and_lose)
    faults = "\n".join(result.faults)
    assert "has ended by itself" in faults
    assert "lost acknowledged offsets" in faults


def test_slowness_is_found_out() -> None:
    """A server that is slow, or keeps connections, doesn't pass."""
    held: list[socket.socket] = []
    bounds = Bounds(slowest_ms=0.0, memory_mib=1.0, release_s=0.2)
    result = Siege(bounds).run(Result("test", "harm", "again"), lambda target, _: held.append(target.connect()))
    held[0].close()
    faults = "\n".join(result.faults)
    assert "a healthy client waited" in faults
    assert "connections are held" in faults
    assert "MiB" in faults
