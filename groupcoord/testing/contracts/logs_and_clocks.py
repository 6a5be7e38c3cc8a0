"""Contracts of log stores (``check_log_store``), shared logs (``check_slot_log``) and clocks (``check_clock``)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

from groupcoord.clock import Clock
from groupcoord.cluster.slot_log import Slot, SlotLog
from groupcoord.core.log.log_partition import HardState
from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    AssignedTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    GroupMetadataRecord,
    GroupTombstone,
    MemberRecord,
    OffsetCommitRecord,
    OffsetTombstone,
    OpaqueRecord,
    Record,
    TopicMetadata,
    TopicPartitions,
    TransactionMarker,
)
from groupcoord.laws import require
from groupcoord.log_store import CondensingStore, LoadedCommits, LogRecord, LogStore, LogStoreError, Ticket, close_store
from groupcoord.testing.contracts.faulty_store import Answer, Settle, append_and_settle

StoreT = TypeVar("StoreT", bound=LogStore)

RANDOM_APPENDS = 120
HISTORIES, HISTORY_APPENDS = 10, 40
PARTITIONS = (0, 1, 7)
TOO_LONG = 40_000
_Entry = tuple[int, int, bytes, bytes | None, int, int, bool]
"""Offset, timestamp, key, value, producer id, producer epoch, is_control."""


def check_log_store(
    make_store: Callable[[], StoreT],
    *,
    reopen: Callable[[StoreT], StoreT] | None = None,
    compact: Callable[[StoreT], object] | None = None,
    settle: Callable[[StoreT], Iterable[Answer]] | None = None,
    seed: int = 0,
) -> None:
    """Check that a log store keeps the contract of :mod:`groupcoord.log_store`.

    - A partition never written is empty; offsets grow; partitions do not mix.
    - Records are read unchanged and in order, with timestamps, producers and markers; reading changes nothing, and
      appends do not disturb a reader.
    - A failed append leaves nothing behind, and the next one works.
    - A reopened store has all acknowledged records and continues after them.
    - A random history of commits, groups, tombstones and transactions loads to its state after each reopening and
      compaction, also with ``read_last`` if the store has it.
    - A store that answers later answers each log partition in the order of the appends. One response covers all earlier
      appends except failed ones.

    A store with ``close()`` is closed at the end.

    Args:
        make_store: returns a new, empty store; called several times, and the stores must be independent.
        reopen: closes or crashes a store and returns another one on its data; None for a store in memory.
        compact: compacts a store; None if it never does.
        settle: completes the appends of a store that answers later, and returns tickets with base offsets or errors in
            the order of the responses; None for a store that answers at once.
        seed: selects the appended records.

    Raises:
        AssertionError: the store breaks the contract; the message has the clause and the difference.
    """
    _check_an_empty_store(make_store())
    _check_every_kind_of_record(make_store(), reopen, settle)
    _check_readers(make_store(), settle)
    _check_refused_appends(make_store(), settle)
    _check_random_appends(make_store(), reopen, settle, random.Random(seed))
    for history in range(HISTORIES):
        _check_history(make_store(), reopen, compact, settle, random.Random(f"{seed} {history}"))
    if settle is not None:
        _check_late_answers(make_store(), settle)


class _Log:
    def __init__(self, store: LogStore, settle: Settle | None) -> None:
        self.store = store
        self.settle = settle
        self.expected: dict[int, list[_Entry]] = {partition: [] for partition in PARTITIONS}
        self._numbers = {partition: count() for partition in PARTITIONS}

    def append(self, partition: int, records: Sequence[Record], timestamps_ms: Sequence[int] | None = None) -> None:
        times = timestamps_ms or [1_700_000_000_000] * len(records)
        made = [LogRecord(record, timestamp_ms) for record, timestamp_ms in zip(records, times, strict=True)]
        ticket = Ticket(partition, next(self._numbers[partition]))
        base_offset = append_and_settle(self.store, ticket, made, self.settle)
        require(type(base_offset) is int, f"append() returned {base_offset!r}, which is no offset")
        log = self.expected[partition]
        end_offset = log[-1][0] + 1 if log else 0
        require(
            base_offset >= end_offset,
            f"offsets must grow: append() returned {base_offset}, but log partition {partition} already had a record "
            f"at {end_offset - 1}",
        )
        timed = enumerate(zip(records, times, strict=True), base_offset)
        log += [_entry(LogRecord(*each, offset)) for offset, each in timed]

    def check(self, when: str) -> None:
        for partition in PARTITIONS:
            _compare(f"{when}: log partition {partition}", self.store.read(partition), self.expected[partition])


def _entry(record: LogRecord) -> _Entry:
    key, value = record.encoded()
    return (
        *(record.offset, record.timestamp_ms, bytes(key), None if value is None else bytes(value)),
        *(record.producer_id, record.producer_epoch, record.is_control),
    )


def _compare(where: str, records: Iterable[LogRecord], expected: list[_Entry]) -> None:
    found = [_entry(record) for record in records]
    names = ("offset", "timestamp_ms", "key", "value", "producer_id", "producer_epoch", "is_control")
    for number, (got, wanted) in enumerate(zip(found, expected, strict=False)):
        for name, got_field, wanted_field in zip(names, got, wanted, strict=True):
            if got_field != wanted_field:
                raise AssertionError(
                    f"{where}: record {number} of {len(expected)} has {name} {got_field!r} instead of {wanted_field!r}"
                )
    require(len(found) == len(expected), f"{where}: {len(found)} records are read, {len(expected)} were acknowledged")


# ---------------------------------------------------------------- the clauses


def _check_an_empty_store(store: LogStore) -> None:
    for partition in PARTITIONS:
        found = list(store.read(partition))
        require(not found, f"log partition {partition} of a new store is not empty: {found[:3]}")
    close_store(store)


def _check_every_kind_of_record(
    store: StoreT, reopen: Callable[[StoreT], StoreT] | None, settle: Settle | None
) -> None:
    log = _Log(store, settle)
    for number, records in enumerate(_every_kind()):
        log.append(0, records, [1_000 + 7 * number - index for index in range(len(records))])
    log.append(7, [GroupTombstone("another partition")])
    log.check("after an append of every kind of record")
    log.check("when it is read a second time")
    if reopen is not None:
        log.store = reopen(store)
        log.check("after it was reopened")
        log.append(0, [GroupTombstone("after it was reopened")])
        log.check("after an append to the reopened store")
    close_store(log.store)


def _check_readers(store: LogStore, settle: Settle | None) -> None:
    log = _Log(store, settle)
    for number in range(10):
        log.append(0, [OffsetCommitRecord("g", "t", number, number)])
    before = list(log.expected[0])
    reader = iter(store.read(0))
    first = [next(reader) for _ in range(3)]
    log.append(0, [OffsetCommitRecord("g", "t", 0, 99), GroupTombstone("g")])
    rest = list(reader)
    found = [_entry(record) for record in (*first, *rest)]
    require(
        found in (before, log.expected[0]),
        "a reader was disturbed by an append: it must see the records of before, with or without the new ones",
    )
    abandoned = iter(store.read(0))
    next(abandoned)
    del abandoned
    log.append(0, [GroupTombstone("after a reader that was given up")])
    log.check("after a reader that was given up")
    close_store(store)


def _check_refused_appends(store: LogStore, settle: Settle | None) -> None:
    """Check failed appends with a group id too long for Kafka's format, which a store of values may accept."""
    sound, impossible = OffsetCommitRecord("g", "t", 0, 2), GroupTombstone("x" * TOO_LONG)
    appends: list[list[Record]] = [
        [sound],
        [impossible],
        [sound, impossible],
        [impossible, sound],
        [sound, sound, impossible, sound],
        [sound, sound],
    ]
    expected: list[Record] = []
    for number, records in enumerate(appends):
        made = [LogRecord(record, 1) for record in records]
        try:
            append_and_settle(store, Ticket(0, number), made, settle)
        except LogStoreError as error:
            require(impossible in records, f"append() refused sound records: {error!r}")
            require(not error.outcome_unknown, f"{error!r} has an unknown outcome, but the outcome is known")
        except Exception as error:
            raise AssertionError(f"append() raised {error!r}, which is no LogStoreError: it stops the host") from error
        else:
            expected += records
        found = [record.record for record in store.read(0)]
        require(
            found == expected,
            f"an append of {len(records)} records with a group id of {TOO_LONG} bytes among them must be written as a "
            f"whole or not at all: {len(found)} records are read instead of {len(expected)}",
        )
    close_store(store)


