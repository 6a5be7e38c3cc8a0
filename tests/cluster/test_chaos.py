"""Three nodes, their engine and their clients are killed, stopped and cut off from each other."""

from __future__ import annotations

import pytest

from tests.samples import SEED

from .chaos.processes import Setting
from .chaos.run import FAULTS, run_chaos
from .chaos.settings import SETTINGS_OVER_POSTGRES, NodesOverNats


@pytest.fixture(params=[*SETTINGS_OVER_POSTGRES, "nodes-over-nats"])
def setting(request: pytest.FixtureRequest) -> Setting:
    """An engine, and what shares a log in it."""
    if request.param in SETTINGS_OVER_POSTGRES:
        return SETTINGS_OVER_POSTGRES[request.param](request.getfixturevalue("postgres"))
    pytest.importorskip("nats", reason="NATS needs nats-py: pip install 'groupcoord[cluster]'")
    return NodesOverNats()


@pytest.mark.parametrize(
    "faults", [pytest.param(len(FAULTS), marks=pytest.mark.ci), pytest.param(500, marks=pytest.mark.slow)]
)
def test_nothing_acknowledged_is_lost(setting: Setting, faults: int) -> None:
    """Each group is answered again after each fault, by an owner that knows what was acknowledged."""
    chaos = run_chaos(setting, faults, seed=SEED + faults)
    assert all(record.acknowledged_count > 0 for record in chaos.records.values())
    assert chaos.counts.total() == faults
