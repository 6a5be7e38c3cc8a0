"""Ports for servers that are told where to listen: nobody else takes them between the choice and the start.

Ports that an operating system gives out on its own, to whoever asks for any or only connects to somewhere, are left
alone. Of the others a file says which ones are taken by processes that choose in this way too.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from groupcoord.conformance.targets import TargetError

_HOST = "127.0.0.1"
_LOWEST, _HIGHEST = 10_000, 65_000
_USUAL_EPHEMERAL = (32_768, 60_999)
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 200


class FreePorts:
    """Ports side by side on which nobody listens, kept until they are given back.

    Args:
        count: how many. They are taken two by two.

    Attributes:
        first: the lowest one.

    Raises:
        TargetError: there are none.
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
        """Take a port and the next one; tell whether they are ours now."""
        path = Path(tempfile.gettempdir(), f"groupcoord-ports-{os.getuid()}", str(port))
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # somebody who was the last took the folder away
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever gives ports back deletes the file: a lock on one without a name keeps nobody away.
            is_named = os.path.samestat(os.fstat(lock), os.stat(path))
        except OSError:
            is_named = False
        if not is_named:
            os.close(lock)
            return False
        self._locks[path] = lock
        return _is_free(port) and _is_free(port + 1)

    def give_back(self) -> None:
        """Let others take the ports. Harmless when they were given back already."""
        while self._locks:
            path, lock = self._locks.popitem()
            with suppress(OSError):  # the folder is another's as well
                path.unlink()
                path.parent.rmdir()
            os.close(lock)


def _own_range() -> tuple[int, int]:
    """Return the wider of the ranges below and above the ports that the operating system gives out."""
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
