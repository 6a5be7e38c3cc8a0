"""File descriptors (``ulimit -n``): the limit of the process, and a reserve for the log."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module

if sys.platform != "win32":
    import resource

RESERVE = 32
"""Descriptors reserved for the log and for imports on first use."""


def descriptor_limit() -> int:
    """Return how many files and sockets this process may open."""
    if sys.platform == "win32":
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def is_reserved(descriptor: int) -> bool:
    """Return whether a socket has one of the reserved descriptors, which are an eighth of all at most."""
    limit = descriptor_limit()
    return descriptor >= limit - min(RESERVE, limit // 8)


MODULES_OF_REQUESTS = (
    "crc32c",
    "difflib",
    "groupcoord.broker.records.producing",
    "groupcoord.broker.security.acls",
    "groupcoord.broker.security.credentials",
    "groupcoord.broker.security.login",
    "groupcoord.broker.share.letters",
    "groupcoord.coordinator.share_coordinator",
    "groupcoord.core.router.refusals",
    "groupcoord.records.batches",
    "groupcoord.records.codec",
    "groupcoord.records.share_state",
    "groupcoord.records.transactions",
    "groupcoord.storage.compaction.cleaner",
    "groupcoord.storage.compaction.compactable_logs",
    "groupcoord.storage.log.folder",
    "groupcoord.storage.log.recovery",
    "groupcoord.storage.log.memory_log",
    "groupcoord.storage.log.batches",
    "groupcoord.storage.log.file_log",
    "groupcoord.storage.stores.topics",
    "groupcoord.wire.streams_group_entities",
    "kio.index",
    "kio.schema.index",
)
"""Modules that request handlers and compaction import on first use.

The schema of an API is imported with its first request: all of them would take 0.7 s and 22 MiB.
"""


async def import_modules_of_requests() -> None:
    """Import what request handlers need, so that later no request has to open a file for it.

    The event loop runs between two imports.
    """
    for name in MODULES_OF_REQUESTS:
        import_module(name)
        await asyncio.sleep(0)
