"""Servers over TCP in real time: at an address, or launched for the run on free ports."""

from __future__ import annotations

import fcntl
import os
import random
import select
import shlex
import shutil
import signal
import socket
import ssl
import string
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from groupcoord.config.client_properties import ClientProperties, parse_address
from groupcoord.config.files import parse_toml, read_text
from groupcoord.conformance.client import log_in
from groupcoord.conformance.targets import WALL_TIME, ConnectionClosedError, Settings, TargetError, Tolerance
from groupcoord.core.messages import Node

_CONNECT_TIMEOUT_SECONDS = 10.0
_CHUNK_BYTES = 1 << 18


class SocketStream:
    """TCP connection, optionally with TLS."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_SECONDS)
        except OSError as error:
            raise ConnectionClosedError(f"can't connect to {host}:{port}: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._encrypt(tls, host, port)

    def _encrypt(self, tls: ssl.SSLContext, host: str, port: int) -> None:
        try:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:  # including ssl.SSLError
            self._socket.close()
            raise ConnectionClosedError(f"no TLS with {host}:{port}: {error.strerror or error}") from error

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionClosedError(f"can't send: {error}") from error

    def receive(self, timeout_ms: float) -> bytes:
        if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):  # no data decrypted
            poll = select.poll()  # unlike select(), it accepts any descriptor
            poll.register(self._socket, select.POLLIN)
            if not poll.poll(max(timeout_ms, 0)):
                return b""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError as error:
            raise ConnectionClosedError(f"the connection broke: {error}") from error
        if not data:
            raise ConnectionClosedError("the server closed the connection")
        return data

    def close(self) -> None:
        self._socket.close()


class SocketServer:
    """Server at an address, which others start and stop; ``properties`` has its TLS and SASL settings."""

    def __init__(self, host: str, port: int, properties: ClientProperties | None = None) -> None:
        self._host = host
        self._port = port
        self._properties = properties
        self._tls = properties.tls_context() if properties is not None and properties.uses_tls else None

    def connect(self, node: Node | None = None) -> SocketStream:
        host, port = (self._host, self._port) if node is None else (node.host, node.port)
        stream = SocketStream(host, port, self._tls)
        if self._properties is not None and self._properties.uses_sasl:
            try:
                log_in(stream, self._properties)
            except ConnectionClosedError:
                stream.close()
                raise
        return stream

    def wall_ms(self) -> float:
        return time.time() * 1000

    def now_ms(self) -> float:
        return time.monotonic() * 1000

    def sleep(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1000)

    def restart(self) -> None:
        raise TargetError("a server at an address cannot be restarted; use --launch")

    def stop(self) -> None: ...


class AddressTarget:
    """Running server; its settings are its owner's, and transcripts that restart it are skipped.

    Args:
        host: host name or address.
        port: TCP port.
        properties: TLS and SASL settings, or None.
        settings: known settings by Kafka's keys; others are queried.
        tolerance: see :class:`Target`.

    Raises:
        ConfigError: certificates or keys cannot be read.
    """

    shared = True
    can_restart = False

    def __init__(
        self,
        host: str,
        port: int,
        *,
        properties: ClientProperties | None = None,
        settings: Mapping[str, str] | None = None,
        tolerance: Tolerance = WALL_TIME,
    ) -> None:
        self._server = SocketServer(host, port, properties)
        self.own_settings: Mapping[str, str] = dict(settings or {})
        self.tolerance = tolerance

    @classmethod
    def from_text(
        cls, address: str, *, properties: ClientProperties | None = None, settings: Mapping[str, str] | None = None
    ) -> AddressTarget:
        """Return a target for ``HOST:PORT``; IPv6 addresses are in brackets, and the port defaults to 9092.

        Raises:
            ConfigError: the text has another form.
        """
        host, port = parse_address(address)
        return cls(host, port, properties=properties, settings=settings)

    def sets(self, key: str) -> bool:
        """Return False: the settings are the server owner's."""
        return False

    def start(self, settings: Settings, nodes: int = 1) -> SocketServer:
        """Return the server with its own settings."""
        self.check()
        return self._server

    def check(self) -> None:
        """Check that the server accepts a connection and a log-in.

        Raises:
            ConnectionClosedError: it does not.
        """
        self._server.connect().close()


