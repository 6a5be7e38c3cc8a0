"""The share coordinator: what it answers when, with a log that is late, fails, is cut and is loaded again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from groupcoord import ManualClock
from groupcoord.coordinator.share_coordinator import ShareCoordinator
from groupcoord.core.messages import share_state as messages
from groupcoord.core.share_state.partition import BATCHES_MAX
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.errors import ErrorCode
from groupcoord.log_store import AppendOutcomeUnknownError, NotEnoughReplicasError, RecordTooLargeError

from .driver import START_MS, TOPIC, Driver, code, written

MINUTE_MS = 60_000


def results(driver: Driver) -> list[Any]:
    """Return what was answered since the last call: token, and error code of the first result."""
    return [
        (reply.token, reply.response.results[0].partitions[0].error_code) for reply in driver.coordinator.take_replies()
    ]


def test_a_late_log_holds_answers_back_in_order() -> None:
    """Answers wait for the log; what comes meanwhile waits too, and builds on what became durable. Summaries don't."""
    driver = Driver()
    driver.initialize()
    driver.store.acknowledge_late = True
    driver.submit(written((0, 3, 2, 1), start_offset=0, count=4), "first")
    driver.submit(written((4, 4, 2, 1), start_offset=4, count=1), "second")
    assert driver.summarize().delivery_complete_count == 0
    assert results(driver) == []
    for ticket, offset in driver.store.write_waiting():
        driver.coordinator.appended(ticket, offset)
    driver.coordinator.check()
    assert results(driver) == [("first", ErrorCode.NONE)]
    for ticket, offset in driver.store.write_waiting():
        driver.coordinator.appended(ticket, offset)
    assert results(driver) == [("second", ErrorCode.NONE)]
    assert driver.summarize()[4:] == (0, 4, 1)


def test_who_waits_for_the_log_too_long_is_told() -> None:
    """Requests fail after ``share.coordinator.write.timeout.ms``, later ones at once, until the log answers."""
    driver = Driver(share_coordinator_write_timeout_ms=5_000)
    driver.initialize()
    driver.store.acknowledge_late = True
    driver.submit(written((0, 3, 2, 1)), "first")
    driver.submit(written((4, 4, 2, 1)), "second")
    driver.clock.advance(4_999)
    driver.coordinator.tick()
    assert results(driver) == []
    assert driver.coordinator.next_deadline_ms() == driver.clock.now_ms() + 1
    driver.clock.advance(1)
    driver.coordinator.tick()
    driver.submit(written((5, 5, 2, 1)), "third")
    late = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert results(driver) == [("first", late), ("second", late), ("third", late)]
    driver.submit(written((6, 6, 2, 1), partition=1), "another share-partition")
    for ticket, offset in driver.store.write_waiting():
        driver.coordinator.appended(ticket, offset)
    assert results(driver) == [("another share-partition", ErrorCode.INVALID_REQUEST)]
    driver.store.acknowledge_late = False
    assert driver.read().state_batches == ((0, 3, 2, 1),)
    assert driver.coordinator.next_deadline_ms() == START_MS + 300_000