def _check_random_appends(
    store: StoreT, reopen: Callable[[StoreT], StoreT] | None, settle: Settle | None, source: random.Random
) -> None:
    log, now_ms = _Log(store, settle), 1_700_000_000_000
    kinds = list(_every_kind())
    for number in range(RANDOM_APPENDS):
        now_ms += source.choice([0, 0, 1, 1_000, -5])
        if source.random() < 0.3:
            records: Sequence[Record] = source.choice(kinds)
        else:
            records = [
                OffsetCommitRecord(f"group-{source.randrange(5)}", "t", source.randrange(9), source.getrandbits(40))
                for _ in range(source.randint(1, 30))
            ]
        log.append(source.choice(PARTITIONS), records, [now_ms] * len(records))
        if reopen is not None and source.random() < 0.05:
            log.store = store = reopen(store)
            log.check(f"after {number + 1} random appends and reopening")
    log.check(f"after {RANDOM_APPENDS} random appends")
    close_store(log.store)


def _check_history(
    store: StoreT,
    reopen: Callable[[StoreT], StoreT] | None,
    compact: Callable[[StoreT], object] | None,
    settle: Settle | None,
    source: random.Random,
) -> None:
    """Compare a coordinator's state from the log: compaction may drop only records without effect on it."""
    acknowledged = HardState()
    for number in range(HISTORY_APPENDS):
        records = _step_of_history(source)
        made = [LogRecord(record, 1_700_000_000_000 + number) for record in records]
        base_offset = append_and_settle(store, Ticket(0, number), made, settle)
        for log_offset, record in enumerate(records, base_offset):
            acknowledged.apply(record, log_offset)
        when = f"after {number + 1} appends of a random history"
        if compact is not None and source.random() < 0.2:
            compact(store)
            when += ", and compaction"
        if reopen is not None and source.random() < 0.2:
            store = reopen(store)
            when += ", and reopening"
        ways: dict[str, Iterable[LogRecord | LoadedCommits]] = {"read": store.read(0)}
        if isinstance(store, CondensingStore):
            ways["read_last"] = store.read_last(0)
        for way, records_read in ways.items():
            loaded = HardState()
            for found in records_read:
                loaded.apply(found.record, found.offset)
            found_facts = _facts(loaded)
            for name, wanted in _facts(acknowledged).items():
                same = found_facts[name] == wanted
                require(same, f"{when}, {way}(): the {name} are {found_facts[name]} instead of {wanted}")
    close_store(store)


