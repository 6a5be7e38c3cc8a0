"""How long it takes to load a log of a million commits, beside a real broker on the same file, and its memory.

    python -m tests.bench.loading [--commits 1000000] [--keys 10000] [--rounds 3] [--no-kafka] [--beside FOLDER]

The log is one partition of commits of ten partitions each, as clients write them. groupcoord loads it in a separate
process; with ``--beside`` another source tree loads it too, in turn. The time of a Kafka broker is that in its log:
"Finished loading … in … milliseconds". The broker needs Java and the jars (``KAFKA_LIBS``); it starts again for each
round, in turn with groupcoord.
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
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from groupcoord import Config, GroupCoordinator
from groupcoord.core.fast_construct import collector_paused
from groupcoord.core.log.records import OffsetCommitRecord
from groupcoord.log_store import LogRecord, Ticket
from groupcoord.storage.stores.segments import SegmentLogStore
from tests.storage.real_broker import format_directory, java, running, wait_for_groups

COMMIT_PARTITIONS, KEYS_OF_GROUP = 10, 100
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


def write_log(directory: Path, count: int, key_count: int) -> None:
    """Append the commits to log partition 0."""
    with SegmentLogStore(directory) as store:
        for group_id, topic, number in commits(count, key_count):
            now_ms = BASE_TIME_MS + number // 100
            records = [
                OffsetCommitRecord(group_id, topic, index, number, 5, "", now_ms, topic_id=TOPIC_ID)
                for index in range(COMMIT_PARTITIONS)
            ]
            store.append(0, Ticket(0, number), [LogRecord(record, now_ms) for record in records])


def measure(directory: Path) -> dict[str, float]:
    """Load log partition 0 once; return milliseconds and mebibytes."""
    config = Config(offsets_topic_num_partitions=1)
    with SegmentLogStore(directory) as store:
        coordinator = GroupCoordinator(config=config, log_store=store)
        gc.collect()
        before = resident_bytes()
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        with collector_paused():  # as the server loads
            coordinator.load(0)
        taken_ms, cpu_ms = 1000 * (time.perf_counter() - begin_s), 1000 * (time.process_time() - begin_cpu_s)
        peak_bytes = largest_resident_bytes()
        gc.collect()
        more_bytes = resident_bytes() - before
        return {
            "ms": taken_ms,
            "cpu_ms": cpu_ms,
            "resident": more_bytes / MEBIBYTE,
            "peak": (peak_bytes - before) / MEBIBYTE,
        }


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def largest_resident_bytes() -> int:
    # Not ru_maxrss: a child process begins with that of its parent.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def measured(directory: Path, tree: Path | None = None) -> dict[str, float]:
    """Run :func:`measure` of this source tree, or another, in a new process."""
    command = [sys.executable, "-m", "tests.bench.loading", "--measure", str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(tree)} if tree else None
    done = subprocess.run(command, check=True, capture_output=True, cwd=tree, env=environment)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def loaded_by_kafka(properties: Path, log: Path) -> int:
    """Start and stop the broker; return the load time that it logs, in milliseconds."""
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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another source tree")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure)))
        return
    with tempfile.TemporaryDirectory(prefix="groupcoord-loading-") as name:
        directory, properties, log = Path(name, "data"), Path(name, "server.properties"), Path(name, "broker.log")
        if not options.no_kafka:
            format_directory(directory, properties, PORT, 1)
            with running(java("kafka.Kafka", str(properties)), PORT, log) as client:
                wait_for_groups(client, ["group-0"])
        write_log(directory, options.commits, options.keys)
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


if __name__ == "__main__":
    main()
