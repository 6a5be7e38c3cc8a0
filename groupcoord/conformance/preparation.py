"""What comes before the first step: topics exist, coordinators have loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from groupcoord.conformance.entities import API_KEYS, Plain
from groupcoord.conformance.matching import Bindings, substitute
from groupcoord.conformance.peer import Peer
from groupcoord.conformance.targets import Server, TargetError
from groupcoord.conformance.transcript import Send, Transcript

_NOT_READY = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
_TIMEOUT_MS = 60_000
_RESPONSE_TIMEOUT_MS = 20_000
_PAUSE_MS = 100
_NO_PRODUCER = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}

OPTIONAL_APIS = frozenset(("ConsumerGroupDescribe", "ConsumerGroupHeartbeat"))
"""APIs that a server may do without, as brokers before 4.0 do: transcripts that send them are skipped there."""


def make_topics(server: Server, topics: Mapping[str, int]) -> dict[str, str]:
    """Create topics that don't exist, and wait until the server knows them all.

    Args:
        server: where.
        topics: name and number of partitions.

    Returns:
        Name and topic id.

    Raises:
        TargetError: they are not there in time, or one exists with another number of partitions.
    """
    if not topics:
        return {}
    with _peer(server) as peer:
        wanted = [
            {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
            for name, count in topics.items()
        ]
        created = _call(peer, "CreateTopics", 7, {"timeout": 10_000, "topics": wanted})
        for topic in created["topics"]:
            if topic["error_code"] not in ("NONE", "TOPIC_ALREADY_EXISTS"):
                raise TargetError(f"topic {topic['name']!r} can't be created: {topic['error_code']}")
        query = {
            "topics": [{"topic_id": None, "name": name} for name in topics],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        give_up_ms = server.now_ms() + _TIMEOUT_MS
        while server.now_ms() < give_up_ms:
            answered = _call(peer, "Metadata", 12, query)["topics"]
            known = [topic for topic in answered if topic["name"] in topics and _is_ready(topic)]
            for topic in known:
                if len(topic["partitions"]) != topics[topic["name"]]:
                    raise TargetError(
                        f"topic {topic['name']!r} exists with {len(topic['partitions'])} partitions, not "
                        f"{topics[topic['name']]}"
                    )
            if len(known) == len(topics):
                return {topic["name"]: topic["topic_id"] for topic in known}
            server.sleep(_PAUSE_MS)
    raise TargetError(f"topics are not ready within {_TIMEOUT_MS // 1000} s: {', '.join(topics)}")


def missing_apis(server: Server, transcript: Transcript) -> list[str]:
    """Return those of the :data:`OPTIONAL_APIS` that a transcript sends and the server doesn't list.

    Raises:
        ConnectionClosedError, NoResponseError, ResponseError: the server doesn't say what it lists.
    """
    sent = {step.api for step in transcript.steps if isinstance(step, Send)} & OPTIONAL_APIS
    if not sent:
        return []
    with _peer(server) as peer:
        listed = _listed_apis(peer)
    return sorted(api for api in sent if API_KEYS[api] not in listed)


def wait_until_ready(server: Server, transcript: Transcript, bindings: Bindings) -> None:
    """Wait until the coordinators of a transcript's groups and transactional ids have loaded. Changes nothing.

    Raises:
        TargetError: they have not in time.
    """
    groups = _group_ids(transcript, bindings)
    transactional_ids = _transactional_ids(transcript, bindings)
    with _peer(server) as peer:
        apis = _listed_apis(peer)
        give_up_ms = server.now_ms() + _TIMEOUT_MS
        while server.now_ms() < give_up_ms:
            if _groups_ready(peer, groups) and _transactions_ready(peer, transactional_ids, apis):
                return
            server.sleep(_PAUSE_MS)
    raise TargetError(f"the coordinators are not ready within {_TIMEOUT_MS // 1000} s")


@contextmanager
def _peer(server: Server) -> Any:
    peer = Peer(server, "groupcoord-conformance")
    try:
        yield peer
    finally:
        peer.close()


def _listed_apis(peer: Peer) -> set[int]:
    version = {"client_software_name": "groupcoord-conformance", "client_software_version": "1"}
    return {api["api_key"] for api in _call(peer, "ApiVersions", 3, version)["api_keys"]}


def _call(peer: Peer, api: str, version: int, body: dict[str, Plain]) -> Any:
    peer.send(api, version, body)
    return peer.receive(_RESPONSE_TIMEOUT_MS)


def _is_ready(topic: dict[str, Any]) -> bool:
    partitions = topic["partitions"]
    return topic["error_code"] == "NONE" and partitions and all(p["error_code"] == "NONE" for p in partitions)


def _groups_ready(peer: Peer, groups: list[str]) -> bool:
    # the first look for a coordinator makes a fresh broker create __consumer_offsets
    found = _call(peer, "FindCoordinator", 4, {"key_type": 0, "coordinator_keys": groups})
    if any(answer["error_code"] in _NOT_READY for answer in found["coordinators"]):
        return False
    described = _call(peer, "DescribeGroups", 5, {"groups": groups, "include_authorized_operations": False})
    if any(group["error_code"] in _NOT_READY for group in described["groups"]):
        return False
    listed = _call(peer, "ListGroups", 4, {"states_filter": []})  # fails as a whole while any log partition loads
    return listed["error_code"] not in _NOT_READY


def _transactions_ready(peer: Peer, transactional_ids: list[str], apis: set[int]) -> bool:
    if not transactional_ids:
        return True
    found = _call(peer, "FindCoordinator", 4, {"key_type": 1, "coordinator_keys": transactional_ids})
    if any(answer["error_code"] != "NONE" for answer in found["coordinators"]):
        return False
    if API_KEYS["DescribeTransactions"] in apis:
        described = _call(peer, "DescribeTransactions", 0, {"transactional_ids": transactional_ids})
        if any(state["error_code"] in _NOT_READY for state in described["transaction_states"]):
            return False
    if API_KEYS["InitProducerId"] in apis:  # a fresh broker may have no producer ids to give yet
        return _call(peer, "InitProducerId", 4, _NO_PRODUCER)["error_code"] not in _NOT_READY
    return True


def _group_ids(transcript: Transcript, bindings: Bindings) -> list[str]:
    text = json.dumps([step.body for step in transcript.steps if isinstance(step, Send)])
    variables = {"$g", *re.findall(r'"(\$g[^"]*)"', text)}
    return sorted(str(substitute(variable, bindings)) for variable in variables)


def _transactional_ids(transcript: Transcript, bindings: Bindings) -> list[str]:
    found: set[str] = set()
    for step in transcript.steps:
        if isinstance(step, Send):
            found.update(_named_transactions(step.body))
    return sorted(str(substitute(name, bindings)) for name in found)


def _named_transactions(body: dict[str, Plain]) -> Iterable[str]:
    keys = [body.get("transactional_id")]
    if body.get("key_type") == 1:
        keys += [body.get("key"), *body.get("coordinator_keys", ())]
    return [key for key in keys if key]
