"""A sample of each attack, judged by what holds at any speed; ``python -m tests.attack`` also judges waits."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence

import pytest

from tests.attack import sharing
from tests.attack.amplify import CROWDED, amplification
from tests.attack.fuzz import fuzz
from tests.attack.layouts import layout, repeated
from tests.attack.owners import attack_owners
from tests.attack.rig import Attack, Bounds, Result, Server
from tests.client import Client
from tests.samples import SEED
from tests.wire.sample_requests import BODIES

BOUNDS = Bounds(slowest_ms=math.inf, end_s=math.inf)
FRAMES, OWNER_ROUNDS = 2_000, 5


def run(attack: Attack, bounds: Bounds = BOUNDS) -> Result:
    result = Result("test", attack.name)
    attack.run(result, bounds)
    return result


def together(attacks: Sequence[Attack]) -> Attack:
    """Return an attack that does the same as others, one after the other, on one server."""

    def act(server: Server, result: Result) -> None:
        for attack in attacks:
            attack.act(server, result)

    return Attack("together", act, attacks[0].settings, ends_by_signal=True)


@pytest.mark.ci
def test_fuzzed_frames() -> None:
    result = run(fuzz(FRAMES, seed=SEED))
    assert not result.faults, str(result)
    assert result.inputs["frames"] >= FRAMES
    assert result.inputs["answers read field by field"] > FRAMES / 200


@pytest.mark.ci
def test_amplification() -> None:
    """A small request with a response of 10 MB is answered."""
    values = {**BODIES[15], "groups": [CROWDED]}
    result = run(amplification("DescribeGroups, 100 times", lambda: repeated(layout(15, 5, values), 100)))
    assert not result.faults, str(result)
    assert result.inputs["bytes answered"] > 10_000_000


@pytest.mark.slow
def test_share_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "RENEWALS", 250)
    result = run(together(sharing.SHARING))
    assert not result.faults, str(result)
    assert result.inputs["locks renewed"] > 100_000
    assert result.inputs["records given up"] > 0


@pytest.mark.ci
def test_owners() -> None:
    """A replica that was stopped until the other one had taken over answers nothing but NOT_COORDINATOR."""
    result = Result("test", "owners")
    attack_owners(result, OWNER_ROUNDS, SEED + 1)
    assert not result.faults, str(result)
    if not result.inputs:
        pytest.skip(result.notes[0])
    assert result.inputs["take-overs"] > 0


@pytest.mark.ci
def test_a_loss_is_found() -> None:
    def lose(server: Server, result: Result) -> None:
        shutil.rmtree(next(server.data_dir.glob("__consumer_offsets-*")).parent)

    def die(server: Server, result: Result) -> None:
        server.kill()

    assert "lost acknowledged offsets" in str(run(Attack("loss", lose)))
    assert "ended with status" in str(run(Attack("death", die)))


@pytest.mark.ci
def test_slowness_is_found() -> None:
    """An attack fails if the server is slow, large, or keeps connections of closed clients."""
    held: list[Client] = []
    bounds = Bounds(slowest_ms=0.0, memory_mib=1.0, release_s=0.2)
    faults = str(run(Attack("harm", lambda server, result: held.append(server.connect())), bounds))
    held[0].close()
    assert "a healthy client waited" in faults
    assert "connections are held" in faults
    assert "MiB" in faults
