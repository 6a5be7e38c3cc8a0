"""What comes before the first step: topics exist, coordinators have loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any

from groupcoord.conformance.client import Client, open_client
from groupcoord.conformance.entities import Plain
from groupcoord.conformance.matching import Bindings, substitute
from groupcoord.conformance.server_facts import listed_apis
from groupcoord.conformance.targets import Server, TargetError
from groupcoord.conformance.transcript import AclEntry, Send, Transcript
from groupcoord.core.messages import Node
from groupcoord.wire.security_messages import ANY, PatternType, PermissionType

_NOT_READY = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
_NO_LEADER = {"LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"}
_END = -1
_TIMEOUT_MS = 60_000
_PAUSE_MS = 100
_ANY_ACL: dict[str, Plain] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": int(PatternType.ANY),
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": int(PermissionType.ANY),
}
_NO_PRODUCER = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}


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
    with open_client(server) as client:
        wanted = [
            {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
            for name, count in topics.items()
        ]
        created = client.ask("CreateTopics", 7, {"timeout": 10_000, "topics": wanted})
        for topic in created["topics"]:
            if topic["error_code"] not in ("NONE", "TOPIC_ALREADY_EXISTS"):
                raise TargetError(f"topic {topic['name']!r} can't be created: {topic['error_code']}")
    known = wait_for_topics(server, topics)
    for topic in known:
        name, count = topic["name"], len(topic["partitions"])
        if count != topics[name]:
            raise TargetError(f"topic {name!r} exists with {count} partitions, not {topics[name]}")
    return {topic["name"]: topic["topic_id"] for topic in known}


def wait_for_topics(server: Server, names: Collection[str]) -> list[dict[str, Any]]:
    """Wait until topics that were just created have leaders that answer, and return what Metadata says of them.

    Raises:
        TargetError: they have not in time.
    """
    query = {
        "topics": [{"topic_id": None, "name": name} for name in names],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    with open_client(server) as client:
        answers_offsets = "ListOffsets" in listed_apis(client)
        give_up_ms = server.now_ms() + _TIMEOUT_MS
        while server.now_ms() < give_up_ms:
            answered = client.ask("Metadata", 12, query)
            known = [topic for topic in answered["topics"] if topic["name"] in names and _is_ready(topic)]
            # A broker may know who leads a partition a moment before it leads.
            asks_leader = answers_offsets and len(answered["brokers"]) == 1
            if len(known) == len(names) and (not asks_leader or _lead(client, known)):
                return known
            server.sleep(_PAUSE_MS)
    raise TargetError(f"topics are not ready within {_TIMEOUT_MS // 1000} s: {', '.join(names)}")


def wait_until_ready(server: Server, transcript: Transcript, bindings: Bindings) -> None:
    """Wait until the coordinators of a transcript's groups and transactional ids have loaded. Changes nothing.

    Raises:
        TargetError: they have not in time.
    """
    groups = group_ids(transcript, bindings)
    transactional_ids = _transactional_ids(transcript, bindings)
    with open_client(server) as client:
        apis = listed_apis(client)
        give_up_ms = server.now_ms() + _TIMEOUT_MS
        while server.now_ms() < give_up_ms:
            are_ready = _groups_ready(server, client, groups, several=transcript.nodes > 1)
            if are_ready and _transactions_ready(client, transactional_ids, apis):
                return
            server.sleep(_PAUSE_MS)
    raise TargetError(f"the coordinators are not ready within {_TIMEOUT_MS // 1000} s")


def set_acls(server: Server, acls: Iterable[AclEntry], bindings: Bindings) -> None:
    """Replace all ACLs of a server, and wait until it shows them.

    Raises:
        TargetError: it refuses them, or they are not there in time.
    """
    creations = [
        {
            "resource_type": int(entry.resource_type),
            "resource_name": str(substitute(entry.name, bindings)),
            "resource_pattern_type": int(PatternType.LITERAL),
            "principal": entry.principal,
            "host": "*",
            "operation": int(entry.operation),
            "permission_type": int(entry.permission),
        }
        for entry in acls
    ]
    with open_client(server) as client:
        answers = client.ask("DeleteAcls", 3, {"filters": [_ANY_ACL]})["filter_results"]
        answers += client.ask("CreateAcls", 3, {"creations": creations})["results"]
        for answer in answers:
            if answer["error_code"] != "NONE":
                raise TargetError(f"ACLs can't be set: {answer['error_code']}")
        give_up_ms = server.now_ms() + _TIMEOUT_MS
        while server.now_ms() < give_up_ms:
            described = client.ask("DescribeAcls", 3, _ANY_ACL)
            if described["error_code"] == "CLUSTER_AUTHORIZATION_FAILED":  # which is what they say
                return
            if sum(len(resource["acls"]) for resource in described["resources"]) == len(creations):
                return
            server.sleep(_PAUSE_MS)
    raise TargetError(f"ACLs are not there within {_TIMEOUT_MS // 1000} s")


def group_ids(transcript: Transcript, bindings: Bindings) -> list[str]:
    """Return the ids of all groups that a transcript may make, as they are with the value of ``$g`` among bindings."""
    text = json.dumps([step.body for step in transcript.steps if isinstance(step, Send)])
    variables = {"$g", *re.findall(r'"(\$g[^"]*)"', text)}
    return sorted(str(substitute(variable, bindings)) for variable in variables)


def _is_ready(topic: dict[str, Any]) -> bool:
    partitions = topic["partitions"]
    return topic["error_code"] == "NONE" and partitions and all(p["error_code"] == "NONE" for p in partitions)


def _lead(client: Client, topics: list[dict[str, Any]]) -> bool:
    wanted = [
        {
            "name": topic["name"],
            "partitions": [
                {"partition_index": partition["partition_index"], "current_leader_epoch": -1, "timestamp": _END}
                for partition in topic["partitions"]
            ],
        }
        for topic in topics
    ]
    answered = client.ask("ListOffsets", 5, {"replica_id": -1, "isolation_level": 0, "topics": wanted})["topics"]
    return not any(p["error_code"] in _NO_LEADER for topic in answered for p in topic["partitions"])


def find_nodes(server: Server) -> dict[int, Node]:
    """Return the nodes that a server describes in Metadata, by id."""
    with open_client(server) as client:
        brokers = client.ask("Metadata", 4, {"topics": [], "allow_auto_topic_creation": False})["brokers"]
    return {broker["node_id"]: Node(broker["node_id"], broker["host"], broker["port"]) for broker in brokers}


def find_coordinators(client: Client, groups: list[str]) -> dict[Node, list[str]]:
    """Return the coordinators of groups, and the groups of each; empty while one of them has none.

    The first such request makes a fresh broker create ``__consumer_offsets``.
    """
    found = client.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": groups})["coordinators"]
    coordinators: dict[Node, list[str]] = {}
    for answer in found:
        if answer["error_code"] in _NOT_READY:
            return {}
        coordinators.setdefault(Node(answer["node_id"], answer["host"], answer["port"]), []).append(answer["key"])
    return coordinators


def _groups_ready(server: Server, client: Client, groups: list[str], *, several: bool) -> bool:
    coordinators = find_coordinators(client, groups)
    if not several:
        return bool(coordinators) and _have_loaded(client, groups)
    for node, own in coordinators.items():
        with open_client(server, node) as coordinator:
            if not _have_loaded(coordinator, own):
                return False
    return bool(coordinators)


def _have_loaded(client: Client, groups: list[str]) -> bool:
    described = client.ask("DescribeGroups", 5, {"groups": groups, "include_authorized_operations": False})
    if any(group["error_code"] in _NOT_READY for group in described["groups"]):
        return False
    listed = client.ask("ListGroups", 4, {"states_filter": []})  # fails as a whole while any log partition loads
    return listed["error_code"] not in _NOT_READY


def _transactions_ready(client: Client, transactional_ids: list[str], apis: Container[str]) -> bool:
    if not transactional_ids:
        return True
    found = client.ask("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": transactional_ids})
    if any(answer["error_code"] != "NONE" for answer in found["coordinators"]):
        return False
    if "DescribeTransactions" in apis:
        described = client.ask("DescribeTransactions", 0, {"transactional_ids": transactional_ids})
        if any(state["error_code"] in _NOT_READY for state in described["transaction_states"]):
            return False
    if "InitProducerId" in apis:  # a fresh broker may have no producer ids to give yet
        return client.ask("InitProducerId", 4, _NO_PRODUCER)["error_code"] not in _NOT_READY
    return True


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
