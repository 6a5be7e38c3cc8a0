"""One member of a consumer group: a process that works with a real Kafka client library and tells what happens to it.

The one argument is a JSON object, see :class:`Options`. The member subscribes to one topic and acts as if it read
records from it: now and then it moves each of its partitions ahead by ``partition + 1`` and commits, always from the
offset that the group committed last. On stdout it writes a JSON object per line, each with an ``event``:

- ``owned``: ``offsets``, for each partition it owns from now on, where it starts;
- ``committed``: ``offsets``, by partition, after the broker has acknowledged them;
- ``paused``: all that was committed has been said, and nothing will be until it goes on;
- ``failed``: ``reason``, when a commit failed; it goes on;
- ``left``: it has left the group.

It reads lines from stdin: ``pause`` and ``resume``. When stdin ends, it leaves the group and ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.clients.libraries import CONSUMERS, Consumer

LONGEST_POLL_MS = 50
LEAVING_S = 8.0


@dataclass(frozen=True)
class Options:
    """What a member shall do.

    Attributes:
        library: a key of :data:`tests.clients.libraries.CONSUMERS`.
        bootstrap: ``HOST:PORT`` of a broker.
        group_id: the group to join.
        topic: the topic to subscribe to.
        client_id: the member's name.
        session_timeout_ms: after this time without a heartbeat the group goes on without it.
        commit_interval_ms: time between two commits.
    """

    library: str
    bootstrap: str
    group_id: str
    topic: str
    client_id: str
    session_timeout_ms: int = 2_000
    commit_interval_ms: int = 200

    @property
    def heartbeat_interval_ms(self) -> int:
        return self.session_timeout_ms // 5

    @property
    def poll_ms(self) -> int:
        """Milliseconds that the library works at a time."""
        return min(self.commit_interval_ms, LONGEST_POLL_MS)


class Member:
    """Loop of a member: own partitions, commit, report."""

    def __init__(self, client: Consumer, options: Options) -> None:
        self._client = client
        self._poll_s = options.poll_ms / 1000
        self._commit_interval_s = options.commit_interval_ms / 1000
        self._next_commit_s = 0.0
        self._owned: set[int] | None = None
        self._offsets: dict[int, int] = {}
        self._is_paused = False
        self.pause_wanted = False
        self.stop_wanted = False

    def run(self) -> None:
        """Run until a line on stdin ends it, then leave."""
        while not self.stop_wanted:
            self._client.poll(self._poll_s)
            try:
                self._work()
            except Exception as error:  # each library has its own family of errors, and all are worth another try
                # The broker may or may not have taken it: ask again before going on.
                self._owned = None
                tell("failed", reason=f"{type(error).__name__}: {error}")
        self._client.close()
        tell("left")

    def obey(self, lines: Iterable[str]) -> None:
        """Take commands until their end; then end the process, in the midst of its work if it can't leave in time."""
        for line in lines:
            self.pause_wanted = line.strip() == "pause"
        self.stop_wanted = True
        time.sleep(LEAVING_S)
        os._exit(1)

    def _work(self) -> None:
        if self._client.owned is not self._owned:
            owned = self._client.owned
            self._offsets = {partition: self._client.committed(partition) or 0 for partition in owned}
            self._owned = owned
            tell("owned", offsets=self._offsets)
        if self.pause_wanted != self._is_paused:
            self._is_paused = self.pause_wanted
            if self._is_paused:
                tell("paused")
        if self._offsets and not self._is_paused and time.monotonic() >= self._next_commit_s:
            offsets = {partition: offset + partition + 1 for partition, offset in self._offsets.items()}
            self._client.commit({partition: (offset, "") for partition, offset in offsets.items()})
            self._offsets = offsets
            self._next_commit_s = time.monotonic() + self._commit_interval_s
            tell("committed", offsets=offsets)


def tell(event: str, **fields: Any) -> None:
    """Write one line of JSON to stdout."""
    print(json.dumps({"event": event, **fields}), flush=True)


def main(argument: str) -> None:
    """Run a member with a JSON object of the fields of :class:`Options`."""
    options = Options(**json.loads(argument))
    client = CONSUMERS[options.library](
        options.bootstrap,
        options.group_id,
        options.topic,
        subscribes=True,
        client_id=options.client_id,
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.heartbeat_interval_ms,
        reconnect_backoff_max_ms=200,
        auto_offset_reset="earliest",
    )
    member = Member(client, options)
    threading.Thread(target=member.obey, args=(sys.stdin,), daemon=True).start()
    member.run()


if __name__ == "__main__":
    main(sys.argv[1])
