"""Three replicas of a service are killed, stopped and ended, as their database is: nothing acknowledged is lost."""

from __future__ import annotations

import pytest

from tests.storage.sql.postgres_server import PostgresServer

from .chaos import FAULTS, run_chaos


@pytest.mark.parametrize(
    "faults", [pytest.param(len(FAULTS), marks=pytest.mark.ci), pytest.param(60, marks=pytest.mark.slow)]
)
def test_nothing_acknowledged_is_lost(postgres: PostgresServer, faults: int) -> None:
    """Each group is answered again after each fault, by an owner that knows what was acknowledged."""
    chaos = run_chaos(postgres, faults, seed=faults)
    assert all(client.acknowledged > 0 for client in chaos.clients)
    assert sum(map(len, chaos.silent_s.values())) == faults
