"""The processes that things happen to: replicas, clients, and a database, with ways between them that can be cut."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from attrs import define, field

from tests.cluster.black_hole import BlackHole
from tests.storage.sql.postgres_server import PostgresServer

from .journals import Line, Reader

EXAMPLE = Path(__file__).parents[3] / "examples" / "three_replicas.py"


@define(eq=False)
class Program:
    """A process that is started again after it has ended.

    Attributes:
        command: starts it.
        name: for what is told.
        log: what it says.
        lock: is held by what happens to it: one thing at a time.
    """

    command: list[str]
    name: str
    log: Path
    lock: asyncio.Lock = field(factory=asyncio.Lock)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stderr=log)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None, "it was started"
        self._process.send_signal(number)

    async def end(self, number: signal.Signals) -> None:
        """End it with a signal, and wait until it has."""
        self.send(number)
        assert self._process is not None, "it was started"
        await asyncio.to_thread(self._process.wait)

    def is_alive(self) -> bool:
        """Tell whether it runs, or is stopped."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """Kill it if it is there."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@define(eq=False)
class Replica(Program):
    """One of the three.

    Attributes:
        to_database: its way to the database.
        from_clients: the ways of clients to it, by client.
    """

    port: int = 0
    to_database: BlackHole = field(kw_only=True)
    from_clients: list[BlackHole] = field(factory=list)


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
    """Cuts ways, each as long as anybody wants it cut."""

    def __init__(self) -> None:
        self._wanted: Counter[BlackHole] = Counter()

    def cut(self, ways: Iterable[BlackHole]) -> None:
        """Let nothing get through."""
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

    server: PostgresServer
    replicas: list[Replica]
    clients: list[Clients]
    cutter: Cutter = field(factory=Cutter)
    database_lock: asyncio.Lock = field(factory=asyncio.Lock)


@asynccontextmanager
async def fleet(
    server: PostgresServer, ports: list[int], libraries: Iterable[str], groups: int, folder: Path
) -> AsyncIterator[Fleet]:
    """Start replicas at these ports, and a process of clients for each library, with so many groups each."""
    async with AsyncExitStack() as stack:
        replicas, clients = [], []
        for port in ports:
            way = await stack.enter_async_context(BlackHole(server.port))
            command = [sys.executable, str(EXAMPLE), server.conninfo_by(way.port), str(port)]
            replicas.append(Replica(command, f"replica at {port}", folder / f"{port}.log", port=port, to_database=way))
        for library in libraries:
            ways = [await stack.enter_async_context(BlackHole(port)) for port in ports]
            for replica, way in zip(replicas, ways, strict=True):
                replica.from_clients.append(way)
            names = [f"{library}-{number}" for number in range(groups)]
            path = folder / f"{library}.journal"
            command = [sys.executable, "-m", "tests.cluster.chaos.client", library, str(path), ",".join(names)]
            command.append(",".join(f"{port}={way.port}" for port, way in zip(ports, ways, strict=True)))
            log = folder / f"{library}.log"
            clients.append(
                Clients(command, f"clients with {library}", log, groups=names, ways=ways, reader=Reader(path))
            )
        programs: list[Program] = [*replicas, *clients]
        try:
            for program in programs:
                program.start()
            yield Fleet(server, replicas, clients)
        finally:
            for program in programs:
                program.close()
