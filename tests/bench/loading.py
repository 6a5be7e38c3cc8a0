"""How long it takes to load a log of a million commits, beside a real broker on the same file, and its memory.

    python -m tests.bench.loading [--commits 1000000] [--keys 10000] [--metadata 40] [--rounds 3]
                                  [--by-kafka | --no-kafka] [--beside FOLDER]
    python -m tests.bench.loading --consumer-groups 1000

The log is one partition of commits of ten partitions each, as clients write them, with metadata of so many characters
(none by default); or what so many consumer groups (KIP-848) leave into which ten members come one after the other.
With ``--beside`` another source tree loads it too, in turn. With ``--by-kafka`` the broker writes
it under many such commits at a time, of which it puts several into a batch. groupcoord loads it in a process of its
own; what a Kafka broker takes is what its log says: "Finished loading … in … milliseconds". The broker needs Java and
the jars (``KAFKA_LIBS``); it starts anew for each round, in turn with groupcoord.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from groupcoord import Config, GroupCoordinator, ManualClock
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from groupcoord.core.fast_construct import collector_paused
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.log_store import LogRecord, Ticket
from groupcoord.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse
from groupcoord.storage.stores.segments import SegmentLogStore
from tests.storage.real_broker import ANSWER_MS, ask, format_directory, java, running, wait_for_groups

COMMIT_PARTITIONS, KEYS_OF_GROUP = 10, 100
WRITERS = 64
MEMBERS_OF_GROUP, PARTITIONS_OF_GROUP = 10, 100
TOPIC_ID = UUID("9e8a4cbc-b6e6-4127-9645-17433affd7c2")
BASE_TIME_MS = 1_700_000_000_000
PORT = 29_300
LOADED = re.compile(r"Finished loading of metadata from __consumer_offsets-0 .*?in (\d+) ?m")
VERBOSE = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.coordinator=info"
MEBIBYTE = 2**20


def commits(count: int, key_count: int) -> Iterator[tuple[str, str, int]]:
    """Return group, topic and offset of each commit of ten partitions: ``count`` offsets of ``key_count`` keys."""
    for number in range(0, count, COMMIT_PARTITIONS):
        group_number, place = divmod(number % key_count, KEYS_OF_GROUP)
        yield f"group-{group_number}", f"topic-{place // COMMIT_PARTITIONS}", number


def metadata_of(number: int, length: int) -> str:
    """Return metadata of so many characters, as an application writes them: of each commit others."""
    return f"{number:0{length}}"[:length]


def write_log(
    directory: Path, count: int, key_count: int, metadata_length: int = 0, *, segment_bytes: int = 104_857_600
) -> None:
    """Append the commits to log partition 0."""
    with SegmentLogStore(directory, segment_bytes=segment_bytes) as store:
        for group_id, topic, number in commits(count, key_count):
            now_ms = BASE_TIME_MS + number // 100
            metadata = metadata_of(number, metadata_length)
            records = [
                OffsetCommitRecord(group_id, topic, index, number, 5, metadata, now_ms, topic_id=TOPIC_ID)
                for index in range(COMMIT_PARTITIONS)
            ]
            store.append(0, Ticket(0, number), [LogRecord(record, now_ms) for record in records])


def write_consumer_groups(directory: Path, group_count: int) -> None:
    """Let ten members join each of so many groups, whose log partition is 0, and live until all have their share."""
    config = Config(offsets_topic_num_partitions=1, group_consumer_assignment_interval_ms=0)
    topics = TopicRegistry()
    topics.ensure("topic-0", PARTITIONS_OF_GROUP)
    with SegmentLogStore(directory) as store:
        coordinator = GroupCoordinator(config=config, clock=ManualClock(BASE_TIME_MS), log_store=store, topics=topics)
        coordinator.load(0)
        for number in range(group_count):
            settle(coordinator, f"group-{number}")


def settle(coordinator: GroupCoordinator, group_id: str) -> None:
    """Let members join a group one after the other; then have all send heartbeats until nothing changes any more."""
    told: dict[str, ConsumerGroupHeartbeatResponse] = {}
    for number in range(MEMBERS_OF_GROUP):
        member_id = f"member-{number:029}"
        joiner = ConsumerGroupHeartbeat(
            group_id,
            member_id,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=("topic-0",),
            topic_partitions=(),
            client_id="consumer-1",
            client_host="/127.0.0.1",
        )
        told[member_id] = coordinator.call(joiner)
    while any(response.assignment is not None for response in told.values()):
        for member_id, response in told.items():
            beat = ConsumerGroupHeartbeat(
                group_id,
                member_id,
                response.member_epoch,
                topic_partitions=response.assignment,
                client_id="consumer-1",
                client_host="/127.0.0.1",
            )
            told[member_id] = coordinator.call(beat)
    assert len({response.member_epoch for response in told.values()}) == 1, told


def commit_to(client: Client, count: int, key_count: int, metadata_length: int) -> None:
    """Let a broker write the commits, many of which are on their way at a time."""
    topics = [
        {
            "name": f"topic-{number}",
            "num_partitions": COMMIT_PARTITIONS,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for number in range(KEYS_OF_GROUP // COMMIT_PARTITIONS)
    ]
    created = ask(client, "CreateTopics", 7, {"topics": topics, "timeout": 60_000})
    assert {topic["error_code"] for topic in created["topics"]} == {"NONE"}, created
    clients = [Client(SocketServer("127.0.0.1", PORT), "test") for _ in range(WRITERS)]
    for number, (group_id, topic, offset) in enumerate(commits(count, key_count)):
        writer = clients[number % WRITERS]
        if number >= WRITERS:
            check_committed(writer)
        partitions = [
            {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": 5,
                "committed_metadata": metadata_of(offset, metadata_length),
            }
            for index in range(COMMIT_PARTITIONS)
        ]
        body = {
            "group_id": group_id,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": topic, "partitions": partitions}],
        }
        writer.send("OffsetCommit", 8, body)
    for writer in clients:
        check_committed(writer)
        writer.close()


def check_committed(client: Client) -> None:
    answer: Any = client.receive(ANSWER_MS)
    errors = {partition["error_code"] for topic in answer["topics"] for partition in topic["partitions"]}
    assert errors == {"NONE"}, errors


def measure(directory: Path, *, trace: bool) -> dict[str, float]:
    """Load log partition 0 once; return milliseconds, keys and mebibytes."""
    config = Config(offsets_topic_num_partitions=1)
    with SegmentLogStore(directory) as store:
        coordinator = GroupCoordinator(config=config, log_store=store)
        gc.collect()
        before = resident_bytes()
        if trace:
            tracemalloc.start()
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        with collector_paused():  # as the server loads
            coordinator.load(0)
        taken_ms, cpu_ms = 1000 * (time.perf_counter() - begin_s), 1000 * (time.process_time() - begin_cpu_s)
        peak_bytes = largest_resident_bytes()
        gc.collect()
        traced = tracemalloc.get_traced_memory() if trace else (0, 0)
        partition = coordinator.partition(0)
        assert partition is not None
        more_bytes = resident_bytes() - before
        key_count = sum(1 for _ in partition.snapshot())
        return {
            "ms": taken_ms,
            "cpu_ms": cpu_ms,
            "keys": key_count,
            "resident": more_bytes / MEBIBYTE,
            "peak": (peak_bytes - before) / MEBIBYTE,
            "traced": traced[0] / MEBIBYTE,
            "traced_peak": traced[1] / MEBIBYTE,
        }


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def largest_resident_bytes() -> int:
    # Not ru_maxrss: a child process begins with that of its parent.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def measured(directory: Path, tree: Path | None = None, *, trace: bool = False) -> dict[str, float]:
    """Run :func:`measure` of this source tree, or another, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.loading", "--measure", str(directory), *["--trace"] * trace]
    environment = {**os.environ, "PYTHONPATH": str(tree)} if tree else None
    done = subprocess.run(command, check=True, capture_output=True, cwd=tree, env=environment)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def loaded_by_kafka(properties: Path, log: Path) -> int:
    """Start the broker and stop it again; return how many milliseconds it says that loading took."""
    log.write_bytes(b"")
    with running(java("-Xmx2g", VERBOSE, "kafka.Kafka", str(properties)), PORT, log) as client:
        wait_for_groups(client, ["group-0"])
    found = LOADED.findall(log.read_text())
    assert found, log.read_text()[-3000:]
    return int(found[-1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.loading", description=__doc__)
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--metadata", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another source tree")
    parser.add_argument("--consumer-groups", type=int, metavar="COUNT", help="so many of these instead of commits")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--by-kafka", action="store_true")
    who.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--trace", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure, trace=options.trace)))
        return
    with tempfile.TemporaryDirectory(prefix="groupcoord-loading-") as name:
        directory, properties, log = Path(name, "data"), Path(name, "server.properties"), Path(name, "broker.log")
        if not options.no_kafka:
            format_directory(directory, properties, PORT, 1)
            with running(java("kafka.Kafka", str(properties)), PORT, log) as client:
                wait_for_groups(client, ["group-0"])
                if options.by_kafka:
                    commit_to(client, options.commits, options.keys, options.metadata)
        if options.consumer_groups is not None:
            write_consumer_groups(directory, options.consumer_groups)
            print(f"{options.consumer_groups:,} consumer groups of {MEMBERS_OF_GROUP} members")
        else:
            if not options.by_kafka:
                write_log(directory, options.commits, options.keys, options.metadata)
            print(f"{options.commits:,} commits of {options.keys:,} keys")
        for _ in range(options.rounds):
            ours = measured(directory)
            line = (
                f"groupcoord {ours['ms']:,.0f} ms ({ours['cpu_ms']:,.0f} of CPU), {ours['resident']:.0f} MiB more, "
                f"{ours['peak']:.0f} at the peak"
            )
            if options.beside is not None:
                other = measured(directory, options.beside)
                line += f"; beside {other['cpu_ms']:,.0f} of CPU, {other['resident']:.0f} MiB"
                line += f": {ours['cpu_ms'] / other['cpu_ms']:.2f}"
            print(line if options.no_kafka else f"{line}; Kafka {loaded_by_kafka(properties, log):,} ms", flush=True)
        traced = measured(directory, trace=True)
        print(
            f"{traced['keys']:,.0f} keys in {traced['traced']:.1f} MiB of objects, {traced['traced_peak']:.1f} at peak"
        )


if __name__ == "__main__":
    main()
