"""Real client libraries, and a server for the tests that need nothing special of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupcoord.testing.server import ServerThread
from tests.clients.fleet import PARTITION_COUNT, SETTINGS, TOPIC

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore sockets that kafka-python leaves to the garbage collector when closed while connecting."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def left_sockets() -> Iterator[None]:
    """Collect such sockets before tests of other modules, which accept none."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def client_libraries() -> None:
    for module in ("kafka", "aiokafka", "confluent_kafka"):
        pytest.importorskip(module)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    """A server shared by all tests of a module: each has its own groups."""
    with ServerThread(topics={TOPIC: PARTITION_COUNT}, settings={**SETTINGS, "records.enable": "false"}) as server:
        yield server
