"""Log stores in databases: SQLite, which Python includes, and PostgreSQL (``pip install 'groupcoord[postgres]'``).

    coordinator = GroupCoordinator(log_store=SqliteLogStore("groups.sqlite"))

Both write each append in a transaction. With a :class:`BatchingLogStore` a thread writes all waiting appends in one
transaction, and a coordinator of :mod:`groupcoord.aio` or :mod:`groupcoord.coordinator.threads` gets the answers later.
"""

from groupcoord.errors import OwnershipLostError
from groupcoord.storage.sql.batching import BatchingLogStore
from groupcoord.storage.sql.postgres import PostgresLogStore
from groupcoord.storage.sql.sqlite import SqliteLogStore
from groupcoord.storage.sql.store import SqlLogStore

__all__ = ["BatchingLogStore", "OwnershipLostError", "PostgresLogStore", "SqlLogStore", "SqliteLogStore"]
