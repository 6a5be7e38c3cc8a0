"""Commits and fetches are columns, and the same as if they were handled offset by offset."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from groupcoord import GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.core.columns import AsciiTexts, OffsetColumns, encode_each
from groupcoord.core.log.log_partition import HardState
from groupcoord.core.log.records import CommitKind, CommitRecords, CommittedTopic, OffsetCommitRecord, OffsetTombstone
from groupcoord.core.messages.commits import (
    FetchedOffsets,
    PartitionResults,
    fetched_offsets,
    partition_results,
    refused_partitions,
)
from groupcoord.core.offsets.cache import OffsetCache
from groupcoord.errors import ErrorCode
from groupcoord.messages import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    GroupToFetch,
    OffsetCommit,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    PartitionResult,
    TopicToCommit,
    TopicToFetch,
    TxnOffsetCommit,
)
from groupcoord.wire.api import RequestHeader
from groupcoord.wire.protocol import encode_response
from tests.tables import as_one_test
from tests.wire.kio_client import CORRELATION_ID, read_response

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How long an example takes is the machine's affair."""

START_MS = 1_700_000_000_000
Row = tuple[int, int, int, str]

texts = st.sampled_from(["", "", "m", "größe", "x" * 40, "y" * 40])
rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**62), st.integers(-1, 9), texts), max_size=8)
commits = st.lists(st.tuples(st.sampled_from(["orders", "payments"]), rows), max_size=3)


def records_one_by_one(request: OffsetCommit | TxnOffsetCommit) -> list[OffsetCommitRecord]:
    return [
        OffsetCommitRecord(
            "group",
            topic.name or "",
            offset.partition_index,
            offset.committed_offset,
            offset.committed_leader_epoch,
            offset.committed_metadata or "",
            START_MS,
            producer_id=getattr(request, "producer_id", -1),
            producer_epoch=getattr(request, "producer_epoch", -1),
        )
        for topic in request.topics
        for offset in topic.partitions
    ]


@unhurried
@given(commits=commits, is_transactional=st.booleans())
def test_a_commit_is_its_records(commits: list[tuple[str, list[Row]]], is_transactional: bool) -> None:
    """Hard state and the log are those of one record for each offset: repeated partitions and topics included."""
    topics = tuple(TopicToCommit(name, tuple(OffsetToCommit(*row) for row in found)) for name, found in commits)
    request: OffsetCommit | TxnOffsetCommit = OffsetCommit("group", topics)
    if is_transactional:
        request = TxnOffsetCommit(
            group_id="group", topics=topics, transactional_id="id", producer_id=7, producer_epoch=0
        )
    store = MemoryLogStore()
    coordinator = GroupCoordinator(clock=ManualClock(START_MS), log_store=store)
    coordinator.load_all()
    response = coordinator.call(request)
    coordinator.check()
    index = coordinator.partition_of("group")
    log, records = list(store.read(index)), records_one_by_one(request)
    assert [entry.record for entry in log] == records
    expected = HardState()
    for log_offset, record in enumerate(records):
        expected.apply(record, log_offset)
    partition = coordinator.partition(index)
    assert partition is not None
    assert partition.hard.facts() == expected.facts()
    results = [tuple(result) for topic in response.topics for result in topic.partitions]
    assert results == [(record.partition, ErrorCode.NONE) for record in records]


def test_an_expiry_takes_epochs_away() -> None:
    """A commit with its own retention has no leader epochs in its records."""
    store = MemoryLogStore()
    coordinator = GroupCoordinator(clock=ManualClock(START_MS), log_store=store)
    coordinator.load_all()
    offsets = (OffsetToCommit(0, 5, 3), OffsetToCommit(1, 6, 4, "m"))
    coordinator.call(OffsetCommit("group", (TopicToCommit("orders", offsets, UUID(int=5)),), retention_time_ms=1_000))
    found = [entry.record for entry in store.read(coordinator.partition_of("group"))]
    assert found == [
        OffsetCommitRecord("group", "orders", 0, 5, -1, "", START_MS, START_MS + 1_000),
        OffsetCommitRecord("group", "orders", 1, 6, -1, "m", START_MS, START_MS + 1_000),
    ]


