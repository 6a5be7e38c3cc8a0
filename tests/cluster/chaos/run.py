"""What happens to the processes, and what is seen of that."""

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

from groupcoord.conformance.free_ports import FreePorts
from tests.cluster.black_hole import BlackHole
from tests.storage.sql.postgres_server import PostgresServer

from .client import LIBRARIES, Client, post_with_http_client
from .journals import BROKEN, SHARDS, Journal, Reader, Record
from .processes import Clients, Fleet, Program, Replica, fleet

GROUPS_EACH = 12
AGAIN_S, WAIT_S = 0.05, 120.0
SHORT_S = (0.3, 1.2, 2.0, 4.0)
"""How long something is stopped, or cut off: shorter and longer than a lease, and than what others wait."""

DOWN_S = 1.0
PAUSE_S = (0.5, 1.5)
SECOND_EVERY = 3
"""After so many faults two come at a time."""


class LostError(AssertionError):
    """Something that was acknowledged isn't there, or groups stand still."""


class Happened(NamedTuple):
    """What was done: in words that follow the kind of fault, and the groups of clients that it was done to."""

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
        """Read what clients have written down.

        Raises:
            LostError: one was told something older than what was acknowledged.
        """
        for clients in self.fleet.clients:
            for line in clients.news():
                if line.kind == BROKEN:
                    raise LostError(f"{line.group}: {line.words}")
                self.records[line.group].take(line)

    async def until_all_are_answered(self) -> None:
        """Wait until each group was answered anew.

        Raises:
            LostError: that does not happen.
        """
        begin_s = asyncio.get_running_loop().time()
        groups = [group for clients in self.fleet.clients for group in clients.groups]
        while waiting := [group for group in groups if self.records[group].answered_s < begin_s]:
            if asyncio.get_running_loop().time() > begin_s + WAIT_S:
                raise LostError(f"nobody has answered for {WAIT_S:.0f} s: {waiting}")
            await asyncio.sleep(AGAIN_S)
            self.start_who_has_ended()
            self.look()

    def start_who_has_ended(self) -> None:
        """Start a program again that has ended by itself: a replica does that which finds no database at its start.

        Raises:
            LostError: these were clients.
        """
        for program in (*self.fleet.replicas, *self.fleet.clients):
            if not program.lock.locked() and not program.is_alive():
                if program in self.fleet.clients:
                    raise LostError(f"{program.name}: it has ended")
                program.start()

    # ------------------------------------------------------------ what happens

    async def one(self, kind: str) -> None:
        """Let one thing happen, and wait until all is well."""
        for record in self.records.values():
            record.longest_s = 0.0
        happened = await FAULTS[kind](self)
        self.counts[kind] += 1
        await self.until_all_are_answered()
        seen = [record.longest_s for group, record in self.records.items() if group not in happened.groups]
        self.silent_s[kind + happened.told].append(max(seen))
        await asyncio.sleep(self.chance.uniform(*PAUSE_S))

    async def two(self, first: str, second: str) -> None:
        """Let two things happen, the second while the first goes on."""

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

    async def stopped(self, program: Program) -> str:
        """Stop a program for a while."""
        async with program.lock:
            program.send(signal.SIGSTOP)
            told = await self._wait()
            program.send(signal.SIGCONT)
        return f" for {told}"

    async def cut_off(self, ways: Iterable[BlackHole]) -> str:
        """Let nothing get through on these ways for a while."""
        self.fleet.cutter.cut(ways)
        told = await self._wait()
        self.fleet.cutter.mend(ways)
        return f" for {told}"

    async def _wait(self) -> str:
        seconds = self.chance.choice(SHORT_S)
        await asyncio.sleep(seconds)
        return f"{seconds} s"

    async def database_killed(self) -> str:
        """Kill the database, and start it again."""
        async with self.fleet.database_lock:
            await asyncio.to_thread(self.fleet.server.kill)
            await asyncio.sleep(DOWN_S)
            await asyncio.to_thread(self.fleet.server.start)
        return f", started again after {DOWN_S} s"

    async def database_stopped(self) -> str:
        """Stop the database for a while."""
        async with self.fleet.database_lock:
            self.fleet.server.send(signal.SIGSTOP)
            told = await self._wait()
            self.fleet.server.send(signal.SIGCONT)
        return f" for {told}"

    async def to_a_replica(self, happens: Callable[[Replica], Awaitable[str]]) -> Happened:
        """Let something happen to one of the replicas."""
        return Happened(await happens(self.chance.choice(self.fleet.replicas)))

    async def to_clients(self, happens: Callable[[Clients], Awaitable[str]]) -> Happened:
        """Let something happen to one of the processes of clients."""
        clients = self.chance.choice(self.fleet.clients)
        return Happened(await happens(clients), clients.groups)

    async def to_the_database(self, happens: Awaitable[str]) -> Happened:
        """Let something happen to the database."""
        return Happened(await happens)


