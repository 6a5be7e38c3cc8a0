"""Records in the log that this coordinator does not know: of newer brokers, and of other kinds of groups."""

from __future__ import annotations

from struct import pack

from attrs import frozen

from groupcoord.log_store import LogRecord
from groupcoord.sim.actors.fault import Fault
from groupcoord.sim.actors.population import Population
from groupcoord.sim.actors.stage import Stage


def _text(text: str) -> bytes:
    return pack(">h", len(text)) + text.encode()


FOREIGN: dict[str, tuple[bytes, bytes | None]] = {
    "consumer-group": (pack(">h", 3) + _text("newer"), pack(">hi", 0, 17)),
    "consumer-group-member-tombstone": (pack(">h", 5) + _text("newer") + _text("member"), None),
    "share-group": (pack(">h", 11) + _text("share"), pack(">hi", 0, 1)),
    "unknown-type": (pack(">h", 99) + b"from the future", b"\x00\x00whatever"),
    "unknown-offset-commit-version": (
        pack(">h", 1) + _text("newer") + _text("topic0") + pack(">i", 0),
        pack(">hq", 77, 1_000),
    ),
    "unknown-group-metadata-version": (pack(">h", 2) + _text("newer"), pack(">h", 77) + b"members of the future"),
    "unreadable": (b"\x00", b"?"),
}
"""Keys and values by name: groups of other types (KIP-848, KIP-932), types and versions to come, and rubbish."""


@frozen(kw_only=True)
class ForeignRecords(Fault):
    """Another writer puts a record into a log partition.

    Attributes:
        partition: which.
        kind: which of :data:`FOREIGN`.
    """

    partition: int
    kind: str

    def begin(self, stage: Stage, population: Population) -> None:
        """Write it."""
        key, value = FOREIGN[self.kind]
        stage.record(f"somebody writes a record of a foreign kind ({self.kind}) to log partition {self.partition}")
        stage.count("other writer", self.kind, "written")
        entry = LogRecord.from_bytes(key, value, offset=-1, timestamp_ms=stage.scheduler.time_ms)
        stage.cluster.write_foreign(self.partition, entry)
