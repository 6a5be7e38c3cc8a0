"""Waits of a test for groups, and reads of their members and commits."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from attrs import evolve

from groupcoord.broker.broker import Broker
from groupcoord.messages import (
    JoinGroup,
    JoinProtocol,
    OffsetCommit,
    OffsetToCommit,
    ShareGroupHeartbeat,
    StreamsGroupHeartbeat,
    Subtopology,
    TopicInfo,
    TopicToCommit,
    Topology,
)
from groupcoord.testing import CommittedOffset, GroupDescription, MemberDescription, ServerThread, Task
from groupcoord.testing.machine.modern_members import Kip848Consumer

CLIENTS_TIMEOUT_S = 60.0
SOON_S = 0.02


def commit(broker: Broker, group_id: str = "billing") -> None:
    offsets = (OffsetToCommit(2, 7, 3, "half way"), OffsetToCommit(0, 42))
    broker.coordinator.call(OffsetCommit(group_id, (TopicToCommit("orders", offsets),)))


class Polling:
    """A consumer of confluent-kafka that is polled in a thread until the end of a ``with`` block."""

    def __init__(self, server: ServerThread, protocol: str, **settings: str) -> None:
        confluent_kafka = pytest.importorskip("confluent_kafka")
        wanted = {"bootstrap.servers": server.bootstrap, "group.id": "billing", "group.protocol": protocol}
        if protocol == "classic":  # with the other one the server says how often a member tells that it is alive
            wanted["heartbeat.interval.ms"] = "200"
        self.consumer = confluent_kafka.Consumer({**wanted, **settings})
        self.consumer.subscribe(["orders"])
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> Polling:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()
        self.consumer.close()

    def _poll(self) -> None:
        while not self._ends.is_set():
            self.consumer.poll(0.05)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_waited_for(protocol: str) -> None:
    """With either protocol, two consumers share the partitions when the wait is over, and then leave an empty group."""
    with ServerThread(topics={"orders": 4}) as server:
        first = Polling(server, protocol, **{"client.id": "first"})
        second = Polling(server, protocol, **{"client.id": "second"})
        with first, second:
            group = server.wait_until_stable("billing", members=2, timeout_s=CLIENTS_TIMEOUT_S)
            members = server.members("billing")
        left = server.wait_until_stable("billing", members=0, timeout_s=CLIENTS_TIMEOUT_S)

    assert (group.group_id, group.type, group.state) == ("billing", protocol, "Stable")
    assert {member.client_id for member in members} == {"first", "second"}
    assert {member.protocol for member in members} == {protocol}
    assert {member.topics for member in members} == {("orders",)}
    assert sorted(len(member.assignment) for member in members) == [2, 2]
    assert sorted(partition for member in members for partition in member.assignment) == [
        ("orders", number) for number in range(4)
    ]
    assert {member.epoch for member in members} == {group.epoch}
    assert (left.state, left.members) == ("Empty", ())


def test_groups_are_described_while_they_rebalance() -> None:
    """In a join phase a member's subscription is known, its partitions aren't; an empty group has no members."""
    subscription = b"\0\0\0\0\0\x01\0\x06orders\xff\xff\xff\xff"
    join = JoinGroup("billing", protocols=(JoinProtocol("range", subscription),), requires_known_member_id=False)
    with ServerThread(settings={"group.initial.rebalance.delay.ms": 3_000}) as server:
        server.run(lambda broker: broker.coordinator.submit(join, "join"))
        server.run(commit)
        (group,) = server.groups
        assert server.group("unknown") is None
        assert server.members("unknown") == ()

    (member,) = group.members
    assert str(group) == "billing (classic): PreparingRebalance, generation 0, 1 member"
    assert (member.topics, member.assignment, member.epoch) == (("orders",), (), 0)
    assert str(member).endswith("(client '' at ): no partitions")


def test_members_of_a_share_group_may_have_the_same_partition() -> None:
    with ServerThread(topics={"jobs": 1}) as server:
        for member_id, epoch in (("a", 0), ("b", 0), ("a", 1)):
            beat = ShareGroupHeartbeat("workers", member_id, epoch, subscribed_topic_names=("jobs",))
            server.run(lambda broker, beat=beat: broker.coordinator.call(beat))
        group = server.group("workers")
        assert group is not None
        assert [one.protocol for one in group.members] == ["share", "share"]

    assert (group.type, group.state) == ("share", "Stable")
    assert {one.topics for one in group.members} == {("jobs",)}


def test_members_of_no_kind_wait_for_seconds() -> None:
    """A new member gets its partitions with the next heartbeat, within half a second."""
    share = ShareGroupHeartbeat("workers", "a", 0, subscribed_topic_names=("jobs",))
    streams = StreamsGroupHeartbeat(
        "app", "a", 0, active_tasks=(), standby_tasks=(), warmup_tasks=(), rebalance_timeout_ms=60_000, process_id="p"
    )
    streams.topology = Topology(0, (Subtopology("0", ("jobs",)),))
    with ServerThread(topics={"jobs": 1}) as server:

        def told(request: ShareGroupHeartbeat | StreamsGroupHeartbeat, epoch: int = 0) -> Any:
            return server.run(lambda broker: broker.coordinator.call(evolve(request, member_epoch=epoch)))

        joined = told(share)
        assert joined.heartbeat_interval_ms == told(streams).heartbeat_interval_ms == 500
        share.subscribed_topic_names = streams.topology = None
        assert [topic.partitions for topic in told(share, joined.member_epoch).assignment] == [(0,)]
        (consumer,) = server.members("app")
        assert consumer.active_tasks == (Task("0", 0),)


def test_a_streams_group_has_tasks() -> None:
    """An application of Kafka Streams is described by its topology's sources, and each member by its tasks."""
    store = TopicInfo("app-store-changelog")
    topology = Topology(0, (Subtopology("0", ("orders",), state_changelog_topics=(store,)),))
    settings = {"group.streams.num.standby.replicas": 1}

    def beat(member_id: str, epoch: int) -> StreamsGroupHeartbeat:
        joins = {"topology": topology, "rebalance_timeout_ms": 60_000, "process_id": member_id} if epoch == 0 else {}
        return StreamsGroupHeartbeat(
            "app", member_id, epoch, active_tasks=(), standby_tasks=(), warmup_tasks=(), **joins
        )

    with ServerThread(topics={"orders": 2}, settings=settings) as server:
        for member_id, epoch in (("a", 0), ("a", 2), ("b", 0), ("a", 3)):
            server.run(lambda broker, member_id=member_id, epoch=epoch: broker.coordinator.call(beat(member_id, epoch)))
        (group,) = server.groups
        first, second = sorted(group.members, key=lambda member: member.member_id)

    assert (group.group_id, group.type) == ("app", "streams")
    assert (first.protocol, first.topics, first.assignment) == ("streams", ("orders",), ())
    assert {*first.active_tasks, *second.active_tasks} <= {Task("0", 0), Task("0", 1)}
    assert first.active_tasks
    assert not {*first.active_tasks} & {*first.standby_tasks}
    assert "(client '' at ): 0_" in str(first)


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [("connect", JoinProtocol("default", b"?")), ("consumer", JoinProtocol("range", b"?")), ("consumer", None)],
)
def test_what_members_say_need_not_be_a_consumers(kind: str, protocol: JoinProtocol | None) -> None:
    """A Kafka Connect worker has no subscription; nor has a consumer with empty or invalid metadata."""
    protocols = () if protocol is None else (protocol,)
    join = JoinGroup("billing", protocol_type=kind, protocols=protocols, requires_known_member_id=False)
    with ServerThread(settings={"group.initial.rebalance.delay.ms": 3_000}) as server:
        server.run(lambda broker: broker.coordinator.submit(join, "join"))
        members = [] if protocol is None else [((), ())]

        assert [(member.topics, member.assignment) for member in server.members("billing")] == members


