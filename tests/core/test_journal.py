"""The journal by itself: appends in flight, and what a log store may not do."""

from __future__ import annotations

import pytest

from groupcoord import InvariantError, StoreContractError
from groupcoord.core.classic.continuations import WhenCreated
from groupcoord.core.classic.group import GroupMetadata
from groupcoord.core.columns import OffsetColumns
from groupcoord.core.effects import Append, Effects
from groupcoord.core.journal import Journal
from groupcoord.core.messages import OffsetCommitResponse
from groupcoord.core.offsets.continuations import WhenCommitted
from groupcoord.core.records import CommitKind, CommitRecords, CommittedTopic, OffsetCommitRecord
from groupcoord.core.replies import Reply

FIRST = 7


@pytest.fixture
def journal() -> Journal:
    """A journal whose first append is number 7."""
    return Journal(3, Effects(), FIRST)


def commit(journal: Journal, *offsets: int) -> Append:
    """Begin an append of these offsets, one for each partition from 0 on; return it."""
    columns = OffsetColumns(tuple(range(len(offsets))), offsets, (-1,) * len(offsets))
    records = CommitRecords([CommittedTopic(CommitKind("group", "orders"), columns)])
    journal.begin(records, WhenCommitted("group", len(records)), Reply("token", OffsetCommitResponse(())))
    journal.check()
    return journal.in_flight[-1]


def offsets_of(journal: Journal) -> dict[int, tuple[int, ...]]:
    """Return (log offset, offset) of each committed partition."""
    topics = journal.hard.offsets.of_group("group")
    logged = {index: commit.logged(index) for index, commit in topics.get("orders", {}).items()}
    return {index: (log_offset, record.offset) for index, (log_offset, record) in logged.items()}


def test_begin() -> None:
    """Appends are numbered from the first one on and handed out in order; nothing is durable yet."""
    effects = Effects()
    journal = Journal(3, effects, FIRST)
    first, second = commit(journal, 1), commit(journal, 2, 3)
    assert list(effects.appends) == [first, second]
    assert [(append.partition, append.number, len(append.records)) for append in effects.appends] == [
        (3, 7, 1),
        (3, 8, 2),
    ]
    assert list(journal.hard.offsets.pending) == [7, 8]
    assert offsets_of(journal) == {}


def test_acknowledge(journal: Journal) -> None:
    """The records count from their offsets on; what follows and who waits comes back with the append."""
    append = commit(journal, 1, 2)
    assert journal.acknowledge(7, 40) == [append]
    assert append.held == [Reply("token", OffsetCommitResponse(()))]
    assert offsets_of(journal) == {0: (40, 1), 1: (41, 2)}
    assert (journal.next_log_offset, len(journal.in_flight), journal.hard.offsets.pending) == (42, 0, {})


def test_an_acknowledgement_stands_for_all_before(journal: Journal) -> None:
    """The earlier appends lie right before the one that is acknowledged."""
    expected = [commit(journal, 1, 1), commit(journal, 2), commit(journal, 0, 0, 3)]
    later = commit(journal, 9)
    assert journal.acknowledge(9, 13) == expected
    assert offsets_of(journal) == {0: (13, 0), 1: (14, 0), 2: (15, 3)}
    assert list(journal.in_flight) == [later]


def test_fail(journal: Journal) -> None:
    """A refused append leaves no trace; the next one is the oldest."""
    first, second = commit(journal, 1), commit(journal, 2)
    assert journal.fail(7) is first
    assert journal.acknowledge(8, 0) == [second]
    assert offsets_of(journal) == {0: (0, 2)}


def test_answers_from_before_the_load(journal: Journal) -> None:
    """They are ignored, acknowledged or failed."""
    commit(journal, 1)
    assert journal.acknowledge(6, 100) == []
    assert journal.fail(6) is None
    assert len(journal.in_flight) == 1


@pytest.mark.parametrize("number", [8, 10, 99])
def test_acknowledging_what_was_never_made(journal: Journal, number: int) -> None:
    """An append that is not in flight can't be acknowledged; nothing changes."""
    commit(journal, 1)
    with pytest.raises(StoreContractError, match=f"log partition 3: append {number} is not in flight"):
        journal.acknowledge(number, 0)
    assert (len(journal.in_flight), offsets_of(journal)) == (1, {})


def test_acknowledging_twice(journal: Journal) -> None:
    """An answered append is not in flight any more."""
    commit(journal, 1)
    commit(journal, 2)
    journal.acknowledge(7, 0)
    with pytest.raises(StoreContractError, match="append 7 is not in flight"):
        journal.acknowledge(7, 0)


@pytest.mark.parametrize("base_offset", [0, 41, -1])
def test_an_offset_that_goes_back(journal: Journal, base_offset: int) -> None:
    """Offsets of a log grow."""
    commit(journal, 1)
    commit(journal, 2)
    journal.acknowledge(7, 41)
    with pytest.raises(StoreContractError, match=r"append 8 was acknowledged at offset .* already reached 42"):
        journal.acknowledge(8, base_offset)
    assert offsets_of(journal) == {0: (41, 1)}


def test_no_room_for_what_came_before(journal: Journal) -> None:
    """An acknowledgement for several must leave room for the earlier ones."""
    commit(journal, 1, 1, 1)
    commit(journal, 2)
    with pytest.raises(StoreContractError, match="at offset -1"):
        journal.acknowledge(8, 2)


@pytest.mark.parametrize("number", [8, 99])
def test_failing_out_of_turn(journal: Journal, number: int) -> None:
    """Only the oldest append in flight can fail."""
    commit(journal, 1)
    commit(journal, 2)
    with pytest.raises(StoreContractError, match=f"append {number} failed out of turn"):
        journal.fail(number)
    assert len(journal.in_flight) == 2


def test_failing_with_nothing_in_flight(journal: Journal) -> None:
    """An append that was never made can't fail."""
    with pytest.raises(StoreContractError, match="out of turn"):
        journal.fail(7)


def test_load(journal: Journal) -> None:
    """Records of the log are applied where they lie; gaps are allowed, going back is not."""
    journal.load(OffsetCommitRecord("group", "orders", 0, 1), 5)
    journal.load(OffsetCommitRecord("group", "orders", 1, 2), 9)
    assert offsets_of(journal) == {0: (5, 1), 1: (9, 2)}
    assert journal.next_log_offset == 10
    with pytest.raises(StoreContractError, match="record at offset 9 after 9"):
        journal.load(OffsetCommitRecord("group", "orders", 0, 3), 9)


def test_check(journal: Journal) -> None:
    """Pending commits are those in flight."""
    journal.begin([], WhenCreated(GroupMetadata("group", 3, 0)))
    journal.check()
    journal.hard.offsets.pending[99] = CommitRecords([])
    with pytest.raises(InvariantError, match=r"pending commits \[99\]"):
        journal.check()