def _check_late_answers(store: LogStore, settle: Settle) -> None:
    wanted: dict[int, list[list[Record]]] = {partition: [] for partition in PARTITIONS}
    answers: list[Answer] = []
    impossible: list[Record] = [GroupTombstone("x" * TOO_LONG)]
    for number in range(10):
        for partition in PARTITIONS:
            records: list[Record] = [OffsetCommitRecord("g", "t", index, number) for index in range(1 + number % 3)]
            if number == 5:
                records = list(impossible)
            ticket = Ticket(partition, number)
            wanted[partition].append(records)
            try:
                base_offset = store.append(partition, ticket, [LogRecord(record, number) for record in records])
            except LogStoreError as error:
                require(records == impossible, f"append() refused sound records: {error!r}")
                records.clear()
            else:
                answers += [] if base_offset is None else [(ticket, base_offset)]
    answers += settle(store)
    for ticket, outcome in answers:
        if isinstance(outcome, LogStoreError) and wanted[ticket.partition][ticket.number] == impossible:
            wanted[ticket.partition][ticket.number].clear()
    for partition, appends in wanted.items():
        where = f"when appends are on their way: log partition {partition}"
        numbers = [ticket.number for ticket, _ in answers if ticket.partition == partition]
        require(
            numbers == sorted(set(numbers)) and numbers[-1:] == [len(appends) - 1],
            f"{where} is answered {numbers}: answers must come in the order of the appends, up to the last one",
        )
        found = {record.offset: record.record for record in store.read(partition)}
        expected = [record for records in appends for record in records]
        require(list(found.values()) == expected, f"{where} has {len(found)} records instead of {len(expected)}")
        for ticket, outcome in answers:
            if ticket.partition == partition:
                records = appends[ticket.number]
                require(
                    [found.get(outcome)] == records[:1] if isinstance(outcome, int) else not records,
                    f"{where}: append {ticket.number} was reported at {outcome}, but its first record is not there",
                )
    close_store(store)


