"""Laws that hold at every moment of every run. ``docs/design.md`` lists the laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from groupcoord.coordinator import GroupCoordinator, LoadError
from groupcoord.core.groups.group import Group
from groupcoord.core.log.log_partition import HardState
from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    NO_PRODUCER_ID,
    GroupMetadataRecord,
    GroupTombstone,
    OffsetCommitRecord,
    OffsetTombstone,
    OpaqueRecord,
    Record,
    RecordsOfGroup,
    TransactionMarker,
)
from groupcoord.core.messages import (
    ConsumerGroupDescribeResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    DescribeShareGroupOffsetsResponse,
    FindCoordinatorResponse,
    GroupToFetch,
    HeartbeatResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    Response,
    ShareGroupDescribeResponse,
    StreamsGroupDescribeResponse,
    TxnOffsetCommitResponse,
)
from groupcoord.core.messages.share_groups import DescribeOneShareGroupResponse
from groupcoord.core.offsets.cache import OffsetsOfGroup
from groupcoord.core.partition import Partition
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.log_store import LogRecord, LogStore

OffsetKey = tuple[str, str, int]
"""Group, topic, partition."""

NOTHING = "nothing"
NEWEST = 4


class LawBrokenError(GroupcoordError, AssertionError):
    """A law is broken."""


def require(condition: bool, message: str, *values: object) -> None:
    """Raise LawBrokenError unless a condition holds.

    Args:
        values: fill the braces of the message, formatted only if the law is broken.

    Raises:
        LawBrokenError: it does not hold.
    """
    # Not an assert statement, which python -O would remove.
    if not condition:
        raise LawBrokenError(message.format(*values) if values else message)


def error_codes(response: Response) -> list[ErrorCode]:
    """Return every error code of a response, NONE included, in order."""
    match response:
        case HeartbeatResponse():
            return [response.error_code]
        case OffsetCommitResponse() | TxnOffsetCommitResponse() | OffsetDeleteResponse(error_code=ErrorCode.NONE):
            return [result.error_code for topic in response.topics for result in topic.partitions]
        case (
            OffsetFetchResponse()
            | DescribeGroupsResponse()
            | ConsumerGroupDescribeResponse()
            | ShareGroupDescribeResponse()
            | StreamsGroupDescribeResponse()
            | DescribeShareGroupOffsetsResponse()
        ):
            return [group.error_code for group in response.groups]
        case DescribeOneShareGroupResponse():
            return [response.group.error_code]
        case DeleteGroupsResponse():
            return [result.error_code for result in response.results]
        case FindCoordinatorResponse():
            return [found.error_code for found in response.coordinators]
        case LeaveGroupResponse(error_code=ErrorCode.NONE):
            return [member.error_code for member in response.members]
        case _:
            return [response.error_code]  # type: ignore[attr-defined] # all others have one


def errors_in(response: Response) -> list[ErrorCode]:
    """Return the errors in a response, each once, in order; none if everything succeeded."""
    return [code for code in dict.fromkeys(error_codes(response)) if code is not ErrorCode.NONE]


def replayed(log_store: LogStore, partition: int) -> dict[str, object]:
    """Return the hard state that the records of a log partition add up to."""
    return _replay(log_store, partition).facts()


def _replay(log_store: LogStore, partition: int) -> HardState:
    hard = HardState()
    for entry in log_store.read(partition):
        hard.apply(entry.record, entry.offset)
    return hard


class OffsetLedger:
    """Committed offsets of a log partition, folded from its records in the simplest way.

    Attributes:
        committed: visible commits: the offset of the record in the log, and the record.
    """

    def __init__(self) -> None:
        self.committed: dict[OffsetKey, tuple[int, OffsetCommitRecord]] = {}
        self._open: dict[int, dict[OffsetKey, tuple[int, OffsetCommitRecord]]] = {}

    def take(self, record: Record, log_offset: int) -> None:
        match record:
            case OffsetCommitRecord(producer_id=producer_id):
                target = self.committed if producer_id == NO_PRODUCER_ID else self._open.setdefault(producer_id, {})
                target[record.group_id, record.topic, record.partition] = (log_offset, record)
            case OffsetTombstone():
                for offsets in (self.committed, *self._open.values()):
                    offsets.pop((record.group_id, record.topic, record.partition), None)
            case TransactionMarker():
                for key, found in self._open.pop(record.producer_id, {}).items():
                    if record.committed and (key not in self.committed or found[0] > self.committed[key][0]):
                        self.committed[key] = found

    def is_open(self, key: OffsetKey) -> bool:
        """Return whether an open transaction has an offset for this partition."""
        return any(key in offsets for offsets in self._open.values())


def offsets_in_log(log_store: LogStore, partition: int) -> dict[OffsetKey, int]:
    """Return (group, topic, partition) → committed offset, as an :class:`OffsetLedger` folds them from the log."""
    ledger = OffsetLedger()
    for entry in log_store.read(partition):
        ledger.take(entry.record, entry.offset)
    return {key: record.offset for key, (_, record) in ledger.committed.items()}


def check_hard_state_is_the_log(coordinator: GroupCoordinator) -> None:
    """Check that hard state == replay(durable log): a restart now would neither lose nor invent anything.

    Raises:
        LawBrokenError: it does not hold.
    """
    for partition in served_partitions(coordinator):
        check_replay(partition, _replay(coordinator.log_store, partition.index))


def check_log_can_be_loaded(load: Callable[[], object]) -> None:
    """Check that ``load`` loads its log partitions.

    Raises:
        LawBrokenError: it does not hold.
    """
    try:
        load()
    except LoadError as error:
        causes = [
            f"log partition {index}: {str(cause).removeprefix(f'log partition {index}: ') or repr(cause)}"
            for index, cause in error.causes.items()
        ]
    else:
        return
    raise LawBrokenError(f"a restart can't load the log: {'; '.join(causes)}")


def check_replay(partition: Partition, log: HardState, *, was_compacted: bool = False) -> None:
    """Check that the hard state of a log partition equals ``log``, that of its records.

    ``was_compacted``: the log was compacted when the partition was loaded, while ``log`` has all records. Then groups
    without records and offsets may be missing.

    Raises:
        LawBrokenError: it does not hold.
    """
    hard = partition.hard
    if (
        (hard.groups == log.groups or (was_compacted and hard.groups == _left_by_compaction(log, hard.groups)))
        and hard.offsets.transactions == log.offsets.transactions
        and _agree(hard.offsets.committed, log.offsets.committed)
    ):
        return
    difference = _difference("the coordinator has", hard.facts(), "its log makes", log.facts())
    raise LawBrokenError(f"log partition {partition.index}: a restart would change what is known. {difference}")


def _left_by_compaction(log: HardState, found: Collection[str]) -> dict[str, RecordsOfGroup]:
    offsets = log.offsets
    return {
        group_id: records
        for group_id, records in log.groups.items()
        if records or group_id in found or offsets.of_group(group_id) or offsets.has_open_transaction(group_id)
    }


def check_fetch_is_the_log(coordinator: GroupCoordinator, group_ids: Iterable[str]) -> None:
    """Check that OffsetFetch returns the commits of the log; transactions count from their marker on, unless aborted.

    Raises:
        LawBrokenError: it does not hold.
    """
    for group_id in group_ids:
        index = coordinator.partition_of(group_id)
        if coordinator.partition(index) is None:
            continue
        (group,) = coordinator.call(OffsetFetch((GroupToFetch(group_id),))).groups
        fetched = {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in group.topics
            for partition in topic.partitions
        }
        in_log = offsets_in_log(coordinator.log_store, index)
        expected = {key[1:]: offset for key, offset in in_log.items() if key[0] == group_id}
        if fetched != expected:
            difference = _difference("a consumer fetches", fetched, "the log has", expected)
            raise LawBrokenError(f"offsets of group {group_id!r}: {difference}")


def check_snapshot_rebuilds(coordinator: GroupCoordinator) -> None:
    """Check that a snapshot rebuilds the hard state, except for groups without records and offsets.

    Raises:
        LawBrokenError: it does not hold.
    """
    for partition in served_partitions(coordinator):
        check_rebuilt(partition, partition.snapshot(), "its snapshot")


def check_compaction_rebuilds(coordinator: GroupCoordinator, place: float) -> None:
    """Check that a log compacted up to ``place`` (0 to 1) rebuilds the hard state, as in
    :func:`check_snapshot_rebuilds`.

    Raises:
        LawBrokenError: it does not hold.
    """
    for partition in served_partitions(coordinator):
        entries = compacted(list(coordinator.log_store.read(partition.index)), place)
        check_rebuilt(partition, ((entry.offset, entry.record) for entry in entries), "its compacted log")


def check_rebuilt(partition: Partition, records: Iterable[tuple[int, Record]], name: str) -> None:
    """Check that records with their offsets rebuild the hard state of a log partition.

    Groups without records and offsets are exempt. ``name`` names the records in the message.

    Raises:
        LawBrokenError: it does not hold.
    """
    hard = HardState()
    for log_offset, record in records:
        hard.apply(record, log_offset)
    facts, rebuilt = _lasting(partition.hard.facts()), _lasting(hard.facts())
    if facts != rebuilt:
        difference = _difference("the whole log makes", facts, f"{name} makes", rebuilt)
        raise LawBrokenError(f"log partition {partition.index}: {difference}")


def compacted(entries: list[LogRecord], place: float, *, keeps_tombstones: bool = False) -> list[LogRecord]:
    """Return what may remain of a log that was compacted up to about ``place``, from 0 to 1."""
    count = int(place * len(entries))
    end = entries[count].offset if count < len(entries) else (entries[-1].offset + 1 if entries else 0)
    # Compaction stops before an open transaction.
    for first, marker in sorted(_transactions(entries), reverse=True):
        if first < end <= marker:
            end = first
    newest: dict[Hashable, LogRecord] = {}
    markers: list[LogRecord] = []
    in_transaction: dict[int, list[LogRecord]] = {}
    for entry in (entry for entry in entries if entry.offset < end):
        visible: list[LogRecord] = []
        if isinstance(entry.record, TransactionMarker):
            markers.append(entry)
            ended = in_transaction.pop(entry.producer_id, [])
            visible = ended if entry.record.committed else []
        elif entry.producer_id != NO_PRODUCER_ID:
            in_transaction.setdefault(entry.producer_id, []).append(entry)
        else:
            visible = [entry]
        for candidate in visible:
            key = _key_of(candidate.record)
            # A transaction's records may become visible after later ones.
            if candidate.offset >= newest.get(key, candidate).offset:
                newest[key] = candidate
    # Markers stay; tombstones go unless they are too young.
    kept = markers + [entry for entry in newest.values() if keeps_tombstones or not _is_tombstone(entry.record)]
    return sorted(kept, key=lambda entry: entry.offset) + [entry for entry in entries if entry.offset >= end]


def _key_of(record: Record) -> Hashable:
    match record:
        case OffsetCommitRecord() | OffsetTombstone():
            return (record.key_version, record.group_id, record.topic, record.partition)
        case OpaqueRecord():
            return record.key
        case TransactionMarker():
            raise ValueError("compaction identifies markers by their producers")
        case _:
            return (record.group_id, record.key)


def _is_tombstone(record: Record) -> bool:
    if isinstance(record, OpaqueRecord):
        return record.value is None
    return isinstance(record, OffsetTombstone | GroupTombstone)


def check_timers(coordinator: GroupCoordinator) -> None:
    """Check that every timer has a served log partition.

    Raises:
        LawBrokenError: it does not hold.
    """
    for timer in coordinator._timers.armed():
        require(coordinator.partition(timer.key.partition) is not None, "{!r} belongs to no member", timer)


def check_tokens(coordinator: GroupCoordinator, outstanding: Iterable[Hashable]) -> None:
    """Check that every unanswered request waits in exactly one place, and nothing else waits.

    ``outstanding`` are the tokens of the unanswered requests.

    Raises:
        LawBrokenError: it does not hold.
    """
    tokens, expected_tokens = coordinator.waiting_tokens(), list(outstanding)
    distinct = set(expected_tokens)
    if len(tokens) == len(expected_tokens) == len(distinct) and distinct == set(tokens):
        return
    waiting, expected = Counter(tokens), Counter(expected_tokens)
    require(
        waiting == expected,
        f"requests without a response: {list((expected - waiting).elements())}; "
        f"answered already or unknown: {list((waiting - expected).elements())}",
    )


def check_size(coordinator: GroupCoordinator) -> None:
    """Check that groups count no more members than their type's ``max.size`` (KIP-389).

    Apart from classic groups, this holds only while the setting is not lowered.

    Raises:
        LawBrokenError: it does not hold.
    """
    config = coordinator.config
    for partition in served_partitions(coordinator):
        for group in partition.groups.values():
            # A static member that has not rejoined stays in a full generation, so not all members count (the
            # transcripts of the area size).
            limit, size = group.max_size(config), group.counted_size()
            require(size <= limit, "{!r} counts {} members; {} may join", group, size, limit)


def check_places(log_store: LogStore, partition: int, partition_count: int) -> None:
    """Check that every group lies in the log partition of its id's Java hash code, where brokers and tools look for it.

    Raises:
        LawBrokenError: it does not hold.
    """
    for entry in log_store.read(partition):
        group_id = getattr(entry.record, "group_id", None)
        if group_id is not None:
            expected = abs(_hash_code_in_java(group_id)) % partition_count
            require(expected == partition, f"group {group_id!r} lies in log partition {partition}, not {expected}")


@lru_cache
def _hash_code_in_java(text: str) -> int:
    # Written again, so that an error in the core's own hash is found.
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + 256 * high + low) % 2**32
    return 0 if code == 2**31 else code - 2**32 if code > 2**31 else code


def check_generations_grow(log_store: LogStore, partition: int) -> None:
    """Check that the generation of a classic group never decreases in the log while the group lives.

    Raises:
        LawBrokenError: it does not hold.
    """
    last: dict[str, int] = {}
    for entry in log_store.read(partition):
        record = entry.record
        if isinstance(record, GroupMetadataRecord):
            before = last.get(record.group_id, 0)
            require(
                record.generation_id >= before,
                f"log partition {partition}, offset {entry.offset}: generation {record.generation_id} of group "
                f"{record.group_id!r} comes after generation {before}",
            )
            last[record.group_id] = record.generation_id
        elif isinstance(record, GroupTombstone) and record.key == CLASSIC_GROUP_KEY:
            last.pop(record.group_id, None)


def check_acknowledged_commits(
    log_store: LogStore, partitions: Iterable[int], acknowledged: Iterable[tuple[str, str, int, int]]
) -> None:
    """Check that every commit that was answered with NONE is in the log: ``acknowledged`` are (group, topic, partition,
    offset).

    Raises:
        LawBrokenError: it does not hold.
    """
    written = {
        (record.group_id, record.topic, record.partition, record.offset)
        for partition in partitions
        for record in (entry.record for entry in log_store.read(partition))
        if isinstance(record, OffsetCommitRecord)
    }
    for group_id, topic, index, offset in acknowledged:
        require(
            (group_id, topic, index, offset) in written,
            f"group {group_id!r} got an acknowledgement of offset {offset} of {topic}-{index}, which is not in the log",
        )


def check_bytes(log_store: LogStore, partition: int) -> None:
    """Check that the newest records of a log survive encoding and decoding.

    Raises:
        LawBrokenError: it does not hold.
    """
    for entry in list(log_store.read(partition))[-NEWEST:]:
        key, value = entry.encoded()
        again = LogRecord.from_bytes(
            key,
            value,
            offset=entry.offset,
            timestamp_ms=entry.timestamp_ms,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            is_control=entry.is_control,
        )
        require(
            LogRecord(again.record, again.timestamp_ms).encoded() == (key, value),
            f"log partition {partition}, offset {entry.offset}: {entry.record!r} is read back as {again.record!r}",
        )


# ---------------------------------------------------------------- helpers


def group_of(coordinator: GroupCoordinator, group_id: str) -> Group | None:
    """Return the group with an id, or None if it does not exist or is not served."""
    partition = coordinator.partition(coordinator.partition_of(group_id))
    return None if partition is None else partition.groups.get(group_id)


def served_partitions(coordinator: GroupCoordinator) -> Iterator[Partition]:
    """Yield the log partitions that a coordinator serves now."""
    for index in range(coordinator.config.offsets_topic_num_partitions):
        partition = coordinator.partition(index)
        if partition is not None:
            yield partition


def _agree(found: dict[str, OffsetsOfGroup], expected: dict[str, OffsetsOfGroup]) -> bool:
    if found.keys() != expected.keys():
        return False
    for group_id, topics in found.items():
        expected_topics = expected[group_id]
        if topics.keys() != expected_topics.keys():
            return False
        for topic, partitions in topics.items():
            others = expected_topics[topic]
            if partitions.keys() != others.keys():
                return False
            for index, commit in partitions.items():
                other = others[index]
                if not commit.agrees(index, other):
                    return False
                # Equal parts become shared objects, so that the next check is faster.
                other.kind = commit.kind
    return True


def _transactions(entries: list[LogRecord]) -> list[tuple[int, int]]:
    """Return start and end of each transaction; an open one ends after everything."""
    started: dict[int, int] = {}
    spans = []
    for entry in entries:
        if isinstance(entry.record, TransactionMarker):
            if entry.producer_id in started:
                spans.append((started.pop(entry.producer_id), entry.offset))
        elif entry.producer_id != NO_PRODUCER_ID:
            started.setdefault(entry.producer_id, entry.offset)
    return spans + [(first, entries[-1].offset + 1) for first in started.values()]


def _lasting(facts: dict[str, Any]) -> dict[str, object]:
    return {**facts, "groups": {key: value for key, value in facts["groups"].items() if value}}


def _difference(name: str, found: object, other_name: str, other: object, path: str = "") -> str:
    if isinstance(found, dict) and isinstance(other, dict):
        for key in (*found, *(key for key in other if key not in found)):
            if found.get(key, NOTHING) != other.get(key, NOTHING):
                inner = f"{path} {key}" if path else f"{key}"
                return _difference(name, found.get(key, NOTHING), other_name, other.get(key, NOTHING), inner)
    return f"{path}: {name} {found}, {other_name} {other}"
