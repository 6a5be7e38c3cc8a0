"""Addresses: those to listen on, and those of clients."""

from __future__ import annotations

import ipaddress

ANY_ADDRESS = ("", "0.0.0.0", "::")
"""Who listens on one of these listens on every address of the machine, and clients must be told another one."""


def kafka_host(address: str) -> str:
    """Return an IP address in the form in which Kafka reports a client's host: ``/127.0.0.1``, ``/0:0:0:0:0:0:0:1``."""
    plain, percent, scope = address.partition("%")
    try:
        parsed = ipaddress.ip_address(plain)
    except ValueError:
        return f"/{address}"
    if parsed.version == 4:
        return f"/{plain}"
    if parsed.ipv4_mapped is not None:
        return f"/{parsed.ipv4_mapped}"
    return "/" + ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":")) + percent + scope
