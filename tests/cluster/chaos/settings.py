"""Settings of chaos runs: replicas of a service over PostgreSQL, or servers for Kafka clients over either engine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from groupcoord.conformance.sockets import FreePorts
from tests.cluster.black_hole import BlackHole
from tests.cluster.nats_servers import NatsServers
from tests.storage.sql.postgres_server import PostgresServer

from .http_libraries import HTTP_LIBRARIES
from .journals import SHARDS
from .kafka_libraries import KAFKA_LIBRARIES, TOPIC
from .processes import NODES, Server

EXAMPLE = Path(__file__).parents[3] / "examples" / "three_replicas.py"
PARTITIONS = 12


class ServiceOverPostgres:
    """Replicas of the service in examples/, and clients of it.

    Args:
        server: the database.
    """

    libraries: Sequence[str] = tuple(HTTP_LIBRARIES)
    groups_each = 12

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._ways: list[BlackHole] = []
        self.servers: list[Server] = []

    async def open(self, stack: AsyncExitStack) -> None:
        server = self._server
        self._ways = [await stack.enter_async_context(BlackHole(server.port)) for _ in range(NODES)]
        self.servers = [Server(server.kill, server.start, server.send, self._ways)]

    def to_engine(self, node: int) -> list[BlackHole]:
        return [self._ways[node]]

    def ports(self, reserved: FreePorts) -> list[int]:
        """The same port for all clients."""
        return [reserved.first] * len(self.libraries)

    def command(self, node: int, ports: Sequence[int], told: Mapping[str, int]) -> list[str]:
        """Redirects name the port, and clients know the way to it."""
        return [sys.executable, str(EXAMPLE), self._server.conninfo_by(self._ways[node].port), str(ports[0])]


class _Nodes:
    """``groupcoord serve --cluster``: each library has a listener, with the way's address as advertised one."""

    libraries: Sequence[str] = tuple(KAFKA_LIBRARIES)
    groups_each = 8

    def ports(self, reserved: FreePorts) -> list[int]:
        return [reserved.first, reserved.first + 1]

    def command_at(self, url: str, node: int, ports: Sequence[int], told: Mapping[str, int]) -> list[str]:
        """Return what runs a node over the engine at a URL."""
        names = [f"L{number}" for number in range(len(ports))]
        settings = {
            "offsets.topic.num.partitions": str(PARTITIONS),
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)),
            "advertised.listeners": ",".join(
                f"{name}://127.0.0.1:{port}" for name, port in zip(names, told.values(), strict=True)
            ),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        }
        said = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        program = [sys.executable, "-c", "from groupcoord.cli import main; main()", "serve"]
        return [*program, "--cluster", url, "--node-id", str(node + 1), "--topic", f"{TOPIC}:{SHARDS}", *said]


class NodesOverPostgres(_Nodes, ServiceOverPostgres):
    """Servers over PostgreSQL, and clients for Kafka."""

    def command(self, node: int, ports: Sequence[int], told: Mapping[str, int]) -> list[str]:
        url = f"postgresql://postgres@127.0.0.1:{self._ways[node].port}/postgres#chaos"
        return self.command_at(url, node, ports, told)


class NodesOverNats(_Nodes):
    """Servers over three servers of NATS that replicate, and clients for Kafka."""

    def __init__(self) -> None:
        self._between: dict[tuple[int, int], BlackHole] = {}
        self._nats = NatsServers(3, route_port=lambda one, other: self._between[one, other].port)
        self._ways: list[list[BlackHole]] = []
        self.servers: list[Server] = []

    async def open(self, stack: AsyncExitStack) -> None:
        nats, numbers = self._nats, range(len(self._nats))
        stack.callback(nats.close)
        for one in numbers:
            for other in numbers:
                if other != one:
                    way = await stack.enter_async_context(BlackHole(nats.route_ports[other]))
                    self._between[one, other] = way
        for _ in range(NODES):
            self._ways.append([await stack.enter_async_context(BlackHole(port)) for port in nats.ports])
        for number in numbers:
            fellows = [way for pair, way in self._between.items() if number in pair]
            of_nodes = [ways[number] for ways in self._ways]
            acts = partial(nats.end, number), partial(nats.start, number), partial(nats.send, number)
            self.servers.append(Server(*acts, [*of_nodes, *fellows], fellows))
        await asyncio.to_thread(nats.start_all)

    def to_engine(self, node: int) -> list[BlackHole]:
        return self._ways[node]

    def command(self, node: int, ports: Sequence[int], told: Mapping[str, int]) -> list[str]:
        url = self._nats.url_by([way.port for way in self._ways[node]])
        return self.command_at(f"{url}#chaos", node, ports, told)


SETTINGS_OVER_POSTGRES = {"service-over-postgres": ServiceOverPostgres, "nodes-over-postgres": NodesOverPostgres}
