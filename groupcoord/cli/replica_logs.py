"""Logs that replicas share: copies for commands that read files, and the log of ``groupcoord serve --cluster URL``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from groupcoord.analysis.errors import PipelineError, first_line
from groupcoord.cli.interrupts import FAILED
from groupcoord.cli.messages import CommandError, command_errors
from groupcoord.clock import Clock
from groupcoord.core.messages import Node

if TYPE_CHECKING:
    from groupcoord.cluster.nats import NatsSlotLog
    from groupcoord.cluster.postgres import PostgresSlotLog
    from groupcoord.cluster.slot_log import SlotLog
    from groupcoord.host.cluster_node import ClusterNode
    from groupcoord.host.node_servers import Sockets
    from groupcoord.host.opening import Storage


_POSTGRES = ("postgresql://", "postgres://")
_NATS = ("nats://", "tls://")
SCHEMES = (*_POSTGRES, *_NATS)


def is_of_replicas(path: str) -> bool:
    return path.startswith(SCHEMES)


def as_files(paths: Iterable[str], context: typer.Context) -> list[str]:
    """Return the paths, with a copy in place of each URL, until the command ends."""
    return [_copied(path, context) if is_of_replicas(path) else path for path in paths]


def _copied(url: str, context: typer.Context) -> str:
    folder = context.with_resource(TemporaryDirectory(prefix="groupcoord-"))
    try:
        asyncio.run(_copy(url, Path(folder)))
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise PipelineError(f"{without_secrets(url)}: {first_line(error)}") from error
    return folder


def slot_log_at(url: str) -> PostgresSlotLog | NatsSlotLog:
    """Return the slot log at a URL, with its name after ``#``, without opening it."""
    where, _, name = url.partition("#")
    name = name or "groupcoord"
    if url.startswith(_NATS):
        from groupcoord.cluster.nats import NatsSlotLog

        return NatsSlotLog(where, name=name)
    from groupcoord.cluster.postgres import PostgresSlotLog

    return PostgresSlotLog(where, name=name)


async def _copy(url: str, folder: Path) -> None:
    from groupcoord.cluster.shared_log import copy_log

    slot_log = slot_log_at(url)
    try:
        await copy_log(slot_log, folder)
    finally:
        await slot_log.close()


def without_secrets(url: str) -> str:
    """Return a URL without user, password and settings."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


class SharedLog:
    """A log that several nodes share, by its URL; ``documents`` are the metadata that they share."""

    def __init__(self, url: str, node_id: int) -> None:
        if not is_of_replicas(url):
            raise CommandError(f"--cluster takes {'…, '.join(SCHEMES)}…; there is no other engine")
        self._url, self._node_id = url, node_id
        self.place = without_secrets(url)
        with command_errors(ValueError, prefix="--cluster: "):
            self._slot_log()
        from groupcoord.cluster.documents import SlotDocuments

        self.documents = SlotDocuments(self._silent_slot_log)

    def _slot_log(self) -> AbstractAsyncContextManager[SlotLog]:
        return slot_log_at(self._url)

    def _silent_slot_log(self) -> AbstractAsyncContextManager[SlotLog]:
        slot_log = slot_log_at(self._url)
        slot_log.warns = False
        return slot_log

    def open(self) -> None:
        from groupcoord.cluster.slot_log import SlotLogError

        try:
            self.documents.open()
        except (SlotLogError, TimeoutError) as error:
            raise CommandError(f"{self.place}: {first_line(error)}", FAILED) from None

    def close(self) -> None:
        self.documents.close()

    def node(self, storage: Storage, clock: Clock, node: Node, sockets: Sockets) -> ClusterNode:
        from groupcoord.host.cluster_node import ClusterNode

        own = node._replace(node_id=self._node_id)
        return ClusterNode(storage, self.documents, clock, own, sockets, self._slot_log)
