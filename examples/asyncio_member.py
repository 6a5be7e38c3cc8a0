"""A consumer on asyncio that joins a group of real ones, on a real broker or on ``groupcoord serve``.

    pip install '.[wire]'
    python examples/asyncio_member.py 127.0.0.1:9092 my-group my-topic --set partition.assignment.strategy=range
    python examples/asyncio_member.py 127.0.0.1:9092 my-group my-topic --set group.protocol=consumer

``groupcoord.member.Member`` decides everything; what stands here is its host: connections, bytes and the clock. It
prints what the member tells. Instead of fetching records it counts one up for each of its partitions twice a second,
from the committed offset on, and lets the member commit that. Ctrl-C leaves the group.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import struct
import typing
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import attrs

from groupcoord import messages
from groupcoord.conformance.entities import decode_response, encode_request
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.member import (
    AssignmentNeeded,
    Closed,
    Cluster,
    ClusterTopic,
    Event,
    Failed,
    Member,
    MemberConfig,
    MetadataNeeded,
    OffsetsFetched,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    Send,
    TopicPartition,
)
from groupcoord.messages import Node, OffsetCommit, TopicPartitions

Body = dict[str, Any]
VERSIONS = {"FindCoordinator": 4, "JoinGroup": 9, "SyncGroup": 5, "Heartbeat": 4, "LeaveGroup": 5}
VERSIONS |= {"ConsumerGroupHeartbeat": 1, "OffsetCommit": 9, "OffsetFetch": 9, "Metadata": 12}
WIRE_NAMES = {"keys": "coordinator_keys"}
NOT_SENT = ("client_", "requires_", "supports_", "uses_", "retention_", "principal", "topic_id")
READERS = {bytes: lambda body: bytes.fromhex(body["hex"]), ErrorCode: ErrorCode.__getitem__, UUID: UUID}
LENGTH = struct.Struct(">i")
FOREVER_MS, WORK_S = 2**40, 0.5


# ---------------------------------------------------------------- the member's messages and their fields on the wire


def to_body(request: Any) -> Body:
    """Return a request as the fields of its version above."""
    body: Body = _plain(request)
    if isinstance(request, OffsetCommit):
        body["generation_id_or_member_epoch"] = body.pop("generation_id")
    return body


def _plain(value: Any) -> Any:
    if attrs.has(type(value)):
        names = [field.alias for field in attrs.fields(type(value)) if not field.alias.startswith(NOT_SENT)]
        named = {name: getattr(value, name) for name in names}
    elif hasattr(value, "_asdict"):
        named = value._asdict()
    elif isinstance(value, bytes | UUID):
        return {"hex": value.hex()} if isinstance(value, bytes) else str(value)
    else:
        return [_plain(element) for element in value] if isinstance(value, tuple) else value
    return {WIRE_NAMES.get(name, name.replace("_timeout_ms", "_timeout")): _plain(named[name]) for name in named}


def from_body(response: Any, body: Any) -> Any:
    """Return a response of this type, or a part of one, from the fields of its version above."""
    if isinstance(body, dict) and "topic_partitions" in body:
        response, body = tuple[TopicPartitions, ...], body["topic_partitions"]
    if isinstance(body, list):
        return tuple(from_body(typing.get_args(response)[0], element) for element in body)
    if response in READERS and body is not None:
        return READERS[response](body)
    if not isinstance(body, dict):
        return body
    body = {"node": body, "topic_id": None, "heartbeat_interval_ms": body.get("heartbeat_interval"), **body}
    hints = typing.get_type_hints(response)
    return response(**{name: from_body(hint, body[name]) for name, hint in hints.items()})


# ---------------------------------------------------------------- connections


class Connection:
    """One connection. Its task reads answers, and ends with it."""

    def __init__(self, host: str, port: int, client_id: str) -> None:
        self._client_id = client_id
        self._waiting: dict[int, tuple[str, asyncio.Future[Body]]] = {}
        self._last_id = 0
        self.task = asyncio.create_task(self._run(host, port))
        self._writer: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    async def ask(self, api: str, body: Body) -> Body:
        """Send a request and return the answer's fields; OSError if the connection fails."""
        writer = await asyncio.shield(self._writer)
        if self.task.done():
            raise ConnectionResetError("the connection is closed")
        self._last_id += 1
        answer: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
        self._waiting[self._last_id] = (api, answer)
        frame = encode_request(api, VERSIONS[api], self._last_id, self._client_id, body)
        writer.write(LENGTH.pack(len(frame)) + frame)
        return await answer

    async def _run(self, host: str, port: int) -> None:
        writer = None
        try:
            reader, writer = await asyncio.open_connection(host, port)
            self._writer.set_result(writer)
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                frame = await reader.readexactly(length)
                api, answer = self._waiting.pop(int.from_bytes(frame[:4], "big"))
                if not answer.done():
                    answer.set_result(decode_response(api, VERSIONS[api], frame)[1])
        except (OSError, EOFError, KeyError, GroupcoordError, asyncio.CancelledError) as error:
            lost = ConnectionResetError(str(error))
            futures: list[asyncio.Future[Any]] = [self._writer, *(answer for _, answer in self._waiting.values())]
            for future in futures:
                if not future.done():
                    future.set_exception(lost)
                    future.exception()  # seen, even if nobody waits
        finally:
            if writer is not None:
                writer.close()


# ---------------------------------------------------------------- the host