def _step_of_history(source: random.Random) -> list[Record]:
    """Return an append for few groups, partitions and producers, so that many records are superseded."""
    group_id, number = source.choice(["one", "other"]), source.randrange(1_000)
    partitions = source.sample(range(3), source.randint(1, 3))
    member_id = source.choice(["m", "n"])
    match source.choice(
        ["commit", "commit", "delete", "group", "member", "left", "gone", "transaction", "transaction", "end"]
    ):
        case "commit":
            metadata = source.choice(["", "", "metadata"])
            return [OffsetCommitRecord(group_id, "t", p, number, metadata=metadata) for p in partitions]
        case "delete":
            return [OffsetTombstone(group_id, "t", partition) for partition in partitions]
        case "group":
            return [GroupMetadataRecord(group_id, "consumer", number, None, None, number)]
        case "member":
            return [*_member(group_id, member_id, number), ConsumerGroupMetadataRecord(group_id, number)]
        case "left":
            gone = [GroupTombstone(group_id, record.key) for record in _member(group_id, member_id, number)]
            return [*gone, ConsumerGroupMetadataRecord(group_id, number)]
        case "gone":
            members = [*_member(group_id, "m", number), *_member(group_id, "n", number)]
            keys = [record.key for record in members] + [ConsumerGroupMetadataRecord.key, CLASSIC_GROUP_KEY]
            offsets = [OffsetTombstone(group_id, "t", partition) for partition in range(3)]
            return [*offsets, *(GroupTombstone(group_id, key) for key in keys)]
        case "transaction":
            producer_id = source.randrange(2)
            return [
                OffsetCommitRecord(group_id, "t", p, number, producer_id=producer_id, producer_epoch=0)
                for p in partitions
            ]
        case _:
            return [TransactionMarker(source.randrange(2), 0, committed=source.random() < 0.5)]


def _member(group_id: str, member_id: str, epoch: int) -> list[ConsumerGroupRecord]:
    topic_id = UUID(int=epoch + 1)
    assigned = AssignedTopicPartitions(topic_id, (0, 1), (epoch, epoch))
    return [
        ConsumerGroupMemberMetadataRecord(group_id, member_id, None, "rack", "client", "/127.0.0.1", ("t",)),
        ConsumerGroupTargetAssignmentMemberRecord(group_id, member_id, (TopicPartitions(topic_id, (0, 1)),)),
        ConsumerGroupCurrentMemberAssignmentRecord(group_id, member_id, epoch, epoch - 1, 0, (assigned,)),
    ]


def _facts(hard: HardState) -> dict[str, Any]:
    """Return a state without groups that only had offsets, which disappear with their last record."""
    facts: dict[str, Any] = hard.facts()
    named = facts["committed"].keys() | {key[0] for keys in facts["transactions"].values() for key in keys}
    groups = {key: value for key, value in facts["groups"].items() if value or key in named}
    return {**facts, "groups": groups}


