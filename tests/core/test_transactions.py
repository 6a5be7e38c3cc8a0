"""TxnOffsetCommit, the ends of transactions, and OffsetDelete."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.core.log.records import OffsetCommitRecord, OffsetTombstone, TransactionMarker
from groupcoord.log_store import LogStoreError, NotEnoughReplicasError, NotLeaderError
from groupcoord.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetToCommit,
    PartitionResult,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from tests.core.driver import Driver, Group, Sent, protocols_of

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
EMPTY, PREPARING, COMPLETING, STABLE = list(GroupState)[:4]
PRODUCER = 9


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def txn_commit(group: Group, offset: int = 5, index: int = 0, producer_id: int = PRODUCER, **who: object) -> Sent:
    """A producer commits an offset within its transaction."""
    metadata = str(who.pop("metadata", ""))
    topics = (TopicToCommit("orders", (OffsetToCommit(index, offset, -1, metadata),)),)
    return group.driver.submit(TxnOffsetCommit(group.group_id, topics, producer_id, 0, **who))


def error_of(sent: Sent) -> ErrorCode:
    """Return the error of a transactional commit."""
    return sent.answer(TxnOffsetCommitResponse).topics[0].partitions[0].error_code


def end(driver: Driver, *, committed: bool, producer_id: int = PRODUCER) -> Sent:
    """The transaction ends."""
    return driver.submit(CompleteTransaction(0, producer_id, 0, committed, 3))


def bring(group: Group, state: GroupState) -> None:
    """Bring the group of a and static x into a state; its generation is 1, or 2 in Empty."""
    if state is COMPLETING:
        group.generation_of("a", "@x")
        return
    group.stable("a", "@x")
    if state is PREPARING:
        group.rejoin("a-1")
    elif state is EMPTY:
        group.left("a-1", "x-1")


@pytest.mark.parametrize(
    ("state", "generation", "member_id", "instance", "error"),
    [
        (EMPTY, -1, "", None, NONE),
        (EMPTY, -1, "anybody", None, NONE),
        (EMPTY, 2, "a-1", None, UNKNOWN),
        *[(state, -1, "", None, NONE) for state in (PREPARING, COMPLETING, STABLE)],
        *[(state, 1, "a-1", None, NONE) for state in (PREPARING, COMPLETING, STABLE)],
        *[(state, 0, "a-1", None, ErrorCode.ILLEGAL_GENERATION) for state in (PREPARING, COMPLETING, STABLE)],
        (STABLE, -1, "a-1", None, ErrorCode.ILLEGAL_GENERATION),
        (STABLE, 1, "m", None, UNKNOWN),
        (STABLE, 1, "", None, UNKNOWN),
        (STABLE, 1, "x-1", "x", NONE),
        (STABLE, 1, "x-0", "x", ErrorCode.FENCED_INSTANCE_ID),
        (STABLE, 1, "x-1", "y", UNKNOWN),
    ],
)
def test_who_may_commit(
    group: Group, state: GroupState, generation: int, member_id: str, instance: str | None, error: ErrorCode
) -> None:
    """Nobody needs to be named; who is must be right; CompletingRebalance is no hindrance."""
    bring(group, state)
    who = {"generation_id": generation, "member_id": member_id, "group_instance_id": instance}
    assert error_of(txn_commit(group, **who)) is error


def test_without_a_group(driver: Driver, group: Group) -> None:
    """Without a generation a group is made, with one it is GROUP_ID_NOT_FOUND; the empty id is INVALID_GROUP_ID."""
    assert error_of(txn_commit(group, generation_id=0, member_id="m")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.state is None
    assert error_of(txn_commit(Group(driver, ""))) is ErrorCode.INVALID_GROUP_ID
    assert error_of(txn_commit(group)) is NONE
    assert group.describe().group_state == "Empty"


def test_too_long_metadata(driver: Driver, group: Group) -> None:
    """It is refused as in a plain commit, and nothing is written."""
    assert error_of(txn_commit(group, metadata="m" * 5_000)) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.written() == []


def test_no_session_is_renewed(driver: Driver, group: Group) -> None:
    """Transactional commits keep nobody alive."""
    (a,) = group.stable("a")
    driver.sleep(9_000)
    txn_commit(group, generation_id=1, member_id=a)
    driver.sleep(1_000)
    assert group.state is EMPTY


@pytest.mark.parametrize("committed", [False, True])
def test_a_transaction(driver: Driver, group: Group, committed: bool) -> None:
    """Its offsets are durable but invisible until the marker, which is answered when it is written."""
    group.commit(1)
    txn_commit(group, 5)
    assert group.committed() == {"orders": {0: 1}}
    answer = end(driver, committed=committed).answer(CompleteTransactionResponse)
    assert answer == CompleteTransactionResponse(NONE)
    assert group.committed() == {"orders": {0: 5 if committed else 1}}
    assert driver.written()[-1] == TransactionMarker(PRODUCER, 0, committed, 3)
    record = driver.written()[-2]
    assert isinstance(record, OffsetCommitRecord)
    assert (record.producer_id, record.producer_epoch, record.expire_timestamp_ms) == (PRODUCER, 0, -1)


@pytest.mark.parametrize("committed", [False, True])
def test_a_transaction_over_a_restart(driver: Driver, group: Group, committed: bool) -> None:
    """What was open before is open after, and ends as it would have."""
    txn_commit(group, 5)
    driver.restart()
    assert group.fetch(require_stable=True).error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    end(driver, committed=committed)
    assert group.committed() == ({"orders": {0: 5}} if committed else {})


def test_two_producers(driver: Driver, group: Group) -> None:
    """Each ends its own transaction; of two commits the later place in the log wins, whoever ends first."""
    txn_commit(group, 5, producer_id=1)
    txn_commit(group, 6, producer_id=2)
    end(driver, committed=True, producer_id=2)
    end(driver, committed=True, producer_id=1)
    assert group.committed() == {"orders": {0: 6}}


def test_a_deleted_group(driver: Driver, group: Group) -> None:
    """A deletion takes the open transaction's offsets; committing it afterwards brings nothing back."""
    txn_commit(group, 5)
    driver.delete("group")
    assert OffsetTombstone("group", "orders", 0) in driver.written()
    end(driver, committed=True)
    assert (group.state, group.committed()) == (None, {})