def test_a_wait_in_vain_tells_how_it_stood() -> None:
    """The message names the group's state and each member, or the groups there are, or what a condition is about."""
    with ServerThread(topics={"orders": 1}) as server:
        server.run(lambda broker: broker.coordinator.call(Kip848Consumer("a", "bills").join_request()))
        with pytest.raises(TimeoutError) as unknown:
            server.wait_until_stable("bill", members=2, timeout_s=SOON_S)
        with pytest.raises(TimeoutError) as small:
            server.wait_until_stable("bills", members=2, timeout_s=SOON_S)
        with pytest.raises(TimeoutError) as condition:
            server.wait_until(lambda: server.committed("bills") == {("orders", 0): 1}, timeout_s=SOON_S)

    beginning = "group 'bill' is not stable with 2 members after 0.02 s"
    assert str(unknown.value) == f"{beginning}: there is no group 'bill'; did you mean 'bills'? (groups: 'bills')"
    assert "bills (consumer): Stable, epoch 2, 1 member; a-own-id (client 'a'" in str(small.value)
    assert str(condition.value).startswith("the condition does not hold after 0.02 s: bills (consumer): Stable")


def test_any_number_of_members_will_do() -> None:
    """Without a number a group needs any member; 0 waits until all are gone."""
    member = Kip848Consumer("a", "billing")
    with ServerThread(topics={"orders": 1}) as server:
        server.run(lambda broker: broker.coordinator.call(member.join_request()))
        assert server.wait_until_stable("billing").members[0].client_id == "a"
        with pytest.raises(TimeoutError, match="with 0 members"):
            server.wait_until_stable("billing", members=0, timeout_s=SOON_S)
        server.run(lambda broker: broker.coordinator.call(member.leave_request()))
        assert server.wait_until_stable("billing", members=0).state == "Empty"
        with pytest.raises(TimeoutError, match="is not stable after"):
            server.wait_until_stable("billing", timeout_s=SOON_S)


