"""A process of clients: each has a group, commits positions that grow, asks for them, and writes down what it hears.

    python -m tests.cluster.chaos.client LIBRARY JOURNAL GROUP,GROUP… PORT=WAY,PORT=WAY…

A node at PORT is reached by WAY, another port. Who was killed goes on where its journal ends.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from functools import cached_property
from pathlib import Path

from .http_libraries import HTTP_LIBRARIES
from .journals import ACKNOWLEDGED, ASKED, BROKEN, REFUSED, SHARDS, TOLD, Journal, Reader, Record
from .kafka_libraries import KAFKA_LIBRARIES
from .libraries import Library, Open

AGAIN_S = 0.2
LIBRARIES: dict[str, Open] = {**HTTP_LIBRARIES, **KAFKA_LIBRARIES}


class ChaosClient:
    """One group's."""

    def __init__(self, group: str, journal: Journal, record: Record, library: str, ways: dict[int, int]) -> None:
        self._group = group
        self._journal = journal
        self._record = record
        self._open = lambda: LIBRARIES[library](group, ways, lambda reason: self._note(REFUSED, reason))

    @cached_property
    def _library(self) -> Library:
        return self._open()  # not before: this may wait for nodes

    def run(self) -> None:
        """Commit and fetch until the process is ended."""
        chance = random.Random(self._group)
        while True:
            position = self._record.next_position
            self._note(ASKED, position)
            if self._library.commit(position % SHARDS, position):
                self._note(ACKNOWLEDGED, position)
            self.look(chance.randrange(SHARDS))
            time.sleep(AGAIN_S)

    def look(self, shard: int) -> bool:
        """Fetch a position; return whether there was a response."""
        at_least = self._record.acknowledged.get(shard, -1)
        told = self._library.position(shard)
        if told is None:
            return False
        self._note(TOLD, told)
        loss = self._record.loss(shard, told, at_least)
        if loss is not None:
            self._note(BROKEN, told, loss)
        return True

    def _note(self, kind: str, position: int, words: str = "") -> None:
        self._record.take(self._journal.write(self._group, kind, position, words))


def main(library: str, path: Path, groups: list[str], ways: dict[int, int]) -> None:
    """Run one client for each group."""
    records = {group: Record() for group in groups}
    for line in Reader(path).new_lines():
        records[line.group].take(line)
    journal = Journal(path)
    clients = [ChaosClient(group, journal, record, library, ways) for group, record in records.items()]
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    pairs = (pair.split("=") for pair in sys.argv[4].split(","))
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3].split(","), {int(port): int(way) for port, way in pairs})
