"""Logs that replicas share, for commands that read segment files: copies, until the command ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from groupcoord.analysis.errors import PipelineError, first_line

if TYPE_CHECKING:
    from groupcoord.cluster.nats import NatsSlotLog
    from groupcoord.cluster.postgres import PostgresSlotLog

_POSTGRES = ("postgresql://", "postgres://")
_NATS = ("nats://", "tls://")
SCHEMES = (*_POSTGRES, *_NATS)


def is_of_replicas(path: str) -> bool:
    """Tell whether a path is the URL of a log that replicas share."""
    return path.startswith(SCHEMES)


def as_files(paths: Iterable[str], context: typer.Context) -> list[str]:
    """Return the paths, with a folder in place of each URL: a copy of that log, until the command ends.

    Args:
        paths: of files, and URLs.
        context: of the command.

    Raises:
        PipelineError: a log can't be copied.
    """
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
    """Return the slot log at a URL, behind whose ``#`` its name may be; it opens nothing yet.

    Raises:
        ModuleNotFoundError: what asks this engine isn't installed.
        ValueError: the URL or the name is none.
    """
    where, _, name = url.partition("#")
    name = name or "groupcoord"
    if url.startswith(_NATS):
        from groupcoord.cluster.nats import NatsSlotLog

        return NatsSlotLog(where, name=name)
    from groupcoord.cluster.postgres import PostgresSlotLog

    return PostgresSlotLog(where, name=name)


async def _copy(url: str, folder: Path) -> None:
    from groupcoord.cluster.copying import copy_log

    slot_log = slot_log_at(url)
    try:
        await copy_log(slot_log, folder)
    finally:
        await slot_log.close()


def without_secrets(url: str) -> str:
    """Return which engine and log a URL names, without user, password and settings."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
