"""Engines for slot logs, each on its own servers."""

from __future__ import annotations

import itertools
from typing import Any

from groupcoord.cli.replica_logs import slot_log_at
from groupcoord.cluster.nats import NatsSlotLog
from groupcoord.cluster.postgres import PostgresSlotLog
from groupcoord.cluster.slot_log import SlotLog

_numbers = itertools.count()


class Engine:
    """Source of slot logs. Args: url: the servers. lag_ms: the largest lag of replicas, in milliseconds."""

    def __init__(self, url: str, lag_ms: int) -> None:
        self._url = url
        self.lag_ms = lag_ms

    def new_name(self) -> str:
        return f"slots_{next(_numbers)}"

    def slot_log(self, name: str) -> Any:
        return slot_log_at(f"{self._url}#{name}")


async def break_connections(one: SlotLog, other: SlotLog) -> None:
    """Break the connections of one slot log, where another helps to do that."""
    if isinstance(other, PostgresSlotLog):
        await other._ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
    if isinstance(one, NatsSlotLog):
        (await one._connections.client())._transport._io_writer.transport.abort()  # type: ignore[union-attr]
