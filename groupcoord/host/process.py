"""Resources of the process that servers share: file descriptors (``ulimit -n``), listening sockets, the job thread."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from queue import SimpleQueue
from threading import Thread

from groupcoord.broker.work import Job

if sys.platform != "win32":
    import resource

RESERVE = 32
"""Descriptors reserved for the log and for imports on first use."""


def descriptor_limit() -> int:
    """Return how many files and sockets this process may open."""
    if sys.platform == "win32":
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def is_reserved(descriptor: int) -> bool:
    # The system gives the lowest free number, so a high one means that few are left.
    limit = descriptor_limit()
    return descriptor >= limit - min(RESERVE, limit // 8)


MODULES_OF_REQUESTS = (
    "crc32c",
    "difflib",
    "groupcoord.broker.records.produce",
    "groupcoord.broker.security.acls",
    "groupcoord.broker.security.scram",
    "groupcoord.broker.share.letters",
    "groupcoord.coordinator.share_coordinator",
    "groupcoord.core.refusals",
    "groupcoord.records.batches",
    "groupcoord.records.codec",
    "groupcoord.records.share_state",
    "groupcoord.records.transactions",
    "groupcoord.storage.compaction.cleaner",
    "groupcoord.storage.compaction.compactable_logs",
    "groupcoord.storage.log.folder",
    "groupcoord.storage.log.memory_log",
    "groupcoord.storage.log.batches",
    "groupcoord.storage.log.file_log",
    "groupcoord.storage.log.segment_files",
    "groupcoord.storage.stores.topics",
    "kio.schema.streams_group_describe.v0.response",
    "kio.schema.streams_group_heartbeat.v0.response",
    "kio.index",
    "kio.schema.errors",
    "kio.schema.index",
    "kio.schema.request_header.v2.header",
    "kio.schema.response_header.v1.header",
    "kio.static",
)
"""Modules that request handlers and compaction import on first use. Schemas of APIs are not among them: all would take
0.7 s and 22 MiB.
"""


async def import_modules_of_requests() -> None:
    """Import what request handlers need, so that later no request has to open a file for it."""
    for name in MODULES_OF_REQUESTS:
        import_module(name)
        # Requests are served between two imports.
        await asyncio.sleep(0)


SWITCH_INTERVAL_S = 0.0001
"""Time for which a job keeps the interpreter lock while an event loop waits, instead of Python's 5 ms."""


class JobThread:
    """Runs jobs one after the other, for all servers of a process; ends with the process."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[Job, Callable[[], object]]] = SimpleQueue()
        self._thread: Thread | None = None

    def start(self, job: Job, then: Callable[[], object]) -> None:
        self._waiting.put((job, then))
        if self._thread is None or not self._thread.is_alive():  # such as in a forked child
            self._thread = Thread(target=self._work, name="groupcoord-jobs", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            job, then = self._waiting.get()
            interval_s = sys.getswitchinterval()
            # Otherwise a waiting event loop gets the interpreter lock only every 5 ms.
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            job.run()
            sys.setswitchinterval(interval_s)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                then()
            del job, then  # or they stay in memory until the next job


JOBS = JobThread()


ACCEPT_PAUSE_S = 0.1
"""Pause after a failed accept: descriptors or memory have run out, and the socket stays readable."""


async def bind(host: str, port: int) -> list[socket.socket]:
    """Return a bound socket for each address of a host; ``""`` stands for all addresses of this machine."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    socks: list[socket.socket] = []
    # A host may resolve to one address twice.
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            socks.append(socket.create_server(address, family=family))
        except OSError as error:
            if error.errno == errno.EAFNOSUPPORT and len(found) > 1:  # a machine without IPv6
                continue
            for sock in socks:
                sock.close()
            raise
    return socks


class Listening:
    """Bound sockets that accept connections in the running event loop until they are closed.

    An asyncio server of CPython 3.11 that closes while it accepts a connection leaves it to the garbage collector; here
    each one reaches its server.
    """

    def __init__(
        self,
        socks: Iterable[socket.socket],
        backlog: int,
        accepted: Callable[[socket.socket], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socks = list(socks)
        self._accepted = accepted
        self._failed = failed
        for sock in self._socks:
            sock.setblocking(False)
            sock.listen(backlog)
            self._loop.add_reader(sock, self._accept, sock)

    @property
    def port(self) -> int:
        port: int = self._socks[0].getsockname()[1]
        return port

    def close(self) -> None:
        for sock in self._socks:
            self._loop.remove_reader(sock)
            sock.close()

    def _accept(self, listening: socket.socket) -> None:
        # One at a time: a burst must not take the descriptors that are reserved for the log.
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._loop.remove_reader(listening)
            self._loop.call_later(ACCEPT_PAUSE_S, self._resume, listening)
            self._failed(error)
            return
        sock.setblocking(False)
        self._accepted(sock)

    def _resume(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening)
