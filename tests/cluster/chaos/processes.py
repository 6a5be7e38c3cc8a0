"""The processes that things happen to: nodes, clients, and an engine's servers, with ways between that can be cut."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

from attrs import define, field

from groupcoord.conformance.sockets import FreePorts
from tests.cluster.black_hole import BlackHole

from .journals import Line, Reader

NODES = 3


@define(eq=False)
class Program:
    """Process that is restarted after its end. Attributes: command: starts it. name: its name in messages. log: its
    output. lock: held by each fault: one at a time.
    """

    command: list[str]
    name: str
    log: Path
    lock: asyncio.Lock = field(factory=asyncio.Lock)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stderr=log)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None, "it was started"
        self._process.send_signal(number)

    async def end(self, number: signal.Signals) -> None:
        """End it with a signal, and wait until it has."""
        self.send(number)
        assert self._process is not None, "it was started"
        await asyncio.to_thread(self._process.wait)

    def is_alive(self) -> bool:
        """Return whether it runs, or is suspended."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """Kill it if it is there."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@define(eq=False)
class Server:
    """One of an engine's.

    Attributes:
        kill, start: do that, and return when it is done.
        send: sends its processes a signal.
        ways: to it, of nodes and of its fellows.
        fellows: those between it and its fellows, in both directions.
        lock: is held by what happens to it.
    """

    kill: Callable[[], None]
    start: Callable[[], None]
    send: Callable[[signal.Signals], None]
    ways: list[BlackHole] = field(factory=list)
    fellows: list[BlackHole] = field(factory=list)
    lock: asyncio.Lock = field(factory=asyncio.Lock)


class Setting(Protocol):
    """An engine, and what shares a log in it.

    Attributes:
        servers: the engine's.
        libraries: those of clients, for each of which there is a process.
        groups_each: how many groups each of these works on.
    """

    servers: list[Server]
    libraries: Sequence[str]
    groups_each: int

    async def open(self, stack: AsyncExitStack) -> None:
        """Start the engine, until the stack is closed, with a way of each node to each of its servers."""

    def to_engine(self, node: int) -> list[BlackHole]:
        """Return the ways of a node to the engine's servers."""

    def ports(self, reserved: FreePorts) -> list[int]:
        """Return a node's port for each library."""

    def command(self, node: int, ports: Sequence[int], told: Mapping[str, int]) -> list[str]:
        """Return the command of a node; its advertised port, if any, is the way of each library's clients."""


@define(eq=False)
class Node(Program):
    """One of those that share the log.

    Attributes:
        to_engine: its ways to the engine's servers.
        ports: where it listens, by library.
        from_clients: the ways of clients to it, by library.
    """

    to_engine: list[BlackHole] = field(kw_only=True)
    ports: dict[str, int] = field(kw_only=True)
    from_clients: dict[str, BlackHole] = field(kw_only=True)

    def way(self, library: str) -> tuple[int, int]:
        """Return the port that it has for clients, and the one by which they get there."""
        return self.ports[library], self.from_clients[library].port


@define(eq=False)
class Clients(Program):
    """A process of clients.

    Attributes:
        groups: what it works on.
        ways: to each replica.
    """

    groups: list[str] = field(factory=list)
    ways: list[BlackHole] = field(factory=list)
    reader: Reader = field(kw_only=True)

    def news(self) -> Iterable[Line]:
        """Return what it has written down since the last time."""
        return self.reader.new_lines()


class Cutter:
    """Cuts network ways, each as long as any fault needs it."""

    def __init__(self) -> None:
        self._wanted: Counter[BlackHole] = Counter()

    def cut(self, ways: Iterable[BlackHole]) -> None:
        """Drop all traffic."""
        for way in ways:
            self._wanted[way] += 1
            way.swallows = True

    def mend(self, ways: Iterable[BlackHole]) -> None:
        """Take that back."""
        for way in ways:
            self._wanted[way] -= 1
            way.swallows = self._wanted[way] > 0


@define
class Fleet:
    """All that is there."""

    servers: list[Server]
    nodes: list[Node]
    clients: list[Clients]
    cutter: Cutter = field(factory=Cutter)


@asynccontextmanager
async def fleet(setting: Setting, folder: Path) -> AsyncIterator[Fleet]:
    """Start an engine, nodes, and a process of clients for each library."""
    async with AsyncExitStack() as stack:
        await setting.open(stack)
        nodes = []
        for number in range(NODES):
            reserved = FreePorts()
            stack.callback(reserved.give_back)
            ports = setting.ports(reserved)
            from_clients = {
                library: await stack.enter_async_context(BlackHole(port))
                for library, port in zip(setting.libraries, ports, strict=True)
            }
            told = {library: way.port for library, way in from_clients.items()}
            command, log = setting.command(number, ports, told), folder / f"node-{number}.log"
            to_engine = setting.to_engine(number)
            own = dict(zip(setting.libraries, ports, strict=True))
            name = f"node {number}"
            nodes.append(Node(command, name, log, to_engine=to_engine, ports=own, from_clients=from_clients))
        clients = []
        for library in setting.libraries:
            ways = [node.from_clients[library] for node in nodes]
            names = [f"{library}-{number}" for number in range(setting.groups_each)]
            path = folder / f"{library}.journal"
            command = [sys.executable, "-m", "tests.cluster.chaos.client", library, str(path), ",".join(names)]
            command.append(",".join("{}={}".format(*node.way(library)) for node in nodes))
            log = folder / f"{library}.log"
            clients.append(
                Clients(command, f"clients with {library}", log, groups=names, ways=ways, reader=Reader(path))
            )
        programs: list[Program] = [*nodes, *clients]
        try:
            for program in programs:
                program.start()
            yield Fleet(setting.servers, nodes, clients)
        finally:
            for program in programs:
                program.close()
