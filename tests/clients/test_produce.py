"""Producers of three libraries learn at once that nothing is kept: a failed send, no retries until a time-out."""

from __future__ import annotations

import time

import pytest

from groupcoord.testing.server import ServerThread
from tests.clients.fleet import TOPIC
from tests.clients.libraries import PRODUCERS

pytestmark = pytest.mark.usefixtures("client_libraries")

AT_ONCE_S = 5.0
"""Far below the libraries' delivery time-outs: two minutes, five in confluent-kafka."""


def send(library: str, bootstrap: str, acks: int | str, is_idempotent: bool) -> str:
    """Return the name of the error, or that the record was sent."""
    with PRODUCERS[library](bootstrap, TOPIC, acks=acks, enable_idempotence=is_idempotent) as producer:
        try:
            producer.send([b"value"])
        except Exception as error:
            name: str = error.args[0].name() if library == "confluent-kafka" else type(error).__name__
            return name
    return "sent"


@pytest.mark.parametrize("library", PRODUCERS)
@pytest.mark.parametrize(("acks", "is_idempotent"), [(1, False), ("all", False), ("all", True)])
def test_a_send_fails_at_once(server: ServerThread, library: str, acks: int | str, is_idempotent: bool) -> None:
    """The library reports the error that the server answered, idempotent producer or not, and does not try again."""
    begin = time.monotonic()
    error = "POLICY_VIOLATION" if library == "confluent-kafka" else "PolicyViolationError"
    assert send(library, server.bootstrap, acks, is_idempotent) == error
    assert time.monotonic() - begin < AT_ONCE_S


def test_nobody_waits_with_acks_0(server: ServerThread) -> None:
    """A producer that wants no answer is done when the request is written."""
    assert send("confluent-kafka", server.bootstrap, 0, False) == "sent"
