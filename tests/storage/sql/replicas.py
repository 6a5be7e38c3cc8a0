"""The example of two replicas as processes, and what a worker hears of them.

    python -m tests.storage.sql.replicas TIMES LEASE_MS

prints how long it takes until a worker is answered again, TIMES for each way in which a replica may go.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from groupcoord.conformance.sockets import FreePorts

from .postgres_server import PostgresServer

EXAMPLE = Path(__file__).parents[3] / "examples" / "two_replicas.py"
WAIT_S = 30
ASK_S = 0.01


class Replica:
    """One process of the example."""

    def __init__(self, conninfo: str, port: int, lease_ms: int) -> None:
        self.port = port
        self.printed: str | None = None
        self.process = subprocess.Popen(
            [sys.executable, EXAMPLE, conninfo, str(port), str(lease_ms)], stdout=subprocess.PIPE, text=True
        )

    def begin(self, worker: str, epoch: int, owned: list[int]) -> socket.socket:
        """Send a heartbeat, and return the future of its response. Raises: OSError: no server listens."""
        body = json.dumps({"worker": worker, "epoch": epoch, "owned": owned})
        connection = socket.create_connection(("127.0.0.1", self.port), WAIT_S)
        connection.sendall(f"POST /beat HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        return connection

    @staticmethod
    def end(connection: socket.socket) -> dict[str, Any]:
        """Return the answer to a heartbeat."""
        with connection, connection.makefile("rb") as answer:
            told: dict[str, Any] = json.loads(answer.read().partition(b"\r\n\r\n")[2])
            return told

    def beat(self, worker: str = "ann", epoch: int = 0, owned: list[int] | None = None) -> dict[str, Any]:
        """Return what a heartbeat is answered; who isn't there doesn't coordinate."""
        try:
            return self.end(self.begin(worker, epoch, owned or []))
        except (OSError, ValueError):
            return {"error": "NOT_COORDINATOR"}

    def wait_until_it_coordinates(self, epoch: int = 0, owned: list[int] | None = None) -> dict[str, Any]:
        deadline_s = time.monotonic() + WAIT_S
        while (told := self.beat("ann", epoch, owned))["error"] == "NOT_COORDINATOR":
            assert time.monotonic() < deadline_s, "nobody coordinates"
            assert self.process.poll() is None
            time.sleep(ASK_S)
        return told

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def close(self) -> str:
        """Kill it, and return what it printed."""
        if self.printed is None:
            self.process.kill()
            self.printed, _ = self.process.communicate()
        return self.printed


class Replicas:
    """Two replicas of one log, and a worker with all shards. Attributes: active: the coordinating replica. standby: the
    other. epoch: the worker's epoch. owned: the worker's shards.
    """

    def __init__(self, conninfo: str, lease_ms: int) -> None:
        self._conninfo, self._lease_ms = conninfo, lease_ms
        self._ports = FreePorts()
        with ExitStack() as stack:
            stack.callback(self._ports.give_back)
            self.active = self._start(self._ports.first)
            stack.callback(lambda: self.active.close())
            told = self.active.wait_until_it_coordinates()
            self.epoch, self.owned = told["epoch"], told["shards"]
            self.standby = self._start(self._ports.first + 1)
            stack.callback(lambda: self.standby.close())
            self._wait_for_standby()
            self._closing = stack.pop_all()

    def change(self, number: signal.Signals) -> tuple[float, dict[str, Any]]:
        """Send a signal to the active one; return how long it took until the other one answered, and what."""
        began_s = time.monotonic()
        self.active.send(number)
        told = self.standby.wait_until_it_coordinates(self.epoch, self.owned)
        self.active, self.standby = self.standby, self.active
        return time.monotonic() - began_s, told

    def restart_standby(self) -> str:
        """Restart the replica that has exited; return its earlier output."""
        printed = self.standby.close()
        self.standby = self._start(self.standby.port)
        self._wait_for_standby()
        return printed

    def _start(self, port: int) -> Replica:
        return Replica(self._conninfo, port, self._lease_ms)

    def _wait_for_standby(self) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not self._is_there(self.standby):
            assert time.monotonic() < deadline_s, "the second replica does not start"
            time.sleep(ASK_S)

    @staticmethod
    def _is_there(replica: Replica) -> bool:
        try:
            socket.create_connection(("127.0.0.1", replica.port), WAIT_S).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> Replicas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.close()


def main() -> None:
    """Measure."""
    server = PostgresServer()
    try:
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
            times_s = []
            for _ in range(int(sys.argv[1])):
                with Replicas(server.conninfo, int(sys.argv[2])) as replicas:
                    times_s.append(replicas.change(number)[0])
            times_s.sort()
            middle = times_s[len(times_s) // 2]
            print(f"{number.name}: {times_s[0]:.2f} s, {middle:.2f} s, {times_s[-1]:.2f} s (least, median, most)")
    finally:
        server.close()


if __name__ == "__main__":
    main()