def _every_kind() -> Iterable[list[Record]]:
    topic_id = UUID("9e8a4cbc-b6e6-4127-9645-17433affd7c2")
    member = MemberRecord("m-1", "i-1", "client", "/127.0.0.1", 300_000, 45_000, bytes(range(256)), b"")
    yield [OffsetCommitRecord("g", "t", 0, 0)]
    yield [
        OffsetCommitRecord("g", "t", 1, 2**62, 3, "metadata ü", 1_000, topic_id=topic_id),
        OffsetCommitRecord("g", "t", 2**31 - 1, -1, commit_timestamp_ms=2, expire_timestamp_ms=3),
        OffsetCommitRecord("", "", 0, 1),
        OffsetTombstone("g", "t", 1),
    ]
    yield [GroupMetadataRecord("g", "consumer", 7, "range", "m-1", 5, (member, member))]
    yield [GroupMetadataRecord("g", "", 0, None, None, -1, ())]
    yield [OffsetTombstone("g", "t", 0), GroupTombstone("g")]
    yield [
        *_member("g", "m", 3),
        ConsumerGroupMetadataRecord("g", 3, -(2**63)),
        ConsumerGroupPartitionMetadataRecord("g", (TopicMetadata(topic_id, "t", 2, ()),)),
        ConsumerGroupTargetAssignmentMetadataRecord("g", 3, 1_000),
        ConsumerGroupRegularExpressionRecord("g", "t.*", ("t",), 12, 1_000),
    ]
    yield [GroupTombstone("g", record.key) for record in _member("g", "m", 3)]
    yield [OpaqueRecord(b"\x00\x63unknown", bytes(1_000)), OpaqueRecord(b"\x00\x63unknown", None)]
    yield [OffsetCommitRecord("g", "t", p, p, producer_id=2**40, producer_epoch=9) for p in range(3)]
    yield [TransactionMarker(2**40, 9, committed=True, coordinator_epoch=4)]
    yield [OffsetCommitRecord("g", "t", 0, 5, producer_id=0, producer_epoch=0)]
    yield [TransactionMarker(0, 0, committed=False)]
    yield [OffsetCommitRecord("g", "t", number, number, metadata="x" * 500) for number in range(200)]


SlotLogT = TypeVar("SlotLogT", bound=SlotLog)

PAYLOADS = (b"", b"\0", bytes(range(256)), b"x" * 1_000_000)
RACES, RACERS = 20, 4
PAUSE_MS = 30
TOLERANCE_MS = 2_000
LOOK_S = 0.01


def check_slot_log(
    connect: Callable[[], Awaitable[SlotLogT]],
    *,
    connect_again: Callable[[SlotLogT], Awaitable[SlotLogT]],
    lag_ms: int = 0,
) -> None:
    """Check that an engine keeps the contract of :class:`groupcoord.cluster.slot_log.SlotLog`.

    A slot is filled once, and only after the slot before it; of concurrent writers one succeeds. Slots are read
    unchanged, from any slot on, without gaps. Purged slots are gone and stay filled. Nodes receive each other's
    heartbeats.

    Args:
        connect: returns an empty engine; its coroutine ``close()`` is called, if it has one.
        connect_again: returns another connection to the same engine, like another process.
        lag_ms: time for which a read may miss a write or purge, if replicas lag behind.

    Raises:
        AssertionError: the engine breaks the contract; the message has the rule.
    """
    asyncio.run(_check(connect, connect_again, lag_ms))


async def _check(
    connect: Callable[[], Awaitable[SlotLogT]],
    connect_again: Callable[[SlotLogT], Awaitable[SlotLogT]],
    lag_ms: int,
) -> None:
    async with AsyncExitStack() as stack:
        one = await connect()
        _close_at_the_end(one, stack)
        other = await connect_again(one)
        _close_at_the_end(other, stack)
        await _check_puts(one, other)
        await _check_reads(one, other, lag_ms)
        await _check_purges(one, other, lag_ms)
        await _check_races(one, other, lag_ms)
        await _check_beats(one, other)


