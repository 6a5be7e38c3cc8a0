"""Clusters at a wrong address."""

from __future__ import annotations

import pytest

from groupcoord.analysis.errors import ClusterError
from groupcoord.analysis.live import cluster
from groupcoord.analysis.live.cluster import connection
from groupcoord.analysis.live.settings import ClusterAddress


def test_a_wrong_port_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first connection of a run fails within seconds, in one line with the address; a later one is retried."""
    monkeypatch.setattr(cluster, "FIRST_ANSWER_MS", 50)

    with pytest.raises(ClusterError) as error, connection(ClusterAddress("localhost:1"), begins_run=True):
        pytest.fail("nobody listens there")
    assert "localhost:1" in str(error.value)
    assert "\n" not in str(error.value)
