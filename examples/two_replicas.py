"""A service that hands out shards, in two replicas: one coordinates, the other stands by, the log is in PostgreSQL.

    pip install '.[postgres]'
    python examples/two_replicas.py postgresql://user@host/database 8081 &
    python examples/two_replicas.py postgresql://user@host/database 8082 &
    curl -i localhost:8081/ready
    curl -d '{"worker": "ann", "epoch": 0, "owned": []}' localhost:8082/beat

A worker beats every few seconds, with the epoch that it was told last and with the shards that it still works on; it
asks one replica after the other until one answers with 200. 503 means that nobody coordinates there. An answer counts
from when the worker asked: one whose last answer is older than the session time-out stops its work.

Kill the one that coordinates, or stop it (SIGSTOP): a second later the other one knows all that it has promised.
When a stopped one goes on, its first word is 503. SIGTERM hands the log over at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from uuid import UUID

from groupcoord import Config, ErrorCode, GroupCoordinator, OwnershipLostError
from groupcoord.aio import AsyncCoordinator
from groupcoord.log_store import StorageError
from groupcoord.messages import ConsumerGroupHeartbeat, TopicPartitions
from groupcoord.storage.stores import BatchingLogStore, PostgresLogStore

SHARDS, COUNT = UUID(int=8), 8
LEASE_MS, ASK_S = 600, 0.05
"""How long the other one waits at most: a lease, and until it asks again, twice. A worker's session is far longer."""
BODY_BYTES_MAX = 65_536


class Shards:
    """There are eight shards to work on."""

    def partition_count(self, name: str) -> int | None:
        return COUNT if name == "shards" else None

    def topic_id(self, name: str) -> UUID | None:
        return SHARDS if name == "shards" else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return "shards" if topic_id == SHARDS else None


class Replica:
    """Answers workers while it owns the log."""

    def __init__(self, conninfo: str, lease_ms: int) -> None:
        self.conninfo = conninfo
        self.lease_ms = lease_ms
        self.coordinator: AsyncCoordinator | None = None

    async def run(self) -> None:
        """Stand by, coordinate until the log is lost, and stand by again."""
        while True:
            store = await asyncio.to_thread(
                PostgresLogStore, self.conninfo, name="shards", lease_ms=self.lease_ms, takes_over=False
            )
            try:
                while not await self.claim(store):
                    await asyncio.sleep(ASK_S)
                await self.coordinate(BatchingLogStore(store))
            except OwnershipLostError as error:
                print(f"standing by again: {error}", flush=True)
            finally:
                store.close()

    async def claim(self, store: PostgresLogStore) -> bool:
        try:
            return await asyncio.to_thread(store.claim)
        except StorageError as error:
            logging.warning("the database does not answer: %s", error)
            return False

    async def coordinate(self, store: BatchingLogStore) -> None:
        config = Config(offsets_topic_num_partitions=1, group_consumer_assignment_interval_ms=0)
        core = GroupCoordinator(config=config, log_store=store, topics=Shards())
        try:
            async with AsyncCoordinator(core) as self.coordinator:
                print("coordinating", flush=True)
                await asyncio.Event().wait()
        finally:
            self.coordinator = None
            store.close()  # after the coordinator: whoever stands by need not wait now

    async def beat(self, said: dict) -> dict:
        """Pass on what a worker says; return what it is told."""
        if self.coordinator is None:
            return {"error": ErrorCode.NOT_COORDINATOR.name}
        is_new, owned = said["epoch"] == 0, said["owned"]
        heartbeat = ConsumerGroupHeartbeat(
            "workers",
            said["worker"],
            said["epoch"],
            rebalance_timeout_ms=60_000 if is_new else -1,
            subscribed_topic_names=("shards",) if is_new else None,
            topic_partitions=(TopicPartitions(SHARDS, tuple(owned)),) if owned else (),
        )
        answer = await self.coordinator.ask(heartbeat)
        shards = answer.assignment and [number for topic in answer.assignment for number in topic.partitions]
        return {"error": answer.error_code.name, "epoch": answer.member_epoch, "shards": shards}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request over HTTP."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            sizes = [line.partition(":")[2] for line in head if line.lower().startswith("content-length:")]
            body = await reader.readexactly(min(int(sizes[0]), BODY_BYTES_MAX)) if sizes else b""
            if head[0].startswith("POST /beat "):
                told = await self.beat(json.loads(body))
            else:
                told = {"error": "NONE" if self.coordinator is not None else "NOT_COORDINATOR"}
            status = "503 Service Unavailable" if told["error"] == "NOT_COORDINATOR" else "200 OK"
        except (ValueError, KeyError, TypeError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            told, status = {"error": repr(error)}, "400 Bad Request"
        content = json.dumps(told).encode()
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content
        )
        writer.close()


async def main(conninfo: str, port: int, lease_ms: int) -> None:
    """Run one replica until it is told to end."""
    replica = Replica(conninfo, lease_ms)
    running = asyncio.ensure_future(replica.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    async with await asyncio.start_server(replica.serve, "127.0.0.1", port):
        await asyncio.wait((running,))
    if not running.cancelled():
        running.result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else LEASE_MS))
