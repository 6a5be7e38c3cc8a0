"""A port for a server that is told where to listen."""

from __future__ import annotations

import atexit

from groupcoord.conformance.free_ports import FreePorts


def free_port() -> int:
    """Return a port that is kept, and the next one too, until this process ends: a broker takes both."""
    ports = FreePorts()
    atexit.register(ports.give_back)
    return ports.first
