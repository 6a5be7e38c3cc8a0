"""Three replicas of a service, their database and their clients are killed, stopped and cut off from each other."""

from __future__ import annotations

import pytest

from tests.storage.sql.postgres_server import PostgresServer

from .chaos.run import FAULTS, run_chaos


@pytest.mark.parametrize(
    "faults", [pytest.param(len(FAULTS), marks=pytest.mark.ci), pytest.param(500, marks=pytest.mark.slow)]
)
def test_nothing_acknowledged_is_lost(postgres: PostgresServer, faults: int) -> None:
    """Each group is answered again after each fault, by an owner that knows what was acknowledged."""
    chaos = run_chaos(postgres, faults, seed=faults)
    assert all(record.acknowledged_count > 0 for record in chaos.records.values())
    assert chaos.counts.total() == faults
