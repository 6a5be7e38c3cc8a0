"""Amplification attacks: small requests with large responses or much work, each on a new server."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.attack.layouts import layout, repeated
from tests.attack.rig import MIB, TOPICS, Attack, Result, Server
from tests.client import commit_errors, fetched_offsets, join_group, offset_commit, offset_fetch, sync_group
from tests.wire.sample_requests import BODIES

PATIENCE_S = 100.0
WIDE, CROWDED = "wide", "crowded"
COMMIT_COUNT, ASSIGNMENT_BYTES = 1_000, 100_000
PART: dict[str, Any] = {
    "source_topics": [],
    "source_topic_regex": [],
    "state_changelog_topics": [],
    "repartition_sink_topics": [],
    "repartition_source_topics": [],
    "copartition_groups": [],
}
"""A subtopology of nothing."""


def _of(api_key: int, version: int, values: dict[str, Any], times: int = 1) -> Callable[[], bytes]:
    """Return a function that makes a request with its first array element repeated."""
    return lambda: repeated(layout(api_key, version, {**BODIES[api_key], **values}), times)


def _internal(name: str, partitions: int = 0) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": []}


def _joins_application(*parts: dict[str, Any]) -> Callable[[], bytes]:
    """Join a streams group with a topology of these parts."""
    named = [{**PART, "subtopology_id": str(number), **part} for number, part in enumerate(parts)]
    values = {
        **dict.fromkeys(("instance_id", "rack_id", "user_endpoint", "task_offsets", "task_end_offsets")),
        **{name: [] for name in ("active_tasks", "standby_tasks", "warmup_tasks", "client_tags")},
        "member_epoch": 0,
        "rebalance_timeout": 60_000,
        "topology": {"epoch": 0, "subtopologies": named},
        "shutdown_application": False,
    }
    return lambda: layout(88, 0, {**BODIES[88], **values}).data


def topologies() -> Iterator[Attack]:
    """Yield joins with topologies that are large, or lead to much work."""
    name, count, linked_count = "StreamsGroupHeartbeat", 10_000, 5_000
    yield amplification(
        f"{name}, 20,000 tasks, the most that a topology may have",
        _joins_application(*[{"source_topics": [WIDE]}] * 10),
    )
    yield amplification(
        f"{name}, {count} subtopologies of a topic of 2,000 partitions",
        _joins_application(*[{"source_topics": [WIDE]}] * count),
    )
    stores = [_internal(f"store-{number}-{'x' * 40}") for number in range(count)]
    yield amplification(
        f"{name}, {count} changelogs that are missing",
        _joins_application({"source_topics": [WIDE], "state_changelog_topics": stores}),
    )
    # Of parts that lead to each other fewer have room in what a topology may say.
    fixed = [_internal(f"r{number}", 3) for number in range(linked_count)]
    one_each = {"source_topics": [], "source_topic_regex": []}
    groups = [{**one_each, "repartition_source_topics": [number]} for number in range(linked_count)]
    sinks = [topic["name"] for topic in fixed]
    yield amplification(
        f"{name}, {linked_count} copartition groups",
        _joins_application(
            {
                "source_topics": [WIDE],
                "repartition_sink_topics": sinks,
                "repartition_source_topics": fixed,
                "copartition_groups": groups,
            }
        ),
    )
    for label, first in (("a chain", {"source_topics": [WIDE]}), ("a ring", {})):
        chain = [
            {"repartition_sink_topics": [f"r{number}"], "repartition_source_topics": [_internal(f"r{number - 1}")]}
            for number in range(1, linked_count)
        ]
        last = [] if first else [_internal(f"r{linked_count - 1}")]
        begin = {**first, "repartition_sink_topics": ["r0"], "repartition_source_topics": last}
        end = {"repartition_source_topics": [_internal(f"r{linked_count - 1}")]}
        yield amplification(f"{name}, {label} of {linked_count} subtopologies", _joins_application(begin, *chain, end))


def amplifications() -> Iterator[Attack]:
    groups = {"groups": [{"group_id": WIDE, "member_id": None, "member_epoch": -1, "topics": None}]}
    for times in (5_000, 20_000):
        yield amplification(f"OffsetFetch, a group of 2,000 offsets {times} times", _of(9, 8, groups, times))
    yield amplification("DescribeGroups, a group of 100 KB 2000 times", _of(15, 5, {"groups": [CROWDED]}, 2_000))
    metadata = {"topics": [{"name": WIDE, "topic_id": None}]}
    yield amplification("Metadata, a topic of 2,000 partitions 5000 times", _of(3, 9, metadata, 5_000))
    for count in (1_000_000, 2**31 - 1):
        topics = [{"name": "vast", "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}]
        created = {"topics": topics, "validate_only": False}
        yield amplification(f"CreateTopics of {count} partitions", _of(19, 4, created))
        counts = {"topics": [{"name": "bills", "count": count, "assignments": None}], "validate_only": False}
        yield amplification(f"CreatePartitions up to {count}", _of(37, 1, counts))
    yield from topologies()


def prepare(server: Server) -> None:
    """Commit 2,000 offsets in the group ``wide`` and join ``crowded`` with a large assignment, once."""
    with server.connect() as client:
        if fetched_offsets(client.ask(offset_fetch(WIDE))):
            return
        for first in range(0, TOPICS[WIDE], COMMIT_COUNT):
            offsets = dict.fromkeys(range(first, min(first + COMMIT_COUNT, TOPICS[WIDE])), 7)
            assert not any(commit_errors(client.ask(offset_commit(WIDE, WIDE, offsets))))
        member_id = client.ask(join_group(CROWDED))["member_id"]
        generation_id = client.ask(join_group(CROWDED, member_id))["generation_id"]
        client.ask(sync_group(CROWDED, generation_id, member_id, {member_id: bytes(ASSIGNMENT_BYTES)}))


def amplification(name: str, make: Callable[[], bytes], patience_s: float = PATIENCE_S) -> Attack:
    """Return an attack by one request, whose response must be complete in time or the connection closed."""

    def act(server: Server, result: Result) -> None:
        prepare(server)
        request = make()
        result.count("bytes asked", len(request))
        answer_bytes, is_whole = exchange(server, request, patience_s)
        result.count("bytes answered", answer_bytes)
        result.expect(is_whole is not False, f"no whole answer in {patience_s:.0f} s")

    return Attack(name, act, ends_by_signal=True)


def exchange(server: Server, request: bytes, patience_s: float) -> tuple[int, bool | None]:
    """Send a request, given without its length; return the bytes received, and whether that was all.

    None instead of that if the server closed the connection.
    """
    deadline_s = time.monotonic() + patience_s
    received, start = 0, b""
    with server.connect(patience_s) as client:
        sock = client.socket
        try:
            sock.sendall(struct.pack(">i", len(request)) + request)
            while len(start) < 4 or received < 4 + int.from_bytes(start, "big"):
                sock.settimeout(max(deadline_s - time.monotonic(), 0.001))
                part = sock.recv(MIB)
                if not part:
                    return received, None
                received += len(part)
                start = (start + part)[:4]
        except TimeoutError:
            return received, False
        except ConnectionError:
            return received, None
    return received, True
