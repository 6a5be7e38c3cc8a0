"""What a log that replicas share in PostgreSQL costs, beside a local one: commits, and loading a million records.

    python -m tests.bench.replicas [--seconds 5] [--records 1000000]

The server of PostgreSQL is on the same machine and writes to the disk for good; so does the local log. CPU is that of
the process with the coordinator.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from groupcoord import Config, ErrorCode, GroupCoordinator, PartitionStatus
from groupcoord.aio import AsyncCoordinator
from groupcoord.cluster.postgres import PostgresSlotLog
from groupcoord.cluster.replica import Replica
from groupcoord.cluster.slot_store import SlotStore
from groupcoord.messages import OffsetCommit, OffsetToCommit, TopicToCommit
from groupcoord.storage.segment_store import SegmentLogStore
from tests.storage.sql.postgres_server import PostgresServer

Ask = Callable[[OffsetCommit], Awaitable[object]]

PARTITIONS = 50
COMMIT_PARTITIONS = 10
OFFSETS_OF_GROUP = 1_000


def config(partitions: int = PARTITIONS) -> Config:
    """Return settings with so many log partitions."""
    return Config(offsets_topic_num_partitions=partitions)


@asynccontextmanager
async def replica(conninfo: str, name: str, partitions: int = PARTITIONS) -> AsyncIterator[Replica]:
    """Give a replica that serves everything."""
    core = GroupCoordinator(config=config(partitions), log_store=SlotStore())
    async with PostgresSlotLog(conninfo, name=name) as slot_log, Replica(core, slot_log, "here") as one:
        while any(core.status(index) is not PartitionStatus.ACTIVE for index in range(partitions)):
            await asyncio.sleep(0.001)
        yield one


def commit(group: str, first: int, count: int, offset: int) -> OffsetCommit:
    """Return a commit of so many partitions, from one on."""
    offsets = tuple(OffsetToCommit(first + index, offset) for index in range(count))
    return OffsetCommit(group, (TopicToCommit("t", offsets),))


async def commit_on(ask: Ask, clients: int, seconds: float) -> str:
    """Return commits a second of so many clients, each of a group of its own, and the CPU of one."""
    count = 0
    end_s = time.monotonic() + seconds

    async def work(number: int) -> None:
        nonlocal count
        while time.monotonic() < end_s:
            answer = await ask(commit(f"group-{number}", 0, COMMIT_PARTITIONS, count))
            assert answer.topics[0].partitions[0].error_code is ErrorCode.NONE  # type: ignore[attr-defined]
            count += 1

    cpu_s = time.process_time()
    await asyncio.gather(*(work(number) for number in range(clients)))
    cpu_s = time.process_time() - cpu_s
    return f"{clients} clients: {count / seconds:,.0f} commits a second, {cpu_s / count * 1e6:,.0f} µs of CPU for each"


async def fill(ask: Ask, records: int) -> None:
    """Commit so many offsets, of as many keys."""
    groups = [f"group-{number}" for number in range(records // OFFSETS_OF_GROUP)]
    for first in range(0, OFFSETS_OF_GROUP, COMMIT_PARTITIONS):
        await asyncio.gather(*(ask(commit(group, first, COMMIT_PARTITIONS, first)) for group in groups))


async def measure(server: PostgresServer, folder: Path, seconds: float, records: int) -> None:
    """Print all figures."""
    for clients in (1, 100):
        local = GroupCoordinator(
            config=config(), log_store=SegmentLogStore(folder / f"local-{clients}", flush_interval_messages=1)
        )
        async with AsyncCoordinator(local) as coordinator:
            print("local log ", await commit_on(coordinator.ask, clients, seconds))
        async with replica(server.conninfo, f"commits_{clients}") as one:
            print("PostgreSQL", await commit_on(one.ask, clients, seconds))
    store = SegmentLogStore(folder / "local")
    async with AsyncCoordinator(GroupCoordinator(config=config(1), log_store=store)) as coordinator:
        await fill(coordinator.ask, records)
    store.close()
    async with replica(server.conninfo, "filled", 1) as one:
        await fill(one.ask, records)
        print(f"filled: {one.status().partitions}")
    for _ in range(3):
        began_s, cpu_s = time.monotonic(), time.process_time()
        store = SegmentLogStore(folder / "local")
        async with AsyncCoordinator(GroupCoordinator(config=config(1), log_store=store)):
            print(f"local log : {time.monotonic() - began_s:.2f} s, {time.process_time() - cpu_s:.2f} s of CPU to load")
        store.close()
        began_s, cpu_s = time.monotonic(), time.process_time()
        async with replica(server.conninfo, "filled", 1):
            print(f"PostgreSQL: {time.monotonic() - began_s:.2f} s, {time.process_time() - cpu_s:.2f} s of CPU to load")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--records", type=int, default=1_000_000)
    options = parser.parse_args()
    server = PostgresServer(syncs=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(server, Path(folder), options.seconds, options.records))
    finally:
        server.close()


if __name__ == "__main__":
    main()
