"""Amplification: small requests that ask for much, by naming one thing many times, and large ones that name many.

Each is sent alone, on a server of its own, and its answer is read to the end and thrown away.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.attack.layouts import Layout, layout, repeated
from tests.attack.preparation import CROWDED, WIDE, prepare
from tests.attack.report import Result
from tests.attack.siege import Siege
from tests.attack.target import MIB, Target
from tests.wire.kio_client import VERSIONS, versions_of
from tests.wire.sample_requests import BODIES

PATIENCE_S = 100.0
RECEIVE_BYTES = 1_048_576
TIMES = {"5000": 5_000, "20000": 20_000}
NAMES = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    19: "CreateTopics",
    20: "DeleteTopics",
    24: "AddPartitionsToTxn",
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    34: "AlterReplicaLogDirs",
    37: "CreatePartitions",
    41: "DescribeDelegationToken",
    42: "DeleteGroups",
    47: "OffsetDelete",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    57: "UpdateFeatures",
    65: "DescribeTransactions",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
}
PART: dict[str, Any] = {
    "source_topics": [],
    "source_topic_regex": [],
    "state_changelog_topics": [],
    "repartition_sink_topics": [],
    "repartition_source_topics": [],
    "copartition_groups": [],
}
"""A subtopology of nothing."""


@dataclass(frozen=True)
class Amplification:
    """One request.

    Attributes:
        name: what it asks.
        make: gives the request without its length.
    """

    name: str
    make: Callable[[], bytes]


def _group_values(api_key: int, values: dict[str, Any]) -> dict[str, Any]:
    return {**BODIES[api_key], **values}


def _of(api_key: int, version: int, values: dict[str, Any], times: int, array: int = 0) -> Callable[[], bytes]:
    return lambda: repeated(layout(api_key, version, _group_values(api_key, values)), times, array)


def _filled(request: Layout, array: int, size_bytes: int) -> Callable[[], bytes]:
    """Repeat the first element of an array until the request is so large."""
    start, end = request.arrays[array].elements[0]
    return lambda: repeated(request, max((size_bytes - len(request.data)) // (end - start), 1), array)


def _internal(name: str, partitions: int = 0) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": []}


def _joins_application(*parts: dict[str, Any]) -> Callable[[], bytes]:
    """Let a member of a streams group join with a topology of these parts."""
    named = [{**PART, "subtopology_id": str(number), **part} for number, part in enumerate(parts)]
    values = {
        **dict.fromkeys(("instance_id", "rack_id", "user_endpoint", "task_offsets", "task_end_offsets")),
        **{name: [] for name in ("active_tasks", "standby_tasks", "warmup_tasks", "client_tags")},
        "member_epoch": 0,
        "rebalance_timeout": 60_000,
        "topology": {"epoch": 0, "subtopologies": named},
        "shutdown_application": False,
    }
    return lambda: layout(88, 0, _group_values(88, values)).data


def topologies() -> Iterator[Amplification]:
    """Yield joins with topologies that are large, or lead to much work."""
    name, count, linked_count = "StreamsGroupHeartbeat", 10_000, 5_000
    yield Amplification(
        f"{name}, 20,000 tasks, the most that a topology may have",
        _joins_application(*[{"source_topics": [WIDE]}] * 10),
    )
    yield Amplification(
        f"{name}, {count} subtopologies of a topic of 2,000 partitions",
        _joins_application(*[{"source_topics": [WIDE]}] * count),
    )
    stores = [_internal(f"store-{number}-{'x' * 40}") for number in range(count)]
    yield Amplification(
        f"{name}, {count} changelogs that are missing",
        _joins_application({"source_topics": [WIDE], "state_changelog_topics": stores}),
    )
    # Of parts that lead to each other fewer have room in what a topology may say.
    fixed = [_internal(f"r{number}", 3) for number in range(linked_count)]
    one_each = {"source_topics": [], "source_topic_regex": []}
    groups = [{**one_each, "repartition_source_topics": [number]} for number in range(linked_count)]
    sinks = [topic["name"] for topic in fixed]
    yield Amplification(
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
        yield Amplification(f"{name}, {label} of {linked_count} subtopologies", _joins_application(begin, *chain, end))


def amplifications(request_mib: float) -> Iterator[Amplification]:
    """Yield all of them; those that are filled up are so large."""
    groups = {"groups": [{"group_id": WIDE, "member_id": None, "member_epoch": -1, "topics": None}]}
    for label, times in TIMES.items():
        yield Amplification(f"OffsetFetch, a group of 2,000 offsets {label} times", _of(9, 8, groups, times))
    yield Amplification("DescribeGroups, a group of 100 KB 2000 times", _of(15, 5, {"groups": [CROWDED]}, 2_000))
    metadata = {"topics": [{"name": WIDE, "topic_id": None}]}
    yield Amplification("Metadata, a topic of 2,000 partitions 5000 times", _of(3, 9, metadata, 5_000))
    for count in (1_000_000, 2**31 - 1):
        topics = [{"name": "vast", "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}]
        created = {"topics": topics, "validate_only": False}
        yield Amplification(
            f"CreateTopics of {count} partitions",
            lambda created=created: layout(19, 4, _group_values(19, created)).data,  # type: ignore[misc]
        )
        counts = {"topics": [{"name": "bills", "count": count, "assignments": None}], "validate_only": False}
        yield Amplification(
            f"CreatePartitions up to {count}",
            lambda counts=counts: layout(37, 1, _group_values(37, counts)).data,  # type: ignore[misc]
        )
    yield from topologies()
    for api_key in sorted(NAMES):
        request = layout(api_key, _newest(api_key), BODIES[api_key])
        for array, found in enumerate(request.arrays):
            yield Amplification(
                f"{NAMES[api_key]}, array {array} at depth {found.depth} filled to {request_mib:g} MiB",
                _filled(request, array, int(request_mib * MIB)),
            )


def _newest(api_key: int) -> int:
    assert api_key in VERSIONS
    return versions_of(api_key)[-1]


def amplify(siege: Siege, case: Amplification, replay: str, patience_s: float = PATIENCE_S) -> Result:
    """Send one request to a server of its own, and read the answer for so long."""

    def attack(target: Target, result: Result) -> None:
        prepare(target)
        request = case.make()
        result.count("bytes asked", len(request))
        begin_s = time.monotonic()
        answer_bytes, is_whole = exchange(target, request, patience_s)
        result.count("bytes answered", answer_bytes)
        if is_whole is None:
            result.notes.append("the connection was closed")
        elif not is_whole:
            result.fault(f"no whole answer in {time.monotonic() - begin_s:.0f} s")

    return siege.run(Result("amplify", case.name, replay), attack)


def exchange(target: Target, request: bytes, patience_s: float) -> tuple[int, bool | None]:
    """Return how many bytes came back, and whether that was all; None: the connection was closed."""
    deadline_s = time.monotonic() + patience_s
    received, size = 0, -1
    start = b""
    with target.connect(patience_s) as sock:
        try:
            sock.sendall(struct.pack(">i", len(request)) + request)
            while size < 0 or received < size:
                sock.settimeout(max(deadline_s - time.monotonic(), 0.001))
                part = sock.recv(RECEIVE_BYTES)
                if not part:
                    return received, None
                received += len(part)
                start = (start + part)[:4]
                if size < 0 and len(start) == 4:
                    size = 4 + int.from_bytes(start, "big")
        except TimeoutError:
            return received, False
        except ConnectionError:
            return received, None
    return received, True
