"""A service that keeps how far its workers have come, in three replicas that share the work; the log is in PostgreSQL.

    pip install '.[postgres]'
    python examples/three_replicas.py postgresql://user@host/database 8081 &
    python examples/three_replicas.py postgresql://user@host/database 8082 &
    python examples/three_replicas.py postgresql://user@host/database 8083 &
    curl -iL -d '{"group": "billing", "shard": 3, "position": 42}' localhost:8081/commit
    curl -iL -d '{"group": "billing", "shard": 3}' localhost:8082/position

Each group is coordinated by one replica. Any may be asked: another one answers with 307 and where to go. 503 means that
nobody has the group right now, so ask again.

Kill one, or stop it (SIGSTOP): some two seconds later the others have its groups, and know all that it has promised.
When a stopped one goes on, it says 307 or 503 of what it had before. SIGTERM hands its groups over at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys

from groupcoord import Config, ErrorCode, GroupCoordinator
from groupcoord.cluster.postgres import PostgresSlotLog
from groupcoord.cluster.replica import Replica
from groupcoord.cluster.slot_store import SlotStore
from groupcoord.messages import GroupToFetch, OffsetCommit, OffsetFetch, OffsetToCommit, TopicToCommit, TopicToFetch

TOPIC = "shards"
BODY_BYTES_MAX = 65_536
AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
REASONS = {200: "OK", 307: "Temporary Redirect", 400: "Bad Request", 503: "Service Unavailable"}


async def commit(replica: Replica, group: str, shard: int, position: int) -> tuple[ErrorCode, dict]:
    """Keep how far a group has come with a shard."""
    said = await replica.ask(OffsetCommit(group, (TopicToCommit(TOPIC, (OffsetToCommit(shard, position),)),)))
    return said.topics[0].partitions[0].error_code, {"position": position}


async def fetch(replica: Replica, group: str, shard: int) -> tuple[ErrorCode, dict]:
    """Tell how far a group has come with a shard; -1: nothing is known of it."""
    asked = GroupToFetch(group, (TopicToFetch(TOPIC, (shard,)),))
    (said,) = (await replica.ask(OffsetFetch((asked,)))).groups
    if said.error_code is not ErrorCode.NONE:
        return said.error_code, {}
    offset = said.topics[0].partitions[0]
    return offset.error_code, {"position": offset.committed_offset}


async def answer(replica: Replica, path: str, body: dict) -> tuple[int, dict]:
    """Return the status and what is told."""
    act = {"/commit": commit, "/position": fetch}[path]
    error, told = await act(replica, **body)
    if error is ErrorCode.NONE:
        return 200, told
    if error not in AGAIN:
        return 400, {"error": error.name}
    owner = replica.coordinator_of(body["group"])
    if owner is None or owner.node_id == replica.node_id:
        return 503, {"error": error.name}
    return 307, {"location": f"http://{owner.address}{path}"}


async def serve(replica: Replica, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request over HTTP."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        sizes = [line.partition(":")[2] for line in head if line.lower().startswith("content-length:")]
        body = json.loads(await reader.readexactly(min(int(sizes[0]), BODY_BYTES_MAX)))
        status, told = await answer(replica, head[0].split(" ")[1], body)
    except (ValueError, LookupError, TypeError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        status, told = 400, {"error": repr(error)}
    content = json.dumps(told).encode()
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"Location: {told['location']}"] if status == 307 else []
    writer.write("\r\n".join([*lines, "", ""]).encode() + content)
    writer.close()


async def main(conninfo: str, port: int) -> None:
    """Run one replica until it is told to end."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    core = GroupCoordinator(config=Config(offsets_topic_num_partitions=12), log_store=SlotStore())
    async with (
        PostgresSlotLog(conninfo, name="progress") as slot_log,
        Replica(core, slot_log, f"127.0.0.1:{port}") as replica,
        await asyncio.start_server(lambda *streams: serve(replica, *streams), "127.0.0.1", port),
    ):
        await ended.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
