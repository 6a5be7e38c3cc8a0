"""Logs that replicas share: copies for commands that read files, and the log of ``groupcoord serve --cluster URL``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import typer

from groupcoord.analysis.errors import PipelineError, first_line
from groupcoord.cli.interrupts import FAILED
from groupcoord.cli.messages import CommandError, command_errors

if TYPE_CHECKING:
    from groupcoord.cluster.documents import SlotDocuments
    from groupcoord.cluster.nats import NatsSlotLog
    from groupcoord.cluster.postgres import PostgresSlotLog

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


def slot_log_at(url: str, *, warns: bool = True) -> PostgresSlotLog | NatsSlotLog:
    """Return the slot log at a URL, with its name after ``#``, without opening it."""
    where, _, name = url.partition("#")
    name = name or "groupcoord"
    slot_log: PostgresSlotLog | NatsSlotLog
    if url.startswith(_NATS):
        from groupcoord.cluster.nats import NatsSlotLog

        slot_log = NatsSlotLog(where, name=name)
    else:
        from groupcoord.cluster.postgres import PostgresSlotLog

        slot_log = PostgresSlotLog(where, name=name)
    slot_log.warns = warns
    return slot_log


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


class SharedLog(NamedTuple):
    """A log that several nodes share, and the metadata that they share in it."""

    url: str
    node_id: int
    documents: SlotDocuments

    @property
    def place(self) -> str:
        return without_secrets(self.url)


def open_shared(url: str, node_id: int) -> SharedLog:
    """Open the metadata at a URL for a node."""
    if not is_of_replicas(url):
        raise CommandError(f"--cluster takes {'…, '.join(SCHEMES)}…; there is no other engine")
    with command_errors(ValueError, prefix="--cluster: "):
        slot_log_at(url)
    from groupcoord.cluster.documents import SlotDocuments
    from groupcoord.cluster.slot_log import SlotLogError

    shared = SharedLog(url, node_id, SlotDocuments(partial(slot_log_at, url, warns=False)))
    try:
        shared.documents.open()
    except (SlotLogError, TimeoutError) as error:
        raise CommandError(f"{shared.place}: {first_line(error)}", FAILED) from None
    return shared