_HOST = "127.0.0.1"
_LOWEST, _HIGHEST = 10_000, 65_000
_USUAL_EPHEMERAL = (32_768, 60_999)
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 200


class FreePorts:
    """Consecutive free ports, reserved in pairs until they are given back.

    Attributes:
        first: the lowest port.
    """

    def __init__(self, count: int = 2) -> None:
        self._locks: dict[Path, int] = {}
        chance = random.SystemRandom()
        lowest, highest = _own_range()
        for _ in range(_TRIES):
            self.first = chance.randrange(lowest, highest - count + 2, 2)
            if all(self._take(port) for port in range(self.first, self.first + count, 2)):
                return
            self.give_back()
        raise TargetError(f"no {count} free ports side by side")

    def _take(self, port: int) -> bool:
        path = Path(tempfile.gettempdir(), f"groupcoord-ports-{os.getuid()}", str(port))
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # another process removed the empty folder
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Giving back deletes the file: a lock on a deleted file reserves nothing.
            is_named = os.path.samestat(os.fstat(lock), os.stat(path))
        except OSError:
            is_named = False
        if not is_named:
            os.close(lock)
            return False
        self._locks[path] = lock
        return _is_free(port) and _is_free(port + 1)

    def give_back(self) -> None:
        while self._locks:
            path, lock = self._locks.popitem()
            with suppress(OSError):  # other processes use the folder as well
                path.unlink()
                path.parent.rmdir()
            os.close(lock)


