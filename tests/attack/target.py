"""The server under attack: a process of ``groupcoord serve`` whose memory, sockets and log are watched."""

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
    """One server process.

    Args:
        folder: where the data directory and the log of each process go.
        settings: besides :data:`SETTINGS`.
        data_dir: where the server keeps its data; below ``folder`` by default.
        command: what starts it, for another way to run the same command.
    """

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str | int] | None = None,
        data_dir: Path | None = None,
        command: list[str] | None = None,
    ) -> None:
        self.folder = folder
        self.data_dir = data_dir or folder / "data"
        self.port = 0
        self.ports: dict[str, int] = {}
        self._settings = {**SETTINGS, **(settings or {})}
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
        for topic, count in TOPICS.items():
            arguments += ["--topic", f"{topic}:{count}"]
        for key, value in self._settings.items():
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
        self.ports = {name: int(port) for name, port in re.findall(r"(\w+)://\S+?:(\d+)", line)}
        self._quiet_sockets = self._all_sockets()

    def is_alive(self) -> bool:
        """Tell whether the process has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        if self._process is not None:
            self._process.kill()
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

    def connect(self, timeout_s: float = 30.0) -> socket.socket:
        """Connect to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout_s)

    def log(self) -> str:
        """Return what the process has written to stderr."""
        return self.log_path.read_text("utf-8", "replace")

    def memory_mib(self) -> tuple[float, float]:
        """Return its resident memory now, and at the most since it started, in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        now, most = re.search(r"VmRSS:\s*(\d+)", status), re.search(r"VmHWM:\s*(\d+)", status)
        assert now is not None
        assert most is not None
        return int(now[1]) / 1024, int(most[1]) / 1024

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
        folder = f"/proc/{self.pid}/fd"
        count = 0
        for name in os.listdir(folder):
            try:
                count += os.readlink(f"{folder}/{name}").startswith("socket:")
            except FileNotFoundError:
                continue
        return count
