"""Records in a share-partition: acquisition, refused acknowledgements, holes and throttling."""

from __future__ import annotations

import pytest
from attrs import evolve

from groupcoord import Config
from groupcoord.config.group_settings import ShareGroupSettings
from groupcoord.core.share_partition.in_flight import (
    Acknowledgement,
    LogBatch,
    RefusedAcknowledgementError,
    Wanted,
    check_acknowledgements,
)
from groupcoord.core.share_partition.partition import PENDING_RETRY_MS, SharePartition
from groupcoord.core.share_state.records import StateBatch
from groupcoord.errors import ErrorCode
from tests.tables import as_one_test

SETTINGS = ShareGroupSettings.of(Config())
ONE = [LogBatch(0, 9)]


def acquire(
    partition: SharePartition, batches: list[LogBatch], most: int = 500, settings: ShareGroupSettings = SETTINGS
) -> list[tuple[int, int, int]]:
    """Acquire for Ann at time 0."""
    found = [tuple(each) for each in partition.acquire(Wanted("ann", most), batches, settings, 0)]
    partition.check()
    return found  # type: ignore[return-value]


def say(partition: SharePartition, *said: tuple[int, int, list[int]], member: str = "ann") -> ErrorCode:
    """Acknowledge, and have it written."""
    try:
        write = partition.acknowledge(member, [Acknowledgement(*each) for each in said], SETTINGS, 0)
    except RefusedAcknowledgementError as error:
        partition.check()
        return error.error_code
    if write is not None:
        partition.written(write)
    partition.check()
    return ErrorCode.NONE


def test_all_or_nothing() -> None:
    """One bad acknowledgement takes the good ones of its request along, also where both are about one record."""
    partition = SharePartition(0)
    acquire(partition, ONE)
    assert say(partition, (0, 3, [1]), (3, 3, [1])) is ErrorCode.INVALID_RECORD_STATE
    assert say(partition, (0, 3, [1]), (9, 12, [1])) is ErrorCode.INVALID_REQUEST
    assert say(partition, (0, 3, [1]), member="ben") is ErrorCode.INVALID_RECORD_STATE
    assert say(partition, (0, 9, [1])) is ErrorCode.NONE
    assert partition.start_offset == 10


def test_what_is_being_written_waits() -> None:
    """Until the log answers, a record is in no final state; a refused write restores the previous one."""
    partition = SharePartition(0)
    acquire(partition, ONE)
    write = partition.acknowledge("ann", [Acknowledgement(0, 9, [1])], SETTINGS, 0)
    assert write is not None
    assert say(partition, (0, 0, [1])) is ErrorCode.INVALID_RECORD_STATE
    assert partition.release("ann", SETTINGS) is None
    partition.refused(write)
    assert say(partition, (0, 0, [1])) is ErrorCode.NONE
    assert partition.start_offset == 1


def test_two_writes_at_once_count_what_both_have_done() -> None:
    """The later write includes the earlier one; if that is refused, the next write corrects it. As in Kafka, counts
    change with the acknowledgement, before it is durable.
    """
    partition = SharePartition(0)
    acquire(partition, ONE)
    first = partition.acknowledge("ann", [Acknowledgement(8, 9, [1])], SETTINGS, 0)
    second = partition.acknowledge("ann", [Acknowledgement(5, 7, [1])], SETTINGS, 0)
    assert first is not None
    assert second is not None
    assert (first.delivery_complete_count, second.delivery_complete_count) == (2, 5)
    partition.written(second)
    partition.refused(first)
    third = partition.acknowledge("ann", [Acknowledgement(4, 4, [1])], SETTINGS, 0)
    assert third is not None
    assert third.delivery_complete_count == 4


def test_holes_are_given_out() -> None:
    """Offsets between known batches that were never written are acquired as new ones."""
    known = (StateBatch(2, 3, 2, 1), StateBatch(6, 6, 0, 1))
    partition = SharePartition(0, known)
    assert partition.next_fetch_offset() == 0
    assert acquire(partition, ONE) == [(0, 1, 1), (4, 5, 1), (6, 6, 2), (7, 9, 1)]


def test_records_of_a_hole_count_as_available() -> None:
    assert SharePartition(4, (StateBatch(8, 8, 2, 1),)).last_wanted(6) == 10


def test_a_hole_of_which_a_part_was_read() -> None:
    """The rest of it comes with the next read."""
    partition = SharePartition(0, (StateBatch(8, 8, 2, 1),))
    assert acquire(partition, [LogBatch(0, 3)]) == [(0, 3, 1)]
    assert partition.next_fetch_offset() == 4
    assert acquire(partition, [LogBatch(4, 7), LogBatch(8, 9)]) == [(4, 7, 1), (9, 9, 1)]


def test_records_behind_the_last_batch_read_stay_available() -> None:
    partition = SharePartition(0)
    acquire(partition, ONE)
    assert say(partition, (0, 9, [2])) is ErrorCode.NONE
    assert acquire(partition, [LogBatch(0, 4)]) == [(0, 4, 2)]


def test_a_group_may_know_no_renewals() -> None:
    """A renewal is then refused, with the whole acknowledgement (KIP-1222)."""
    partition = SharePartition(0)
    acquire(partition, ONE)
    renewing = [Acknowledgement(0, 1, [1, 4])]
    with pytest.raises(RefusedAcknowledgementError) as refused:
        partition.acknowledge("ann", renewing, evolve(SETTINGS, renew_acknowledge_enable=False), 0)
    assert refused.value.error_code is ErrorCode.INVALID_RECORD_STATE
    assert say(partition, (0, 1, [1, 4])) is ErrorCode.NONE
    assert partition.start_offset == 1


