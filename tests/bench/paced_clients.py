"""Whether clients that pause for a fixed time after each answer stay in step, and what that costs them.

    python -m tests.bench.paced_clients --port 9092 [--clients 10000] [--pause 3] [--seconds 60] [--spread 0]

Ten thousand consumers that were started together all ask at the same moment. If a server answers them all at once, they
ask together again for ever, and each waits for all the others; if it answers each as soon as it can, they drift apart.
Every client sends a heartbeat of a group of its own, waits for the answer, pauses, and sends the next. The figures are
those of the last third of the time. ``--spread`` draws each pause around the given one, up to this fraction: for
comparison, since such clients are never in step. The server is started by whoever measures.
"""

from __future__ import annotations

import argparse
import heapq
import selectors
import socket
import statistics
import time
from random import Random

from tests.broker.kafka_bytes import heartbeat

ANSWER_BYTES_MAX = 4_096


class Client:
    """One connection with at most one request under way."""

    def __init__(self, port: int, number: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = heartbeat(1, f"group-{number}")
        self.asked_s = 0.0

    def ask(self) -> None:
        self.asked_s = time.perf_counter()
        self.sock.sendall(self.request)


def measure(port: int, count: int, pause_s: float, seconds: float, spread: float) -> tuple[list[float], int]:
    """Return the waits of the last third, in seconds, and how many requests were answered in all."""
    chance = Random(1)
    selector = selectors.DefaultSelector()
    clients = [Client(port, number) for number in range(count)]
    for client in clients:
        selector.register(client.sock, selectors.EVENT_READ, client)
    begin_s = time.perf_counter()
    due = [(begin_s, number) for number in range(count)]
    numbers = {id(client): number for number, client in enumerate(clients)}
    waits: list[float] = []
    answered = 0
    while (now_s := time.perf_counter()) < begin_s + seconds:
        while due and due[0][0] <= now_s:
            clients[heapq.heappop(due)[1]].ask()
        timeout_s = max(due[0][0] - time.perf_counter(), 0.0) if due else 1.0
        for key, _ in selector.select(timeout_s):
            client: Client = key.data
            if not client.sock.recv(ANSWER_BYTES_MAX):
                raise ConnectionError("the server closed a connection")
            answered_s = time.perf_counter()
            answered += 1
            if answered_s > begin_s + seconds * 2 / 3:
                waits.append(answered_s - client.asked_s)
            next_pause_s = pause_s * (1 + spread * chance.uniform(-1, 1))
            heapq.heappush(due, (answered_s + next_pause_s, numbers[id(client)]))
    for client in clients:
        client.sock.close()
    return waits, answered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--pause", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--spread", type=float, default=0.0, metavar="FRACTION")
    arguments = parser.parse_args()
    waits, answered = measure(arguments.port, arguments.clients, arguments.pause, arguments.seconds, arguments.spread)
    waits.sort()
    print(
        f"{answered:,} answers; of the last third: median {1000 * statistics.median(waits):.2f} ms, "
        f"99 % {1000 * waits[int(len(waits) * 0.99)]:.2f} ms, slowest {1000 * waits[-1]:.2f} ms"
    )


if __name__ == "__main__":
    main()
