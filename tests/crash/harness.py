"""The kill harness: clients commit and join while their server is killed, started again, and asked what it still knows.

After every restart each group's offsets are compared with what was acknowledged, and the newest generation that a
member was told must be the group's, or one that came after it. Offsets of a transaction must be visible if its commit
was acknowledged, never after an abort, and pending while it is open. So it is with records. One cycle is: start,
check, talk, kill. Some servers are killed before they listen, while they load or compact.
"""

from __future__ import annotations

import random
import selectors
import shutil
import socket
import time
from pathlib import Path
from typing import Any

from tests.client import (
    Client,
    Frames,
    Request,
    fetch,
    fetched,
    fetched_offsets,
    heartbeat,
    offset_fetch,
)
from tests.crash.clients import (
    ILLEGAL_GENERATION,
    NONE,
    PARTITION_COUNT,
    TOPIC,
    BrokenPromiseError,
    Committer,
    KillClient,
    Member,
    Promises,
)
from tests.crash.processes import Launcher, Running
from tests.crash.producers import UNSTABLE_OFFSET_COMMIT, OffsetsInTransactions, Producer, Seen
from tests.crash.record_clients import (
    TOPIC as WRITTEN_TOPIC,
    RecordsInTransactions,
    TransactionalWriter,
    Writer,
    WrittenPromises,
)

OFFSET_FETCH = 9
STALL_S = 30.0
COMMITTER_COUNT, GROUP_COUNT, PRODUCER_COUNT = 3, 2, 2
WRITERS = ((False, 1), (False, -1), (True, -1), (True, -1))
"""Those that write records outside of transactions: whether idempotent, and their acks."""
TRANSACTIONAL_WRITERS = 2
WRITTEN_COUNT = len(WRITERS) + 2 * TRANSACTIONAL_WRITERS
ANSWERS_MAX = 120
LIVES_LONG = 0.05
LONG_LIFE, REST_S = 10, 0.5
"""Now and then a server has so many times as much to do, and then some rest, so that a compaction comes to its end."""
KILLED_EARLY = 0.1
EARLY_S = 0.03
LATE_S = 0.002
FROM_SCRATCH_EVERY = 20
FRESH_EVERY = 250

SETTINGS = {
    "offsets.topic.num.partitions": 3,
    "offsets.topic.segment.bytes": 8_192,
    "log.cleaner.min.cleanable.ratio": 0.1,
    "log.cleaner.delete.retention.ms": 0,
    "log.cleaner.backoff.ms": 10,
    "group.initial.rebalance.delay.ms": 0,
    "log.segment.bytes": 1_048_576,
    "log.roll.ms": 60_000,
    "log.retention.ms": -1,
}


class Harness:
    """One directory, its server and the clients.

    Args:
        folder: where the data directory and the servers' stderr go.
        seed: decides what the clients do and when a kill comes, as far as the machine lets it.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.kill_count = 0
        self.answer_count = 0
        self._random = random.Random(f"kills {seed}")
        self._seed = seed
        self._launcher = Launcher(folder)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Take an empty directory and new groups."""
        self._data_dir = self.folder / f"data-{self.kill_count}"
        self._groups = [Promises(f"group-{number}") for number in range(COMMITTER_COUNT + GROUP_COUNT)]
        seed = f"{self._seed} {self.kill_count}"
        self._clients: list[KillClient[Any]] = [
            Committer(promises, f"{seed} {promises.group_id}") for promises in self._groups[:COMMITTER_COUNT]
        ]
        for promises in self._groups[COMMITTER_COUNT:]:
            self._clients += [
                Member(promises, f"{seed} {promises.group_id} {name}", commits=name == "first")
                for name in ("first", "second")
            ]
        self._transactions = [
            OffsetsInTransactions(f"producer-{number}", (f"inputs-{number}", f"others-{number}"))
            for number in range(PRODUCER_COUNT)
        ]
        self._clients += [Producer(promises, f"{seed} {promises.transactional_id}") for promises in self._transactions]

        self._written: list[WrittenPromises | RecordsInTransactions] = []
        for index, (is_idempotent, acks) in enumerate(WRITERS):
            written = WrittenPromises(index, is_idempotent=is_idempotent, acks=acks)
            self._clients.append(Writer(written, f"{seed} writer {index}"))
            self._written.append(written)
        for number, first in enumerate(range(len(WRITERS), WRITTEN_COUNT, 2)):
            transactions = RecordsInTransactions(f"writer-{number}", (first, first + 1))
            self._clients.append(TransactionalWriter(transactions, f"{seed} {transactions.transactional_id}"))
            self._written.append(transactions)

    def run(self, kills: int) -> None:
        """Kill as many servers; at the end one more is started and checked.

        Raises:
            BrokenPromiseError: a promise was broken.
            ServerFailedError: a server did not start on what the one before it left.
        """
        last = self.kill_count + kills
        while self.kill_count < last:
            self._cycle()
            if self.kill_count % FRESH_EVERY == 0:
                self._check_after_restart()
                shutil.rmtree(self._data_dir)
                self._begin_anew()
        self._check_after_restart()

    def close(self) -> None:
        """End everything that was started."""
        self._launcher.close()

    def _cycle(self) -> None:
        self.kill_count += 1
        running = self._start()
        try:
            if self._random.random() < KILLED_EARLY:
                time.sleep(self._random.random() * EARLY_S)
                return
            port = running.wait_for_port()
            self._check(port)
            conversation = _Conversation(port, self._clients)
            try:
                answers = self._random.randint(1, ANSWERS_MAX)
                is_long = self._random.random() < LIVES_LONG
                self.answer_count += conversation.run(answers * LONG_LIFE if is_long else answers)
                time.sleep(self._random.random() * (REST_S if is_long else LATE_S))
            finally:
                running.kill()
            self.answer_count += conversation.drain()
        finally:
            running.kill()

    def _start(self) -> Running:
        arguments = ["serve", "--port", "0", "--data-dir", str(self._data_dir), "--topic", f"{TOPIC}:{PARTITION_COUNT}"]
        arguments += ["--topic", f"{WRITTEN_TOPIC}:{WRITTEN_COUNT}"]
        for key, value in SETTINGS.items():
            arguments += ["--set", f"{key}={value}"]
        return self._launcher.start(arguments, from_scratch=self.kill_count % FROM_SCRATCH_EVERY == 0)

    def _check_after_restart(self) -> None:
        running = self._start()
        try:
            self._check(running.wait_for_port())
        finally:
            running.kill()

    def _check(self, port: int) -> None:
        with Client(port, STALL_S) as client:
            for promises in self._groups:
                promises.check_offsets(fetched_offsets(client.ask(offset_fetch(promises.group_id))))
                if promises.generation_id:
                    _check_generation(client, promises)
            for transactions in self._transactions:
                transactions.check({group_id: _seen(client, group_id) for group_id in transactions.committed})
            for written in self._written:
                written.check(lambda *asked: fetched(client.ask(fetch(WRITTEN_TOPIC, *asked))))


