"""How many files and sockets a process may have open."""

from __future__ import annotations

import sys


def descriptor_limit() -> int:
    """Return how many files and sockets this process may have open."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
