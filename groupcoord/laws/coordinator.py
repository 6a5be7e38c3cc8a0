"""The laws that hold at every moment of every run, whatever happened before: for random tests and simulators.

Each function looks at a coordinator or at a log and raises :class:`LawBrokenError` with what it found.
``docs/design.md`` lists the laws; what lies inside a single structure is proved by :meth:`GroupCoordinator.check`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from groupcoord.coordinator import GroupCoordinator, LoadError
from groupcoord.core.log.hard_state import HardState, RecordsOfGroup
from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    NO_PRODUCER_ID,
    GroupMetadataRecord,
    GroupTombstone,
    OffsetCommitRecord,
    OffsetTombstone,
    OpaqueRecord,
    Record,
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

__all__ = [
    "LawBrokenError",
    "OffsetLedger",
    "check_acknowledged_commits",
    "check_bytes",
    "check_compaction_rebuilds",
    "check_fetch_is_the_log",
    "check_generations_grow",
    "check_hard_state_is_the_log",
    "check_log_can_be_loaded",
    "check_places",
    "check_rebuilt",
    "check_replay",
    "check_size",
    "check_snapshot_rebuilds",
    "check_timers",
    "check_tokens",
    "compacted",
    "error_codes",
    "errors_in",
    "offsets_in_log",
    "replayed",
    "require",
    "served_partitions",
]

OffsetKey = tuple[str, str, int]
"""Group, topic, partition."""

NOTHING = "nothing"
NEWEST = 4


class LawBrokenError(GroupcoordError, AssertionError):
    """A law does not hold."""


def require(condition: bool, message: str, *told: object) -> None:
    """Raise if a law is broken.

    Not an assert statement: ``python -O`` would leave it out.

    Args:
        condition: holds if it isn't.
        message: what is broken.
        told: what stands in the braces of the message, if any: the message of a law that is looked at very often is put
            together only where it is broken.

    Raises:
        LawBrokenError: with ``message``.
    """
    if not condition:
        raise LawBrokenError(message.format(*told) if told else message)


def error_codes(response: Response) -> list[ErrorCode]:
    """Return every error code of an answer that says whether something was done, NONE included, in order."""
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
            return [response.error_code]


def errors_in(response: Response) -> list[ErrorCode]:
    """Return the errors in an answer, each once, in order; none of one in which everything was done."""
    return [code for code in dict.fromkeys(error_codes(response)) if code is not ErrorCode.NONE]


def replayed(log_store: LogStore, partition: int) -> dict[str, object]:
    """Return the hard state that a log partition makes, built from nothing but its records."""
    return _replay(log_store, partition).facts()


def _replay(log_store: LogStore, partition: int) -> HardState:
    hard = HardState()
    for entry in log_store.read(partition):
        hard.apply(entry.record, entry.offset)
    return hard


class OffsetLedger:
    """Committed offsets of a log partition, folded from its records in the plainest way there is.

    Attributes:
        committed: what everybody can see: where the commit lies in the log, and its record.
    """

    def __init__(self) -> None:
        self.committed: dict[OffsetKey, tuple[int, OffsetCommitRecord]] = {}
        self._open: dict[int, dict[OffsetKey, tuple[int, OffsetCommitRecord]]] = {}

    def take(self, record: Record, log_offset: int) -> None:
        """Take the next record of the log."""
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
        """Tell whether a transaction that is not over has an offset for this partition."""
        return any(key in offsets for offsets in self._open.values())


def offsets_in_log(log_store: LogStore, partition: int) -> dict[OffsetKey, int]:
    """Return (group, topic, partition) → committed offset, as an :class:`OffsetLedger` makes them of the log."""
    ledger = OffsetLedger()
    for entry in log_store.read(partition):
        ledger.take(entry.record, entry.offset)
    return {key: record.offset for key, (_, record) in ledger.committed.items()}


def check_hard_state_is_the_log(coordinator: GroupCoordinator) -> None:
    """Hard state == replay(durable log): a restart at this moment would forget nothing and make nothing up.

    Raises:
        LawBrokenError: it would.
    """
    for partition in served_partitions(coordinator):
        check_replay(partition, _replay(coordinator.log_store, partition.index))


def check_log_can_be_loaded(load: Callable[[], object]) -> None:
    """Load log partitions; what their store reads back can be taken over.

    Args:
        load: loads them.

    Raises:
        LawBrokenError: the coordinator could not load one of them; the message has the cause, not its traceback.
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
    """Hard state of a log partition == what its log makes.

    What commits of ``log`` have in common becomes what those of the partition have, so that the next look is quicker.

    Args:
        partition: the core of a log partition.
        log: the hard state that its records make.
        was_compacted: the log was compacted when the partition was loaded; ``log`` is made of all that was written. So
            groups may be missing that have neither a record nor an offset any more.

    Raises:
        LawBrokenError: they differ.
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
    """Return the groups of a log but those that have neither a record nor an offset, unless they were found."""
    offsets = log.offsets
    return {
        group_id: records
        for group_id, records in log.groups.items()
        if records or group_id in found or offsets.of_group(group_id) or offsets.has_open_transaction(group_id)
    }


def check_fetch_is_the_log(coordinator: GroupCoordinator, group_ids: Iterable[str]) -> None:
    """What consumers are told is what the log says: transactions count from their marker on, and not after an abort.

    Raises:
        LawBrokenError: an OffsetFetch of one of the groups says something else.
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
            difference = _difference("a consumer is told", fetched, "the log says", expected)
            raise LawBrokenError(f"offsets of group {group_id!r}: {difference}")