def _own_range() -> tuple[int, int]:
    try:
        low, high = map(int, _EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        low, high = _USUAL_EPHEMERAL
    ranges = [(_LOWEST, low), (high + 1, _HIGHEST)]
    lowest, highest = max(ranges, key=lambda ports: ports[1] - ports[0])
    return (lowest, highest - 1) if highest - lowest > _TRIES else (_LOWEST, _HIGHEST)


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind((_HOST, port))
        except OSError:
            return False
        return True


_STARTS = 3
_START_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.05
_KILL_TIMEOUT_SECONDS = 10.0
_LOG_TAIL_BYTES = 2000
_PLACEHOLDERS = ("port", "dir", "sets", "nodes")
_IN_SETTINGS = ("key", "value")
_USUAL_ARGUMENTS: Mapping[str, str] = {"*": "--set {key}={value}"}


class ServerDiedError(TargetError):
    """A server ended before it listened."""


def placeholders_in(text: str, known: Collection[str]) -> set[str]:
    """Return the placeholders of a command; raise ValueError for an unknown one."""
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    except ValueError as error:
        raise ValueError(f"{text!r} can't be read: {error}") from None
    if unknown := names.difference(known):
        there_are = " ".join(f"{{{name}}}" for name in known)
        raise ValueError(f"unknown placeholder {{{min(unknown)}}} in {text!r}; there are {there_are}")
    return names


class LaunchTarget:
    """Servers started from a command line, one for each group of settings, on free ports.

    Args:
        command: split into words like a shell command. ``{port}`` is the port to listen on (the next port is free as
            well), ``{dir}`` a folder for data, ``{sets}`` the broker settings: ``--set key=value``, or as in
            ``words_for``, where they are appended if it is missing. ``{nodes}`` is the number of nodes; without it,
            transcripts with several nodes are skipped.
        words_for: words with ``{key}`` and ``{value}`` by Kafka's keys, ``*`` for all other keys; other settings cannot
            be set. None for ``{"*": "--set {key}={value}"}``.
        tolerance: see :class:`Target`.

    Raises:
        ValueError: the command cannot be split, lacks ``{port}`` or (without ``words_for``) ``{sets}``, or has an
            unknown placeholder.
    """

    shared = True
    can_restart = True
    own_settings: Mapping[str, str] | None = None

    def __init__(
        self, command: str, *, words_for: Mapping[str, str] | None = None, tolerance: Tolerance = WALL_TIME
    ) -> None:
        names = placeholders_in(command, _PLACEHOLDERS)
        self._words = shlex.split(command)
        self._words_for = _USUAL_ARGUMENTS if words_for is None else words_for
        self._servers: list[LaunchedServer] = []
        self.tolerance = tolerance
        for words in self._words_for.values():
            placeholders_in(words, _IN_SETTINGS)
        if words_for is not None and "sets" not in names:
            self._words.append("{sets}")
            names.add("sets")
        for name in ("port", "sets"):
            if name not in names:
                raise ValueError(f"{{{name}}} is missing in {command!r}")

    @classmethod
    def load(cls, command: str, table: Path) -> LaunchTarget:
        """Return a target with ``words_for`` from a TOML file: ``"group.max.size" = "--group-max {value}"``.

        Raises:
            ValueError: the file or the command is invalid.
        """
        try:
            words_for = parse_toml(read_text(table))
        except (OSError, ValueError) as error:
            raise ValueError(f"{table} can't be read: {getattr(error, 'strerror', None) or error}") from None
        for key, words in words_for.items():
            if not isinstance(words, str):
                raise ValueError(f'{table}: {key!r} has to be a text in a line of its own: "{key}.…" = "…"')
        return cls(command, words_for=words_for)

    def sets(self, key: str) -> bool:
        """Return whether the command can set this setting."""
        return key in self._words_for or "*" in self._words_for

    def start(self, settings: Settings, nodes: int = 1) -> LaunchedServer:
        """Start a server and wait until it listens; retry twice on other ports if it ends."""
        words = self._setting_arguments(settings)
        for _ in range(_STARTS - 1):
            with suppress(ServerDiedError):
                return LaunchedServer(self._words, words, self._servers, nodes)
        return LaunchedServer(self._words, words, self._servers, nodes)

    def _setting_arguments(self, settings: Settings) -> list[str]:
        return [
            word.format(key=key, value=value)
            for key, value in settings.items()
            for word in shlex.split(self._words_for.get(key, self._words_for.get("*", "")))
        ]

    def check(self) -> None:
        """Check that the program exists.

        Raises:
            TargetError: it does not.
        """
        program = self._words[0]
        if not any(name in program for name in "{}") and shutil.which(program) is None:
            raise TargetError(f"cannot start {program}: no such program")

    def stop_all(self) -> None:
        """Kill every running server; safe in a signal handler."""
        for server in tuple(self._servers):
            server.stop()


class LaunchedServer(SocketServer):
    """Server process in its own process group."""

    def __init__(self, words: list[str], sets: list[str], running: list[LaunchedServer], nodes: int = 1) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="groupcoord-conformance-"))
        self._running = running
        running.append(self)
        self._ports = FreePorts()
        self._listen_port = self._ports.first
        super().__init__(_HOST, self._listen_port)
        folder, port = str(self._folder / "data"), self._listen_port
        values = {"port": port, "dir": folder, "sets": shlex.join(sets), "nodes": nodes}
        self._command: list[str] = []
        for word in words:
            self._command += sets if word == "{sets}" else [word.format(**values)]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._launch()
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        self._kill()
        self._launch()

    def stop(self) -> None:
        self._kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._ports.give_back()
        if self in self._running:
            self._running.remove(self)

    def _launch(self) -> None:
        with (self._folder / "server.log").open("ab") as log, _signals_held():
            try:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            except OSError as error:
                raise TargetError(f"can't start {shlex.join(self._command)}: {error}") from error
        give_up = time.monotonic() + _START_TIMEOUT_SECONDS
        while time.monotonic() < give_up:
            if (status := self._process.poll()) is not None:
                raise ServerDiedError(f"{shlex.join(self._command)} ended with status {status}{self._log_tail()}")
            with suppress(ConnectionClosedError):
                SocketStream(_HOST, self._listen_port).close()
                return
            time.sleep(_POLL_SECONDS)
        raise TargetError(
            f"{shlex.join(self._command)} did not listen on port {self._listen_port} within "
            f"{_START_TIMEOUT_SECONDS:.0f} s{self._log_tail()}"
        )

    def _kill(self) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        # Limited: in a signal handler that interrupted a poll, the wait would never end.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_TIMEOUT_SECONDS)
        self._process = None

    def _log_tail(self) -> str:
        text = last_words(self._folder / "server.log")
        return f"; its last output:\n{text}" if text else "; it printed nothing"


def last_words(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES, 0))
        return log.read().decode(errors="replace").strip()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Delay signals until this process knows its child, which their handlers must end, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[signal.Signals] = []

    def hold(number: int, frame: FrameType | None) -> None:
        came.append(signal.Signals(number))

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handled = {number: handler for number, handler in before.items() if callable(handler)}
    for number in handled:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)
