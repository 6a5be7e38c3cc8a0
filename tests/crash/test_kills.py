"""Servers are killed again and again; nothing that they acknowledged is ever lost. More: ``python -m tests.crash``."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupcoord.records.batches import encode_batch, iter_batches
from tests.client import Fetched
from tests.crash.clients import PARTITION_COUNT, TOPIC, BrokenPromiseError, Promises
from tests.crash.harness import Harness
from tests.crash.producers import OffsetsInTransactions, Seen
from tests.crash.record_clients import RecordsInTransactions, WrittenPromises
from tests.samples import SEED

KILLS_ALWAYS, KILLS_IN_CI, KILLS_AT_NIGHT = 10, 50, 500


@pytest.mark.parametrize(
    "kills",
    [
        KILLS_ALWAYS,
        pytest.param(KILLS_IN_CI, marks=pytest.mark.ci),
        pytest.param(KILLS_AT_NIGHT, marks=pytest.mark.slow),
    ],
)
def test_nothing_acknowledged_is_lost(tmp_path: Path, kills: int) -> None:
    """After each kill every acknowledged commit, generation and record is there."""
    harness = Harness(tmp_path, SEED)
    try:
        harness.run(kills)
    except Exception as error:
        error.add_note(f"kill {harness.kill_count}; again: python -m tests.crash --kills {kills} --seed {SEED}")
        raise
    finally:
        harness.close()
    assert harness.kill_count == kills
    assert harness.answer_count > kills


@pytest.mark.parametrize(
    "fetched",
    [
        {},
        {(TOPIC, index): 4 for index in range(PARTITION_COUNT)},
        {(TOPIC, index): 8 for index in range(PARTITION_COUNT)},
        {(TOPIC, index): 5 + index % 2 for index in range(PARTITION_COUNT)},
        {(TOPIC, index): 6 for index in range(PARTITION_COUNT - 1)},
    ],
    ids=["all lost", "gone back", "never sent", "half a commit", "a partition lost"],
)
def test_broken_promises_are_noticed(fetched: dict[tuple[str, int], int]) -> None:
    """A server that has less than it acknowledged, or more than was sent, or half of a commit, is found out."""
    promises = Promises("group")
    promises.acknowledged, promises.sent = 5, 7
    with pytest.raises(BrokenPromiseError):
        promises.check_offsets(fetched)


def seen(offset: int, *, pending: bool = False) -> Seen:
    offsets = {} if offset < 0 else {(TOPIC, index): offset for index in range(PARTITION_COUNT)}
    return Seen(offsets, dict.fromkeys(range(PARTITION_COUNT), pending))


def open_transaction(*, ending: bool | None) -> OffsetsInTransactions:
    """Offset 3 was committed in one group; 5 is in an open transaction there, and 6 in another group."""
    promises = OffsetsInTransactions("producer", ("one", "other"))
    promises.committed["one"] = 3
    promises.open = {"one": 5, "other": 6}
    promises.ending = ending
    return promises


OPEN = {"one": seen(3, pending=True), "other": seen(-1, pending=True)}
COMMITTED = {"one": seen(5), "other": seen(6)}
ABORTED = {"one": seen(3), "other": seen(-1)}
TORN = Seen({(TOPIC, index): 3 + 2 * (index % 2) for index in range(PARTITION_COUNT)}, dict.fromkeys(range(6), False))


@pytest.mark.parametrize(
    ("ending", "found"),
    [
        (None, COMMITTED),
        (None, ABORTED),
        (None, {**OPEN, "other": seen(-1)}),
        (True, ABORTED),
        (True, {**COMMITTED, "other": seen(-1)}),
        (True, {**COMMITTED, "other": seen(6, pending=True)}),
        (True, {**COMMITTED, "one": TORN}),
        (False, COMMITTED),
        (False, {**ABORTED, "other": seen(6)}),
        (False, {**ABORTED, "other": seen(-1, pending=True)}),
    ],
)
def test_broken_transactions_are_noticed(ending: bool | None, found: dict[str, Seen]) -> None:
    """Offsets that are visible too early, after an abort or in part, and pending ones that are gone, are found out."""
    with pytest.raises(BrokenPromiseError):
        open_transaction(ending=ending).check(found)


def holding(*values: bytes, end: int | None = None, aborted: tuple[tuple[int, int], ...] = ()) -> Fetched:
    """A partition with one record in each batch."""
    encoded = b"".join(encode_batch(offset, [(None, value, 0)]) for offset, value in enumerate(values))
    count = len(values) if end is None else end
    return Fetched(0, count, list(iter_batches(encoded)), list(aborted))


@pytest.mark.parametrize(
    "found",
    [
        holding(b"0", b"1"),
        holding(b"0", b"1", b"2", end=2),
        holding(b"0", b"1", b"1"),
        holding(b"0", b"1", b"2", b"2"),
        holding(b"0", b"1", b"3"),
        holding(b"0", b"1", b"2", b"3", b"4"),
        holding(b"0", b"1", b"2", b"3")._replace(error_code=56),
    ],
    ids=["lost", "hidden", "there twice", "sent twice", "another", "never sent", "an error"],
)
def test_broken_records_are_noticed(found: Fetched) -> None:
    """Of an idempotent writer every record must be there once and in order, as far as it was acknowledged."""
    promises = WrittenPromises(0, is_idempotent=True, acks=-1)
    promises.acknowledged, promises.sent = {0: b"0", 1: b"1", 2: b"2"}, 4
    for whole in (holding(b"0", b"1", b"2"), holding(b"0", b"1", b"2", b"3")):
        promises.check(lambda *_, whole=whole: whole)
    with pytest.raises(BrokenPromiseError):
        promises.check(lambda *_: found)


@pytest.mark.parametrize(
    ("ending", "visible"),
    [(None, (1, 1)), (False, (1, 1)), (True, (1, 0)), (True, (0, 1)), (True, (0, 2))],
)
def test_broken_records_of_transactions_are_noticed(ending: bool | None, visible: tuple[int, int]) -> None:
    """Records that are visible too early, after an abort or in part are found out; all or none pass after a commit."""
    promises = RecordsInTransactions("writer", (0, 1))
    promises.open, promises.ending = {0: [b"a"], 1: [b"a"]}, ending
    with pytest.raises(BrokenPromiseError):
        promises.check(lambda index, *_: holding(*[b"a"] * visible[index]))
    promises.check(lambda *_: holding())
    promises.ending = True
    promises.check(lambda *_: holding(b"a"))
    assert promises.committed == {0: [b"a"], 1: [b"a"]}
