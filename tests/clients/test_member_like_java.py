"""Where a request is refused, the member asks on as Java's consumer does: the same requests in the same order."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from groupcoord.cli.demo_processes import ServerProcess
from groupcoord.member import Closed, CommitCompleted, CommitFailure, Failed, MemberConfig, TopicPartition
from tests.clients.beside import PROGRAMS, ROOT
from tests.clients.fleet import SETTINGS
from tests.clients.refusing_proxy import RefusingProxy
from tests.storage.real_broker import HAS_KAFKA, LIBS

TOPIC = "orders"
LIFE_MS = 6_000
FOREVER_MS = 2**40
LOOKUP = "FindCoordinator"
AT = {"FindCoordinator": 1, "JoinGroup": 2, "SyncGroup": 1, "Heartbeat": 4, "OffsetCommit": 1, "LeaveGroup": 1}
"""The number of the request to refuse. The second join names a member; by the fourth heartbeat all else is done."""

GENERAL = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_SERVER_ERROR")
GROUP = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID")
DENIED = ("GROUP_AUTHORIZATION_FAILED",)
REFUSED = {
    "FindCoordinator": (*GENERAL, *DENIED),
    "JoinGroup": (*GENERAL, *GROUP, *DENIED, "GROUP_MAX_SIZE_REACHED", "INCONSISTENT_GROUP_PROTOCOL"),
    "SyncGroup": (*GENERAL, *GROUP, *DENIED),
    "Heartbeat": (*GENERAL, *GROUP, *DENIED),
    "OffsetCommit": (*GENERAL, *GROUP, *DENIED, "UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_METADATA_TOO_LARGE"),
    "LeaveGroup": (*GENERAL, "UNKNOWN_MEMBER_ID"),
}
SCENARIOS = list(chain.from_iterable([f"{api}-{AT[api]}-{code}" for code in codes] for api, codes in REFUSED.items()))
CONFIG = {
    "heartbeat.interval.ms": 300,
    "session.timeout.ms": 6_000,
    "enable.auto.commit": False,
    "partition.assignment.strategy": "range",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_KAFKA, reason="there is no java, or there are no jars of Kafka 4"),
]


async def live(example: Any, bootstrap: tuple[str, int], group: str) -> None:
    """Do what ``JavaLives.java`` does: poll for a while, commit once when there are partitions, close."""
    failed, closed = asyncio.Event(), asyncio.Event()

    def tell(event: Any) -> None:
        refused = (CommitFailure.COMMIT_FAILED, CommitFailure.REBALANCE_IN_PROGRESS)
        is_fatal = isinstance(event, CommitCompleted) and event.failure not in (None, *refused)
        if isinstance(event, Failed) or is_fatal:
            failed.set()
        elif isinstance(event, Closed):
            closed.set()

    host = example.AsyncMember(bootstrap, MemberConfig.from_properties({"group.id": group, **CONFIG}), tell)
    host.member.subscribe([TOPIC], host.now_ms())
    host.member.poll(host.now_ms(), FOREVER_MS)
    host.pump()
    end_ms, has_committed = host.now_ms() + LIFE_MS, False
    while host.now_ms() < end_ms and not failed.is_set():
        await asyncio.sleep(0.02)
        if host.member.assignment and not has_committed:
            has_committed = True
            host.member.commit_sync({TopicPartition(TOPIC, 0): 1}, host.now_ms())
            host.pump()
    host.member.close(host.now_ms())
    host.pump()
    await closed.wait()
    host.close()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """What Java's consumers and ours asked, by group."""
    with RefusingProxy() as proxy, pytest.MonkeyPatch.context() as patch:
        words = ("--advertised-port", str(proxy.port))
        server = ServerProcess(tmp_path_factory.mktemp("data"), topics={TOPIC: 2}, settings=SETTINGS, words=words)
        try:
            proxy.target_port = server.port
            patch.syspath_prepend(str(ROOT / "examples"))
            import asyncio_member  # type: ignore[import-not-found]

            bootstrap = ("127.0.0.1", proxy.port)

            async def all_of_ours() -> None:
                await asyncio.gather(*(live(asyncio_member, bootstrap, f"ours-{name}") for name in SCENARIOS))

            asyncio.run(all_of_ours())
            groups = [f"java-{name}" for name in SCENARIOS]
            options = ["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", f"{LIBS}/*"]
            arguments = [f"{bootstrap[0]}:{bootstrap[1]}", TOPIC, str(LIFE_MS), *groups]
            subprocess.run(["java", *options, PROGRAMS / "JavaLives.java", *arguments], check=True, timeout=180)
            yield dict(proxy.asked)
        finally:
            server.kill()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_member_asks_as_java_does(asked: dict[str, list[str]], scenario: str) -> None:
    """One refusal, and from there on the same requests, to the leave."""
    assert told_once(asked[f"ours-{scenario}"]) == told_once(asked[f"java-{scenario}"])


def told_once(requests: list[str]) -> list[str]:
    """Leave out repeated lookups: Java's consumer looks again while it may not yet reconnect to what it has found."""
    return [api for api, before in zip(requests, [None, *requests], strict=False) if api != before or api != LOOKUP]
