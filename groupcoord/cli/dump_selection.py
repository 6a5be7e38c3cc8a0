"""What ``groupcoord dump`` prints: its filters, and what the words on the command line mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from attrs import frozen

from groupcoord.records.batches import BatchRecord
from groupcoord.records.describe import UNKNOWN
from groupcoord.records.schemas import RecordType

CONTROL = "CONTROL"
SHARE_SNAPSHOT, SHARE_UPDATE = "SHARE_SNAPSHOT", "SHARE_UPDATE"
TYPE_NAMES = (*(record_type.name for record_type in RecordType), SHARE_SNAPSHOT, SHARE_UPDATE, CONTROL, UNKNOWN)


class SelectionError(ValueError):
    """A filter makes no sense. The message is one line for the user."""


@frozen
class Selection:
    """The records to print: those that fit every filter that is set.

    Attributes:
        group_ids: records about these groups.
        types: names of record types, with ``CONTROL`` for control records and ``UNKNOWN`` for all that can't be told;
            of histories the kinds of rows.
        partitions: numbers of log partitions.
        since_ms: timestamps from here on, in milliseconds since the Unix epoch.
        until_ms: timestamps before this one.
    """

    group_ids: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def has_more(self) -> bool:
        """Whether there are filters besides those for groups."""
        return self != Selection(self.group_ids)

    def has_partition(self, partition: int | None) -> bool:
        """Tell whether a log partition's records are wanted; one without a number is, unless numbers are named."""
        return not self.partitions or partition in self.partitions

    def has_type(self, name: str) -> bool:
        """Tell whether records of this type are wanted."""
        return not self.types or name in self.types

    def has_group(self, group_id: str | None) -> bool:
        """Tell whether records about this group are wanted; those about none are, unless groups are named."""
        return not self.group_ids or group_id in self.group_ids

    def in_time(self, records: Sequence[BatchRecord]) -> Sequence[BatchRecord]:
        """Return the records whose timestamp is wanted."""
        since_ms, until_ms = self.since_ms, self.until_ms
        if since_ms is not None:
            records = [record for record in records if record[1] >= since_ms]
        if until_ms is not None:
            records = [record for record in records if record[1] < until_ms]
        return records

    def has_time(self, timestamp_ms: int | None) -> bool:
        """Tell whether something of this time is wanted; what has none is, unless times are named."""
        if timestamp_ms is None:
            return self.since_ms is None and self.until_ms is None
        since_ms, until_ms = self.since_ms, self.until_ms
        return (since_ms is None or timestamp_ms >= since_ms) and (until_ms is None or timestamp_ms < until_ms)


def parse_types(words: Iterable[str]) -> frozenset[str]:
    """Return the names of record types given by number, or by Kafka's name in any case, with ``-`` or ``_``.

    Raises:
        SelectionError: there is no such type.
    """
    return frozenset(_parse_type(word) for word in words)


def _parse_type(word: str) -> str:
    name = word.strip().upper().replace("-", "_")
    if name.isdecimal() and int(name) in {int(record_type) for record_type in RecordType}:
        return RecordType(int(name)).name
    if name not in TYPE_NAMES:
        known = ", ".join(other.lower().replace("_", "-") for other in TYPE_NAMES)
        raise SelectionError(f"--type {word!r} is no record type; there are {known}, or their numbers")
    return name


def parse_kinds(words: Iterable[str]) -> frozenset[str]:
    """Return kinds of rows of a history.

    Raises:
        SelectionError: there is no such kind.
    """
    from groupcoord.analysis.history import KINDS

    kinds = frozenset(word.strip().lower() for word in words)
    for kind in sorted(kinds.difference(KINDS)):
        raise SelectionError(f"--type {kind!r} is no kind of row of a history; there are {', '.join(KINDS)}")
    return kinds


def parse_time(option: str, word: str | None) -> int | None:
    """Return a time in milliseconds since the Unix epoch; it is given so, or as a date and time of ISO 8601.

    Without an offset the time is UTC.

    Raises:
        SelectionError: it is neither.
    """
    if word is None:
        return None
    if word.removeprefix("-").isdecimal():
        return int(word)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise SelectionError(
            f"{option} {word!r} is no time; write 2026-01-31, 2026-01-31T12:00:00Z or milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
