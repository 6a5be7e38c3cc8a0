"""One life of a consumer, led by ours and by Java's or librdkafka's, through a proxy that refuses one request of it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from groupcoord.member import Closed, CommitCompleted, CommitFailure, Failed, MemberConfig, TopicPartition
from tests.clients.beside import PROGRAMS, ROOT
from tests.clients.refusing_proxy import RefusingProxy
from tests.processes import ServerProcess
from tests.storage.real_broker import LIBS

TOPIC = "orders"
FOREVER_MS = 2**40
LOOKUP = "FindCoordinator"
AT_A_TIME = 10


@frozen
class Life:
    """Lifetime of a consumer, and the times of its commits."""

    duration_ms: int = 6_000
    commit_after_ms: int = 500


USUAL = Life()


async def live(example: Any, bootstrap: tuple[str, int], config: Mapping[str, Any], life: Life) -> None:
    """Do what ``JavaLives.java`` does: poll for a while, commit once when there were partitions for a moment, close."""
    failed, closed = asyncio.Event(), asyncio.Event()
    polls_on = config.get("group.protocol") == "consumer"

    def tell(event: Any) -> None:
        refused = (CommitFailure.COMMIT_FAILED, CommitFailure.REBALANCE_IN_PROGRESS)
        is_fatal = isinstance(event, CommitCompleted) and event.failure not in (None, *refused)
        if isinstance(event, Failed) or is_fatal:
            failed.set()
        elif isinstance(event, Closed):
            closed.set()

    host = example.AsyncMember(bootstrap, MemberConfig.from_properties(config), tell)
    host.member.subscribe([TOPIC], host.now_ms())
    host.member.poll(host.now_ms(), FOREVER_MS)
    host.pump()
    end_ms, commit_ms, has_committed = host.now_ms() + life.duration_ms, FOREVER_MS, False
    while host.now_ms() < end_ms and (polls_on or not failed.is_set()):
        await asyncio.sleep(0.02)
        if host.member.assignment:
            commit_ms = min(commit_ms, host.now_ms() + life.commit_after_ms)
        if host.member.assignment and host.now_ms() >= commit_ms and not has_committed:
            has_committed = True
            host.member.commit_sync({TopicPartition(TOPIC, 0): 1}, host.now_ms())
            host.pump()
    host.member.close(host.now_ms())
    host.pump()
    await closed.wait()
    host.close()


def live_in_java(bootstrap: str, protocol: str, life: Life, groups: list[str]) -> None:
    """Run Java's consumers, each in its own group."""
    options = ["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", f"{LIBS}/*"]
    arguments = [bootstrap, TOPIC, str(life.duration_ms), str(life.commit_after_ms), protocol]
    program = PROGRAMS / "JavaLives.java"
    subprocess.run(["java", *options, program, *arguments, "nothing-is-refused", *groups], check=True, timeout=180)


def live_in_librdkafka(bootstrap: str, protocol: str, life: Life, groups: list[str]) -> None:
    """Run librdkafka's consumers, each in its own group."""
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        list(threads.map(lambda group: _live_in_librdkafka(bootstrap, protocol, life, group), groups))


def _live_in_librdkafka(bootstrap: str, protocol: str, life: Life, group: str) -> None:
    import confluent_kafka

    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer({**config, "log_level": 0})
    consumer.subscribe([TOPIC])
    end_s, commit_s, has_committed = time.monotonic() + life.duration_ms / 1000, math.inf, False
    while time.monotonic() < end_s:
        with contextlib.suppress(confluent_kafka.KafkaException, RuntimeError):
            consumer.poll(0.02)
            if consumer.assignment():
                commit_s = min(commit_s, time.monotonic() + life.commit_after_ms / 1000)
            if time.monotonic() >= commit_s and not has_committed:
                has_committed = True
                consumer.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    consumer.close()


@contextmanager
def asked_by_both(
    data_dir: Path,
    scenarios: list[str],
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    life: Life = USUAL,
    others: Callable[[str, str, Life, list[str]], None] = live_in_java,
) -> Iterator[dict[str, list[str]]]:
    """Let both lead a life for each scenario; what they asked, by group: ``ours-`` or ``others-``, and the scenario.

    Args:
        data_dir: the server's.
        scenarios: as the proxy reads them.
        settings: the server's.
        config: the member's; the other consumers have the same.
        life: of each consumer.
        others: lets those live.
    """
    protocol = config.get("group.protocol", "classic")
    with RefusingProxy() as proxy, pytest.MonkeyPatch.context() as patch:
        words = ("--advertised-port", str(proxy.port))
        server = ServerProcess(data_dir, topics={TOPIC: 2}, settings=settings, words=words)
        try:
            proxy.target_port = server.port
            patch.syspath_prepend(str(ROOT / "examples"))
            import asyncio_member  # type: ignore[import-not-found]

            bootstrap = ("127.0.0.1", proxy.port)

            async def all_of_ours() -> None:
                groups = [f"ours-{name}" for name in scenarios]
                await asyncio.gather(
                    *(live(asyncio_member, bootstrap, {"group.id": g, **config}, life) for g in groups)
                )

            asyncio.run(all_of_ours())
            others(f"{bootstrap[0]}:{bootstrap[1]}", protocol, life, [f"others-{name}" for name in scenarios])
            yield dict(proxy.asked)
        finally:
            server.kill()


def told_once(requests: list[str]) -> list[str]:
    """Leave out repeated lookups: Java's consumer looks again while it may not yet reconnect to what it has found."""
    return [api for api, before in zip(requests, [None, *requests], strict=False) if api != before or api != LOOKUP]