def test_committed_offsets() -> None:
    """Offsets are compared as plain pairs and numbers; metadata and leader epochs are there for who asks."""
    with ServerThread(topics={"orders": 3}) as server:
        server.run(commit)

        assert server.committed("billing") == {("orders", 0): 42, ("orders", 2): 7}
        assert server.committed_offsets("billing") == (
            CommittedOffset("orders", 0, 42, "", -1),
            CommittedOffset("orders", 2, 7, "half way", 3),
        )
        assert server.committed("unknown") == {}


def test_a_condition_is_waited_for() -> None:
    """A wait is over when another thread has brought the condition about; it may ask the server."""
    with ServerThread(topics={"orders": 3}) as server, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.wait_until, lambda: server.committed("billing"))
        server.run(commit)

        waiting.result(CLIENTS_TIMEOUT_S)


def test_on_an_event_loop_the_loop_goes_on() -> None:
    """Waits are awaited while clients of the same loop join; the server starts and stops there, too."""
    aiokafka = pytest.importorskip("aiokafka")

    async def scenario() -> tuple[GroupDescription, tuple[MemberDescription, ...]]:
        async with ServerThread(topics={"orders": 4}) as server:
            options = {"bootstrap_servers": server.bootstrap, "group_id": "billing", "heartbeat_interval_ms": 200}
            consumers = [aiokafka.AIOKafkaConsumer("orders", **options) for _ in range(2)]
            try:
                joining = asyncio.gather(*(consumer.start() for consumer in consumers))
                group = await server.asyncio.wait_until_stable("billing", members=2, timeout_s=CLIENTS_TIMEOUT_S)
                await joining
                server.run(lambda broker: commit(broker, "mails"))
                await server.asyncio.wait_until(lambda: server.committed("mails"))
                with pytest.raises(TimeoutError, match="with 3 members"):
                    await server.asyncio.wait_until_stable("billing", members=3, timeout_s=SOON_S)
                members = await server.asyncio.run(lambda broker: server.members("billing"))
            finally:
                await asyncio.gather(*(consumer.stop() for consumer in consumers))
            return group, members

    group, members = asyncio.run(scenario())
    assert len(group.members) == len(members) == 2


def test_who_gives_up_waiting_harms_nobody() -> None:
    """A call that is cancelled before the server runs it is dropped, and the server continues."""
    calls: list[str] = []
    with ServerThread() as server:
        reached, go_on = threading.Event(), threading.Event()

        def hold(broker: Broker) -> None:
            reached.set()
            go_on.wait(CLIENTS_TIMEOUT_S)

        held = server.submit(hold)
        reached.wait(CLIENTS_TIMEOUT_S)
        cancelled = server.submit(lambda broker: calls.append("cancelled"))
        assert cancelled.cancel()
        go_on.set()
        held.result(CLIENTS_TIMEOUT_S)
        server.run(lambda broker: calls.append("made"))

    assert calls == ["made"]
