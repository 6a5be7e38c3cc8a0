"""Requests a second, and CPU for each, of one node and of two of ``serve --cluster postgresql://…``.

    python -m tests.bench.nodes [--rounds 3] [--seconds 5] [--groups 200] [--generators 1] [--in-flight 20]

Beside them a server with ``--data-dir`` is measured. All run at once, and are asked one after the other. Each group has
a member and a connection of its own to the node that coordinates it; ``--in-flight`` requests are on their way on each
connection, so that a generator needs little CPU. PostgreSQL writes to the disk for good. CPU is that of the processes
of the nodes, and of PostgreSQL; it does not depend much on what else runs on the machine. How many requests are
answered in a second does: measure that on a machine without other work.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import selectors
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from tests.bench.broker_requests import TOPIC, Member, frames
from tests.host.serving import COMMAND
from tests.ports import free_port
from tests.processes import wait_until
from tests.storage.sql.postgres_server import PostgresServer

KINDS = ("heartbeat", "commit of 10")
SETTINGS = ("--topic", f"{TOPIC}:100", "--set", "group.initial.rebalance.delay.ms=0")
SESSION_MS, START_S = 1_800_000, 60.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Load(NamedTuple):
    """What generators do.

    Attributes:
        seconds: for how long.
        generators: how many processes there are.
        in_flight: how many requests are on their way on each connection.
    """

    seconds: float
    generators: int
    in_flight: int


class Run(NamedTuple):
    """What one run came to: CPU of the nodes and of PostgreSQL for each request, and requests a second."""

    nodes_us: float
    engine_us: float
    per_second: float


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_S


class Nodes:
    """Servers in processes of their own, with a member in each of some groups.

    Args:
        stack: ends them.
        options: of each server, besides its port.
        groups: the groups.
    """

    def __init__(self, stack: ExitStack, options: Sequence[Sequence[str]], groups: Sequence[str]) -> None:
        self.ports: list[int] = []
        self.pids: list[int] = []
        for own in options:
            port = free_port()
            command = [*COMMAND, "--port", str(port), *SETTINGS, *own]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline(), "a server does not start"
            self.ports.append(port)
            self.pids.append(process.pid)
        self._groups = groups
        wait_until(self._are_shared, START_S, "each node coordinates groups")
        self.members = self._join()

    def _coordinators(self) -> dict[str, int]:
        """Return the port of the node that coordinates each group; 0 while none does."""
        client = Client(SocketServer("127.0.0.1", self.ports[0]), "bench")
        client.send("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": list(self._groups)})
        answer: Any = client.receive(10_000)
        client.close()
        return {found["key"]: max(found["port"], 0) for found in answer["coordinators"]}

    def _are_shared(self) -> bool:
        found = list(self._coordinators().values())
        least = len(self._groups) // len(self.ports) // 2
        return all(found) and all(found.count(port) >= least for port in self.ports)

    def _join(self) -> dict[int, list[Member]]:
        """Return the members by the port of the node that coordinates their groups."""
        members: dict[int, list[Member]] = {port: [] for port in self.ports}
        clients = {port: Client(SocketServer("127.0.0.1", port), "bench") for port in self.ports}
        for group_id, port in self._coordinators().items():
            client, body = clients[port], {"group_id": group_id, "member_id": ""}
            protocols = [{"name": "range", "metadata": {"hex": ""}}]
            timeouts = {"session_timeout": SESSION_MS, "rebalance_timeout": SESSION_MS}
            client.send("JoinGroup", 2, {**body, **timeouts, "protocol_type": "consumer", "protocols": protocols})
            joined: Any = client.receive(10_000)
            assert joined["error_code"] == "NONE", joined
            member_id, generation_id = joined["member_id"], joined["generation_id"]
            body |= {"member_id": member_id, "generation_id": generation_id, "assignments": []}
            client.send("SyncGroup", 1, body)
            synced: Any = client.receive(10_000)
            assert synced["error_code"] == "NONE", synced
            members[port].append((group_id, member_id, generation_id))
        for client in clients.values():
            client.close()
        return members


class Stream:
    """The answers to a request that is sent over and over again on a connection; all are of one size."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self._answer_bytes = self._bytes = 0

    def take(self, answers: bytes) -> int:
        self._answer_bytes = self._answer_bytes or 4 + int.from_bytes(answers[:4], "big")
        count, self._bytes = divmod(self._bytes + len(answers), self._answer_bytes)
        return count


