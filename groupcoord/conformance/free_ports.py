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
    """Two ports side by side on which nobody listens, kept until they are given back.

    Attributes:
        first: the lower one.

    Raises:
        TargetError: there are none.
    """

    def __init__(self) -> None:
        folder = Path(tempfile.gettempdir(), f"groupcoord-ports-{os.getuid()}")
        chance = random.SystemRandom()
        lowest, highest = _own_range()
        for _ in range(_TRIES):
            self.first = chance.randrange(lowest, highest, 2)
            self._path = folder / str(self.first)
            folder.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileNotFoundError):  # somebody who was the last took the folder away
                self._lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                if self._is_taken():
                    return
                os.close(self._lock)
        raise TargetError("no two free ports side by side")

    def _is_taken(self) -> bool:
        """Tell whether the ports are ours now."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever gives ports back deletes the file: a lock on one without a name keeps nobody away.
            is_named = os.path.samestat(os.fstat(self._lock), os.stat(self._path))
        except OSError:
            return False
        return is_named and _is_free(self.first) and _is_free(self.first + 1)

    def give_back(self) -> None:
        """Let others take the ports. Harmless when they were given back already."""
        if self._lock >= 0:
            with suppress(OSError):  # the folder is another's as well
                self._path.unlink()
                self._path.parent.rmdir()
            os.close(self._lock)
            self._lock = -1


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
