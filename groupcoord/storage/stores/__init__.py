"""Log stores: Kafka's segment files, and databases.

    coordinator = GroupCoordinator(log_store=SqliteLogStore("groups.sqlite"))

SQLite comes with Python; PostgreSQL needs ``pip install 'groupcoord[postgres]'``, segment files ``groupcoord[wire]``.
Names are imported on first access: a server with segment files needs no database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupcoord.lazy import attach

if TYPE_CHECKING:
    from groupcoord.errors import OwnershipLostError as OwnershipLostError
    from groupcoord.storage.stores.batching import BatchingLogStore as BatchingLogStore
    from groupcoord.storage.stores.segments import SegmentLogStore as SegmentLogStore
    from groupcoord.storage.stores.sql import (
        PostgresLogStore as PostgresLogStore,
        SqliteLogStore as SqliteLogStore,
        SqlLogStore as SqlLogStore,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".batching": "BatchingLogStore",
            ".segments": "SegmentLogStore",
            ".sql": "PostgresLogStore SqlLogStore SqliteLogStore",
            "...errors": "OwnershipLostError",
        },
    )
