"""A server with a recorded log, and a connection to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from groupcoord.analysis.live.cluster import KafkaCluster, Patience
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.testing import ServerThread

from .recorded import recorded_server


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the log partitions ``__consumer_offsets-N`` and the server's files."""
    return tmp_path_factory.mktemp("recorded")


@pytest.fixture(scope="package")
def server(folder: Path) -> Iterator[ServerThread]:
    with recorded_server(folder) as server:
        yield server


@pytest.fixture
def cluster(server: ServerThread) -> Iterator[KafkaCluster]:
    """A connection to it."""
    cluster = KafkaCluster(ClusterAddress(server.bootstrap).settings())
    yield cluster
    cluster.close()
    server.clear_faults()


@pytest.fixture
def patience() -> Patience:
    """Ten seconds of it."""
    return Patience(10_000, 5)
