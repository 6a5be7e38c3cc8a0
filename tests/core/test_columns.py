"""Commits that stay columns are the same as commits made one by one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupcoord import GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.core.messages.columns import AllAccepted, FetchedColumns, OffsetColumns
from groupcoord.core.records import CommittedTopic, OffsetCommitRecord, PlainCommits
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
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.protocol import encode_response

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How long an example takes is the machine's affair."""

START_MS = 1_700_000_000_000
Row = tuple[int, int, int]

rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**62), st.integers(-1, 9)), max_size=8)
commits = st.lists(st.tuples(st.sampled_from(["orders", "payments"]), rows), max_size=3)


def columns(found: list[Row]) -> OffsetColumns:
    """Return rows as columns."""
    return OffsetColumns(tuple(r[0] for r in found), tuple(r[1] for r in found), tuple(r[2] for r in found))


def outcome(request: OffsetCommit | TxnOffsetCommit) -> tuple[Any, ...]:
    """Return everything that a commit leaves behind: the answer, hard state, and the log's bytes."""
    store = MemoryLogStore()
    coordinator = GroupCoordinator(clock=ManualClock(START_MS), log_store=store)
    coordinator.load_all()
    response = coordinator.call(request)
    coordinator.check()
    log = [(r.key, r.value, r.offset) for index in range(50) for r in store.read(index)]
    partition = coordinator.partition(coordinator.partition_of("group"))
    assert partition is not None
    return response, partition.hard_facts(), log


@unhurried
@given(commits=commits, is_transactional=st.booleans())
def test_columns_commit_like_rows(commits: list[tuple[str, list[Row]]], is_transactional: bool) -> None:
    """The same answer, the same hard state, the same bytes: repeated partitions and topics included."""
    as_rows = tuple(TopicToCommit(name, tuple(OffsetToCommit(*row) for row in found)) for name, found in commits)
    as_columns = tuple(TopicToCommit(name, columns(found)) for name, found in commits)
    request: OffsetCommit | TxnOffsetCommit = OffsetCommit("group", as_rows)
    if is_transactional:
        request = TxnOffsetCommit(
            group_id="group", topics=as_rows, transactional_id="id", producer_id=7, producer_epoch=0
        )
    assert outcome(evolve(request, topics=as_columns)) == outcome(request)


def test_an_expiry_takes_columns_apart() -> None:
    """A commit with a retention of its own has no leader epochs in its records, in columns or not."""
    found = [(0, 5, 3), (1, 6, 4)]
    as_rows = (TopicToCommit("orders", tuple(OffsetToCommit(*row) for row in found)),)
    request = OffsetCommit("group", (TopicToCommit("orders", columns(found)),), retention_time_ms=1_000)
    assert outcome(request) == outcome(OffsetCommit("group", as_rows, retention_time_ms=1_000))


@unhurried
@given(
    committed=st.dictionaries(
        st.integers(0, 9), st.tuples(st.integers(0, 2**62), st.integers(-1, 9), st.sampled_from(["", "", "", "m"]))
    ),
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


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize("count", [1, 3, 256, 257])
def test_fetched_columns_are_written_like_rows(version: int, count: int) -> None:
    """Every version of the answer has the same bytes, however many partitions there are."""
    lazy = FetchedColumns(tuple(range(count)), tuple(range(2**40, 2**40 + count)), tuple(range(-1, count - 1)))
    answers = [
        encode_response(
            RequestHeader(9, version, 7),
            OffsetFetchResponse(
                (FetchedGroup("group", ErrorCode.NONE, (FetchedTopic("orders", UUID(int=5), partitions),)),)
            ),
        )
        for partitions in (lazy, tuple(lazy))
    ]
    assert answers[0] == answers[1]


LIKE = OffsetCommitRecord("group", "orders", 4, 10, 1, commit_timestamp_ms=START_MS)


@pytest.mark.parametrize(
    ("lazy", "items"),
    [
        (columns([(4, 10, 1), (2, 11, -1)]), (OffsetToCommit(4, 10, 1), OffsetToCommit(2, 11, -1))),
        (AllAccepted((3, 9)), (PartitionResult(3, ErrorCode.NONE), PartitionResult(9, ErrorCode.NONE))),
        (
            FetchedColumns((4, 2), (10, -1), (1, -1)),
            (FetchedOffset(4, 10, 1, "", ErrorCode.NONE), FetchedOffset(2, -1, -1, "", ErrorCode.NONE)),
        ),
        (
            PlainCommits([CommittedTopic(LIKE, (4, 2), (10, 11), (1, -1))]),
            (LIKE, OffsetCommitRecord("group", "orders", 2, 11, -1, commit_timestamp_ms=START_MS)),
        ),
    ],
    ids=["OffsetColumns", "AllAccepted", "FetchedColumns", "PlainCommits"],
)
def test_columns_read_like_a_tuple(lazy: Any, items: tuple[object, ...]) -> None:
    """Whoever looks at one finds the items in their order."""
    assert tuple(lazy) == items
    assert (len(lazy), lazy[0], lazy[-1], lazy[:1]) == (2, items[0], items[1], items[:1])
    assert lazy == items
    assert lazy != items[::-1]
    assert lazy != "something else"
    assert repr(lazy) == repr(items)
    assert list(reversed(lazy)) == list(reversed(items))


def test_results_can_be_hashed() -> None:
    """As tuples of results can."""
    assert hash(AllAccepted((1, 2))) == hash(tuple(AllAccepted((1, 2))))
