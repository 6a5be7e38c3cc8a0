"""How long groups wait when a node of a cluster is killed, or a server of its engine.

    python -m tests.bench.take_overs {postgres,nats} [--kills 50] [--server-kills 0]

Three nodes (``groupcoord serve --cluster``), 12 log partitions, 24 groups. A kill is SIGKILL of one node, or of the
server of NATS that leads the stream of beats; a group's time ends when a commit to it is acknowledged that was asked
after the kill. All that had been acknowledged is asked for in the end. The engine writes to the disk for good.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from groupcoord.conformance.client import Client, NoResponseError
from groupcoord.conformance.sockets import FreePorts, SocketServer
from groupcoord.conformance.targets import ConnectionClosedError
from tests.cluster.nats_servers import NatsServers
from tests.host.serving import COMMAND
from tests.storage.sql.postgres_server import PostgresServer

NODES, GROUPS, PARTITIONS = 3, 24, 12
TOPIC = "measured"
ANSWER_MS, AGAIN_S, SETTLED_S, GIVE_UP_S = 1_000, 0.005, 2.0, 120.0


class Node:
    """A node that is started again after it was killed, on the same port."""

    def __init__(self, url: str, node_id: int, port: int) -> None:
        settings = ("--set", f"offsets.topic.num.partitions={PARTITIONS}", "--topic", f"{TOPIC}:1")
        self._command = [*COMMAND, "--cluster", url, "--node-id", str(node_id), "--port", str(port), *settings]
        self._port = port
        self._client: Client | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "it has ended"

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)

    def wait(self) -> None:
        if self.process is not None:
            self.process.communicate()

    def ask(self, api: str, version: int, body: dict[str, Any]) -> Any:
        try:
            self._client = self._client or Client(SocketServer("127.0.0.1", self._port), "take-overs")
            self._client.send(api, version, body)
            return self._client.receive(ANSWER_MS)
        except (ConnectionClosedError, NoResponseError):
            if self._client is not None:
                self._client.close()
            self._client = None
            return None


class Groups:
    """All groups, and what was acknowledged of each.

    Attributes:
        owners: which node has acknowledged last.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._acknowledged = dict.fromkeys((f"group-{number}" for number in range(GROUPS)), -1)
        self._offset = 0
        self.owners: dict[str, Node] = {}

    def _commit(self, node: Node, group: str) -> bool:
        self._offset += 1
        offset = {"partition_index": 0, "committed_offset": self._offset}
        partition = offset | {"committed_leader_epoch": -1, "committed_metadata": ""}
        member = {"generation_id_or_member_epoch": -1, "member_id": ""}
        body = {"group_id": group, **member, "topics": [{"name": TOPIC, "partitions": [partition]}]}
        told = node.ask("OffsetCommit", 8, body)
        if told is None or told["topics"][0]["partitions"][0]["error_code"] != "NONE":
            return False
        self._acknowledged[group] = self._offset
        self.owners[group] = node
        return True

    def until_all_are_answered(self, groups: Sequence[str] | None = None) -> Iterator[float]:
        """Yield for each group when a commit to it is acknowledged, in seconds from now."""
        began_s = time.monotonic()
        waiting = list(self._acknowledged if groups is None else groups)
        while waiting:
            assert time.monotonic() < began_s + GIVE_UP_S, f"nobody answers for {waiting}"
            for group in waiting[:]:
                if any(self._commit(node, group) for node in self._nodes):
                    waiting.remove(group)
                    yield time.monotonic() - began_s
            time.sleep(AGAIN_S)

    def lost(self) -> list[str]:
        found = []
        for group, acknowledged in self._acknowledged.items():
            offset = self._told(group)
            if offset < acknowledged:
                found.append(f"{group}: {offset} is told, {acknowledged} was acknowledged")
        return found

    def _told(self, group: str) -> int:
        body = {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [0]}], "require_stable": False}
        end_s = time.monotonic() + GIVE_UP_S
        while time.monotonic() < end_s:
            for node in self._nodes:
                told = node.ask("OffsetFetch", 7, body)
                if told is not None and told["error_code"] == "NONE" and told["topics"]:
                    return int(told["topics"][0]["partitions"][0]["committed_offset"])
            time.sleep(AGAIN_S)
        raise AssertionError(f"nobody tells of {group}")


def told(what: str, times_s: Sequence[float]) -> str:
    ordered = sorted(times_s)
    median, late = ordered[len(ordered) // 2], ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]
    return f"{what}: {len(ordered)} times, median {median:.2f} s, p99 {late:.2f} s, longest {ordered[-1]:.2f} s"


def kill_nodes(nodes: Sequence[Node], groups: Groups, kills: int) -> None:
    chance = random.Random(kills)
    each: list[float] = []
    last: list[float] = []
    for _ in range(kills):
        victim = chance.choice([node for node in nodes if node in groups.owners.values()])
        theirs = [group for group, owner in groups.owners.items() if owner is victim]
        victim.kill()
        times_s = list(groups.until_all_are_answered(theirs))
        each += times_s
        last += times_s[-1:]
        victim.wait()
        victim.start()
        until_settled(groups)
    print(told("a node is killed, its groups each", each))
    print(told("a node is killed, the last of its groups", last), flush=True)


def until_settled(groups: Groups) -> None:
    """Wait until groups stay where they are. By chance, a node may have none of them."""
    owners, since_s = dict(groups.owners), time.monotonic()
    while time.monotonic() < since_s + SETTLED_S:
        list(groups.until_all_are_answered())
        if groups.owners != owners:
            owners, since_s = dict(groups.owners), time.monotonic()
        time.sleep(10 * AGAIN_S)


def kill_servers(servers: NatsServers, groups: Groups, kills: int) -> None:
    """Kill servers that lead the stream of beats, and print how long all groups waited."""
    times_s = []
    for _ in range(kills):
        while (leader := servers.leader_of("groupcoord-beats")) is None:
            time.sleep(AGAIN_S)
        servers.end(leader)
        times_s.append(list(groups.until_all_are_answered())[-1])
        servers.start(leader)
        servers.wait_until_ready()
        time.sleep(2)  # it catches up
    print(told("the engine's leader is killed, the last group", times_s), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=("postgres", "nats"))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--server-kills", type=int, default=0)
    options = parser.parse_args()
    with ExitStack() as stack:
        servers = NatsServers(3, syncs=True) if options.engine == "nats" else PostgresServer(syncs=True)
        stack.callback(servers.close)
        if isinstance(servers, NatsServers):
            servers.start_all()
        nodes = []
        for node_id in range(NODES):
            ports = FreePorts()
            stack.callback(ports.give_back)
            nodes.append(Node(servers.url_with("none"), node_id, ports.first))
            stack.callback(nodes[-1].wait)
            stack.callback(nodes[-1].kill)
            nodes[-1].start()
        groups = Groups(nodes)
        list(groups.until_all_are_answered())
        until_settled(groups)
        kill_nodes(nodes, groups, options.kills)
        if isinstance(servers, NatsServers) and options.server_kills:
            kill_servers(servers, groups, options.server_kills)
        lost = groups.lost()
        assert not lost, lost
        print("nothing is lost")


if __name__ == "__main__":
    main()
