"""``groupcoord dump`` and ``groupcoord analyze`` read a log that replicas share."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from groupcoord.cli.replica_logs import slot_log_at
from groupcoord.cluster.replica import Replica
from tests.command import run_command

from .test_replica import commit_until_taken, coordinator

pytestmark = pytest.mark.ci

NAME = "commands"
NOT_THERE = 'relation "other_slots" does not exist|no replica has ever shared this log'


@pytest.fixture(scope="module", params=["postgres", "three_nats"])
def url(request: pytest.FixtureRequest) -> str:
    """URL of a log in which a group has committed twice."""
    servers = request.getfixturevalue(request.param)
    where: str = servers.url_with("secret")

    async def act() -> None:
        async with slot_log_at(f"{where}#{NAME}") as slot_log, Replica(coordinator(), slot_log, "here") as one:
            for offset in (7, 8):
                await commit_until_taken(one, offset)

    asyncio.run(act())
    return where


def test_dump_prints_it(url: str) -> None:
    """Every record, as of segment files; the copy is gone in the end."""
    done = run_command("dump", f"{url}#{NAME}")
    assert done.status == 0
    assert [json.loads(line)["value"]["data"]["offset"] for line in done.output.splitlines()] == [7, 8]


def test_analyze_reports_of_it(url: str, tmp_path: Path) -> None:
    """The group is in the report, and coordinators that loaded the log agree with it."""
    done = run_command("analyze", "--engine", "local", "--verify", "--out", tmp_path, f"{url}#{NAME}")
    assert done.status == 0
    assert "2 records of 1 log partitions: 1 groups" in done.output
    assert "verified" in done.output


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("dump",), NOT_THERE),
        (("analyze", "--engine", "local"), NOT_THERE),
        (("analyze", "--follow"), "a log that replicas share is read as a copy"),
    ],
)
def test_what_can_not_be_read_is_told(url: str, words: tuple[str, ...], reason: str) -> None:
    """In one line without secrets, with exit status 2."""
    done = run_command(*words, f"{url}#other")
    assert done.status == 2
    assert re.search(reason, done.error)
    assert "secret" not in done.error
    assert "Traceback" not in done.error
