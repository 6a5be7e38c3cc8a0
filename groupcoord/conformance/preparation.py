"""Preparation before a transcript (topics, ACLs, coordinators) and removal of its groups and topics afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from attrs import define, field

from groupcoord.conformance.client import (
    Client,
    NoResponseError,
    ServerFacts,
    list_groups,
    list_topics,
    listed_apis,
    open_client,
)
from groupcoord.conformance.entities import BodyError, Plain, ResponseError
from groupcoord.conformance.matching import Bindings, substitute
from groupcoord.conformance.targets import ConnectionClosedError, Server, TargetError
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
    """Create missing topics, wait for them, and return their ids by name."""
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
    query = {
        "topics": [{"topic_id": None, "name": name} for name in names],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    with open_client(server) as client:
        for _ in _attempts(server, "topics are not ready", f": {', '.join(names)}"):
            answered = client.ask("Metadata", 12, query)
            known = [topic for topic in answered["topics"] if topic["name"] in names and _is_ready(topic)]
            # A broker may know the leader of a partition before it leads.
            needs_leader = len(answered["brokers"]) == 1 and "ListOffsets" in listed_apis(client)
            if len(known) == len(names) and (not needs_leader or _lead(client, known)):
                break
    return known


def wait_until_ready(server: Server, transcript: Transcript, bindings: Bindings) -> None:
    """Wait until the coordinators of a transcript's groups and transactional ids have loaded."""
    groups = group_ids(transcript, bindings)
    transactional_ids = _transactional_ids(transcript, bindings)
    with open_client(server) as client:
        for _ in _attempts(server, "the coordinators are not ready"):
            are_ready = _groups_ready(server, client, groups, several=transcript.nodes > 1)
            if are_ready and _transactions_ready(client, transactional_ids):
                return


def _attempts(server: Server, trouble: str, details: str = "") -> Iterator[None]:
    """Yield in intervals; raise TargetError after a timeout."""
    give_up_ms = server.now_ms() + _TIMEOUT_MS
    while server.now_ms() < give_up_ms:
        yield
        server.sleep(_PAUSE_MS)
    raise TargetError(f"{trouble} within {_TIMEOUT_MS // 1000} s{details}")


def set_acls(server: Server, acls: Iterable[AclEntry], bindings: Bindings) -> None:
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
        for _ in _attempts(server, "ACLs are not there"):
            described = client.ask("DescribeAcls", 3, _ANY_ACL)
            if described["error_code"] == "CLUSTER_AUTHORIZATION_FAILED":  # as the ACLs require
                return
            if sum(len(resource["acls"]) for resource in described["resources"]) == len(creations):
                return


def group_ids(transcript: Transcript, bindings: Bindings) -> list[str]:
    """Return the ids of all groups that a transcript may create."""
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
    with open_client(server) as client:
        brokers = client.ask("Metadata", 4, {"topics": [], "allow_auto_topic_creation": False})["brokers"]
    return {broker["node_id"]: Node(broker["node_id"], broker["host"], broker["port"]) for broker in brokers}


def find_coordinators(client: Client, groups: list[str]) -> dict[Node, list[str]]:
    """Return groups by coordinator; empty while a group has none.

    The first such request makes a new broker create ``__consumer_offsets``.
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
    listed = client.ask("ListGroups", 4, {"states_filter": []})  # fails while any log partition loads
    return listed["error_code"] not in _NOT_READY


def _transactions_ready(client: Client, transactional_ids: list[str]) -> bool:
    if not transactional_ids:
        return True
    found = client.ask("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": transactional_ids})
    if any(answer["error_code"] != "NONE" for answer in found["coordinators"]):
        return False
    apis = listed_apis(client)
    if "DescribeTransactions" in apis:
        described = client.ask("DescribeTransactions", 0, {"transactional_ids": transactional_ids})
        if any(state["error_code"] in _NOT_READY for state in described["transaction_states"]):
            return False
    if "InitProducerId" in apis:  # a new broker may have no producer ids yet
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


_TROUBLE = (BodyError, ConnectionClosedError, NoResponseError, ResponseError)
_GROUP_RESOURCE = 32
_SET_FOR_THE_GROUP = 8
"""Source of a group's own setting (``DYNAMIC_GROUP_CONFIG``)."""
_DELETE = 1
_ABORT_TRIES = 20
_LEAVES: Mapping[str, dict[str, Plain]] = {
    "ConsumerGroup": {
        "member_epoch": -1,
        "rebalance_timeout": -1,
        **dict.fromkeys(("instance_id", "rack_id", "subscribed_topic_names", "server_assignor", "topic_partitions")),
    },
    "StreamsGroup": {
        "member_epoch": -1,
        "endpoint_information_epoch": 0,
        **dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks")),
        **dict.fromkeys(("client_tags", "task_offsets", "task_end_offsets")),
    },
}


