"""Static members, delays and time-outs of a streams group (Kafka 4.4)."""

from __future__ import annotations

from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import SETTINGS, Threads


def started(**settings: int) -> Threads:
    return Threads(Driver(topics=Topics(lines=4), **{**SETTINGS, **settings}))


# ---------------------------------------------------------------- what is written


# ---------------------------------------------------------------- time


def test_who_left_for_a_while_has_nothing_to_give_back_in_time() -> None:
    """Its time to do so runs on, and finds that it has moved on."""
    threads = started()
    threads.join("a", instance_id="i", rebalance_timeout_ms=1_000)
    threads.join("b")
    threads.beat("a", 2, instance_id="i")
    threads.driver.advance(500)
    threads.beat("a", -2, instance_id="i")
    threads.driver.advance(2_000)
    assert [member.member_id for member in threads.described.members] == ["a", "b"]


# ---------------------------------------------------------------- waiting for more members


# ---------------------------------------------------------------- what goes with a member
