"""Log stores: Kafka's segment files, and databases.

    coordinator = GroupCoordinator(log_store=SqliteLogStore("groups.sqlite"))

SQLite comes with Python; PostgreSQL needs ``pip install 'groupcoord[postgres]'``, segment files ``groupcoord[wire]``.
Names are imported on first access: a server with segment files needs no database.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from groupcoord.errors import OwnershipLostError
    from groupcoord.storage.stores.batching import BatchingLogStore
    from groupcoord.storage.stores.segments import SegmentLogStore
    from groupcoord.storage.stores.sql import PostgresLogStore, SqliteLogStore, SqlLogStore

__all__ = [
    "BatchingLogStore",
    "OwnershipLostError",
    "PostgresLogStore",
    "SegmentLogStore",
    "SqlLogStore",
    "SqliteLogStore",
]

_MODULES = {
    "BatchingLogStore": "groupcoord.storage.stores.batching",
    "OwnershipLostError": "groupcoord.errors",
    "PostgresLogStore": "groupcoord.storage.stores.sql",
    "SegmentLogStore": "groupcoord.storage.stores.segments",
    "SqlLogStore": "groupcoord.storage.stores.sql",
    "SqliteLogStore": "groupcoord.storage.stores.sql",
}
"""Modules of the public names."""

if not TYPE_CHECKING:  # type checkers use the imports above

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})
