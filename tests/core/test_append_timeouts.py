"""``offsets.commit.timeout.ms``: requests that wait for a slow log fail, and late log answers still count."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from groupcoord import ErrorCode
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetToCommit,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from tests.core.driver import Driver, Group, Sent

TIMEOUT_MS = 2_000
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def driver() -> Driver:
    return Driver(late=True, offsets_commit_timeout_ms=TIMEOUT_MS)


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def armed(driver: Driver) -> set[str]:
    return {timer.key.kind.value for timer in driver.coordinator._timers.armed()}


# ---------------------------------------------------------------- when


def test_the_timer_rests_when_nothing_waits(driver: Driver, group: Group) -> None:
    """It fires once for requests answered meanwhile, and is armed by the next append."""
    group.commit(1)
    driver.write()
    driver.sleep(TIMEOUT_MS)
    assert armed(driver) == {"expiry"}
    late = group.commit(2)
    assert armed(driver) == {"append", "expiry"}
    driver.sleep(TIMEOUT_MS)
    assert late.error is UNAVAILABLE
    assert armed(driver) == {"expiry"}


def test_a_log_that_answers_at_once_needs_no_timer() -> None:
    """Nothing is noted for it."""
    driver = Driver(offsets_commit_timeout_ms=1)
    assert Group(driver).commit(1).error is ErrorCode.NONE
    assert armed(driver) == {"expiry"}


def test_what_waits_does_not_outgrow_what_is_in_flight(driver: Driver, group: Group) -> None:
    """Deadlines of answered appends are dropped as new ones come, long before the timer fires."""
    for offset in range(100):
        group.commit(offset)
        driver.write()
    partition = driver.coordinator.partition(0)
    assert partition is not None
    assert len(partition.writer._deadlines) == 1


# ---------------------------------------------------------------- what becomes of it


def transactional(group: Group) -> Sent:
    topics = (TopicToCommit("orders", (OffsetToCommit(0, 5),)),)
    return group.driver.submit(TxnOffsetCommit(group.group_id, topics, 9, 0))


def simple(group: Group) -> Group:
    return Group(group.driver, "simple")


WAITING: list[tuple[str, Callable[[Group], Sent], object]] = [
    ("commit", lambda group: simple(group).commit(9), None),
    ("transactional commit", transactional, None),
    ("last member leaves", lambda group: group.leave("a-1", "b-1"), LeaveGroupResponse(UNAVAILABLE)),
    (
        "deletion of offsets",
        lambda group: group.driver.submit(OffsetDelete("simple", (TopicToDelete("orders", (0,)),))),
        OffsetDeleteResponse(UNAVAILABLE),
    ),
    (
        "deletion of the group without a name",
        lambda group: group.driver.submit(DeleteGroups(("",))),
        DeleteGroupsResponse((DeletedGroup("", UNAVAILABLE),)),
    ),
    (
        "marker",
        lambda group: group.driver.submit(CompleteTransaction(0, 9, 0, True)),
        CompleteTransactionResponse(ErrorCode.REQUEST_TIMED_OUT),
    ),
]


@pytest.fixture
def busy(driver: Driver, group: Group) -> Group:
    """A group of a and b in generation 1 with a transaction, and a simple group with an offset."""
    simple(group).commit(1)
    Group(driver, "").commit(1)
    transactional(group)
    group.generation_of("a", "b")
    driver.write()
    group.assign()
    driver.write()
    return group


@pytest.mark.parametrize("ends", ["written", "refused", "unloaded", "restarted"])
@pytest.mark.parametrize(("send", "answer"), [row[1:] for row in WAITING], ids=[row[0] for row in WAITING])
def test_one_answer(driver: Driver, busy: Group, send: Callable[[Group], Sent], answer: object, ends: str) -> None:
    """Each kind of write has its error; a later answer of the log gives no second response."""
    sent = send(busy)
    driver.sleep(TIMEOUT_MS)
    given = list(sent.answers)
    assert len(given) == 1
    if isinstance(given[0], OffsetCommitResponse | TxnOffsetCommitResponse):
        assert {entry.error_code for topic in given[0].topics for entry in topic.partitions} == {UNAVAILABLE}
    else:
        assert given[0] == answer
    if ends == "written":
        driver.write()
    elif ends == "refused":
        driver.refuse(NotEnoughReplicasError())
    elif ends == "unloaded":
        driver.coordinator.unload(0)
        driver.deliver()
        assert armed(driver) == set()
    else:
        driver.restart()
    assert sent.answers == given
