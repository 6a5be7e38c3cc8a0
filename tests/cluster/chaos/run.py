"""Faults of the processes, and observations of the clients."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from attrs import define, field

from tests.cluster.black_hole import BlackHole

from .client import ChaosClient
from .journals import BROKEN, SHARDS, Journal, Reader, Record
from .processes import Clients, Fleet, Node, Program, Server, Setting, fleet

AGAIN_S, WAIT_S = 0.05, 300.0
SHORT_S = (0.3, 1.2, 2.0, 4.0)
"""How long something is stopped, or cut off: shorter and longer than a lease, and than what others wait."""

PAUSE_S = (0.5, 1.5)
SECOND_EVERY = 3
"""After so many faults two come at a time."""


class LostError(AssertionError):
    """Something that was acknowledged isn't there, or groups stand still."""


class Happened(NamedTuple):
    """Fault: description beginning with its kind, and the affected groups of clients."""

    told: str
    groups: Sequence[str] = ()


@define
class Chaos:
    """Does things to a fleet.

    Attributes:
        fleet: all processes.
        records: what is known of each group.
        counts: how often each kind of fault was there.
        silent_s: how long groups were without an answer, by fault; those of clients that it happened to don't count,
            nor do faults that came together.
    """

    fleet: Fleet
    chance: random.Random
    records: dict[str, Record] = field(factory=lambda: defaultdict(Record))
    counts: Counter[str] = field(factory=Counter)
    silent_s: dict[str, list[float]] = field(factory=lambda: defaultdict(list))

    # ------------------------------------------------------------ what is seen

    def look(self) -> None:
        """Read the clients' journals. Raises: LostError: a client read something older than the
        acknowledged position.
        """
        for clients in self.fleet.clients:
            for line in clients.news():
                if line.kind == BROKEN:
                    raise LostError(f"{line.group}: {line.words}")
                self.records[line.group].take(line)

    async def until_all_are_answered(self) -> None:
        """Wait for a new response to each group. Raises: LostError: there is none in time."""
        begin_s = asyncio.get_running_loop().time()
        groups = [group for clients in self.fleet.clients for group in clients.groups]
        while waiting := [group for group in groups if self.records[group].answered_s < begin_s]:
            if asyncio.get_running_loop().time() > begin_s + WAIT_S:
                raise LostError(f"nobody has answered for {WAIT_S:.0f} s: {waiting}")
            await asyncio.sleep(AGAIN_S)
            self.start_who_has_ended()
            self.look()

    def start_who_has_ended(self) -> None:
        """Start a program again that has exited: a node does that which finds no engine at its start.

        Raises:
            LostError: these were clients.
        """
        for program in (*self.fleet.nodes, *self.fleet.clients):
            if not program.lock.locked() and not program.is_alive():
                if program in self.fleet.clients:
                    raise LostError(f"{program.name}: it has ended")
                program.start()

    # ------------------------------------------------------------ what happens

    async def one(self, kind: str) -> None:
        """Run one fault, and wait for recovery."""
        for record in self.records.values():
            record.longest_s = 0.0
        happened = await FAULTS[kind](self)
        self.counts[kind] += 1
        await self.until_all_are_answered()
        seen = [record.longest_s for group, record in self.records.items() if group not in happened.groups]
        self.silent_s[kind + happened.told].append(max(seen))
        await asyncio.sleep(self.chance.uniform(*PAUSE_S))

    async def two(self, first: str, second: str) -> None:
        """Run two overlapping faults."""

        async def later() -> None:
            await asyncio.sleep(self.chance.uniform(0, SHORT_S[-1]))
            await FAULTS[second](self)

        await asyncio.gather(FAULTS[first](self), later())
        self.counts.update((first, second))
        await self.until_all_are_answered()
        await asyncio.sleep(self.chance.uniform(*PAUSE_S))

    async def killed(self, program: Program, number: signal.Signals = signal.SIGKILL) -> str:
        """End a program with a signal, and start it again after a while."""
        async with program.lock:
            await program.end(number)
            told = await self._wait()
            program.start()
        return f", started again after {told}"

    async def stopped(self, one: Program | Server) -> str:
        """Stop a program, or one of the engine's servers, for a while."""
        async with one.lock:
            one.send(signal.SIGSTOP)
            told = await self._wait()
            one.send(signal.SIGCONT)
        return f" for {told}"

    async def cut_off(self, ways: Iterable[BlackHole]) -> str:
        """Drop all traffic on these ways for a while."""
        self.fleet.cutter.cut(ways)
        told = await self._wait()
        self.fleet.cutter.mend(ways)
        return f" for {told}"

    async def _wait(self) -> str:
        seconds = self.chance.choice(SHORT_S)
        await asyncio.sleep(seconds)
        return f"{seconds} s"

    async def server_killed(self, server: Server) -> str:
        async with server.lock:
            await asyncio.to_thread(server.kill)
            told = await self._wait()
            await asyncio.to_thread(server.start)
        return f", started again after {told}"

    async def to_a_node(self, happens: Callable[[Node], Awaitable[str]]) -> Happened:
        """Run a fault of one node."""
        return Happened(await happens(self.chance.choice(self.fleet.nodes)))

    async def to_clients(self, happens: Callable[[Clients], Awaitable[str]]) -> Happened:
        clients = self.chance.choice(self.fleet.clients)
        return Happened(await happens(clients), clients.groups)

    async def to_a_server(self, happens: Callable[[Server], Awaitable[str]]) -> Happened:
        """Run a fault of one of the engine's servers."""
        return Happened(await happens(self.chance.choice(self.fleet.servers)))


