"""How long requests wait while a large log partition is compacted beside them.

    python -m tests.bench.compaction [--commits 1000000] [--keys 10000]

A server of its own process has a log of a million commits; a member of a group sends one heartbeat after the other.
What is printed is how long they took, first while nothing is compacted, then while it is; and then, in this process,
how long the portions of a compaction take, in time of the processor.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import tempfile
import time
from pathlib import Path

from groupcoord.storage.compaction import CompactionSettings
from groupcoord.storage.segment_store import SegmentLogStore
from tests.bench.loading import BASE_TIME_MS, write_log
from tests.crash.harness import ask
from tests.crash.processes import Launcher
from tests.crash.requests import heartbeat, join_group, sync_group

SEGMENT_BYTES = 10_485_760
QUIET_S, WAIT_S = 3.0, 600.0


def log_sizes(directory: Path) -> int:
    """Return how many bytes there are in the segments."""
    return sum(path.stat().st_size for path in directory.glob("__consumer_offsets-0/*.log"))


def join(sock: socket.socket, group_id: str) -> tuple[str, int]:
    """Join alone; return the member id and the generation."""
    member_id = ""
    while True:
        answer = ask(sock, join_group(1, group_id, member_id))
        answer.int32()
        error, generation_id = answer.int16(), answer.int32()
        answer.string(), answer.string()
        member_id = answer.string()
        if not error:
            ask(sock, sync_group(2, group_id, generation_id, member_id, {member_id: b""}))
            return member_id, generation_id


def heartbeats(port: int, directory: Path, duration_s: float, until_bytes: int = 0) -> list[float]:
    """Send heartbeats for so long, or until the log is as small as that; return what each took, in milliseconds."""
    taken: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        group_id = f"bench-{until_bytes}"
        member_id, generation_id = join(sock, group_id)
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s and (len(taken) % 100 or log_sizes(directory) > until_bytes):
            begin_s = time.perf_counter()
            ask(sock, heartbeat(1, group_id, generation_id, member_id))
            taken.append(1000 * (time.perf_counter() - begin_s))
    return taken


def shown(name: str, taken: list[float]) -> str:
    """Return a line about how long something took."""
    ordered = sorted(taken)
    parts = [f"{label} {ordered[int(part * (len(ordered) - 1))]:.2f}" for label, part in POINTS]
    return f"{name}: {len(taken):,}, ms: " + ", ".join(parts)


POINTS = (("median", 0.5), ("99 %", 0.99), ("99.9 %", 0.999), ("worst", 1.0))


def serve(launcher: Launcher, directory: Path, *, compacts: bool) -> list[float]:
    """Run a server on the directory and measure heartbeats."""
    settings = ["offsets.topic.num.partitions=1", f"offsets.topic.segment.bytes={SEGMENT_BYTES}"]
    settings += ["group.initial.rebalance.delay.ms=0", "log.cleaner.backoff.ms=1000"]
    settings += [f"log.cleaner.min.cleanable.ratio={0.1 if compacts else 1}"]
    arguments = ["serve", "--port", "0", "--data-dir", str(directory)]
    running = launcher.start([*arguments, *(word for text in settings for word in ("--set", text))], from_scratch=True)
    try:
        port = running.wait_for_port()
        if compacts:
            return heartbeats(port, directory, WAIT_S, 2 * SEGMENT_BYTES)
        return heartbeats(port, directory, QUIET_S)
    finally:
        running.kill()


def portions(directory: Path) -> list[float]:
    """Compact the log here; return what each portion took."""
    taken: list[float] = []
    settings = CompactionSettings(min_cleanable_ratio=0.1)
    with SegmentLogStore(directory, segment_bytes=SEGMENT_BYTES, compaction=settings) as store:
        store.end_offset(0)
        more = True
        while more:
            begin_s = time.thread_time()
            more = store.compact_some(BASE_TIME_MS)
            taken.append(1000 * (time.thread_time() - begin_s))
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.compaction", description=__doc__)
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="groupcoord-compaction-") as name:
        folder = Path(name)
        directory, copy = folder / "data", folder / "copy"
        write_log(directory, options.commits, options.keys, segment_bytes=SEGMENT_BYTES)
        shutil.copytree(directory, copy)
        before = log_sizes(directory)
        launcher = Launcher(folder)
        try:
            print(shown("heartbeats, quiet", serve(launcher, directory, compacts=False)), flush=True)
            print(shown("heartbeats, while it compacts", serve(launcher, directory, compacts=True)), flush=True)
        finally:
            launcher.close()
        print(f"{before:,} bytes became {log_sizes(directory):,}")
        print(shown("portions, of CPU", portions(copy)))


if __name__ == "__main__":
    main()
