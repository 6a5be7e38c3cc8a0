"""Groups of real clients over TCP: kafka-python, aiokafka and confluent-kafka, each alone and all in one group."""

from __future__ import annotations

from pathlib import Path

from groupcoord.cli.demo_processes import acknowledged, committed_offsets, wait_until
from tests.clients.fleet import (
    DEADLINE_S,
    PARTITION_COUNT,
    SESSION_TIMEOUT_MS,
    TOPIC,
    Group,
    follows,
    is_stable,
    open_groups,
    open_server,
    wait_for_all,
)

SLACK_S = 5.0


def test_a_dead_member_and_a_dead_server(tmp_path: Path) -> None:
    """Partitions are shared out, taken over from a killed member, and all goes on after the server is killed."""
    server = open_server(tmp_path)
    try:
        with open_groups(server) as groups:
            share_out(server, groups)
            kill_a_member(server, groups)
            server = kill_the_server(server, tmp_path, groups)
            leave(server, groups)
    finally:
        server.kill()
