"""What a log that replicas share costs, beside a local one: commits, and loading a million records.

    python -m tests.bench.replicas [--seconds 5] [--records 1000000]

The server of PostgreSQL and three of NATS are on the same machine and write to the disk for good; so does the local
log. CPU is that of the process with the coordinator; memory that of the engine's processes in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from groupcoord import Config, ErrorCode, GroupCoordinator, PartitionStatus
from groupcoord.aio import AsyncCoordinator
from groupcoord.cli.replica_logs import slot_log_at
from groupcoord.cluster.replica import Replica
from groupcoord.cluster.slot_store import SlotStore
from groupcoord.messages import OffsetCommit, OffsetToCommit, TopicToCommit
from groupcoord.storage.segment_store import SegmentLogStore
from tests.cluster.nats_servers import NatsServers
from tests.storage.sql.postgres_server import PostgresServer

Ask = Callable[[OffsetCommit], Awaitable[object]]

PARTITIONS = 50
COMMIT_PARTITIONS = 10
OFFSETS_OF_GROUP = 1_000


def config(partitions: int = PARTITIONS) -> Config:
    """Return settings with so many log partitions."""
    return Config(offsets_topic_num_partitions=partitions)


@asynccontextmanager
async def replica(url: str, name: str, partitions: int = PARTITIONS) -> AsyncIterator[Replica]:
    """Give a replica that serves everything."""
    core = GroupCoordinator(config=config(partitions), log_store=SlotStore())
    async with slot_log_at(f"{url}#{name}") as slot_log, Replica(core, slot_log, "here") as one:
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


async def measure(urls: dict[str, str], folder: Path, seconds: float, records: int) -> None:
    """Print all figures."""
    for clients in (1, 100):
        local = GroupCoordinator(
            config=config(), log_store=SegmentLogStore(folder / f"local-{clients}", flush_interval_messages=1)
        )
        async with AsyncCoordinator(local) as coordinator:
            print("local log ", await commit_on(coordinator.ask, clients, seconds), flush=True)
        for engine, url in urls.items():
            async with replica(url, f"commits_{clients}") as one:
                print(f"{engine:10}", await commit_on(one.ask, clients, seconds), flush=True)
    store = SegmentLogStore(folder / "local")
    async with AsyncCoordinator(GroupCoordinator(config=config(1), log_store=store)) as coordinator:
        await fill(coordinator.ask, records)
    store.close()
    for engine, url in urls.items():
        async with replica(url, "filled", 1) as one:
            await fill(one.ask, records)
            print(f"{engine:10} filled: {one.status().partitions}", flush=True)
    for _ in range(3):
        began_s, cpu_s = time.monotonic(), time.process_time()
        store = SegmentLogStore(folder / "local")
        async with AsyncCoordinator(GroupCoordinator(config=config(1), log_store=store)):
            print_load("local log", began_s, cpu_s)
        store.close()
        for engine, url in urls.items():
            began_s, cpu_s = time.monotonic(), time.process_time()
            async with replica(url, "filled", 1):
                print_load(engine, began_s, cpu_s)


def print_load(engine: str, began_s: float, cpu_s: float) -> None:
    """Print how long a load has taken."""
    took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    print(f"{engine:10}: {took_s:.2f} s, {cpu_s:.2f} s of CPU to load", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--records", type=int, default=1_000_000)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres, nats = PostgresServer(syncs=True), NatsServers(3, syncs=True)
        stack.callback(postgres.close)
        stack.callback(nats.close)
        nats.start_all()
        urls = {"PostgreSQL": postgres.url_with("none"), "NATS, R=3": nats.url}
        asyncio.run(measure(urls, folder, options.seconds, options.records))
        print("memory of three servers of NATS: " + ", ".join(f"{mib:.0f} MiB" for mib in nats.memory_mib()))


if __name__ == "__main__":
    main()
