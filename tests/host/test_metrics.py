"""Metrics over HTTP, as Prometheus scrapes them."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve

from groupcoord import Config, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.host.metrics import PREFIX, metrics_server
from groupcoord.log_store import StorageError
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    OffsetCommit,
    OffsetToCommit,
    ShareGroupHeartbeat,
    StreamsGroupHeartbeat,
    Subtopology,
    TopicToCommit,
    Topology,
)


def scrape(coordinator: GroupCoordinator, request: bytes) -> bytes:
    """Return what the server answers to these bytes."""

    async def ask() -> bytes:
        with metrics_server(lambda: coordinator, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.server_port)
            writer.write(request)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer

    return asyncio.run(ask())


@pytest.fixture
def coordinator() -> GroupCoordinator:
    store = MemoryLogStore()
    coordinator = GroupCoordinator(config=Config(offsets_topic_num_partitions=3), clock=ManualClock(), log_store=store)
    coordinator.load_all()
    commit = OffsetCommit("group", (TopicToCommit("t", (OffsetToCommit(0, 5), OffsetToCommit(1, 6))),))
    coordinator.call(commit)
    heartbeat = ConsumerGroupHeartbeat(
        "members", "member", rebalance_timeout_ms=60_000, subscribed_topic_names=("t",), topic_partitions=()
    )
    coordinator.call(heartbeat)
    store.fail_next(StorageError("no space left on device"))
    coordinator.call(commit)
    return coordinator


def test_metrics_are_shown_in_prometheus_text_format(coordinator: GroupCoordinator) -> None:
    """Groups by state, log partitions, offsets, commits and failures are there with their present values."""
    head, _, body = scrape(coordinator, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    lines = body.decode().splitlines()
    assert head.startswith(b"HTTP/1.0 200 OK")
    assert f"Content-Length: {len(body)}".encode() in head
    assert f'{PREFIX}group_count{{protocol="classic"}} 1.0' in lines
    assert f'{PREFIX}group_count{{protocol="consumer"}} 1.0' in lines
    assert f'{PREFIX}classic_group_count{{state="Empty"}} 1.0' in lines
    assert f'{PREFIX}classic_group_count{{state="Stable"}} 0.0' in lines
    assert f'{PREFIX}consumer_group_count{{state="Stable"}} 1.0' in lines
    assert f'{PREFIX}consumer_group_count{{state="Reconciling"}} 0.0' in lines
    assert f"{PREFIX}consumer_group_rebalance_count_total 1.0" in lines
    assert f'{PREFIX}num_partitions{{state="active"}} 3.0' in lines
    assert f"{PREFIX}num_offsets 2.0" in lines
    assert f"{PREFIX}offset_commit_count_total 2.0" in lines
    assert f"{PREFIX}partition_load_count_total 3.0" in lines
    assert f"{PREFIX}append_failure_count_total 1.0" in lines


def test_groups_of_every_kind_are_counted(coordinator: GroupCoordinator) -> None:
    """Each by its own states, and its rebalances under its own name."""
    coordinator.call(ShareGroupHeartbeat("workers", "worker", 0, subscribed_topic_names=("t",)))
    heartbeat = StreamsGroupHeartbeat("streams", "thread", rebalance_timeout_ms=60_000, process_id="process")
    topology = Topology(1, (Subtopology("0", source_topics=("t",)),))
    coordinator.call(evolve(heartbeat, topology=topology, active_tasks=(), standby_tasks=(), warmup_tasks=()))
    lines = scrape(coordinator, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").decode().splitlines()
    assert f'{PREFIX}share_group_count{{state="Stable"}} 1.0' in lines
    assert f"{PREFIX}share_group_rebalance_count_total 1.0" in lines
    assert f'{PREFIX}group_count{{protocol="streams"}} 1.0' in lines
    assert f"{PREFIX}consumer_group_rebalance_count_total 1.0" in lines


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"POST /metrics HTTP/1.1", 405), (b"nonsense", 400), (b"GET /metrics HTTP/x", 400), (b"x" * 70_000, 414)],
)
def test_other_requests_are_refused(coordinator: GroupCoordinator, request_line: bytes, status: int) -> None:
    """Another method than GET, and bytes that are not HTTP, get the matching status."""
    assert b" %d" % status in scrape(coordinator, request_line + b"\r\n\r\n")
