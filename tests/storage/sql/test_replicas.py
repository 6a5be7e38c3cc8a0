"""Example with two replicas: one is suspended and continues, one is killed, one ends; the worker keeps its shards."""

from __future__ import annotations

import runpy
import signal

import pytest

from groupcoord.storage.stores.sql import CLOCK_RATE_MARGIN

from .postgres_server import PostgresServer
from .replicas import EXAMPLE, Replicas

LEASE_MS = 300
WAIT_MAX_S = 1


def test_the_one_that_stands_by_waits_less_than_a_second() -> None:
    """A lease, and until it asks again, before and after: that leaves a second of two for loading and answering."""
    names = runpy.run_path(str(EXAMPLE))
    assert names["LEASE_MS"] / 1_000 * CLOCK_RATE_MARGIN + 2 * names["ASK_S"] < WAIT_MAX_S


@pytest.mark.ci
def test_two_replicas(postgres: PostgresServer) -> None:
    """The other replica has all promises; a suspended one does not repeat outdated ones."""
    with Replicas(postgres.conninfo, LEASE_MS) as replicas:
        promised = {"error": "NONE", "epoch": replicas.epoch}
        assert replicas.owned == list(range(8))
        assert replicas.standby.beat()["error"] == "NOT_COORDINATOR"

        stopped = replicas.active
        stopped.send(signal.SIGSTOP)
        held = [stopped.begin("ann", replicas.epoch, replicas.owned) for _ in range(5)]
        _, told = replicas.change(signal.SIGSTOP)
        assert told | promised == told
        stopped.send(signal.SIGCONT)
        assert [stopped.end(each)["error"] for each in held] == ["NOT_COORDINATOR"] * 5

        _, told = replicas.change(signal.SIGKILL)
        assert told | promised == told
        assert replicas.active is stopped, "it stands by again after it was deposed"

        assert replicas.restart_standby() == "coordinating\n"
        _, told = replicas.change(signal.SIGTERM)
        assert told | promised == told
        assert replicas.standby.process.wait(30) == 0
        printed = replicas.standby.close().splitlines()
        assert [line.split(":")[0] for line in printed] == ["coordinating", "standing by again", "coordinating"]
