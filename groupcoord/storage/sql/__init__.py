"""The log in a database: SQLite, which Python brings, or PostgreSQL (``pip install 'groupcoord[postgres]'``).

coordinator = GroupCoordinator(log_store=SqliteLogStore("groups.sqlite"))

Both write each append in a transaction of its own. Behind a :class:`BatchingLogStore`, a thread writes all that waits
in one transaction; a coordinator of :mod:`groupcoord.aio` or :mod:`groupcoord.coordinator.threads` is answered later.
"""

from groupcoord.errors import OwnershipLostError
from groupcoord.storage.sql.batching import BatchingLogStore
from groupcoord.storage.sql.postgres import PostgresLogStore
from groupcoord.storage.sql.sqlite import SqliteLogStore
from groupcoord.storage.sql.store import SqlLogStore

__all__ = ["BatchingLogStore", "OwnershipLostError", "PostgresLogStore", "SqlLogStore", "SqliteLogStore"]