class AsyncMember:
    """Runs a member: sends what it sends, brings what comes, wakes it in time.

    Args:
        bootstrap: where to ask for the coordinator and for topics.
        config: the member's settings.
        tell: called with each event.
    """

    def __init__(self, bootstrap: tuple[str, int], config: MemberConfig, tell: Callable[[Event], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._bootstrap = bootstrap
        self._client_id = config.client_id
        self._tell = tell
        self._connections: dict[tuple[str, int, bool], Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.member = Member(config, now_ms=self.now_ms(), random=random.random)

    def now_ms(self) -> int:
        """Return the time on the clock that the member lives by."""
        return int(self._loop.time() * 1000)

    def pump(self) -> None:
        """Do all that the member wants done; after each call to the member."""
        while outputs := self.member.take_outputs():
            for output in outputs:
                match output:
                    case Send():
                        self._spawn(self._send(output))
                    case AssignmentNeeded():
                        self.member.assignment_computed(output.compute(), self.now_ms())
                    case MetadataNeeded():
                        self._spawn(self.refresh_metadata())
                    case _:
                        self._tell(output)
        if self._timer is not None:
            self._timer.cancel()
        deadline_ms = self.member.next_deadline_ms()
        if deadline_ms is not None:
            self._timer = self._loop.call_at(deadline_ms / 1000 + 0.001, self._wake)

    def _wake(self) -> None:
        self.member.tick(self.now_ms())
        self.pump()

    def _spawn(self, work: Any) -> None:
        self._tasks.add(task := self._loop.create_task(work))
        task.add_done_callback(self._tasks.discard)

    def _connection(self, to: Node | None) -> Connection:
        address = (to.host, to.port, True) if to is not None else (*self._bootstrap, False)
        found = self._connections.get(address)
        if found is None or found.task.done():
            found = self._connections[address] = Connection(address[0], address[1], self._client_id)
        return found

    async def _send(self, send: Send) -> None:
        api = type(send.request).__name__
        try:
            body = await self._connection(send.to).ask(api, to_body(send.request))
        except OSError:
            self.member.request_failed(send.request_id, ErrorCode.NETWORK_EXCEPTION, self.now_ms())
        else:
            self.member.receive(send.request_id, from_body(getattr(messages, f"{api}Response"), body), self.now_ms())
        self.pump()

    async def refresh_metadata(self) -> None:
        """Tell the member of its topics."""
        names = self.member.metadata_topics
        topics = None if names is None else [{"name": name, "topic_id": None} for name in names]
        request = {"topics": topics, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        with contextlib.suppress(OSError):
            body = await self._connection(None).ask("Metadata", request)
            racks = {broker["node_id"]: broker["rack"] for broker in body["brokers"]}
            known = {topic["name"]: _topic(topic, racks) for topic in body["topics"] if topic["error_code"] == "NONE"}
            self.member.update_metadata(Cluster(known), self.now_ms())
        self.pump()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.task.cancel()


def _topic(topic: Body, racks: Mapping[int, str | None]) -> ClusterTopic:
    partitions = sorted(topic["partitions"], key=lambda partition: partition["partition_index"])
    of_each = tuple(tuple(racks.get(node) for node in partition["replica_nodes"]) for partition in partitions)
    return ClusterTopic(len(partitions), of_each if any(racks.values()) else None, UUID(topic["topic_id"]))


# ---------------------------------------------------------------- an application


async def run(bootstrap: tuple[str, int], config: MemberConfig, topics: list[str]) -> None:
    """Be a member until a signal comes."""
    done, stop = asyncio.Event(), asyncio.Event()
    positions: dict[TopicPartition, int] = {}

    def tell(event: Event) -> None:
        match event:
            case PartitionsAssigned(partitions):
                print("assigned", *(f"{topic}-{number}" for topic, number in partitions), flush=True)
                host.member.fetch_offsets(partitions, host.now_ms())
            case PartitionsRevoked(partitions) | PartitionsLost(partitions):
                word = "revoked" if isinstance(event, PartitionsRevoked) else "lost"
                print(word, *(f"{topic}-{number}" for topic, number in partitions), flush=True)
                for partition in partitions:
                    positions.pop(partition, None)
            case OffsetsFetched(offsets=offsets):
                owned = [partition for partition in offsets if partition in host.member.assignment]
                positions.update({p: found.offset if (found := offsets[p]) is not None else 0 for p in owned})
            case _:
                print(event, flush=True)
        if isinstance(event, Failed | Closed):
            (stop if isinstance(event, Failed) else done).set()

    host = AsyncMember(bootstrap, config, tell)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    host.member.subscribe(topics, host.now_ms())
    host.member.poll(host.now_ms(), FOREVER_MS)
    host.pump()
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), WORK_S)
        await host.refresh_metadata()
        for partition in positions.keys() & set(host.member.fetchable):
            positions[partition] += 1
        host.member.consumed(positions)
    host.member.close(host.now_ms())
    host.pump()
    await done.wait()
    host.close()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="a consumer that joins a group")
    parser.add_argument("bootstrap", metavar="HOST:PORT")
    parser.add_argument("group")
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a consumer setting")
    options = parser.parse_args()
    host, _, port = options.bootstrap.rpartition(":")
    settings = {"group.id": options.group, "client.id": "asyncio-member", **dict(s.split("=", 1) for s in options.set)}
    asyncio.run(run((host, int(port)), MemberConfig.from_properties(settings), options.topics))


if __name__ == "__main__":
    main()
