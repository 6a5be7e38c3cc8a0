"""Two replicas on one log in PostgreSQL; the coordinating one is suspended for random times. After a take-over it must
not answer as a coordinator, whatever it had begun.
"""

from __future__ import annotations

import random
import select
import signal
import time

from tests.attack.rig import Result
from tests.storage.sql.postgres_server import NoServerError, PostgresServer
from tests.storage.sql.replicas import Replica, Replicas

LEASE_MS, HELD = 300, 5
PATIENCE_S = 30.0
LOST = "NOT_COORDINATOR"


def attack_owners(result: Result, rounds: int, seed: int) -> None:
    """Stop the active replica with SIGSTOP, each time for up to twice as long as its lease and a take-over.

    Args:
        result: what is found.
        rounds: how often.
        seed: decides how long each time.
    """
    result.again = f"--rounds {rounds} --seed {seed}"
    try:
        server = PostgresServer()
    except NoServerError as error:
        result.notes.append(f"not tried: no PostgreSQL can be started: {error}")
        return
    try:
        with Replicas(server.conninfo, LEASE_MS) as replicas:
            chance = random.Random(seed)
            for _ in range(rounds):
                _stand_still(replicas, chance.uniform(0, 4 * LEASE_MS / 1_000), result)
    finally:
        server.close()


def _stand_still(replicas: Replicas, pause_s: float, result: Result) -> None:
    stopped, other = replicas.active, replicas.standby
    asked = [stopped.begin("ann", replicas.epoch, replicas.owned) for _ in range(HELD)]
    stopped.send(signal.SIGSTOP)
    begin_s = time.monotonic()
    asked += [stopped.begin("ann", replicas.epoch, replicas.owned) for _ in range(HELD)]
    is_taken_over = False
    while time.monotonic() < begin_s + pause_s and not is_taken_over:
        is_taken_over = _answers(replicas, other)
    answered, _, _ = select.select(asked, [], [], 0)
    stopped.send(signal.SIGCONT)
    told = [Replica.end(connection)["error"] for connection in asked if connection not in answered]
    for connection in answered:
        connection.close()
    result.count("pauses")
    result.count("answers that were held", len(told))
    if is_taken_over:
        result.count("take-overs")
        if set(told) != {LOST}:
            result.fault(f"after {pause_s:.2f} s, when the other one had answered: {told}")
        replicas.active, replicas.standby = other, stopped
    _wait_for_one(replicas, result)


def _wait_for_one(replicas: Replicas, result: Result) -> None:
    """Wait until one of the two coordinates, which knows what was promised, and the other doesn't."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not _answers(replicas, replicas.active):
        if _answers(replicas, replicas.standby):
            replicas.active, replicas.standby = replicas.standby, replicas.active
        assert time.monotonic() < deadline_s, "nobody coordinates"
    if _answers(replicas, replicas.standby):
        result.fault("both coordinate")


def _answers(replicas: Replicas, replica: Replica) -> bool:
    """Return whether a replica coordinates: its answers are then promises."""
    told = replica.beat("ann", replicas.epoch, replicas.owned)
    assert told["error"] in (LOST, "NONE"), f"the worker was told {told}"
    return bool(told["error"] != LOST)
