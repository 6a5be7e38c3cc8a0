"""A host without sockets: it looks after one connection at a time, and does all that there is to do."""

from __future__ import annotations

from collections import deque

from groupcoord.broker.broker import Broker
from groupcoord.broker.connection import Connection
from groupcoord.broker.work import Job, do_in_place


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


class LateJobs:
    """Takes the jobs of a broker, and does each when it is told to: as another thread that takes its time."""

    def __init__(self, broker: Broker) -> None:
        self.waiting: deque[Job] = deque()
        broker.start_job = self.waiting.append

    def do_next(self) -> bool:
        if not self.waiting:
            return False
        do_in_place(self.waiting.popleft())
        return True
