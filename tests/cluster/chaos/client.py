"""A process of clients: each has a group, commits positions that grow, asks for them, and writes down what it hears.

    python -m tests.cluster.chaos.client LIBRARY JOURNAL GROUP,GROUP… PORT=WAY,PORT=WAY…

A replica at PORT is reached by WAY, another port. Who was killed goes on where its journal ends.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .journals import ACKNOWLEDGED, ASKED, BROKEN, REFUSED, SHARDS, TOLD, Journal, Reader, Record

ANSWER_S, AGAIN_S = 2.0, 0.2
REDIRECTS_MAX = 3

Post = Callable[[int, str, dict[str, Any]], tuple[int, dict[str, Any]]]


def post_with_http_client(way: int, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Ask with Python's own library, on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", way, timeout=ANSWER_S)
    try:
        connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def post_with_requests(way: int, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Ask with requests, which keeps connections and knows better what a broken one is."""
    import requests

    answer = requests.post(f"http://127.0.0.1:{way}{path}", json=body, timeout=ANSWER_S, allow_redirects=False)
    return answer.status_code, answer.json()


LIBRARIES: dict[str, Post] = {"http.client": post_with_http_client, "requests": post_with_requests}


class Client:
    """One group's."""

    def __init__(self, group: str, journal: Journal, record: Record, post: Post, ways: dict[int, int]) -> None:
        self._group = group
        self._journal = journal
        self._record = record
        self._post = post
        self._ways = ways
        self._ports = list(ways)
        self._port = self._ports[0]

    def run(self) -> None:
        """Commit and ask until somebody ends this process."""
        chance = random.Random(self._group)
        while True:
            position = self._record.next_position
            self._note(ASKED, position)
            if self._try("/commit", {"shard": position % SHARDS, "position": position}) is not None:
                self._note(ACKNOWLEDGED, position)
            self.look(chance.randrange(SHARDS))
            time.sleep(AGAIN_S)

    def look(self, shard: int) -> bool:
        """Ask for a position; return whether somebody has answered."""
        at_least = self._record.acknowledged.get(shard, -1)
        told = self._try("/position", {"shard": shard})
        if told is None:
            return False
        self._note(TOLD, told["position"])
        loss = self._record.loss(shard, told["position"], at_least)
        if loss is not None:
            self._note(BROKEN, told["position"], loss)
        return True

    def _note(self, kind: str, position: int, words: str = "") -> None:
        self._record.take(self._journal.write(self._group, kind, position, words))

    def _try(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Ask one replica, and where that sends us; None: no answer counts."""
        for _ in range(REDIRECTS_MAX):
            try:
                status, told = self._post(self._ways[self._port], path, {"group": self._group, **body})
            except (OSError, http.client.HTTPException, ValueError):
                break
            if status == 200:
                return told
            self._note(REFUSED, status)
            if status != 307:
                break
            self._port = int(told["location"].split(":")[2].split("/")[0])
        self._port = self._ports[(self._ports.index(self._port) + 1) % len(self._ports)]
        return None


def main(library: str, path: Path, groups: list[str], ways: dict[int, int]) -> None:
    """Run one client for each group."""
    records = {group: Record() for group in groups}
    for line in Reader(path).new_lines():
        records[line.group].take(line)
    journal = Journal(path)
    clients = [Client(group, journal, record, LIBRARIES[library], ways) for group, record in records.items()]
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    pairs = (pair.split("=") for pair in sys.argv[4].split(","))
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3].split(","), {int(port): int(way) for port, way in pairs})