def _close_at_the_end(slot_log: SlotLog, stack: AsyncExitStack) -> None:
    close = getattr(slot_log, "close", None)
    if close is not None:
        stack.push_async_callback(close)


async def _put(slot_log: SlotLog, partition: int, slot: int, payload: bytes, expected: int | None) -> None:
    found = await slot_log.put(partition, slot, payload)
    what = f"put({partition}, {slot}, …) returned {found!r}, where {expected!r} was due"
    reason = "the slot before it is the last" if expected is None else f"slot {expected} is the last"
    require(found == expected, f"{what}: {reason}")


async def _read(
    slot_log: SlotLog, partition: int, from_slot: int, lag_ms: int, is_seen: Callable[[list[Slot]], bool]
) -> list[Slot]:
    """Return the slots once they are as expected, or the lag has passed."""
    end_s = asyncio.get_running_loop().time() + lag_ms / 1_000
    while not is_seen(slots := await slot_log.read(partition, from_slot)):
        if asyncio.get_running_loop().time() >= end_s:
            break
        await asyncio.sleep(LOOK_S)
    return slots


async def _check_puts(one: SlotLog, other: SlotLog) -> None:
    require(await one.read(0, 0) == [], "a log partition that was never written must be empty")
    await _put(one, 0, 1, b"early", -1)
    for slot, payload in enumerate(PAYLOADS):
        await _put(one, 0, slot, payload, None)
        for taken in (0, slot, slot + 2):
            await _put(other, 0, taken, b"another", slot)
    await _put(other, 1, 0, b"elsewhere", None)
    await _put(one, 1, 1, b"elsewhere too", None)


async def _check_reads(one: SlotLog, other: SlotLog, lag_ms: int) -> None:
    for reader in (one, other):
        for first in range(len(PAYLOADS) + 1):
            found: list[tuple[int, bytes]] = []
            while len(found) < len(PAYLOADS) - first:
                slots = await _read(reader, 0, first + len(found), lag_ms, bool)
                require(slots != [], f"slot {first + len(found)} was put, and is not read")
                found += slots
            expected = list(enumerate(PAYLOADS))[first:]
            require(found == expected, f"slots from {first} on are read otherwise than they were put")


async def _check_purges(one: SlotLog, other: SlotLog, lag_ms: int) -> None:
    last = len(PAYLOADS) - 1

    def is_gone(slots: list[Slot]) -> bool:
        return [slot for slot, _ in slots] == [last]

    for _ in range(2):
        await one.purge(0, last)
        slots = await _read(other, 0, 0, lag_ms, is_gone)
        require(is_gone(slots), f"only slot {last} is left after purge(0, {last})")
    await _put(other, 0, 0, b"again", last)
    await _put(other, 0, last + 1, b"next", None)
    kept = await _read(one, 1, 0, lag_ms, bool)
    require(kept[0] == (0, b"elsewhere"), "a purge of one log partition must not affect others")


async def _check_races(one: SlotLog, other: SlotLog, lag_ms: int) -> None:
    for slot in range(RACES):
        racers = [(one, other)[number % 2] for number in range(RACERS)]
        puts = (racer.put(2, slot, b"%d" % number) for number, racer in enumerate(racers))
        found = await asyncio.gather(*puts)
        require(found.count(None) == 1, f"of {RACERS} that put slot {slot} at a time one must do it: {found}")
        refused = {last for last in found if last is not None}
        require(refused == {slot}, f"a refused writer must learn that slot {slot} is the last: {found}")
        (kept,) = await _read(other, 2, slot, lag_ms, bool)
        require(kept == (slot, b"%d" % found.index(None)), f"slot {slot} has another payload than the one that was put")