def check_snapshot_rebuilds(coordinator: GroupCoordinator) -> None:
    """What compaction would leave makes the same hard state, but for groups whose offsets are all gone.

    Raises:
        LawBrokenError: it makes another one.
    """
    for partition in served_partitions(coordinator):
        check_rebuilt(partition, partition.snapshot(), "its snapshot")


def check_compaction_rebuilds(coordinator: GroupCoordinator, place: float) -> None:
    """Hard state == replay(a legal compaction of the log), but for groups whose offsets are all gone.

    Args:
        coordinator: the coordinator.
        place: how far the log is compacted, from 0 to 1.

    Raises:
        LawBrokenError: it is another one.
    """
    for partition in served_partitions(coordinator):
        entries = compacted(list(coordinator.log_store.read(partition.index)), place)
        check_rebuilt(partition, ((entry.offset, entry.record) for entry in entries), "its compacted log")


def check_rebuilt(partition: Partition, records: Iterable[tuple[int, Record]], name: str) -> None:
    """Hard state of a log partition is what some records make, but for groups whose offsets are all gone.

    Args:
        partition: the core of a log partition.
        records: what makes another one, with log offsets.
        name: what they are, for the error.

    Raises:
        LawBrokenError: it is another one.
    """
    hard = HardState()
    for log_offset, record in records:
        hard.apply(record, log_offset)
    facts, rebuilt = _lasting(partition.hard.facts()), _lasting(hard.facts())
    if facts != rebuilt:
        difference = _difference("the whole log makes", facts, f"{name} makes", rebuilt)
        raise LawBrokenError(f"log partition {partition.index}: {difference}")


def compacted(entries: list[LogRecord], place: float, *, keeps_tombstones: bool = False) -> list[LogRecord]:
    """Return what may be left of a log that was compacted up to about ``place``, from 0 to 1.

    Compaction stops before a transaction that isn't over. Up to there a record gives way to a later one with its key,
    and what was aborted goes, as do tombstones unless they are too young.
    """
    count = int(place * len(entries))
    end = entries[count].offset if count < len(entries) else (entries[-1].offset + 1 if entries else 0)
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
            if candidate.offset >= newest.get(key, candidate).offset:
                newest[key] = candidate
    kept = markers + [entry for entry in newest.values() if keeps_tombstones or not _is_tombstone(entry.record)]
    return sorted(kept, key=lambda entry: entry.offset) + [entry for entry in entries if entry.offset >= end]


def _key_of(record: Record) -> Hashable:
    """Return what stands for the bytes of a record's key."""
    match record:
        case OffsetCommitRecord() | OffsetTombstone():
            return (record.key_version, record.group_id, record.topic, record.partition)
        case OpaqueRecord():
            return record.key
        case TransactionMarker():
            raise ValueError("compaction tells markers by their producers")
        case _:
            return (record.group_id, record.key)


def _is_tombstone(record: Record) -> bool:
    if isinstance(record, OpaqueRecord):
        return record.value is None
    return isinstance(record, OffsetTombstone | GroupTombstone)


def check_timers(coordinator: GroupCoordinator) -> None:
    """No timer without an owner: those of a log partition end with it.

    Raises:
        LawBrokenError: one goes on.
    """
    for timer in coordinator._timers.armed():
        require(coordinator.partition(timer.key.partition) is not None, "{!r} belongs to nobody", timer)


