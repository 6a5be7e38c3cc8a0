"""Nodes of a server that start, and what becomes of the others when that fails."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from groupcoord.broker.broker import make_broker
from groupcoord.clock import SystemClock
from groupcoord.config import Config
from groupcoord.host.node_servers import NodeServers, NoSuchNodeError
from groupcoord.host.server import Server
from groupcoord.testing.server import NodesUnderTest
from tests.host.serving import in_a_loop

NODES = {1, 2, 3}


def cluster_of_three() -> NodesUnderTest:
    """Return three nodes that don't run yet."""
    topics = {"orders": 3}
    return NodesUnderTest(Config(), topics, None, SystemClock(), range(1, 4), {}, {}, None, make_broker)


def known(servers: NodeServers) -> list[set[int]]:
    """Return the running nodes: by sockets, by coordinators, and by Metadata."""
    nodes = servers.nodes
    return [set(servers.running), set(nodes.coordinators), {node.node_id for node in nodes.leadership.brokers()}]


@in_a_loop
async def test_all_crash_while_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Server.start

    async def start_later(server: Server) -> None:
        await asyncio.sleep(0)
        await start(server)

    monkeypatch.setattr(Server, "start", start_later)
    cluster = cluster_of_three()
    await cluster.start()
    servers = cluster.servers
    servers.crash(1)
    starting = asyncio.ensure_future(servers.restart(1))
    while 1 not in servers.nodes.coordinators:
        await asyncio.sleep(0)
    servers.crash()

    with pytest.raises(NoSuchNodeError, match="all nodes crashed"):
        await starting
    assert not servers.running
    await servers.start()
    assert known(servers) == [NODES] * 3
    await cluster.stop(is_final=True)


@in_a_loop
async def test_a_node_that_gets_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not run, Metadata does not list it, and it can be started again."""

    async def refuse(server: Server) -> NoReturn:
        raise OSError("no port")

    cluster = cluster_of_three()
    await cluster.start()
    servers = cluster.servers
    servers.crash(1)
    with monkeypatch.context() as context:
        context.setattr(Server, "start", refuse)
        with pytest.raises(OSError, match="no port"):
            await servers.restart(1)

    assert known(servers) == [{2, 3}] * 3
    await servers.start()
    assert known(servers) == [NODES] * 3
    await cluster.stop(is_final=True)