async def _check_beats(one: SlotLog, other: SlotLog) -> None:
    await one.beat("one", b"first")
    await asyncio.sleep(PAUSE_MS / 1_000)
    beats = {beat.node_id: beat for beat in await other.beat("other", b"second")}
    require(set(beats) == {"one", "other"}, f"beat() must return all nodes, including the sender: {beats}")
    contents = [beats[name].content for name in ("one", "other")]
    require(contents == [b"first", b"second"], f"beat() must return the contents of all nodes: {contents}")
    require(0 <= beats["other"].age_ms <= TOLERANCE_MS, f"a beat of now is {beats['other'].age_ms} ms old")
    apart_ms = beats["one"].age_ms - beats["other"].age_ms
    require(0 < apart_ms <= TOLERANCE_MS, f"beats that are {PAUSE_MS} ms apart are {apart_ms} ms apart in age")
    (again,) = [beat for beat in await one.beat("one", b"third") if beat.node_id == "one"]
    require((again.content, again.age_ms <= TOLERANCE_MS) == (b"third", True), f"the last beat counts: {again}")


ClockT = TypeVar("ClockT", bound=Clock)

READS = 1_000
EARLIEST_MS, LATEST_MS = 1_000_000_000_000, 9_999_999_999_999
"""2001 to 2286, which excludes today's time in seconds or microseconds."""
WATCHED_MS = 60
CLOCK_TOLERANCE_MS = 20
DURATIONS_MS = (0, 1, 45_000, 7 * 24 * 3_600_000)


def check_clock(make_clock: Callable[[], ClockT], *, advance: Callable[[ClockT, int], None] | None = None) -> None:
    """Check that a clock keeps the contract of :class:`groupcoord.Clock`: whole milliseconds that never decrease.

    A real clock must show milliseconds since the Unix epoch and keep pace with time, which takes 60 ms to check. A
    virtual clock must stand still until advanced, advance exactly, and be independent of others.

    Args:
        make_clock: returns a new clock.
        advance: advances a virtual clock by milliseconds; None for a real clock.

    Raises:
        AssertionError: the clock breaks the contract; the message has the rule.
    """
    clock = make_clock()
    last_ms = _read_clock(clock)
    for _ in range(READS):
        now_ms = _read_clock(clock)
        require(now_ms >= last_ms, f"the clock went back, from {last_ms} to {now_ms}")
        last_ms = now_ms
    if advance is None:
        _check_pace(clock)
    else:
        _check_virtual(clock, make_clock(), advance)


def _read_clock(clock: Clock) -> int:
    now_ms = clock.now_ms()
    require(type(now_ms) is int, f"now_ms() returned {now_ms!r}: it must be a whole number of milliseconds")
    return now_ms


def _check_pace(clock: Clock) -> None:
    now_ms = _read_clock(clock)
    require(
        EARLIEST_MS <= now_ms <= LATEST_MS,
        f"now_ms() returned {now_ms}, which is no time of today in milliseconds since the Unix epoch",
    )
    outer_ns = time.monotonic_ns()
    first_ms = _read_clock(clock)
    inner_ns = time.monotonic_ns()
    time.sleep(WATCHED_MS / 1000)
    at_least_ms = (time.monotonic_ns() - inner_ns) // 1_000_000
    shown_ms = _read_clock(clock) - first_ms
    at_most_ms = (time.monotonic_ns() - outer_ns) // 1_000_000
    require(
        at_least_ms - CLOCK_TOLERANCE_MS <= shown_ms <= at_most_ms + CLOCK_TOLERANCE_MS,
        f"the clock showed {shown_ms} ms while {at_most_ms} ms passed",
    )


def _check_virtual(clock: ClockT, other: ClockT, advance: Callable[[ClockT, int], None]) -> None:
    other_ms = _read_clock(other)
    for duration_ms in DURATIONS_MS:
        before_ms = _read_clock(clock)
        require(_read_clock(clock) == before_ms, "a virtual clock advanced by itself")
        advance(clock, duration_ms)
        now_ms = _read_clock(clock)
        require(
            now_ms == before_ms + duration_ms,
            f"advanced by {duration_ms} ms, the clock went from {before_ms} to {now_ms}",
        )
    require(_read_clock(other) == other_ms, "advancing one clock moved another one")
