"""A host without sockets: it looks after one connection at a time, and does all that there is to do."""

from __future__ import annotations

from groupcoord.broker.connection import Connection


def feed(connection: Connection, data: bytes) -> None:
    """Give bytes to a connection, and let everything that was received be handled that can be."""
    connection.receive_data(data)
    connection._broker.handle_waiting()


def drain(connection: Connection) -> bytes:
    """Return all that a connection has to say, with what is handled only when that has been taken."""
    output = b""
    while taken := connection.take_output():
        output += taken
        connection._broker.handle_waiting()
    return output
