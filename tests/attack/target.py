"""The server under attack: ``groupcoord serve``, one process or several, whose memory, sockets and log are watched."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.crash.processes import ServerFailedError

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0
COMMAND = [sys.executable, "-c", "from groupcoord.cli import main; main()", "serve"]
TOPICS = {"healthy": 2, "orders": 6, "bills": 1, "wide": 2_000}
SETTINGS: dict[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
}
MIB = 1024 * 1024


class Target:
    """One server.

    Args:
        folder: where the data directory and the log of each process go.
        settings: besides :data:`SETTINGS`.
        data_dir: where the server keeps its data; below ``folder`` by default.
        command: what starts it, for another way to run the same command.
        workers: how many processes it consists of. The first one coordinates all groups.

    Attributes:
        port: where it listens, or the first of its workers.
        worker_ports: where each of its workers listens.
        ports: by the names of its listeners, where it listens.
    """

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str | int] | None = None,
        data_dir: Path | None = None,
        command: list[str] | None = None,
        workers: int = 1,
    ) -> None:
        self.folder = folder
        self.data_dir = data_dir or folder / "data"
        self.port = 0
        self.worker_ports: list[int] = []
        self.ports: dict[str, int] = {}
        self._settings = {**SETTINGS, **(settings or {})}
        self._worker_count = workers
        self._pids: list[int] = []
        self._command = command or COMMAND
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0
        self._quiet_sockets = 0

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """What the process writes to stderr."""
        return self.folder / f"log-{self._count}.txt"

    def start(self) -> None:
        """Start a process, and wait until it listens; one that still runs is killed first.

        Raises:
            ServerFailedError: it doesn't. The message holds its log.
        """
        self.kill()
        self._count += 1
        arguments = ["--port", "0", "--data-dir", str(self.data_dir)]
        if self._worker_count > 1:
            arguments += ["--workers", str(self._worker_count)]
        for topic, count in TOPICS.items():
            arguments += ["--topic", f"{topic}:{count}"]
        settings = {**self._settings, **({"offsets.topic.num.partitions": 1} if self._worker_count > 1 else {})}
        for key, value in settings.items():
            arguments += ["--set", f"{key}={value}"]
        with open(self.log_path, "wb") as log:
            self._process = subprocess.Popen([*self._command, *arguments], stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        line = self._process.stdout.readline().decode() if readable else ""
        found = re.search(r"listening on \S+:(\d+)", line)
        if found is None:
            self.kill()
            raise ServerFailedError(f"the server did not start:\n{self.log()[-2_000:]}")
        self.port = int(found[1])
        self.worker_ports = [int(port) for port in re.findall(r":(\d+)", line.partition(" (")[0])]
        self.ports = {name: int(port) for name, port in re.findall(r"(\w+)://\S+?:(\d+)", line)}
        self._pids = self._children() if self._worker_count > 1 else [self.pid]
        self._quiet_sockets = self._all_sockets()

    def _children(self) -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def is_alive(self) -> bool:
        """Tell whether none of its processes has ended by itself."""
        if self._process is None or self._process.poll() is not None:
            return False
        return self._worker_count == 1 or self._children() == self._pids

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        if self._process is not None:
            self._process.kill()
            if self._worker_count > 1 and self._process.poll() is None:
                for pid in self._children():
                    os.kill(pid, signal.SIGKILL)
            self._bury()

    def _bury(self) -> None:
        assert self._process is not None
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def end(self) -> tuple[int | None, float]:
        """Send SIGTERM; return the exit status and after how many seconds. None: it had to be killed."""
        assert self._process is not None
        begin_s = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return None, time.monotonic() - begin_s
        self._bury()
        return self._process.returncode, time.monotonic() - begin_s

    def connect(self, timeout_s: float = 30.0, worker: int = 0) -> socket.socket:
        """Connect to it, or to one of its workers."""
        return socket.create_connection(("127.0.0.1", self.worker_ports[worker]), timeout_s)

    def log(self) -> str:
        """Return what the process has written to stderr."""
        return self.log_path.read_text("utf-8", "replace")

    def memory_mib(self) -> tuple[float, float]:
        """Return its resident memory now, and at the most since it started, in MiB: of its largest process."""
        return max(_memory_mib(pid) for pid in self._pids)

    def processor_s(self) -> float:
        """Return how many seconds of processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def socket_count(self) -> int:
        """Return how many connections its process holds, those that it has given up included."""
        return self._all_sockets() - self._quiet_sockets

    def descriptor_count(self) -> int:
        """Return how many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def limit(self, kind: int, value: int) -> None:
        """Set a soft limit of its process (``resource.RLIMIT_…``); -1 is none."""
        hard = resource.prlimit(self.pid, kind)[1]
        soft = hard if value < 0 else value
        resource.prlimit(self.pid, kind, (soft, hard))

    def _all_sockets(self) -> int:
        return sum(_socket_count(pid) for pid in self._pids)


def _memory_mib(pid: int) -> tuple[float, float]:
    status = Path(f"/proc/{pid}/status").read_text()
    now, most = re.search(r"VmRSS:\s*(\d+)", status), re.search(r"VmHWM:\s*(\d+)", status)
    assert now is not None
    assert most is not None
    return int(now[1]) / 1024, int(most[1]) / 1024


def _socket_count(pid: int) -> int:
    """Return how many sockets a process has, but those by which the processes of this machine ask each other."""
    between = {line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    folder, count = f"/proc/{pid}/fd", 0
    for name in os.listdir(folder):
        try:
            link = os.readlink(f"{folder}/{name}")
        except FileNotFoundError:
            continue
        count += link.startswith("socket:") and link[len("socket:[") : -1] not in between
    return count
