"""``python -m tests.bench.workers``: what a request costs with one process, and with workers; and how many they answer.

Generators are processes with a thread each and many connections; they look for the coordinator of each group as
clients do. ``--in-flight`` says how many requests are on their way on each connection, 1 by default: with more of
them generators cost little, as there are many in each read and write. What a request costs is CPU time of the
server's processes, which does not hang on who else is busy; how many are answered in a second does, so look at that
where cores are idle, and give the generators cores of their own: ``--generators-on 2,3``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import selectors
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from groupcoord.core.java.hashing import partition_for
from tests.broker.kafka_bytes import array, frame, string
from tests.host.serving import serve
from tests.host.workers import Workers

GROUPS = 64
PARTITIONS = 10
TICKS_S = 1 / os.sysconf("SC_CLK_TCK")


def commit(group_id: str) -> bytes:
    partitions = [index.to_bytes(4, "big") + (1 << 20).to_bytes(8, "big") + string("") for index in range(PARTITIONS)]
    head = string(group_id) + b"\xff\xff\xff\xff" + string("") + b"\xff" * 8
    return frame(8, 2, 1, head + array([string("orders") + array(partitions)]))


def heartbeat(group_id: str) -> bytes:
    return frame(12, 0, 1, string(group_id) + b"\0\0\0\1" + string("nobody"))


REQUESTS = {"commit of 10": commit, "heartbeat": heartbeat}


class Load(NamedTuple):
    """What generators do.

    Attributes:
        seconds: for how long.
        generators: how many there are.
        in_flight: how many requests are on their way on each connection.
    """

    seconds: float
    generators: int
    in_flight: int


class Stream:
    """The answers to one request that is sent over and over again on a connection; all are of one size."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self._answer_bytes = 0
        self._bytes = 0

    def take(self, answers: bytes) -> int:
        """Take what came, and return how many answers it completes."""
        self._answer_bytes = self._answer_bytes or 4 + int.from_bytes(answers[:4], "big")
        count, self._bytes = divmod(self._bytes + len(answers), self._answer_bytes)
        return count


def generate(port: int, workers: int, kind: str, groups: list[str], load: Load, cores: list[int]) -> int:
    """Send requests of groups to the workers that coordinate them; return how many were answered."""
    if cores:
        os.sched_setaffinity(0, cores)
    selector = selectors.DefaultSelector()
    for group_id in groups:
        sock = socket.create_connection(("127.0.0.1", port + partition_for(group_id, 50) % workers))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = Stream(REQUESTS[kind](group_id))
        selector.register(sock, selectors.EVENT_READ, stream)
        sock.sendall(stream.request * load.in_flight)
    count, end_s = 0, time.monotonic() + load.seconds
    while time.monotonic() < end_s:
        for key, _ in selector.select(0.1):
            sock = key.fileobj  # type: ignore[assignment]
            answered = key.data.take(sock.recv(65536))
            count += answered
            sock.sendall(key.data.request * answered)
    return count


class Run(NamedTuple):
    """What one run came to."""

    cpu_us: float
    per_second: float


def run(workers: int, kind: str, load: Load, cores: dict[str, list[int]]) -> Run:
    """Measure one kind of request with so many workers."""
    with tempfile.TemporaryDirectory() as folder:
        port = 20_000 + os.getpid() % 10_000
        arguments = ("--data-dir", folder, "--workers", str(workers), "--topic", f"orders:{PARTITIONS}")
        with serve(*arguments, "--port", str(port)) as serving:
            pids = [serving.process.pid] if workers == 1 else Workers(serving, workers).pids()
            for pid in pids:
                if cores["servers"]:
                    os.sched_setaffinity(pid, cores["servers"])
            before_s = sum(map(cpu_s, pids))
            groups = [f"group{number}" for number in range(GROUPS)]
            parts = [groups[first :: load.generators] for first in range(load.generators)]
            with multiprocessing.Pool(load.generators) as pool:
                jobs = [(port, workers, kind, part, load, cores["generators"]) for part in parts]
                count = sum(pool.starmap(generate, jobs))
            return Run((sum(map(cpu_s, pids)) - before_s) / count * 1e6, count / load.seconds)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICKS_S


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.workers", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--generators", type=int, default=2)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--generators-on", default="", help="cores, with commas between them")
    parser.add_argument("--servers-on", default="", help="cores, with commas between them")
    options = parser.parse_args()
    cores = {
        "generators": [int(core) for core in options.generators_on.split(",") if core],
        "servers": [int(core) for core in options.servers_on.split(",") if core],
    }
    load = Load(options.seconds, options.generators, options.in_flight)
    for kind in REQUESTS:
        runs: dict[int, list[Run]] = {1: [], options.workers: []}
        for _ in range(options.rounds):
            for workers, found in runs.items():
                found.append(run(workers, kind, load, cores))
        one, many = (runs[workers] for workers in runs)
        cost = statistics.median(a.cpu_us / b.cpu_us for a, b in zip(many, one, strict=True))
        rate = statistics.median(a.per_second / b.per_second for a, b in zip(many, one, strict=True))
        costs = [statistics.median(each.cpu_us for each in found) for found in (one, many)]
        rates = [statistics.median(each.per_second for each in found) for found in (one, many)]
        print(
            f"{kind}: {costs[0]:.1f} µs with one process, {costs[1]:.1f} with {options.workers} workers ({cost:.2f}); "
            f"{rates[0]:.0f} a second, {rates[1]:.0f} ({rate:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
