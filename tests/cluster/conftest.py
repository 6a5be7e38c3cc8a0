"""Servers for slot logs: of PostgreSQL, and of NATS, one and three."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.sql.conftest import postgres as postgres

from .engines import Engine
from .nats_servers import NatsServers, NoServerError


def started(count: int) -> Iterator[NatsServers]:
    """Return a number of NATS servers."""
    pytest.importorskip("nats", reason="NATS needs nats-py: pip install 'groupcoord[cluster]'")
    try:
        servers = NatsServers(count)
        servers.start_all()
    except NoServerError as error:
        pytest.skip(f"no NATS can be started: {error}")
    yield servers
    servers.close()


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsServers]:
    """One server of NATS for all tests of this process."""
    yield from started(1)


@pytest.fixture(scope="session")
def three_nats() -> Iterator[NatsServers]:
    yield from started(3)


@pytest.fixture(params=["postgres", "nats", "three_nats"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """An engine for slot logs."""
    servers = request.getfixturevalue(request.param)
    return Engine(servers.url_with("none"), 5_000 if request.param == "three_nats" else 0)