def _seen(client: Client, group_id: str) -> Seen:
    offsets = fetched_offsets(client.ask(offset_fetch(group_id)))
    topics = [{"name": TOPIC, "partition_indexes": range(PARTITION_COUNT)}]
    stable = client.ask(Request(OFFSET_FETCH, 7, {"group_id": group_id, "topics": topics, "require_stable": True}))
    (topic,) = stable["topics"]
    errors = {partition["partition_index"]: partition["error_code"] for partition in topic["partitions"]}
    if errors.keys() != set(range(PARTITION_COUNT)) or set(errors.values()) - {NONE, UNSTABLE_OFFSET_COMMIT}:
        raise BrokenPromiseError(f"{group_id}: a fetch of stable offsets failed with {errors}")
    return Seen(offsets, {index: error == UNSTABLE_OFFSET_COMMIT for index, error in errors.items()})


def _check_generation(client: Client, promises: Promises) -> None:
    candidates = [promises.generation_id, *sorted(promises.synced)]
    for member_id in promises.assignments:
        beats = [heartbeat(promises.group_id, generation_id, member_id) for generation_id in candidates]
        errors = [client.ask(beat)["error_code"] for beat in beats]
        if errors.count(NONE) != 1 or set(errors) - {NONE, ILLEGAL_GENERATION}:
            raise BrokenPromiseError(
                f"{promises.group_id}: {member_id} was told its assignment in generation {promises.generation_id}; "
                f"now the errors for generations {candidates} are {errors}"
            )


class _Conversation:
    """All clients, each with a connection, until a number of responses."""

    def __init__(self, port: int, clients: list[KillClient[Any]]) -> None:
        self._selector = selectors.DefaultSelector()
        self._frames: dict[socket.socket, Frames] = {}
        for client in clients:
            sock = socket.create_connection(("127.0.0.1", port), timeout=STALL_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.connected()
            self._selector.register(sock, selectors.EVENT_READ, client)
            self._frames[sock] = Frames()
            _send(sock, client)

    def run(self, answers: int) -> int:
        """Run until a number of responses, or slightly more; return that number."""
        count = 0
        while count < answers:
            ready = self._selector.select(STALL_S)
            if not ready:
                raise BrokenPromiseError(f"no client had an answer for {STALL_S:g} s")
            for key, _ in ready:
                sock, client = key.fileobj, key.data
                assert isinstance(sock, socket.socket)
                part = sock.recv(65_536)
                if not part:
                    raise BrokenPromiseError("the server closed a connection")
                count += self._take(sock, client, part)
                _send(sock, client)
        return count

    def drain(self) -> int:
        """The server is dead: take the answers that it gave before that, and close. Return how many there were."""
        count = 0
        for key in list(self._selector.get_map().values()):
            sock, client = key.fileobj, key.data
            assert isinstance(sock, socket.socket)
            with sock:
                try:
                    while part := sock.recv(65_536):
                        count += self._take(sock, client, part)
                except ConnectionError:
                    continue
        self._selector.close()
        return count

    def _take(self, sock: socket.socket, client: KillClient[Any], part: bytes) -> int:
        responses = self._frames[sock].take(part)
        for response in responses:
            client.receive(response)
        return len(responses)


def _send(sock: socket.socket, client: KillClient[Any]) -> None:
    if client.outbox:
        sock.sendall(client.outbox)
        client.outbox.clear()
