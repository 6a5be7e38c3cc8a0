"""Groups of real clients: kafka-python, aiokafka and confluent-kafka, each alone and all three in one group."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.clients.fleet import (
    SESSION_TIMEOUT_MS,
    TOPIC,
    Group,
    follows,
    is_stable,
    open_groups,
    open_server,
    wait_for_all,
)
from tests.processes import acknowledged, committed_offsets, describe_group

SLACK_S = 5.0
ROUNDS = 5

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("client_libraries")]


def commit_more(groups: list[Group]) -> None:
    """Wait until every member has committed some more."""
    before = {member.name: member.commit_count for group in groups for member in group.members}
    wait_for_all(
        groups,
        lambda group: all(member.commit_count >= before[member.name] + ROUNDS for member in group.members),
        "every member commits",
    )


def test_every_partition_is_owned_once(tmp_path: Path) -> None:
    """Three members share out all partitions and commit; the server names them; when they leave, the group is empty."""
    with open_server(tmp_path) as server, open_groups(server) as groups:
        wait_for_all(groups, partial(is_stable, server), "the server says: Stable, with these members")
        commit_more(groups)
        assert [member.failures for group in groups for member in group.members] == [[]] * 12
        for group in groups:
            for member in group.members:
                member.ask_to_stop()
        for group in groups:
            assert [member.stop() for member in group.members] == [0, 0, 0]
            described = describe_group(server.port, group.group_id)
            assert (described.state, described.client_ids) == ("Empty", ())
            assert committed_offsets(server.port, group.group_id, TOPIC) == acknowledged(group.members)


def test_a_killed_member(tmp_path: Path) -> None:
    """The others own everything soon after the session time-out, not before, and go on where it has stopped."""
    with open_server(tmp_path) as server, open_groups(server) as groups:
        commit_more(groups)
        dead = {group.group_id: group.members.pop(1) for group in groups}
        for member in dead.values():
            member.kill()
        took_s = wait_for_all(groups, Group.owns_all, "the others own every partition")
        assert SESSION_TIMEOUT_MS / 1000 / 2 < took_s < SESSION_TIMEOUT_MS / 1000 + SLACK_S
        wait_for_all(groups, partial(is_stable, server), "the server knows who is left")
        for group in groups:
            last = dead[group.group_id].acknowledged
            resumed = {p: offset for member in group.members for p, offset in member.started_at.items()}
            assert len(last) == 4
            assert all(resumed[partition] >= offset for partition, offset in last.items()), (last, resumed)
        commit_more(groups)


def test_a_killed_server(tmp_path: Path) -> None:
    """kill -9 under load loses no acknowledged offset, twice; the same members then own and commit everything again."""
    server = open_server(tmp_path)
    try:
        with open_groups(server, commit_interval_ms=10) as groups:
            for _ in range(2):
                commit_more(groups)
                server.kill()
                stored = look_aside(tmp_path, groups)
                wait_for_all(groups, partial(follows, stored), "what is stored follows from what was acknowledged")
                server = open_server(tmp_path, server.port)
                commit_more(groups)
                wait_for_all(groups, Group.owns_all, "every partition is owned once")
                wait_for_all(groups, partial(is_stable, server), "the server says: Stable, with these members")
                for group in groups:
                    now = committed_offsets(server.port, group.group_id, TOPIC)
                    assert all(now[partition] > offset for partition, offset in stored[group.group_id].items())
    finally:
        server.kill()


def look_aside(data_dir: Path, groups: list[Group]) -> dict[str, dict[int, int]]:
    """Read the offsets of all groups with a server on another port, where the members can't commit meanwhile."""
    with open_server(data_dir) as server:
        return {group.group_id: committed_offsets(server.port, group.group_id, TOPIC) for group in groups}
