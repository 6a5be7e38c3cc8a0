"""What a cluster's brokers are set to, as far as the tables depend on it."""

from __future__ import annotations

from groupcoord.analysis.live.cluster import LiveCluster
from groupcoord.analysis.live.errors import ClusterError, TransientClusterError
from groupcoord.analysis.live.retries import Patience

OFFSETS_RETENTION = "offsets.retention.minutes"


def offsets_retention_minutes(cluster: LiveCluster, patience: Patience) -> int | None:
    """Return how long offsets are kept that nobody uses; None: the cluster doesn't tell this user.

    Args:
        cluster: whom to ask: the broker with the lowest id, since brokers of a cluster are set alike.
        patience: how long to wait for an answer.

    Raises:
        TransientClusterError: no broker answers.
    """

    def ask() -> str | None:
        return cluster.describe_configs(cluster.brokers()[0], [OFFSETS_RETENTION]).get(OFFSETS_RETENTION)

    try:
        told = patience.try_for(ask)
    except TransientClusterError:
        raise
    except ClusterError:
        return None
    return int(told) if told is not None and told.isdecimal() else None
