"""The example of three replicas as processes that are killed and stopped, as their database is, under commits.

Clients write down what they hear.

    python -m tests.cluster.chaos FAULTS [SEED]

prints how long groups were without an answer, by kind of fault, and ends with an error if one lost something.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from attrs import define, field

from groupcoord.conformance.free_ports import FreePorts
from tests.storage.sql.postgres_server import PostgresServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "three_replicas.py"
REPLICAS = 3
GROUPS = 24
ANSWER_S, AGAIN_S, WAIT_S = 2.0, 0.02, 60.0
STOPPED_S = (0.3, 1.2, 2.0, 4.0)
DATABASE = "the database crashes"
FAULTS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, DATABASE)
DOWN_S = 1.0


class LostError(AssertionError):
    """Something that was acknowledged isn't there."""


async def post(port: int, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the status and what a replica tells.

    Raises:
        OSError: there is none.
        TimeoutError: it says nothing.
    """
    async with asyncio.timeout(ANSWER_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            content = json.dumps(body).encode()
            writer.write(f"POST {path} HTTP/1.1\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
            head, _, told = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
    if not told:
        raise ConnectionResetError("it has ended in the middle")
    return int(head.split()[1]), json.loads(told)


@define
class Client:
    """Commits positions of one group that grow, and asks for them.

    Attributes:
        acknowledged: the last position that was answered with 200.
        unanswered: positions of which nobody knows: they may be written at any time later.
        answered_s: when that was that something was answered.
        longest_s: how long the group was without an answer at most, since that was set to 0.
    """

    group: str
    ports: list[int]
    acknowledged: int = -1
    next_position: int = 0
    unanswered: set[int] = field(factory=set)
    answered_s: float = 0.0
    longest_s: float = 0.0
    refused: int = 0
    _place: int = 0

    async def run(self, ended: asyncio.Event) -> None:
        """Commit and ask until the end."""
        self.answered_s = time.monotonic()
        while not ended.is_set():
            position = self.next_position
            self.next_position += 1
            if await self._try("/commit", {"group": self.group, "shard": 0, "position": position}) is not None:
                self.acknowledged = position
            await self.look()
            await asyncio.sleep(AGAIN_S)

    async def look(self) -> int | None:
        """Ask for the position, and return it; None: nobody has answered.

        Raises:
            LostError: it is older than what was acknowledged before.
        """
        at_least = self.acknowledged
        told = await self._try("/position", {"group": self.group, "shard": 0})
        if told is None:
            return None
        position: int = told["position"]
        if position < at_least and position not in self.unanswered:
            raise LostError(f"{self.group}: {at_least} was acknowledged, and {position} is told")
        return position

    async def _try(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Ask one replica, and where that sends us; None: no answer counts."""
        port = self.ports[self._place]
        for _ in range(3):
            try:
                status, told = await post(port, path, body)
            except (OSError, TimeoutError):
                self.unanswered.add(body.get("position", -1))
                break
            if status == 200:
                now_s = time.monotonic()
                self.longest_s = max(self.longest_s, now_s - self.answered_s)
                self.answered_s = now_s
                self._place = self.ports.index(port)
                return told
            self.unanswered.add(body.get("position", -1))
            self.refused += 1
            if status != 307:
                break
            port = int(told["location"].split(":")[2].split("/")[0])
        self._place = (self._place + 1) % len(self.ports)
        return None


class Chaos:
    """Three replicas, clients, and what is done to the replicas."""

    def __init__(self, server: PostgresServer, seed: int) -> None:
        self._server = server
        self._random = random.Random(seed)
        self._free = FreePorts()
        self.ports = [self._free.first + number for number in range(REPLICAS)]
        self.processes = [self._start(port) for port in self.ports]
        self.clients = [Client(f"group-{number}", self.ports) for number in range(GROUPS)]
        self.silent_s: dict[str, list[float]] = defaultdict(list)

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, EXAMPLE, self._server.conninfo, str(port)], stderr=subprocess.DEVNULL)

    async def run(self, faults: int) -> None:
        """Do so many things to replicas under commits, then see that everything is there.

        Raises:
            LostError: something isn't.
        """
        ended = asyncio.Event()
        async with asyncio.timeout(WAIT_S + faults * WAIT_S / 4), asyncio.TaskGroup() as tasks:
            for client in self.clients:
                tasks.create_task(client.run(ended))
            await self._until_all_are_there()
            for number in range(faults):
                await self._fault(FAULTS[number % len(FAULTS)])
            ended.set()
        for client in self.clients:
            while await client.look() is None:
                await asyncio.sleep(AGAIN_S)

    async def _until_all_are_there(self) -> None:
        """Wait until every replica says something, and every client is answered anew."""
        for port in self.ports:
            while not await self._is_there(port):
                await asyncio.sleep(AGAIN_S)
        await self._until_all_are_answered()

    @staticmethod
    async def _is_there(port: int) -> bool:
        try:
            await post(port, "/position", {"group": "other", "shard": 0})
        except (OSError, TimeoutError):
            return False
        return True

    async def _until_all_are_answered(self) -> None:
        """Wait until every client is answered anew."""
        since_s = time.monotonic()
        while any(client.answered_s < since_s for client in self.clients):
            await asyncio.sleep(AGAIN_S)

    async def _fault(self, kind: signal.Signals | str) -> None:
        for client in self.clients:
            client.longest_s = 0.0
        if isinstance(kind, signal.Signals):
            await self._send(kind)
        else:
            self._server.crash()
            await asyncio.sleep(DOWN_S)
            self._server.start()
            await self._until_all_are_answered()
            self.silent_s[f"{kind}, and is back {DOWN_S} s later"].append(self._longest_s())
        await self._until_all_are_there()
        await asyncio.sleep(self._random.uniform(0.5, 1.5))

    def _longest_s(self) -> float:
        return max(client.longest_s for client in self.clients)

    async def _send(self, kind: signal.Signals) -> None:
        place = self._random.randrange(REPLICAS)
        self.processes[place].send_signal(kind)
        name = kind.name
        if kind is signal.SIGSTOP:
            stopped_s = self._random.choice(STOPPED_S)
            name = f"{name} for {stopped_s} s"
            await asyncio.sleep(stopped_s)
            self.processes[place].send_signal(signal.SIGCONT)
        else:
            await asyncio.to_thread(self.processes[place].wait)
        await self._until_all_are_answered()
        self.silent_s[name].append(self._longest_s())
        if kind is not signal.SIGSTOP:
            self.processes[place] = self._start(self.ports[place])

    def close(self) -> None:
        """Kill what is there."""
        for process in self.processes:
            process.kill()
            process.wait()
        self._free.give_back()


def run_chaos(server: PostgresServer, faults: int, seed: int) -> Chaos:
    """Do it, and return what was seen.

    Raises:
        LostError: something that was acknowledged isn't there.
    """
    chaos = Chaos(server, seed)
    try:
        asyncio.run(chaos.run(faults))
    finally:
        chaos.close()
    return chaos


def main() -> None:
    """Measure."""
    server = PostgresServer()
    try:
        chaos = run_chaos(server, int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 0)
    finally:
        server.close()
    for name, times_s in sorted(chaos.silent_s.items()):
        ordered = sorted(times_s)
        middle, late = ordered[len(ordered) // 2], ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]
        print(f"{name}: {len(ordered)} times, median {middle:.2f} s, 99th percentile {late:.2f} s")
    acknowledged = sum(client.next_position - len(client.unanswered) for client in chaos.clients)
    print(f"{acknowledged} commits acknowledged, none lost; {sum(client.refused for client in chaos.clients)} refusals")


if __name__ == "__main__":
    main()
