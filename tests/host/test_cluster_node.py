"""Nodes that share a log, in one event loop and over an engine in memory, as clients meet them by their sockets."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from attrs import define, field

from groupcoord import Config, ErrorCode, SystemClock
from groupcoord.broker.security.security import Security, split_properties
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.cluster import documents as documents_module, replica
from groupcoord.cluster.documents import SlotDocuments
from groupcoord.cluster.slot_log import MemorySlotLog
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.messages import Node, Reply
from groupcoord.host.cluster_node import ClusterNode, NodeIdTakenError
from groupcoord.host.opening import open_cluster_storage
from tests.broker.kafka_bytes import api_versions, array, frame, string
from tests.host.serving import in_a_loop

PARTITIONS = 5
GROUPS = [f"group-{number}" for number in range(6)]
DEADLINE_S = 30
ELECT_LEADERS, IS_TRANSACTIONAL = 43, 1


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "LOOK_S", 0.005)
    numbers = itertools.count()
    monkeypatch.setattr(replica, "uuid4", lambda: f"process-{next(numbers)}")  # of two, each has some groups


@define
class Cluster:
    """An engine, and the nodes that share it."""

    slot_log: MemorySlotLog = field(factory=MemorySlotLog)
    properties: dict[str, str] = field(factory=dict)

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[MemorySlotLog]:
        yield self.slot_log

    @asynccontextmanager
    async def node(self, node_id: int, dead_ms: int = 1_500) -> AsyncIterator[ClusterNode]:
        documents = SlotDocuments(self.engine)
        documents.open()
        clock, topics = SystemClock(), TopicRegistry(documents)
        if topics.get(OFFSETS_TOPIC) is None:
            topics.ensure(OFFSETS_TOPIC, PARTITIONS)
            topics.ensure("orders", 1)
        security = Security(clock, documents, split_properties(self.properties)[1])
        config = Config(offsets_topic_num_partitions=PARTITIONS)
        storage = open_cluster_storage(documents, topics, config, clock, security)
        socks = {name: _bound() for name in security.addresses or {"": None}}
        port = next(iter(socks.values())).getsockname()[1]
        node = ClusterNode(
            storage, documents, clock, Node(node_id, "127.0.0.1", port), socks, self.engine, dead_ms=dead_ms, beat_ms=5
        )
        try:
            await node.start()
            yield node
        finally:
            await node.stop()
            for sock in socks.values():
                sock.close()


def _bound() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock


async def ask(node: ClusterNode, request: bytes, listener: str = "") -> bytes:
    """Return what a node answers, without the number of the request; nothing: it has closed the connection."""
    port = node.server.ports.get(listener, node.server.port)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(DEADLINE_S):
            size = int.from_bytes(await reader.readexactly(4), "big")
            return (await reader.readexactly(size))[4:]
    except asyncio.IncompleteReadError:
        return b""
    finally:
        writer.close()


async def found(node: ClusterNode, key: str, key_type: int = 0, listener: str = "") -> tuple[int, int, int]:
    """Return what FindCoordinator answers: error, node and port."""
    answer = await ask(node, frame(10, 1, 1, string(key) + bytes([key_type])), listener)
    error, message_size = struct.unpack_from(">hh", answer, 4)
    (node_id,) = struct.unpack_from(">i", answer, 8 + max(message_size, 0))
    return error, node_id, int.from_bytes(answer[-4:], "big")


async def commit(node: ClusterNode, group: str, offset: int) -> int:
    partition = b"\0\0\0\0" + offset.to_bytes(8, "big") + string("")
    head = string(group) + b"\xff\xff\xff\xff" + string("") + b"\xff" * 8
    answer = await ask(node, frame(8, 2, 1, head + array([string("orders") + array([partition])])))
    return int.from_bytes(answer[-2:], "big")


async def committed(node: ClusterNode, group: str) -> int:
    request = frame(9, 1, 2, string(group) + array([string("orders") + array([b"\0\0\0\0"])]))
    answer = await ask(node, request)
    assert answer.endswith(string("") + b"\0\0"), answer
    return int.from_bytes(answer[-12:-4], "big")


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await holds():
            await asyncio.sleep(0.005)


async def settled(*nodes: ClusterNode) -> dict[str, ClusterNode]:
    """Wait until all nodes agree on who serves each group, and each has some; return that."""
    by_id = {node.server.broker.node.node_id: node for node in nodes}
    owners: dict[str, ClusterNode] = {}

    async def agree() -> bool:
        told = [[await found(node, group) for group in GROUPS] for node in nodes]
        owners.update((group, by_id[one[1]]) for group, one in zip(GROUPS, told[0], strict=True) if one[1] in by_id)
        return all(one == told[0] for one in told) and {node_id for _, node_id, _ in told[0]} == set(by_id)

    await until(agree)
    return owners


async def commit_to_all(owners: dict[str, ClusterNode], offset: int) -> None:
    """Commit at who serves each group, as soon as that one does."""
    for group, node in owners.items():
        await until(lambda: _is_taken(node, group, offset))  # noqa: B023


async def _is_taken(node: ClusterNode, group: str, offset: int) -> bool:
    return await commit(node, group, offset) == 0


def create_topic(name: str, replicas: int) -> bytes:
    wanted = string(name) + struct.pack(">ih", 3, replicas) + array([])
    settings = array([string("retention.ms") + string("1000")])
    return frame(19, 2, 3, array([wanted + settings]) + struct.pack(">ib", 30_000, 0))


@in_a_loop
async def test_each_group_has_one_node_which_all_name() -> None:
    """FindCoordinator agrees at every node; a commit at another one fails with NOT_COORDINATOR; a leaving node hands
    over.
    """
    cluster = Cluster()
    async with cluster.node(1) as one:
        async with cluster.node(7) as other:
            owners = await settled(one, other)
            await commit_to_all(owners, 42)
            for group, owner in owners.items():
                stranger = other if owner is one else one
                assert await commit(stranger, group, 43) == ErrorCode.NOT_COORDINATOR
                assert await found(stranger, group) == (0, owner.server.broker.node.node_id, owner.server.port)
        assert set((await settled(one)).values()) == {one}
        await commit_to_all(dict.fromkeys(GROUPS[1:], one), 43)
        assert [await committed(one, group) for group in GROUPS] == [42] + [43] * (len(GROUPS) - 1)


@in_a_loop
async def test_who_is_killed_is_followed() -> None:
    """When a node has been silent for long enough, the other names itself, and knows all that was acknowledged."""
    cluster = Cluster()
    async with cluster.node(1) as one, cluster.node(2) as other:
        owners = await settled(one, other)
        await commit_to_all(owners, 42)
        assert await leaders(one, OFFSETS_TOPIC) == {1, 2}
        kill(other)
        cluster.slot_log.now_ms += 2_000
        assert set((await settled(one)).values()) == {one}
        await commit_to_all({GROUPS[0]: one}, 43)
        assert [await committed(one, group) for group in GROUPS] == [43] + [42] * (len(GROUPS) - 1)
        assert await leaders(one, OFFSETS_TOPIC) == await leaders(one, "", brokers=True) == {1}


def kill(node: ClusterNode) -> None:
    node.server.kill()
    for task in asyncio.all_tasks():
        coroutine = task.get_coro()
        frame_of = getattr(coroutine, "cr_frame", None)
        if frame_of is not None and frame_of.f_locals.get("self") is node._participant:
            task.cancel()


async def leaders(node: ClusterNode, topic: str, *, brokers: bool = False) -> set[int]:
    """Return who leads partitions of a topic, or who is named as a broker at all, by Metadata."""
    answer = await ask(node, frame(3, 1, 5, array([string(topic)] if topic else [string("none")])))
    (count,), at, told = struct.unpack_from(">i", answer, 0), 4, set()
    for _ in range(count):
        node_id, size = struct.unpack_from(">ih", answer, at)
        told.add(node_id)
        at += 6 + size + 4 + 2  # the port, and no rack
    if brokers:
        return told
    at += 4 + 4 + 2 + 2 + len(topic) + 1  # the controller, one topic, its error, its name, whether it is internal
    (count,) = struct.unpack_from(">i", answer, at)
    led, at = set(), at + 4
    for _ in range(count):
        _, _, leader = struct.unpack_from(">hii", answer, at)
        led.add(leader)
        at += 10
        for _ in range(2):
            (size,) = struct.unpack_from(">i", answer, at)
            at += 4 + 4 * size
    return led


def created(answer: bytes) -> int:
    """Return the error of the only topic of a response, with a name of one letter."""
    return int.from_bytes(answer[11:13], "big")


@in_a_loop
async def test_what_one_node_creates_all_know() -> None:
    """A topic and its configs, with a replica per node, at a node that is not the controller; two nodes that create
    topics concurrently both succeed.
    """
    cluster = Cluster()
    async with cluster.node(1) as one, cluster.node(2) as other:
        await settled(one, other)
        assert created(await ask(other, create_topic("a", 3))) == ErrorCode.INVALID_REPLICATION_FACTOR
        answers = await asyncio.gather(*(ask(node, create_topic(name, 2)) for node, name in ((one, "b"), (other, "c"))))
        assert list(map(created, answers)) == [ErrorCode.NONE] * 2
        for node in (one, other):
            await until(lambda: _knows(node, {"b", "c"}))  # noqa: B023
            topic = node.server.broker.topics.get("b")
            assert topic is not None
            assert (topic.partition_count, dict(topic.configs)) == (3, {"retention.ms": "1000"})
            assert await leaders(node, "b") == {1, 2}


async def _knows(node: ClusterNode, names: set[str]) -> bool:
    return names <= {topic.name for topic in node.server.broker.topics}


@in_a_loop
async def test_a_change_is_tried_again_when_another_node_was_quicker() -> None:
    """A node with an outdated document applies its change to the current one, and the client sees no error."""
    cluster = Cluster()
    async with cluster.node(1) as one, cluster.node(2) as other:
        before = other._documents._state
        assert created(await ask(one, create_topic("a", 1))) == ErrorCode.NONE
        other._documents._state = before
        assert created(await ask(other, create_topic("b", 1))) == ErrorCode.NONE
        assert await _knows(other, {"a", "b"})


@pytest.mark.ci
@in_a_loop
async def test_a_second_node_of_an_id_does_not_start() -> None:
    """Clients could not distinguish them; the error has the address of the other one."""
    cluster = Cluster()
    async with cluster.node(1) as one:
        await settled(one)
        with pytest.raises(NodeIdTakenError, match=f"node 1 runs already at 127.0.0.1:{one.server.port}"):
            async with cluster.node(1, dead_ms=1_001):
                pass


@in_a_loop
async def test_there_are_no_transactions() -> None:
    """Their APIs are not listed, FindCoordinator fails for good, and other requests of transactions close the
    connection.
    """
    async with Cluster().node(1) as node:
        announced = await ask(node, api_versions(1))
        keys = {int.from_bytes(announced[at : at + 2], "big") for at in range(6, len(announced), 6)}
        assert keys & {0, 1, 3, 8, 9, 10, 22, 24, 25, 26, 27, 28, 61, 65, 66, 76} == {0, 1, 3, 8, 9, 10}
        assert (await found(node, "x", IS_TRANSACTIONAL))[:2] == (ErrorCode.INVALID_REQUEST, -1)
        assert await ask(node, frame(22, 0, 1, string("x") + b"\0\0\0\1")) == b""


@in_a_loop
async def test_the_log_is_not_read_by_clients() -> None:
    """A Fetch of __consumer_offsets fails, and takes nothing away from a load; DescribeLogDirs leaves it out."""
    async with Cluster().node(1) as node:
        await settled(node)
        head = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0)
        asked = array([string(OFFSETS_TOPIC) + array([struct.pack(">iqi", 0, 0, 1 << 20)])])
        answer = await ask(node, frame(1, 4, 1, head + asked))
        at = 8 + 2 + len(OFFSETS_TOPIC) + 4 + 4
        assert int.from_bytes(answer[at : at + 2], "big") == ErrorCode.KAFKA_STORAGE_ERROR
        described = await ask(node, frame(35, 1, 1, b"\xff" * 4))
        assert described[8:10] == b"\0\0"
        assert string("orders") in described
        assert string(OFFSETS_TOPIC) not in described


@in_a_loop
async def test_nobody_is_elected() -> None:
    """ElectLeaders changes nothing, since ownership of log partitions is not up to clients."""
    cluster = Cluster()
    async with cluster.node(1) as one, cluster.node(2) as other:
        await settled(one, other)
        partitions = array([struct.pack(">i", index) for index in range(PARTITIONS)])
        body = b"\0" + array([string(OFFSETS_TOPIC) + partitions]) + struct.pack(">i", 30_000)
        answer = await ask(one, frame(ELECT_LEADERS, 1, 1, body))
        reason = string("Leader election not needed for topic partition.")
        assert answer.count(struct.pack(">h", ErrorCode.ELECTION_NOT_NEEDED) + reason) == PARTITIONS
        assert await leaders(one, OFFSETS_TOPIC) == {1, 2}


@in_a_loop
async def test_no_answer_leaves_after_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that was delayed beyond the lease closes the connection, since others may have answered since.
    Responses without groups are sent.
    """
    async with Cluster().node(1) as node:
        await commit_to_all(await settled(node), 42)
        coordinator = node.coordinator
        take_replies = coordinator.take_replies

        def be_held_up() -> list[Reply]:
            replies = take_replies()
            if replies:
                coordinator._ownership.lease_end_ms = 1  # type: ignore[union-attr]
            return replies

        monkeypatch.setattr(coordinator, "take_replies", be_held_up)
        asked = string(GROUPS[0]) + array([string("orders") + array([b"\0\0\0\0"])])
        assert await ask(node, frame(9, 1, 2, asked)) == b""
        monkeypatch.undo()
        await until(lambda: _is_taken(node, GROUPS[0], 43))

        monkeypatch.setattr(coordinator.log_store, "check_ownership", lambda: False)
        coordinator._ownership.lease_end_ms = 1  # type: ignore[union-attr]
        assert await ask(node, api_versions(1))
        assert coordinator.is_lease_over


@in_a_loop
async def test_clients_of_a_listener_are_told_its_addresses() -> None:
    """Of every node, at whichever they ask."""
    listeners = "IN://127.0.0.1:0,OUT://127.0.0.1:0"
    protocols = "IN:PLAINTEXT,OUT:PLAINTEXT"
    cluster = Cluster(properties={"listeners": listeners, "listener.security.protocol.map": protocols})
    async with cluster.node(1) as one, cluster.node(2) as other:
        ports = {node.server.broker.node.node_id: node.server.ports for node in (one, other)}

        async def all_are_told() -> bool:
            told = {(await found(one, group, listener="OUT"))[1:] for group in GROUPS}
            return told == {(node_id, own["OUT"]) for node_id, own in ports.items()}

        await until(all_are_told)
