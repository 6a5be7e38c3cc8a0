"""Free port for a server that needs a number."""

from __future__ import annotations

import atexit

from groupcoord.conformance.sockets import FreePorts


def free_port(count: int = 2) -> int:
    """Return the first of some ports side by side that are kept until this process ends. A broker takes two."""
    ports = FreePorts(count)
    atexit.register(ports.give_back)
    return ports.first
