"""Consumer groups on a log that answers late."""

from __future__ import annotations

from groupcoord import ErrorCode
from groupcoord.core.groups.base.kind import FENCING_RETRY_MS
from groupcoord.log_store import NotEnoughReplicasError
from tests.core.consumer.members import Members, waiting_appends
from tests.core.driver import Driver

CONSUMER_SESSION_MS = 45_000


def test_who_is_about_to_be_put_out_is_not_told_that_it_is_in(driver: Driver, alone: Members) -> None:
    """A heartbeat like the last one waits, too, while the log hears that the member's session is over."""
    alone.heartbeat("a", 2)
    driver.advance(CONSUMER_SESSION_MS)
    assert waiting_appends(driver) == 1
    late = alone.heartbeat("a", 2)
    assert late.is_waiting
    driver.write()
    assert late.error is ErrorCode.UNKNOWN_MEMBER_ID


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
