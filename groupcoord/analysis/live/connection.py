"""A connection to a cluster, for as long as it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from groupcoord.analysis.errors import InputError
from groupcoord.analysis.live.cluster import LiveCluster, Patience
from groupcoord.analysis.live.settings import ClusterAddress

FIRST_ANSWER_MS = 4_000
"""How long a run tries to connect at its start: where a wrong port is named, nobody ever answers."""


@contextmanager
def connection(address: ClusterAddress, *, begins_run: bool = False) -> Iterator[tuple[LiveCluster, Patience]]:
    """Connect to a cluster as long as the context lasts, and say how patient its settings want one to be.

    Args:
        address: where it is.
        begins_run: it was not reached before, so that it may not be there at all. Later a broker may only be down for
            a while, for which the settings say how long to wait.

    Raises:
        ClusterError: it can't be reached, or refuses the log-in.
        InputError: the settings are wrong, or javaproperties, or scramp for SCRAM, is not installed.
    """
    try:
        from groupcoord.analysis.live.client import KafkaCluster

        settings = address.settings()
        longest_ms = FIRST_ANSWER_MS if begins_run else settings.default_api_timeout_ms
        first = Patience(min(settings.default_api_timeout_ms, longest_ms), settings.retry_backoff_ms)
        cluster = first.try_for(lambda: KafkaCluster(settings))
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; try: pip install 'groupcoord[live]'") from error
    patience = Patience(settings.default_api_timeout_ms, settings.retry_backoff_ms)
    try:
        yield cluster, patience
    finally:
        cluster.close()