FAULTS: dict[str, Callable[[Chaos], Awaitable[Happened]]] = {
    "a replica is killed": lambda chaos: chaos.to_a_replica(chaos.killed),
    "clients are killed": lambda chaos: chaos.to_clients(chaos.killed),
    "the database is killed": lambda chaos: chaos.to_the_database(chaos.database_killed()),
    "a replica is stopped": lambda chaos: chaos.to_a_replica(chaos.stopped),
    "clients are stopped": lambda chaos: chaos.to_clients(chaos.stopped),
    "the database is stopped": lambda chaos: chaos.to_the_database(chaos.database_stopped()),
    "a replica is cut off from the database": lambda chaos: chaos.to_a_replica(
        lambda replica: chaos.cut_off([replica.to_database])
    ),
    "a replica is cut off from clients": lambda chaos: chaos.to_a_replica(
        lambda replica: chaos.cut_off(replica.from_clients)
    ),
    "clients are cut off": lambda chaos: chaos.to_clients(lambda clients: chaos.cut_off(clients.ways)),
    "the database is cut off": lambda chaos: chaos.to_the_database(
        chaos.cut_off([replica.to_database for replica in chaos.fleet.replicas])
    ),
    "a replica is ended in order": lambda chaos: chaos.to_a_replica(
        lambda replica: chaos.killed(replica, signal.SIGTERM)
    ),
}


async def run(server: PostgresServer, faults: int, seed: int, folder: Path, say: Callable[[str], None]) -> Chaos:
    """Let so many things happen, then see that everything is there, and return what was seen.

    Raises:
        LostError: something isn't, or groups stand still.
    """
    first, second = FreePorts(), FreePorts()
    ports = [first.first, first.first + 1, second.first]
    kinds = itertools.cycle(FAULTS)
    try:
        async with fleet(server, ports, LIBRARIES, GROUPS_EACH, folder) as all_there:
            chaos = Chaos(all_there, random.Random(seed))
            await chaos.until_all_are_answered()
            while chaos.counts.total() < faults:
                if chaos.counts.total() % SECOND_EVERY == SECOND_EVERY - 1 and chaos.counts.total() + 1 < faults:
                    await chaos.two(next(kinds), next(kinds))
                else:
                    await chaos.one(next(kinds))
                say(f"{chaos.counts.total()} faults")
            for clients in all_there.clients:
                await clients.end(signal.SIGKILL)
            chaos.look()
            await asyncio.to_thread(see_that_all_is_there, chaos.records, ports, folder)
    finally:
        first.give_back()
        second.give_back()
    return chaos


def see_that_all_is_there(records: dict[str, Record], ports: list[int], folder: Path) -> None:
    """Ask for every position of every group.

    Raises:
        LostError: one is older than what was acknowledged, or nobody tells it.
    """
    path = folder / "verdict"
    journal, deadline_s = Journal(path), time.monotonic() + WAIT_S
    for group, record in records.items():
        client = Client(group, journal, record, post_with_http_client, {port: port for port in ports})
        for shard in range(SHARDS):
            while not client.look(shard):
                if time.monotonic() > deadline_s:
                    raise LostError(f"{group}: nobody tells its positions")
                time.sleep(AGAIN_S)
    for line in Reader(path).new_lines():
        if line.kind == BROKEN:
            raise LostError(f"{line.group}: {line.words}")


def run_chaos(server: PostgresServer, faults: int, seed: int, say: Callable[[str], None] = lambda _: None) -> Chaos:
    """Do as :func:`run` in an event loop of its own.

    Raises:
        LostError: see there; it names the folder in which all that the processes have said is kept.
    """
    folder = Path(tempfile.mkdtemp(prefix="groupcoord-chaos-"))
    try:
        chaos = asyncio.run(run(server, faults, seed, folder, say))
    except LostError as error:
        raise LostError(f"{error}; see {folder}") from error
    shutil.rmtree(folder)
    return chaos
