"""Expectations of groups and topics compared with a server, with differences as lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from groupcoord.messages import OffsetCommit, OffsetToCommit, TopicToCommit
from groupcoord.testing import ProducerRecord, ServerThread
from groupcoord.testing.machine.modern_members import Kip848Consumer
from tests.tables import as_one_test

COMMIT = OffsetCommit("billing", (TopicToCommit("orders", (OffsetToCommit(0, 42), OffsetToCommit(1, 7))),))
IN_TIME: dict[str, Any] = {"timeout_s": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    """A server with a group that has committed, one with a member, and a topic with records."""
    member = Kip848Consumer("worker-1", "owning")
    with ServerThread(topics={"orders": 2, "single": 1}) as server:
        server.run(lambda broker: broker.coordinator.call(COMMIT))
        server.run(lambda broker: broker.coordinator.call(member.join_request()))
        server.produce("orders", ["coffee", "tea"])
        server.produce("single", [ProducerRecord("coffee", key="table 4"), "tea"])
        yield server


BOTH = [("orders", 0), ("orders", 1)]


@as_one_test
@pytest.mark.parametrize(
    "holds",
    [
        lambda server: server.assert_committed("billing", {("orders", 0): 42, ("orders", 1): 7}, **IN_TIME),
        lambda server: server.assert_committed("nobody's", {}, **IN_TIME),
        lambda server: server.assert_owned("owning", {"worker-1": BOTH}, **IN_TIME),
        lambda server: server.assert_owned("owning", {"worker-1-own-id": iter(BOTH)}, **IN_TIME),
        lambda server: server.assert_owned("owning", BOTH, **IN_TIME),
        lambda server: server.assert_produced("orders", ["tea", "coffee"], **IN_TIME),
        lambda server: server.assert_produced("single", ["coffee", b"tea"], **IN_TIME),
        lambda server: server.assert_produced("single", [ProducerRecord("coffee", key="table 4"), "tea"], **IN_TIME),
        lambda server: server.assert_produced("orders", ["tea"], partition=1, **IN_TIME),
    ],
)
def test_what_holds_passes(server: ServerThread, holds: Callable[[ServerThread], None]) -> None:
    """A matching state raises nothing; members are matched by ids or client ids, records by the given fields."""
    holds(server)


@as_one_test
@pytest.mark.parametrize(
    ("breaks", "lines"),
    [
        (
            lambda server: server.assert_committed("billing", {("orders", 0): 41, ("bills", 3): 1}, **IN_TIME),
            [
                "group 'billing' committed other offsets than expected:",
                "  bills-3: nothing committed, 1 expected",
                "  orders-0: 42 committed, 41 expected",
                "  orders-1: 7 committed, nothing expected",
                "what the group did:",
                "  billing (classic): Empty, generation 0, 0 members",
            ],
        ),
        (
            lambda server: server.assert_owned("owning", {"worker-1": BOTH[:1], "worker-2": BOTH[1:]}, **IN_TIME),
            [
                "the partitions of group 'owning' are not owned as expected:",
                "  worker-1: owns orders-0, orders-1, orders-0 expected",
                "  worker-2: is no member, orders-1 expected",
                "what the group did:",
                "  owning (consumer): Stable, epoch 2, 1 member",
                "    worker-1-own-id (client 'worker-1' at ): orders-0 orders-1",
            ],
        ),
        (
            lambda server: server.assert_owned("owning", {}, **IN_TIME),
            ["  worker-1-own-id: owns orders-0, orders-1, nothing expected"],
        ),
        (
            lambda server: server.assert_owned("owning", [("orders", 0), ("orders", 2)], **IN_TIME),
            [
                "  orders-1: owned by worker-1-own-id, nobody expected",
                "  orders-2: owned by nobody, one member expected",
            ],
        ),
        (
            lambda server: server.assert_owned("nobody's", [], **IN_TIME),
            [
                'the partitions of group "nobody\'s" are not owned as expected: there is no group "nobody\'s" '
                "(groups: 'billing', 'owning')",
                "what the group did:",
                "  there is no group \"nobody's\" (groups: 'billing', 'owning')",
            ],
        ),
        (
            lambda server: server.assert_produced("orders", ["coffee", "coffee", "water"], **IN_TIME),
            [
                "topic 'orders' holds other records than expected:",
                "  missing: b'coffee'",
                "  missing: b'water'",
                "  not expected: b'tea' (orders-1 at 0)",
            ],
        ),
        (
            lambda server: server.assert_produced("single", ["tea", "coffee"], **IN_TIME),
            [
                "  single-0 at 0: b'table 4': b'coffee', b'tea' expected",
                "  single-0 at 1: b'tea', b'coffee' expected",
            ],
        ),
        (
            lambda server: server.assert_produced("single", [], **IN_TIME),
            ["  not expected: b'table 4': b'coffee' (single-0 at 0)", "  not expected: b'tea' (single-0 at 1)"],
        ),
        (
            lambda server: server.assert_committed("g", {("t", index): 1 for index in range(22)}, **IN_TIME),
            ["  … and 2 more differences"],
        ),
    ],
)
def test_each_difference_is_a_line(
    server: ServerThread, breaks: Callable[[ServerThread], None], lines: list[str]
) -> None:
    """Missing, different and extra items are listed with their place, followed by the group's state and requests."""
    with pytest.raises(AssertionError) as broken:
        breaks(server)

    told = str(broken.value).splitlines()
    start = told.index(lines[0])
    assert told[start : start + len(lines)] == lines


def test_it_is_waited_for_on_an_event_loop_as_well(server: ServerThread) -> None:
    """A state that is reached in time passes; otherwise the error has the time waited."""

    async def scenario() -> None:
        waiting = asyncio.create_task(server.asyncio.assert_committed("late", {("orders", 0): 3}))
        commit = OffsetCommit("late", (TopicToCommit("orders", (OffsetToCommit(0, 3),)),))
        await server.asyncio.run(lambda broker: broker.coordinator.call(commit))
        await waiting
        await server.asyncio.assert_owned("owning", BOTH)
        await server.asyncio.assert_produced("orders", ["coffee", "tea"])
        with pytest.raises(AssertionError, match=r"expected after 0\.01 s:\n  orders-0: 3 committed, 4 expected"):
            await server.asyncio.assert_committed("late", {("orders", 0): 4}, timeout_s=0.01)

    asyncio.run(scenario())