def check_tokens(coordinator: GroupCoordinator, outstanding: Iterable[Hashable]) -> None:
    """Every request without an answer waits in exactly one place, and nothing else waits.

    Args:
        coordinator: where they wait.
        outstanding: the tokens of the requests that have no answer yet.

    Raises:
        LawBrokenError: a request was lost, or would be answered twice.
    """
    tokens, asked = coordinator.waiting_tokens(), list(outstanding)
    distinct = set(asked)
    if len(tokens) == len(asked) == len(distinct) and distinct == set(tokens):
        return
    waiting, expected = Counter(tokens), Counter(asked)
    require(
        waiting == expected,
        f"requests that will never be answered: {list((expected - waiting).elements())}; "
        f"answered already, or never asked: {list((waiting - expected).elements())}",
    )


def check_size(coordinator: GroupCoordinator) -> None:
    """No more than ``group.max.size`` (KIP-389) join a generation, or ``group.consumer.max.size`` a consumer group.

    The latter holds only as long as nobody lowers that.

    A classic group can have more members all the same: a static member that has not joined again when a rebalance ends
    stays in the generation, while others may have taken all the places. So joins that wait count, of whomever, and
    dynamic members, all of which have joined. Recorded with Kafka 4.4.0 (the packaged transcripts of the area
    ``size``).

    Raises:
        LawBrokenError: more do.
    """
    config = coordinator.config
    for partition in served_partitions(coordinator):
        for group in partition.groups.values():
            limit, size = group.max_size(config), group.counted_size()
            require(size <= limit, "{!r} counts {} members; {} may join", group, size, limit)


def check_places(log_store: LogStore, partition: int, partition_count: int) -> None:
    """Every group lies in the log partition in which Kafka looks for it: that of its id's hash code in Java.

    Args:
        log_store: the log.
        partition: one of its partitions.
        partition_count: how many there are.

    Raises:
        LawBrokenError: one lies in another, where neither another broker nor a tool will find it.
    """
    for entry in log_store.read(partition):
        group_id = getattr(entry.record, "group_id", None)
        if group_id is not None:
            expected = abs(_hash_code_in_java(group_id)) % partition_count
            require(expected == partition, f"group {group_id!r} lies in log partition {partition}, not {expected}")


@lru_cache
def _hash_code_in_java(text: str) -> int:
    """Return ``String.hashCode()``, 0 where the least number has no absolute value (``Utils.abs`` of Kafka)."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + 256 * high + low) % 2**32
    return 0 if code == 2**31 else code - 2**32 if code > 2**31 else code


def check_generations_grow(log_store: LogStore, partition: int) -> None:
    """In the log, a group's generation never goes back as long as the group lives.

    Raises:
        LawBrokenError: it does.
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
    """Every commit that was answered with NONE is in the log.

    Args:
        log_store: the log.
        partitions: its log partitions.
        acknowledged: (group, topic, partition, offset) of each such commit.

    Raises:
        LawBrokenError: one was lost.
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
            f"group {group_id!r} was told that offset {offset} of {topic}-{index} is committed; it is not in the log",
        )


def check_bytes(log_store: LogStore, partition: int) -> None:
    """What the newest records of a log are stays the same when they are put into Kafka's bytes and read from them.

    Raises:
        LawBrokenError: a record becomes another one.
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


# ---------------------------------------------------------------- looking, and telling


def served_partitions(coordinator: GroupCoordinator) -> Iterator[Partition]:
    """Return the log partitions that a coordinator serves now."""
    for index in range(coordinator.config.offsets_topic_num_partitions):
        partition = coordinator.partition(index)
        if partition is not None:
            yield partition


def _agree(found: dict[str, OffsetsOfGroup], expected: dict[str, OffsetsOfGroup]) -> bool:
    """Tell whether committed offsets are the same, and let what commits have in common be one object."""
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
                other.kind = commit.kind
    return True


def _transactions(entries: list[LogRecord]) -> list[tuple[int, int]]:
    """Return where each transaction starts and ends; one that is not over ends after everything."""
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
    """Return hard state without the groups that have neither a record nor an offset."""
    return {**facts, "groups": {key: value for key, value in facts["groups"].items() if value}}


def _difference(name: str, found: object, other_name: str, other: object, path: str = "") -> str:
    """Tell where two nested dictionaries differ first."""
    if isinstance(found, dict) and isinstance(other, dict):
        for key in (*found, *(key for key in other if key not in found)):
            if found.get(key, NOTHING) != other.get(key, NOTHING):
                inner = f"{path} {key}" if path else f"{key}"
                return _difference(name, found.get(key, NOTHING), other_name, other.get(key, NOTHING), inner)
    return f"{path}: {name} {found}, {other_name} {other}"