def test_the_log_fails() -> None:
    """A commit's partitions get the error as clients see it; so does the end of a transaction."""
    driver = Driver(late=True)
    group = Group(driver)
    sent = txn_commit(group)
    driver.refuse(NotEnoughReplicasError())
    assert error_of(sent) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.state is None
    txn_commit(group)
    driver.write()
    ended = end(driver, committed=True)
    assert ended.is_waiting
    driver.refuse(NotLeaderError())
    assert ended.answer(CompleteTransactionResponse).error_code is not NONE
    assert group.fetch(require_stable=True).error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT


# ---------------------------------------------------------------- OffsetDelete


def delete_offsets(group: Group, *topics: str, indexes: tuple[int, ...] = (0,)) -> Sent:
    """Delete offsets of these topics."""
    wanted = tuple(TopicToDelete(topic, indexes) for topic in topics)
    return group.driver.submit(OffsetDelete(group.group_id, wanted))


def results(sent: Sent) -> dict[str, tuple[PartitionResult, ...]]:
    """Return the results by topic; there is no top-level error."""
    answer = sent.answer(OffsetDeleteResponse)
    assert answer.error_code is NONE
    return {topic.name: topic.partitions for topic in answer.topics}


def test_delete_in_an_empty_group(driver: Driver, group: Group) -> None:
    """Known offsets get a tombstone, once; what was never committed is deleted without one; the group stays."""
    group.commit({0: 1, 1: 1})
    sent = delete_offsets(group, "orders", indexes=(0, 0, 7))
    assert [result.error_code for result in results(sent)["orders"]] == [NONE] * 3
    assert driver.written()[-1] == OffsetTombstone("group", "orders", 0)
    assert group.committed() == {"orders": {1: 1}}
    assert len(driver.written()) == 3
    delete_offsets(group, "orders", "other", indexes=(5,))
    assert len(driver.written()) == 3
    delete_offsets(group, "orders", indexes=(1,))
    assert group.describe().group_state == "Empty"


def test_delete_what_a_transaction_has_open(driver: Driver, group: Group) -> None:
    """A tombstone takes the open offset too."""
    txn_commit(group, 5)
    delete_offsets(group, "orders")
    end(driver, committed=True)
    assert group.committed() == {}


SUBSCRIBED = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x00"


@pytest.mark.parametrize(
    ("metadata", "errors"),
    [
        (SUBSCRIBED, (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE)),
        (b"unreadable", (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)),
    ],
    ids=["readable", "unreadable"],
)
def test_delete_under_consumers(group: Group, metadata: bytes, errors: tuple[ErrorCode, ErrorCode]) -> None:
    """What a live consumer subscribes to cannot be deleted; unreadable subscriptions are to everything."""
    (a,) = group.stable("a", protocols=protocols_of("range", metadata=metadata))
    group.commit(1, member_id=a)
    group.commit(1, member_id=a, topic="other")
    found = results(delete_offsets(group, "orders", "other"))
    assert tuple(found[topic][0].error_code for topic in ("orders", "other")) == errors
    assert ("orders" in group.committed(), "other" in group.committed()) == tuple(map(bool, errors))


def test_delete_under_a_newcomer(driver: Driver, group: Group) -> None:
    """A newcomer's subscription counts from the end of the join phase on."""
    (a,) = group.stable("a", protocols=protocols_of("range", metadata=SUBSCRIBED.replace(b"orders", b"trades")))
    group.commit(1, member_id=a)
    group.join("b", protocols=protocols_of("range", metadata=SUBSCRIBED))
    assert results(delete_offsets(group, "orders", indexes=(7,)))["orders"][0].error_code is NONE
    group.rejoin(a)
    subscribed = results(delete_offsets(group, "orders"))["orders"][0].error_code
    assert subscribed is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_delete_where_it_may_not_be(driver: Driver, group: Group) -> None:
    """An absent group is GROUP_ID_NOT_FOUND, a live one that consumes otherwise NON_EMPTY_GROUP; both stand alone."""
    absent = delete_offsets(group, "orders").answer(OffsetDeleteResponse)
    assert absent == OffsetDeleteResponse(ErrorCode.GROUP_ID_NOT_FOUND)
    group.stable("a", protocol_type="connect")
    live = delete_offsets(group, "orders").answer(OffsetDeleteResponse)
    assert live == OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP)


@pytest.mark.parametrize("has_offsets", [False, True])
def test_delete_without_a_group_id(driver: Driver, has_offsets: bool) -> None:
    """Unlike for commits and fetches, the empty group id is INVALID_GROUP_ID."""
    group = Group(driver, "")
    if has_offsets:
        group.commit(1)
    answer = delete_offsets(group, "orders").answer(OffsetDeleteResponse)
    assert answer == OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)


def test_a_deletion_that_cannot_be_written(driver: Driver, group: Group) -> None:
    """The answer is the error alone, and the offsets stay."""
    group.commit(1)
    driver.store.fail_next(LogStoreError("injected"))
    answer = delete_offsets(group, "orders").answer(OffsetDeleteResponse)
    assert answer == OffsetDeleteResponse(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert group.committed() == {"orders": {0: 1}}
