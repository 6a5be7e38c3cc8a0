"""Requests with as many entries as they can hold, in each array of each API, and requests under many prefixed ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from groupcoord.wire.registry import APIS
from tests.attack.amplify import PATIENCE_S, exchange
from tests.attack.layouts import layout, repeated
from tests.attack.rig import MIB, Attack, Result, Server
from tests.broker.test_bounds import CASES, LIVE, SESSION, newest
from tests.wire.kio_client import request_frame
from tests.wire.sample_requests import BODIES

ENTRIES = 300_000
ACLS, NAMES, FILTERS = 10_000, 3_000, 2_000
SETTINGS: dict[str, str | int] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
SHARE_HEARTBEAT, SHARE_FETCH = 76, 78
API_KEYS = sorted({api_key for api_key, _ in CASES})


def send(server: Server, result: Result, request: bytes) -> None:
    """Send a request, given without its length, and read its response to the end."""
    result.count("bytes asked", len(request))
    answer_bytes, is_whole = exchange(server, request, PATIENCE_S)
    result.count("bytes answered", answer_bytes)
    result.count("requests")
    result.expect(is_whole is not False, f"no whole answer to {request[:4].hex()} in {PATIENCE_S:.0f} s")


def _frame(api_key: int, values: dict[str, Any]) -> bytes:
    version = min(newest(api_key), 9)  # an OffsetCommit of version 10 names no topics
    return request_frame(api_key, version, BODIES[api_key] | values)


def counts(request_mib: float) -> Iterator[Attack]:
    """Yield an attack for each API: one request for each array, in which that repeats its first element.

    Args:
        request_mib: size of the largest requests.
    """
    for api_key in API_KEYS:
        yield Attack(f"{api_key} {APIS[api_key].name}", lambda *given, key=api_key: _fill(key, request_mib, *given))


def _fill(api_key: int, request_mib: float, server: Server, result: Result) -> None:
    beat = LIVE[SHARE_HEARTBEAT]
    for group_id, epoch in (("sg", 0), ("sg", 1), ("empty", 0), ("empty", 1), ("empty", -1)):
        send(server, result, _frame(SHARE_HEARTBEAT, beat | {"group_id": group_id, "member_epoch": epoch}))
    send(server, result, _frame(SHARE_FETCH, SESSION | {"share_session_epoch": 0}))
    request = layout(api_key, newest(api_key), BODIES[api_key] | LIVE.get(api_key, {}))
    for array, found in enumerate(request.arrays):
        start, end = found.elements[0]
        times = min(ENTRIES, int(request_mib * MIB) // max(end - start, 1))
        send(server, result, repeated(request, times, array))


def _acl(number: int, resource_type: int) -> dict[str, Any]:
    return {
        "resource_type": resource_type,
        "resource_name": f"team-{number}-",
        "resource_pattern_type": 4,
        "principal": "User:somebody",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }


def _requests_for_permission() -> Iterator[tuple[int, dict[str, Any]]]:
    names = [f"team-{number}-x" for number in range(NAMES)]
    offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    new = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    yield 19, {"topics": [{"name": name} | new for name in names], "validate_only": False}
    yield (
        8,
        LIVE[8]
        | {"topics": [{"name": name, "topic_id": None, "partitions": [offset]} for name in names], "group_id": "g"},
    )
    yield 92, {"group_id": "g", "topics": [{"topic_name": name} for name in names]}
    yield 3, {"topics": [{"name": name, "topic_id": None} for name in names]}
    yield 15, {"groups": names}
    yield 10, {"key_type": 0, "coordinator_keys": names}
    yield 42, {"groups_names": names}
    yield 32, {"resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]}


def ask_under_acls(server: Server, result: Result) -> None:
    """Create many prefixed ACLs, send requests that they decide, and delete by many filters."""
    for resource_type in (2, 3):
        acls = [_acl(number, resource_type) for number in range(ACLS)]
        send(server, result, _frame(30, {"creations": acls}))
    for api_key, values in _requests_for_permission():
        send(server, result, _frame(api_key, values))
    for field in ("resource_name_filter", "principal_filter", "host_filter"):
        filters = [
            {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
            | dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
            | {field: f"nobody-{number}"}
            for number in range(FILTERS if field != "host_filter" else FILTERS // 10)
        ]
        send(server, result, _frame(31, {"filters": filters}))


PREFIXED_ACLS = Attack("prefixed", ask_under_acls, SETTINGS)
