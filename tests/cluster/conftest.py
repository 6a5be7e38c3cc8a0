"""A server of PostgreSQL for slot logs, too."""

from tests.storage.sql.conftest import postgres as postgres
