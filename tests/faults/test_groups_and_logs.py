"""Sessions end and rebalances begin on request, and appends of groups fail or wait, for groups of both kinds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from groupcoord import ManualClock
from groupcoord.broker.broker import Broker
from groupcoord.broker.work import Answer
from groupcoord.errors import ErrorCode
from groupcoord.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetToCommit,
    SyncGroup,
    TopicToCommit,
)
from groupcoord.testing import ServerThread
from groupcoord.testing.faults import NoSuchMemberError
from groupcoord.testing.machine.modern_members import Kip848Consumer

COMMIT = OffsetCommit("g", (TopicToCommit("orders", (OffsetToCommit(0, 42),)),))


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread(topics={"orders": 2}, clock=ManualClock(1_700_000_000_000)) as server:
        yield server


def join_classic(server: ServerThread) -> JoinGroupResponse:
    join = JoinGroup("g", protocols=(JoinProtocol("range", b""),), requires_known_member_id=False)

    def submit(broker: Broker) -> JoinGroupResponse:
        coordinator = broker.coordinator
        coordinator.submit(join)
        coordinator.tick()
        (reply,) = coordinator.take_replies()
        joined: JoinGroupResponse = reply.response
        coordinator.call(SyncGroup("g", joined.generation_id, joined.member_id))
        return joined

    return server.run(submit)


def heartbeat(server: ServerThread, joined: JoinGroupResponse) -> ErrorCode:
    beat = Heartbeat("g", joined.generation_id, joined.member_id)
    return server.run(lambda broker: broker.coordinator.call(beat)).error_code


def test_a_classic_group_can_be_made_to_rebalance(server: ServerThread) -> None:
    """Its members have to rejoin; a group without members, or in a rebalance, can't begin one."""
    joined = join_classic(server)
    server.begin_rebalance("g")

    assert heartbeat(server, joined) is ErrorCode.REBALANCE_IN_PROGRESS
    with pytest.raises(NoSuchMemberError, match="rebalances already"):
        server.begin_rebalance("g")
    leave = LeaveGroup("g", (LeavingMember(joined.member_id),))
    server.run(lambda broker: broker.coordinator.call(leave))
    with pytest.raises(NoSuchMemberError, match="it is empty"):
        server.begin_rebalance("g")
    server.run(lambda broker: broker.coordinator.check())


def test_an_id_that_was_handed_out_can_expire(server: ServerThread) -> None:
    """A member that got its id and has not joined yet has a session, too; no other session ends with it."""
    join = JoinGroup("g", protocols=(JoinProtocol("range", b""),))
    other, given = (server.run(lambda broker: broker.coordinator.call(join)) for _ in range(2))
    assert given.error_code is ErrorCode.MEMBER_ID_REQUIRED
    server.expire_member("g", given.member_id)
    with pytest.raises(NoSuchMemberError, match="has no member"):
        server.expire_member("g", given.member_id)
    server.expire_member("g", other.member_id)
    server.run(lambda broker: broker.coordinator.check())


def test_consumer_groups_expire_and_rebalance_too(server: ServerThread) -> None:
    """A consumer group begins a new epoch, which its member gets with the next heartbeat; then the member expires."""
    consumer = Kip848Consumer("a", "g")
    answer = server.run(lambda broker: broker.coordinator.call(consumer.join_request()))
    assert answer.member_id is not None
    server.begin_rebalance("g")
    described = server.run(lambda broker: broker.coordinator.call(ConsumerGroupDescribe(("g",)))).groups[0]
    assert described.group_epoch == answer.member_epoch + 1
    beat = ConsumerGroupHeartbeat("g", answer.member_id, answer.member_epoch, topic_partitions=answer.assignment)
    again = server.run(lambda broker: broker.coordinator.call(beat))
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, described.group_epoch)

    server.expire_member("g", answer.member_id)
    gone = server.run(lambda broker: broker.coordinator.call(beat))
    assert gone.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    server.run(lambda broker: broker.coordinator.check())


def test_a_coordinator_moves(server: ServerThread) -> None:
    """Waiting requests fail with NOT_COORDINATOR; members and offsets are those of the log."""
    joined = join_classic(server)
    waiting = Answer()
    join = JoinGroup("g", protocols=(JoinProtocol("range", b""),), requires_known_member_id=False)
    server.run(lambda broker: broker.coordinator.submit(join, waiting))
    assert waiting.response is None
    server.move_coordinator("g")

    assert waiting.response is not None
    assert waiting.response.error_code is ErrorCode.NOT_COORDINATOR
    assert heartbeat(server, joined) is ErrorCode.NONE
    server.run(lambda broker: broker.coordinator.check())


def test_a_coordinator_moves_while_its_log_is_slow(server: ServerThread) -> None:
    """An append that is held when the coordinator moves is never written; the group that was loaded is sound."""
    answer = Answer()
    with server.hold_appends():
        server.run(lambda broker: broker.coordinator.submit(COMMIT, answer))
        server.move_coordinator("g")
        assert answer.response is not None
        assert {p.error_code for topic in answer.response.topics for p in topic.partitions} == {
            ErrorCode.NOT_COORDINATOR
        }
    server.run(lambda broker: broker.coordinator.check())
    assert server.committed("g") == {}
    assert commit(server) == [ErrorCode.NONE]
    server.move_coordinator("g")
    assert server.committed("g") == {("orders", 0): 42}


def test_a_consumer_group_that_writes_is_not_disturbed(server: ServerThread) -> None:
    with server.hold_appends():
        server.run(lambda broker: broker.coordinator.submit(Kip848Consumer("a", "g").join_request(), Answer()))
        with pytest.raises(NoSuchMemberError, match="waits for the log"):
            server.begin_rebalance("g")
    server.begin_rebalance("g")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("KAFKA_STORAGE_ERROR", ErrorCode.NOT_COORDINATOR),
        ("MESSAGE_TOO_LARGE", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_appends_fail(server: ServerThread, error: ErrorCode | str, told: ErrorCode) -> None:
    """The next append fails, clients get Kafka's error, and the one after that is written."""
    server.fail_next_append(error)

    assert commit(server) == [told]
    assert commit(server) == [ErrorCode.NONE]


def test_an_append_that_was_to_fail_and_is_let_off(server: ServerThread) -> None:
    """After ``clear_faults()`` no append fails any more."""
    server.fail_next_append(times=2)
    server.clear_faults()

    assert commit(server) == [ErrorCode.NONE]


def test_appends_that_are_held_are_written_later(server: ServerThread) -> None:
    """A commit is answered when its append is released; until then it is invisible."""
    with server.hold_appends() as held:
        answer = Answer()
        server.run(lambda broker: broker.coordinator.submit(COMMIT, answer))
        assert (held.count, answer.response) == (1, None)
        assert server.committed("g") == {}
    assert held.count == 0
    assert answer.response is not None
    assert server.committed("g") == {("orders", 0): 42}


def test_held_appends_can_be_refused(server: ServerThread) -> None:
    """Held appends are refused, and never written; later ones wait until they are released."""
    held = server.hold_appends()
    server.run(lambda broker: broker.coordinator.submit(COMMIT, Answer()))
    held.refuse("NOT_ENOUGH_REPLICAS")
    assert (held.count, server.committed("g")) == (0, {})
    server.run(lambda broker: broker.coordinator.submit(COMMIT, Answer()))
    assert held.count == 1
    server.clear_faults()
    assert server.committed("g") == {("orders", 0): 42}


def commit(server: ServerThread) -> list[ErrorCode]:
    answer = server.run(lambda broker: broker.coordinator.call(COMMIT))
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]