FAULTS: dict[str, Callable[[Chaos], Awaitable[Happened]]] = {
    "a node is killed": lambda chaos: chaos.to_a_node(chaos.killed),
    "clients are killed": lambda chaos: chaos.to_clients(chaos.killed),
    "a server of the engine is killed": lambda chaos: chaos.to_a_server(chaos.server_killed),
    "a node is stopped": lambda chaos: chaos.to_a_node(chaos.stopped),
    "clients are stopped": lambda chaos: chaos.to_clients(chaos.stopped),
    "a server of the engine is stopped": lambda chaos: chaos.to_a_server(chaos.stopped),
    "a node is cut off from the engine": lambda chaos: chaos.to_a_node(lambda node: chaos.cut_off(node.to_engine)),
    "a node is cut off from clients": lambda chaos: chaos.to_a_node(
        lambda node: chaos.cut_off(list(node.from_clients.values()))
    ),
    "clients are cut off": lambda chaos: chaos.to_clients(lambda clients: chaos.cut_off(clients.ways)),
    "a server of the engine is cut off": lambda chaos: chaos.to_a_server(lambda server: chaos.cut_off(server.ways)),
    "a node is ended in order": lambda chaos: chaos.to_a_node(lambda node: chaos.killed(node, signal.SIGTERM)),
    "a server of the engine is cut off from its fellows": lambda chaos: chaos.to_a_server(
        lambda server: chaos.cut_off(server.fellows)
    ),
}
"""The last is nothing where a server has no fellows."""


def kinds(servers: Sequence[Server]) -> list[str]:
    """Return what can happen where these are the engine's servers."""
    return list(FAULTS) if len(servers) > 1 else list(FAULTS)[:-1]


async def run(setting: Setting, faults: int, seed: int, folder: Path, say: Callable[[str], None]) -> Chaos:
    """Run a number of faults, then check that nothing is lost, and return the observations. Raises: LostError:
    something is lost, or groups stand still.
    """
    async with fleet(setting, folder) as all_there:
        chaos = Chaos(all_there, random.Random(seed))
        todo = itertools.cycle(kinds(all_there.servers))
        await chaos.until_all_are_answered()
        while chaos.counts.total() < faults:
            if chaos.counts.total() % SECOND_EVERY == SECOND_EVERY - 1 and chaos.counts.total() + 1 < faults:
                await chaos.two(next(todo), next(todo))
            else:
                await chaos.one(next(todo))
            say(f"{chaos.counts.total()} faults")
        for clients in all_there.clients:
            await clients.end(signal.SIGKILL)
        chaos.look()
        ways = dict(node.way(setting.libraries[0]) for node in all_there.nodes)
        await asyncio.to_thread(see_that_all_is_there, chaos.records, setting.libraries[0], ways, folder)
    return chaos


def see_that_all_is_there(records: dict[str, Record], library: str, ways: dict[int, int], folder: Path) -> None:
    """Fetch every position of every group. Raises: LostError: one is older than the acknowledged
    one, or unavailable.
    """
    path = folder / "verdict"
    journal, deadline_s = Journal(path), time.monotonic() + WAIT_S
    for group, record in records.items():
        client = ChaosClient(group, journal, record, library, ways)
        for shard in range(SHARDS):
            while not client.look(shard):
                if time.monotonic() > deadline_s:
                    raise LostError(f"{group}: nobody tells its positions")
                time.sleep(AGAIN_S)
    for line in Reader(path).new_lines():
        if line.kind == BROKEN:
            raise LostError(f"{line.group}: {line.words}")


def run_chaos(setting: Setting, faults: int, seed: int, say: Callable[[str], None] = lambda _: None) -> Chaos:
    """Run :func:`run` in a new event loop. Raises: LostError: from there; it names the folder with the output of the
    processes.
    """
    folder = Path(tempfile.mkdtemp(prefix="groupcoord-chaos-"))
    try:
        chaos = asyncio.run(run(setting, faults, seed, folder, say))
    except LostError as error:
        raise LostError(f"{error}; see {folder}") from error
    shutil.rmtree(folder)
    return chaos
