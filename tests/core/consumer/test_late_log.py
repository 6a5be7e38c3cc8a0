"""Consumer groups on a log that answers late."""

from __future__ import annotations

from groupcoord import ErrorCode
from groupcoord.core.groups.base.group import FENCING_RETRY_MS
from groupcoord.log_store import NotEnoughReplicasError
from tests.core.consumer.members import Members, answered, waiting_appends
from tests.core.driver import Driver

CONSUMER_SESSION_MS = 45_000


# ---------------------------------------------------------------- one write at a time


def test_who_waits_shares_the_next_write(driver: Driver, members: Members) -> None:
    members.join("a")
    later = [members.join("b"), members.join("c")]
    assert waiting_appends(driver) == 1
    driver.write(1)
    assert waiting_appends(driver) == 1
    assert all(sent.is_waiting for sent in later)
    assert members.ids == ["a"]
    driver.write(1)
    assert [answered(sent).member_epoch for sent in later] == [3, 4]
    assert (sorted(members.ids), members.described.group_epoch) == (["a", "b", "c"], 4)
    assert waiting_appends(driver) == 0


def test_a_heartbeat_that_has_nothing_to_write_waits_for_nobody(driver: Driver, alone: Members) -> None:
    """Behind a write it is answered when the write is durable, without another; and at once if there is none."""
    alone.join("b")
    sent = alone.heartbeat("a", 2)
    assert sent.is_waiting
    driver.refuse(NotEnoughReplicasError())
    assert answered(sent).member_epoch == 2
    assert alone.heartbeat("a", 2).error is ErrorCode.NONE
    assert waiting_appends(driver) == 0


def test_who_asks_for_something_wrong_behind_a_write(driver: Driver, alone: Members) -> None:
    """It waits as well, since the write may make it valid; other requests are not delayed by its error."""
    alone.join("b")
    wrong, right = alone.heartbeat("c", 1), alone.join("d")
    driver.write(1)
    assert wrong.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert right.is_waiting
    driver.write()
    assert sorted(alone.ids) == ["a", "b", "d"]


def test_who_is_about_to_be_put_out_is_not_told_that_it_is_in(driver: Driver, alone: Members) -> None:
    """A heartbeat like the last one waits, too, while the log hears that the member's session is over."""
    alone.heartbeat("a", 2)
    driver.advance(CONSUMER_SESSION_MS)
    assert waiting_appends(driver) == 1
    late = alone.heartbeat("a", 2)
    assert late.is_waiting
    driver.write()
    assert late.error is ErrorCode.UNKNOWN_MEMBER_ID


# ---------------------------------------------------------------- topics


def test_two_timers_of_one_member_that_fire_during_a_write(driver: Driver, members: Members) -> None:
    """Its removal is refused, and both fire again: neither is lost because the other came first."""
    members.join("a", rebalance_ms=CONSUMER_SESSION_MS - 1)
    members.join("b")
    driver.write_all()
    members.heartbeat("a", 2)
    driver.write()
    driver.sleep(CONSUMER_SESSION_MS - 2)
    assert members.heartbeat("b", 3).is_waiting
    driver.sleep(2)
    driver.write()
    driver.refuse(NotEnoughReplicasError())
    assert sorted(members.ids) == ["a", "b"]
    driver.sleep(FENCING_RETRY_MS)
    driver.write()
    assert members.ids == ["b"]