def test_good_records_before_bad_ones_come_without_them() -> None:
    """A throttled batch isn't begun where there is something already."""
    partition = SharePartition(0, (StateBatch(0, 1, 0, 1), StateBatch(2, 3, 0, 4)))
    assert acquire(partition, ONE) == [(0, 1, 2)]
    assert acquire(partition, ONE) == [(2, 2, 5)]


def test_locks_bound_what_is_given_out() -> None:
    """Beyond the limit only redelivered records are acquired."""
    settings = evolve(SETTINGS, partition_max_record_locks=100)
    partition = SharePartition(0)
    batches = [LogBatch(first, first + 49) for first in range(0, 200, 50)]
    assert acquire(partition, batches, settings=settings) == [(0, 99, 1)]
    assert not partition.can_acquire(settings)
    say(partition, (10, 10, [2]))
    assert partition.can_acquire(settings)
    assert acquire(partition, batches, settings=settings) == [(10, 10, 2)]


def test_locks_that_are_renewed_again_and_again() -> None:
    """They take no more memory than those that were not."""
    partition = SharePartition(0)
    acquire(partition, ONE)
    for number in range(1_000):
        renewed = [Acknowledgement(0, 9, [4] * 10)]
        assert partition.acknowledge("ann", renewed, SETTINGS, number) is None
    partition.check()
    assert len(partition._locks) < 200
    assert partition.expire_locks(SETTINGS, SETTINGS.record_lock_duration_ms + 998) is None
    assert partition.expire_locks(SETTINGS, SETTINGS.record_lock_duration_ms + 999) is not None


def test_a_lock_that_is_over_during_a_write_is_over_when_that_is_refused() -> None:
    """It is checked again a second later; then records that were not accepted are available."""
    partition = SharePartition(0)
    acquire(partition, ONE)
    write = partition.acknowledge("ann", [Acknowledgement(0, 9, [1])], SETTINGS, 0)
    assert write is not None
    over_ms = SETTINGS.record_lock_duration_ms
    assert partition.expire_locks(SETTINGS, over_ms) is None
    partition.refused(write)
    assert partition.next_lock_ms() == over_ms + PENDING_RETRY_MS
    assert partition.expire_locks(SETTINGS, over_ms + PENDING_RETRY_MS) is not None
    assert acquire(partition, ONE) == [(0, 9, 2)]


def test_what_is_acknowledged_ends_in_a_hole() -> None:
    """Acknowledged offsets behind a hole do not advance the start offset (Kafka 4.4)."""
    partition = SharePartition(0, [StateBatch(0, 1, 0, 1), StateBatch(8, 9, 0, 1)])
    assert acquire(partition, [LogBatch(0, 1)]) == [(0, 1, 2)]
    assert say(partition, (0, 4, [1])) is ErrorCode.INVALID_REQUEST
    assert say(partition, (0, 1, [1])) is ErrorCode.NONE


def test_who_rejected_a_record_is_forgotten_when_that_was_not_written() -> None:
    """A record archived later for another reason is not counted as rejected."""
    partition = SharePartition(0)
    acquire(partition, ONE)
    write = partition.acknowledge("ann", [Acknowledgement(0, 9, [3])], SETTINGS, 0)
    assert write is not None
    partition.refused(write)
    assert not any(run.state.is_rejected for run in partition.runs())


@as_one_test
@pytest.mark.parametrize(
    ("said", "may_renew", "is_sound"),
    [
        ([(0, 1, [1])], False, True),
        ([(0, 1, [1, 2]), (2, 2, [0])], False, True),
        ([(0, 0, [4])], True, True),
        ([(0, 0, [4])], False, False),
        ([(0, 0, [5])], True, False),
        ([(0, 0, [-1])], False, False),
        ([(1, 0, [1])], False, False),
        ([(0, 2, [1, 1])], False, False),
        ([(0, 2, [])], False, False),
        ([(3, 4, [1]), (2, 2, [1])], False, False),
        ([(3, 3, [4])] * 20_000, True, True),
        ([(3, 3, [4])] * 20_001, True, False),
    ],
)
def test_forms(said: list[tuple[int, int, list[int]]], may_renew: bool, is_sound: bool) -> None:
    """Ranges go forward, and have a type for all or one for each; others are INVALID_REQUEST."""
    batches = [Acknowledgement(*each) for each in said]
    if is_sound:
        check_acknowledgements(batches, may_renew=may_renew)
    else:
        with pytest.raises(RefusedAcknowledgementError):
            check_acknowledgements(batches, may_renew=may_renew)


def test_a_batch_that_says_it_has_billions() -> None:
    """Few records have states of their own, all others share one: memory is bounded by the requests."""
    behind = 2**31 - 1
    partition, whole = SharePartition(0), [LogBatch(0, behind)]
    for offset in (0, 1):
        found = partition.acquire(Wanted("ann", 1, is_limit=True), whole, SETTINGS, 0)
        assert [tuple(each) for each in found] == [(offset, offset, 1)]
    assert say(partition, (0, 0, [1])) is ErrorCode.NONE
    assert acquire(partition, whole, most=behind) == [(2, behind, 1)]
    assert say(partition, (10, behind - 1, [2])) is ErrorCode.NONE
    assert say(partition, (1, 4, [1, 1, 3, 1])) is ErrorCode.NONE
    assert (partition.start_offset, partition.delivery_complete_count()) == (5, 0)
    assert [(run.first, run.last) for run in partition.runs()] == [(5, 9), (10, behind - 1), (behind, behind)]