@unhurried
@given(
    st.lists(
        st.one_of(
            st.integers(0, 6),
            st.lists(st.tuples(st.integers(0, 6), st.integers(0, 99), st.integers(-1, 3), texts), min_size=1),
        ),
        max_size=12,
    )
)
def test_what_is_left_of_commits(steps: list[int | list[Row]]) -> None:
    """However commits and tombstones overlap, of each partition the last one counts, with its place in the log."""
    cache, expected, log_offset = OffsetCache(), dict[int, tuple[int, OffsetCommitRecord]](), 0
    for step in steps:
        if isinstance(step, int):
            cache.apply_tombstones((OffsetTombstone("group", "orders", step),))
            expected.pop(step, None)
            log_offset += 1
        else:
            columns = TopicToCommit("orders", [OffsetToCommit(*row) for row in step]).columns
            commit = CommitRecords([CommittedTopic(CommitKind("group", "orders"), columns)])
            cache.apply(commit, log_offset)
            expected.update({record.partition: (place, record) for place, record in enumerate(commit, log_offset)})
            log_offset += len(commit)
        cache.check()
        assert cache.committed_records() == ({"group": {"orders": expected}} if expected else {})


@unhurried
@given(
    committed=st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 2**62), st.integers(-1, 9), texts)),
    wanted=st.lists(st.integers(0, 9)).map(tuple),
    at_once=st.booleans(),
)
def test_what_was_committed_is_fetched(
    committed: dict[int, tuple[int, int, str]], wanted: tuple[int, ...], at_once: bool
) -> None:
    """With metadata and without, in one commit or several, there or not there, named twice or never."""
    coordinator = GroupCoordinator(clock=ManualClock(START_MS), log_store=MemoryLogStore())
    coordinator.load_all()
    offsets = [OffsetToCommit(index, *row) for index, row in committed.items()]
    for together in [offsets] if at_once else [[offset] for offset in offsets]:
        coordinator.call(OffsetCommit("group", (TopicToCommit("orders", tuple(together)),)))
    answer = coordinator.call(OffsetFetch((GroupToFetch("group", (TopicToFetch("orders", wanted),)),)))
    assert isinstance(answer, OffsetFetchResponse)
    ((_, _, ((_, _, partitions),)),) = answer.groups
    nothing = (-1, -1, "")
    assert [tuple(fetched) for fetched in partitions] == [
        (index, *committed.get(index, nothing), ErrorCode.NONE) for index in wanted
    ]


@as_one_test
@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize("count", [1, 3, 256, 257])
@pytest.mark.parametrize("metadata", ["", "m", "größe", "m" * 126, "m" * 127, "m" * 300, "of any length"])
def test_fetched_offsets_are_written_one_by_one(version: int, count: int, metadata: str) -> None:
    """Every version of an answer has the bytes that an independent client reads, however many partitions there are."""
    notes = [metadata[: number % 5] if metadata == "of any length" else metadata for number in range(count)]
    offsets = [
        FetchedOffset(number, 2**40 + number, number - 1, note, ErrorCode.NONE) for number, note in enumerate(notes)
    ]
    for error_code in (ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT):
        partitions = fetched_offsets([*offsets[1:], offsets[0]._replace(error_code=error_code)])
        group = FetchedGroup("group", ErrorCode.NONE, (FetchedTopic("orders", UUID(int=5), partitions),))
        frame = encode_response(RequestHeader(9, version, CORRELATION_ID), OffsetFetchResponse((group,)))
        answer = read_response(9, version, frame)
        (topic,) = answer["groups"][0]["topics"] if version >= 8 else answer["topics"]
        assert [
            (found["partition_index"], found["committed_offset"], found["metadata"], found["error_code"])
            for found in topic["partitions"]
        ] == [(index, offset, note, error) for index, offset, _, note, error in partitions]
        if version >= 5:
            assert [found["committed_leader_epoch"] for found in topic["partitions"]] == [p[2] for p in partitions]


