"""Real client libraries, and a server for the tests that need nothing special of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.fleet import open_server
from tests.processes import ServerProcess

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a test here pass when kafka-python, closed while it connects, leaves the socket to the garbage collector."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def left_sockets() -> Iterator[None]:
    """Collect such sockets before a test elsewhere runs, which accepts none."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def client_libraries() -> None:
    for module in ("kafka", "aiokafka", "confluent_kafka"):
        pytest.importorskip(module)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that all tests of a module share: each has groups of its own."""
    with open_server(tmp_path_factory.mktemp("data")) as server:
        yield server
