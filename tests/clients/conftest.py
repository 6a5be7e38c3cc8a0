"""Real client libraries, and a server for the tests that need nothing special of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from groupcoord.cli.demo_processes import ServerProcess
from tests.clients.fleet import serving


@pytest.fixture(scope="session")
def client_libraries() -> None:
    """Skip the test if a client library is not installed."""
    for module in ("kafka", "aiokafka", "confluent_kafka"):
        pytest.importorskip(module)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that all tests of a module share: each has groups of its own."""
    with serving(tmp_path_factory.mktemp("data")) as server:
        yield server