KIND = CommitKind("group", "orders", commit_timestamp_ms=START_MS)
COLUMNS = OffsetColumns((4, 2), (10, -1), (1, -1), ("m", ""))


@pytest.mark.parametrize(
    ("rows", "items"),
    [
        (PartitionResults((3, 9)), (PartitionResult(3, ErrorCode.NONE), PartitionResult(9, ErrorCode.NONE))),
        (
            refused_partitions((3, 9), ErrorCode.ILLEGAL_GENERATION),
            (PartitionResult(3, ErrorCode.ILLEGAL_GENERATION), PartitionResult(9, ErrorCode.ILLEGAL_GENERATION)),
        ),
        (
            FetchedOffsets(COLUMNS),
            (FetchedOffset(4, 10, 1, "m", ErrorCode.NONE), FetchedOffset(2, -1, -1, "", ErrorCode.NONE)),
        ),
        (
            CommitRecords([CommittedTopic(KIND, COLUMNS)]),
            (
                OffsetCommitRecord("group", "orders", 4, 10, 1, "m", START_MS),
                OffsetCommitRecord("group", "orders", 2, -1, -1, "", START_MS),
            ),
        ),
    ],
    ids=["PartitionResults", "refused", "FetchedOffsets", "CommitRecords"],
)
def test_columns_read_like_a_tuple(rows: Any, items: tuple[object, ...]) -> None:
    """Iteration gives the items in order."""
    assert tuple(rows) == items
    assert (len(rows), rows[0], rows[-1], rows[:1]) == (2, items[0], items[1], items[:1])
    assert rows == items
    assert rows != items[::-1]
    assert rows != "something else"
    assert repr(rows) == repr(items)
    assert list(reversed(rows)) == list(reversed(items))


def test_lists_become_columns() -> None:
    listed = TopicToCommit("orders", [OffsetToCommit(4, 10, 1, "m"), OffsetToCommit(2, -1, -1, None)])
    assert listed == TopicToCommit("orders", COLUMNS)
    assert listed.partitions == (OffsetToCommit(4, 10, 1, "m"), OffsetToCommit(2, -1))
    for rows, as_columns in (
        (refused_partitions((3, 9), ErrorCode.ILLEGAL_GENERATION), partition_results),
        (PartitionResults((3, 9)), partition_results),
        (FetchedOffsets(COLUMNS), fetched_offsets),
    ):
        assert as_columns(rows) is rows  # type: ignore[operator]
        assert as_columns(list(rows)) == rows  # type: ignore[operator]


@pytest.mark.parametrize("length", [1, 40, 200])
def test_texts_that_stay_bytes(length: int) -> None:
    """They read as text, and are written as the same bytes."""
    alike = tuple(letter * length for letter in "abc")
    texts = AsciiTexts(tuple(map(str.encode, alike)))
    assert (tuple(texts), len(texts), texts[1], texts[1:], hash(texts)) == (alike, 3, alike[1], alike[1:], hash(alike))
    assert texts == alike
    assert alike == texts
    assert texts != alike[1:]
    columns = OffsetColumns((0, 1, 2), (5, 6, 7), (-1, -1, -1), texts)
    assert columns == columns._replace(metadata=alike)
    assert columns.select([2, 0]).metadata == (alike[2], alike[0])
    for length_of in (lambda size: bytes([size]), lambda size: size.to_bytes(2, "big")):
        lengths, contents, widths = encode_each(texts, length_of)
        assert (lengths, list(contents), widths) == encode_each(alike, length_of)
        assert (lengths, list(contents), widths) == ([length_of(length)] * 3, [*map(str.encode, alike)], length)