def generate(requests: Sequence[tuple[int, bytes]], load: Load, cores: list[int]) -> int:
    """Send requests, each on a connection of its own to a port; return how many were answered."""
    if cores:
        os.sched_setaffinity(0, cores)
    selector = selectors.DefaultSelector()
    for port, request in requests:
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, selectors.EVENT_READ, Stream(request))
        sock.sendall(request * load.in_flight)
    count, end_s = 0, time.monotonic() + load.seconds
    while time.monotonic() < end_s:
        for key, _ in selector.select(0.1):
            sock = key.fileobj  # type: ignore[assignment]
            answered = key.data.take(sock.recv(65536))
            count += answered
            sock.sendall(key.data.request * answered)
    return count


def run(nodes: Nodes, engine: PostgresServer, kind: str, load: Load, cores: dict[str, list[int]]) -> Run:
    requests = [(port, frame) for port, own in nodes.members.items() for frame in frames(kind, "", own)]
    before = sum(map(cpu_s, nodes.pids)), sum(map(cpu_s, engine.pids()))
    parts = [requests[first :: load.generators] for first in range(load.generators)]
    with multiprocessing.Pool(load.generators) as pool:
        count = sum(pool.starmap(generate, [(part, load, cores["generators"]) for part in parts]))
    after = sum(map(cpu_s, nodes.pids)), sum(map(cpu_s, engine.pids()))
    nodes_us, engine_us = ((b - a) / count * 1e6 for a, b in zip(before, after, strict=True))
    return Run(nodes_us, engine_us, count / load.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.nodes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--generators", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=20)
    parser.add_argument("--generators-on", default="", help="cores, with commas between them")
    parser.add_argument("--servers-on", default="", help="cores of nodes and of PostgreSQL")
    options = parser.parse_args()
    cores = {
        name: [int(core) for core in text.split(",") if core]
        for name, text in (("generators", options.generators_on), ("servers", options.servers_on))
    }
    load = Load(options.seconds, options.generators, options.in_flight)
    groups = [f"group{number}" for number in range(options.groups)]
    with ExitStack() as stack:
        if cores["servers"]:
            os.sched_setaffinity(0, cores["servers"])
        engine = PostgresServer(syncs=True)
        stack.callback(engine.close)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = engine.url_with("none")
        cluster = [["--cluster", f"{url}#two", "--node-id", str(number)] for number in (1, 2)]
        targets = {
            "one server, --data-dir": Nodes(stack, [["--data-dir", folder]], groups),
            "one node, PostgreSQL": Nodes(stack, [["--cluster", f"{url}#one", "--node-id", "1"]], groups),
            "two nodes, PostgreSQL": Nodes(stack, cluster, groups),
        }
        for kind in KINDS:
            found: dict[str, list[Run]] = {name: [] for name in targets}
            for _ in range(options.rounds):
                for name, nodes in targets.items():
                    found[name].append(run(nodes, engine, kind, load, cores))
            for name, runs in found.items():
                nodes_us, engine_us, per_second = map(statistics.median, zip(*runs, strict=True))
                costs = f"{nodes_us:8.1f} µs, PostgreSQL {engine_us:6.1f} µs"
                print(f"{kind:14}{name:24}{costs}, {per_second:9,.0f} a second", flush=True)


if __name__ == "__main__":
    main()