@define
class Cleaner:
    """Removal of topics, groups and settings that a run created.

    Attributes:
        topics: topics that the run may have created.
        group_ids: ids of replayed transcripts; the run also owns ids that begin with them. All are deleted, listed or
            not: Kafka lists a group without a record only after the next write to its log partition.
        named_groups: fixed ids of groups that did not exist before.
    """

    server: Server
    facts: ServerFacts
    topics_before: Collection[str]
    topics: set[str] = field(factory=set)
    group_ids: list[str] = field(factory=list)
    named_groups: set[str] = field(factory=set)
    has_nodes: bool = False

    def expect(self, group_ids: Iterable[str], named_groups: Iterable[str], topics: Iterable[str]) -> None:
        self.group_ids.extend(group_ids)
        self.named_groups.update(named_groups)
        self.topics.update(topics)

    def clean(self) -> list[str]:
        left = []
        for clean in (self._abort_transactions, self._delete_groups, self._delete_group_settings, self._delete_topics):
            try:
                is_spread = self.has_nodes and clean == self._delete_groups
                for node in find_nodes(self.server).values() if is_spread else (None,):
                    with open_client(self.server, node) as client:
                        left += clean(client)
            except _TROUBLE as error:
                left.append(f"cleaning up ended early: {error}")
        return left

    def _is_own(self, name: str) -> bool:
        return name.startswith(tuple(self.group_ids))

    def _abort_transactions(self, client: Client) -> list[str]:
        if "ListTransactions" not in self.facts.apis:
            return []
        filters = {"state_filters": ["Ongoing"], "producer_id_filters": []}
        listed = client.ask("ListTransactions", 0, filters)["transaction_states"]
        own = [state["transactional_id"] for state in listed if self._is_own(state["transactional_id"])]
        return [f"the transaction of {name}" for name in own if not self._abort(client, name)]

    def _abort(self, client: Client, transactional_id: str) -> bool:
        for _ in range(_ABORT_TRIES):
            answered = client.ask("InitProducerId", 4, {**_NO_PRODUCER, "transactional_id": transactional_id})
            if answered["error_code"] == "NONE":
                return True
            if answered["error_code"] != "CONCURRENT_TRANSACTIONS":
                return False
            self.server.sleep(_PAUSE_MS)
        return False

    def _delete_groups(self, client: Client) -> list[str]:
        own = sorted({*self.group_ids, *self.named_groups, *filter(self._is_own, list_groups(client))})
        for group_id, error in _delete_groups(client, own):
            if error == "NON_EMPTY_GROUP":
                self._remove_members(client, group_id)
        left = _delete_groups(client, own)
        done = ("NONE", "GROUP_ID_NOT_FOUND", *(("NOT_COORDINATOR",) if self.has_nodes else ()))
        return [f"group {name}: {error}" for name, error in left if error not in done]

    def _remove_members(self, client: Client, group_id: str) -> None:
        described = client.ask("DescribeGroups", 5, {"groups": [group_id], "include_authorized_operations": False})
        members = _member_ids(described)
        if members:
            leaving = [{"member_id": member, "group_instance_id": None, "reason": "cleaning up"} for member in members]
            client.ask("LeaveGroup", 5, {"group_id": group_id, "members": leaving})
        query = {"group_ids": [group_id], "include_authorized_operations": False}
        for kind, unchanged in _LEAVES.items():
            if f"{kind}Describe" in self.facts.apis:
                for member in _member_ids(client.ask(f"{kind}Describe", 0, query)):
                    client.ask(f"{kind}Heartbeat", 0, {"group_id": group_id, "member_id": member, **unchanged})

    def _delete_group_settings(self, client: Client) -> list[str]:
        if self.facts.apis.get("ListConfigResources", (0, 0))[1] < 1:
            return []
        listed = client.ask("ListConfigResources", 1, {"resource_types": [_GROUP_RESOURCE]})["config_resources"]
        left = []
        for name in (resource["resource_name"] for resource in listed if self._is_own(resource["resource_name"])):
            resource = {"resource_type": _GROUP_RESOURCE, "resource_name": name}
            query = {"resources": [{**resource, "configuration_keys": None}], "include_synonyms": False}
            (found,) = client.ask("DescribeConfigs", 1, query)["results"]
            keys = [config["name"] for config in found["configs"] if config["config_source"] == _SET_FOR_THE_GROUP]
            deletions = [{"name": key, "config_operation": _DELETE, "value": None} for key in keys]
            alter = {"resources": [{**resource, "configs": deletions}], "validate_only": False}
            (answered,) = client.ask("IncrementalAlterConfigs", 1, alter)["responses"]
            if answered["error_code"] != "NONE":
                left.append(f"settings of group {name}: {answered['error_code']}")
        return left

    def _delete_topics(self, client: Client) -> list[str]:
        new = list_topics(client).keys() - set(self.topics_before)
        own = sorted(name for name in new if name in self.topics or self._is_own(name))
        if not own:
            return []
        answered = client.ask("DeleteTopics", 5, {"topic_names": own, "timeout": 10_000})["responses"]
        errors = {topic["name"]: topic["error_code"] for topic in answered}
        gone = ("NONE", "UNKNOWN_TOPIC_OR_PARTITION")
        return [f"topic {name}: {error}" for name, error in errors.items() if error not in gone]


def _delete_groups(client: Client, group_ids: Collection[str]) -> list[tuple[str, str]]:
    if not group_ids:
        return []
    results = client.ask("DeleteGroups", 2, {"groups_names": list(group_ids)})["results"]
    return [(result["group_id"], result["error_code"]) for result in results]


def _member_ids(described: dict[str, Any]) -> list[str]:
    return [member["member_id"] for group in described["groups"] for member in group["members"]]