def test_a_write_that_the_log_refuses_changes_nothing() -> None:
    """The response is COORDINATOR_NOT_AVAILABLE, and the next write builds on the durable state."""
    driver = Driver()
    driver.initialize()
    driver.store.fail_next(NotEnoughReplicasError("too few"))
    assert code(driver.write((0, 0, 2, 1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.read().state_batches == ()
    assert code(driver.write((1, 1, 2, 1))) is ErrorCode.NONE


@pytest.mark.parametrize("is_together", [False, True], ids=["one by one", "one answer for all"])
def test_what_is_refused_at_once_waits_for_its_turn(is_together: bool) -> None:
    """Responses keep the order of appends, and later writes count; each is answered once."""
    driver = Driver()
    for index in range(3):
        driver.initialize(partition=index)
    driver.store.acknowledge_late = True
    driver.submit(written((0, 0, 2, 1)), "first")
    driver.store.fail_next(RecordTooLargeError("too large"))
    driver.submit(written((1, 1, 2, 1), partition=1), "too large")
    driver.submit(written((2, 2, 2, 1), partition=1), "behind it")
    driver.submit(written((3, 3, 2, 1), partition=2), "last")
    driver.coordinator.check()
    assert results(driver) == []
    answers = driver.store.write_waiting()
    for ticket, offset in answers[-1:] if is_together else answers:
        driver.coordinator.appended(ticket, offset)
    driver.coordinator.check()
    codes = [("first", ErrorCode.NONE), ("too large", ErrorCode.UNKNOWN_SERVER_ERROR), ("last", ErrorCode.NONE)]
    assert results(driver) == codes
    ((ticket, offset),) = driver.store.write_waiting()
    driver.coordinator.appended(ticket, offset)
    assert results(driver) == [("behind it", ErrorCode.NONE)]
    driver.store.acknowledge_late = False
    assert [driver.read(partition=index).state_batches for index in range(3)] == [
        ((0, 0, 2, 1),),
        ((2, 2, 2, 1),),
        ((3, 3, 2, 1),),
    ]
    assert driver.coordinator.failed_partitions() == []


def test_who_waits_too_long_for_what_is_refused_already_is_told() -> None:
    """It waits for earlier appends, like any other; their outcome gives no second response."""
    driver = Driver(share_coordinator_write_timeout_ms=5_000)
    for index in (0, 1):
        driver.initialize(partition=index)
    driver.store.acknowledge_late = True
    driver.submit(written((0, 0, 2, 1)), "first")
    driver.store.fail_next(RecordTooLargeError("too large"))
    driver.submit(written((1, 1, 2, 1), partition=1), "too large")
    driver.clock.advance(5_000)
    driver.coordinator.tick()
    late = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert results(driver) == [("first", late), ("too large", late)]
    ((ticket, offset),) = driver.store.write_waiting()
    driver.coordinator.appended(ticket, offset)
    driver.coordinator.check()
    assert results(driver) == []
    driver.store.acknowledge_late = False
    assert code(driver.write((1, 1, 2, 1), partition=1)) is ErrorCode.NONE


def test_an_unknown_outcome_ends_the_partition_until_it_is_loaded() -> None:
    """Until a load shows whether the write is in the log, all requests fail with NOT_COORDINATOR."""
    driver = Driver()
    driver.initialize()
    driver.store.fail_next(AppendOutcomeUnknownError("who knows"))
    driver.write((0, 0, 2, 1))
    assert code(driver.read()) is ErrorCode.NOT_COORDINATOR
    assert driver.coordinator.failed_partitions() == [0]
    driver.coordinator.load(0)
    assert driver.read().state_batches == ()


def test_unloading_refuses_who_waits() -> None:
    """Writes in flight, and what waits behind them, are NOT_COORDINATOR; a late acknowledgement is ignored."""
    driver = Driver()
    driver.initialize()
    driver.store.acknowledge_late = True
    driver.submit(written((0, 0, 2, 1)), "first")
    driver.submit(written((1, 1, 2, 1)), "second")
    driver.coordinator.unload(0)
    assert results(driver) == [("first", ErrorCode.NOT_COORDINATOR), ("second", ErrorCode.NOT_COORDINATOR)]
    ((ticket, offset),) = driver.store.write_waiting()
    driver.coordinator.load(0)
    driver.coordinator.appended(ticket, offset)
    assert driver.read().state_batches == ((0, 0, 2, 1),)


def test_what_is_redundant_is_deleted() -> None:
    """Every five minutes the log is cut below the oldest snapshot that is needed, and nothing is lost by it."""
    driver = Driver(share_coordinator_snapshot_update_records_per_snapshot=2)
    driver.initialize(partition=0)
    driver.initialize(partition=1)
    for offset in range(6):
        driver.write((offset, offset, 2, 1))
    driver.clock.advance(5 * MINUTE_MS)
    assert driver.coordinator.next_deadline_ms() == driver.clock.now_ms()
    driver.coordinator.tick()
    # The snapshots were old, and written anew: only those are left.
    assert [record.offset for record in driver.store.read(0)] == [8, 9]
    facts = driver.coordinator.partition(0).hard.facts()  # type: ignore[union-attr]
    driver.restart()
    assert driver.coordinator.partition(0).hard.facts() == facts  # type: ignore[union-attr]
    assert driver.read().state_batches == ((0, 5, 2, 1),)


def test_what_a_load_needs_is_not_deleted() -> None:
    """Updates need their snapshot, so the log is not deleted beyond the oldest one in use."""
    driver = Driver(share_coordinator_cold_partition_snapshot_interval_ms=60 * MINUTE_MS)
    driver.initialize(start_offset=3)
    for offset in range(3, 6):
        driver.write((offset, offset, 2, 1))
    driver.clock.advance(5 * MINUTE_MS)
    driver.coordinator.tick()
    driver.restart()
    assert driver.summarize().start_offset == 3
    assert driver.read().state_batches == ((3, 5, 2, 1),)


def test_young_snapshots_stay_as_they_are() -> None:
    """Only snapshots older than ``share.coordinator.cold.partition.snapshot.interval.ms`` are written again."""
    driver = Driver()
    driver.initialize(partition=0)
    driver.clock.advance(4 * MINUTE_MS)
    driver.initialize(partition=1)
    driver.clock.advance(MINUTE_MS)
    driver.coordinator.tick()
    assert [record.offset for record in driver.store.read(0)] == [1, 2]


def test_old_snapshots_are_not_written_again_and_again() -> None:
    driver = Driver()
    driver.initialize()
    for _ in range(4):
        driver.clock.advance(5 * MINUTE_MS)
        driver.coordinator.tick()
    assert [record.offset for record in driver.store.read(0)] == [1]


def test_a_topic_that_is_gone_takes_its_states_with_it() -> None:
    """Its states are tombstones, also of a partition that is being written at this moment."""
    driver = Driver()
    driver.initialize(partition=0)
    driver.initialize(partition=1)
    driver.store.acknowledge_late = True
    driver.submit(written((0, 0, 2, 1)), "late")
    driver.coordinator.topic_deleted(UUID(int=8))
    driver.coordinator.topic_deleted(TOPIC)
    while answers := driver.store.write_waiting():
        for ticket, offset in answers:
            driver.coordinator.appended(ticket, offset)
    assert driver.coordinator.partition(0).hard.facts() == {}  # type: ignore[union-attr]
    assert results(driver) == [("late", ErrorCode.NONE)]


def test_a_share_partition_has_no_more_batches_than_locks() -> None:
    """A peer can't have more remembered than records can be locked; joined, as many as it likes."""
    driver = Driver()
    driver.initialize()
    many = [(2 * number, 2 * number, 2, 1) for number in range(BATCHES_MAX)]
    assert code(driver.write(*many)) is ErrorCode.NONE
    assert code(driver.write((30_001, 30_001, 2, 1))) is ErrorCode.INVALID_REQUEST
    assert code(driver.write((1, 1, 2, 1))) is ErrorCode.NONE


def test_a_request_that_is_refused_as_a_whole() -> None:
    whole = written().refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert code(whole.results[0].partitions[0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_nothing_is_asked() -> None:
    """Without a group, a topic or a partition the answer is empty, as recorded; a partition named twice has one."""
    driver = Driver()
    topic = messages.StateTopicToDelete(TOPIC, (messages.StateToDelete(0), messages.StateToDelete(0)))
    for empty in (
        messages.DeleteShareGroupState("", (topic,)),
        messages.DeleteShareGroupState("g", ()),
        messages.DeleteShareGroupState("g", (topic, messages.StateTopicToDelete(TOPIC, ()))),
    ):
        assert driver.coordinator.call(empty).results == ()
    (result,) = driver.coordinator.call(messages.DeleteShareGroupState("g", (topic, topic))).results
    assert [found.partition for found in result.partitions] == [0]


def test_an_answer_that_waits_is_no_call() -> None:
    """A direct call raises, since the answer waits for the log."""
    driver = Driver()
    driver.store.acknowledge_late = True
    with pytest.raises(LookupError):
        driver.initialize()


def test_states_are_spread_as_kafka_spreads_them() -> None:
    """The log partition is the hash of the key's text, as Java has it."""
    coordinator = ShareCoordinator(clock=ManualClock(0))
    key = SharePartitionKey("g", UUID("cb751875-f861-4927-b2d6-5523ce91baef"), 0)
    assert key.text == "g:y3UYdfhhSSey1lUjzpG67w:0"
    assert coordinator.partition_of(key) == coordinator.partition_of(key) == 46


def test_leaders_of_earlier_epochs_are_fenced() -> None:
    driver = Driver()
    driver.initialize()
    assert code(driver.read(leader_epoch=5)) is ErrorCode.NONE
    assert code(driver.read(leader_epoch=4)) is ErrorCode.FENCED_LEADER_EPOCH
    assert code(driver.write((0, 0, 2, 1), leader_epoch=4)) is ErrorCode.FENCED_LEADER_EPOCH
    assert code(driver.write((0, 0, 2, 1), leader_epoch=5)) is ErrorCode.NONE
