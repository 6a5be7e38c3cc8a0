"""Requests with as many entries as they can hold, in each array of each API, and with many prefixed ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.attack.amplify import PATIENCE_S, exchange
from tests.attack.layouts import layout, repeated
from tests.attack.report import Result
from tests.attack.siege import Siege
from tests.attack.target import Target
from tests.broker.test_bounds import CASES, LIVE, SESSION, newest
from tests.wire.kio_client import request_frame
from tests.wire.sample_requests import BODIES

ENTRIES = 300_000
REQUEST_BYTES_MAX = 8_000_000
ACLS, NAMES, FILTERS = 10_000, 3_000, 2_000
SETTINGS: dict[str, str | int] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
SHARE_HEARTBEAT, SHARE_FETCH = 76, 78


def _send(target: Target, result: Result, api_key: int, request: bytes) -> None:
    """Send one request, and read its answer to the end."""
    result.count("bytes asked", len(request))
    answer_bytes, is_whole = exchange(target, request, PATIENCE_S)
    result.count("bytes answered", answer_bytes)
    result.count("requests", 1)
    if is_whole is False:
        result.fault(f"no whole answer to a request of API {api_key} in {PATIENCE_S:.0f} s")


def _frame(api_key: int, values: dict[str, Any]) -> bytes:
    version = min(newest(api_key), 9)  # an OffsetCommit of version 10 names no topics
    return request_frame(api_key, version, BODIES[api_key] | values)


def _filled(api_key: int, array: int, count: int) -> bytes:
    """Return a request with the first entry of one of its arrays again and again."""
    request = layout(api_key, newest(api_key), BODIES[api_key] | LIVE.get(api_key, {}))
    start, end = request.arrays[array].elements[0]
    return repeated(request, min(count, REQUEST_BYTES_MAX // max(end - start, 1)), array)


def attack_counts(siege: Siege, api_key: int, replay: str) -> Result:
    """Send requests of one API, each with one array that names one thing as often as it can."""

    def attack(target: Target, result: Result) -> None:
        for group_id in ("sg", "empty"):
            for epoch in (0, 1):
                values = LIVE[SHARE_HEARTBEAT] | {"group_id": group_id, "member_epoch": epoch}
                _send(target, result, SHARE_HEARTBEAT, _frame(SHARE_HEARTBEAT, values))
        left = LIVE[SHARE_HEARTBEAT] | {"group_id": "empty", "member_epoch": -1}
        _send(target, result, SHARE_HEARTBEAT, _frame(SHARE_HEARTBEAT, left))
        _send(target, result, SHARE_FETCH, _frame(SHARE_FETCH, SESSION | {"share_session_epoch": 0}))
        values = BODIES[api_key] | LIVE.get(api_key, {})
        for array in range(len(layout(api_key, newest(api_key), values).arrays)):
            _send(target, result, api_key, _filled(api_key, array, ENTRIES))

    return siege.run(Result("counts", str(api_key), replay), attack)


API_KEYS = sorted({api_key for api_key, _ in CASES})


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


def attack_acls(siege: Siege, replay: str) -> Result:
    """Make many prefixed ACLs, ask for much that they decide, and delete by many filters."""

    def attack(target: Target, result: Result) -> None:
        for resource_type in (2, 3):
            acls = [_acl(number, resource_type) for number in range(ACLS)]
            _send(target, result, 30, _frame(30, {"creations": acls}))
        for api_key, values in _requests_for_permission():
            _send(target, result, api_key, _frame(api_key, values))
        for field in ("resource_name_filter", "principal_filter", "host_filter"):
            filters = [
                {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
                | dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
                | {field: f"nobody-{number}"}
                for number in range(FILTERS if field != "host_filter" else FILTERS // 10)
            ]
            _send(target, result, 31, _frame(31, {"filters": filters}))

    return replace(siege, settings=SETTINGS).run(Result("acls", "prefixed", replay), attack)
