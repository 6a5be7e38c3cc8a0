"""Taking away what a run left on a server that goes on without it: groups, their settings, topics, transactions.

Whatever is taken away was made by the run: it begins with one of its group ids, or is a topic that a transcript names
and that was not there before. Offsets of an internal topic's own kind (a group's tombstones, a transactional id that is
known for a week) stay, as they do after any client.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from attrs import define, field

from groupcoord.conformance.client import Client, NoResponseError, open_client
from groupcoord.conformance.entities import BodyError, ResponseError
from groupcoord.conformance.preparation import find_nodes
from groupcoord.conformance.server_facts import ServerFacts, ask_groups, ask_topics
from groupcoord.conformance.targets import ConnectionClosedError, Server

_TROUBLE = (BodyError, ConnectionClosedError, NoResponseError, ResponseError)
_GROUP_RESOURCE = 32
_SET_FOR_THE_GROUP = 8
"""The source of a setting that was set for a group (``DYNAMIC_GROUP_CONFIG``)."""
_DELETE = 1
_ABORT_TRIES = 20
_PAUSE_MS = 100


@define
class Cleaner:
    """What a run needs to remember for cleaning up: which topics there were before it, and what it made since.

    Attributes:
        server: where.
        facts: what that lists.
        topics_before: names of the topics that are none of the run's.
        topics: names of topics that the run may have made.
        group_ids: of the transcripts that were replayed; ids that begin with one of them are the run's, too. All of
            them are deleted, listed or not: Kafka lists a group that came without a record of its own, as by a commit
            that was refused, only after the next write to its log partition.
        named_groups: ids that are the same in each run, of groups that were not there before.
        has_nodes: groups may be on several nodes.
    """

    server: Server
    facts: ServerFacts
    topics_before: Collection[str]
    topics: set[str] = field(factory=set)
    group_ids: list[str] = field(factory=list)
    named_groups: set[str] = field(factory=set)
    has_nodes: bool = False

    def expect(self, group_ids: Iterable[str], named_groups: Iterable[str], topics: Iterable[str]) -> None:
        """Remember what a transcript is about to make: groups, those of fixed names, and topics."""
        self.group_ids.extend(group_ids)
        self.named_groups.update(named_groups)
        self.topics.update(topics)

    def clean(self) -> list[str]:
        """Take everything away.

        Returns:
            What couldn't be, in words.
        """
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
        fields = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        for _ in range(_ABORT_TRIES):
            answered = client.ask("InitProducerId", 4, {"transactional_id": transactional_id, **fields})
            if answered["error_code"] == "NONE":
                return True
            if answered["error_code"] != "CONCURRENT_TRANSACTIONS":
                return False
            self.server.sleep(_PAUSE_MS)
        return False

    def _delete_groups(self, client: Client) -> list[str]:
        own = sorted({*self.group_ids, *self.named_groups, *filter(self._is_own, ask_groups(client))})
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
        if "ConsumerGroupDescribe" in self.facts.apis:
            query = {"group_ids": [group_id], "include_authorized_operations": False}
            for member in _member_ids(client.ask("ConsumerGroupDescribe", 0, query)):
                client.ask("ConsumerGroupHeartbeat", 0, _leave(group_id, member))
        if "StreamsGroupDescribe" in self.facts.apis:
            query = {"group_ids": [group_id], "include_authorized_operations": False}
            for member in _member_ids(client.ask("StreamsGroupDescribe", 0, query)):
                client.ask("StreamsGroupHeartbeat", 0, _leave_streams(group_id, member))

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
        new = ask_topics(client).keys() - set(self.topics_before)
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


def _leave(group_id: str, member_id: str) -> dict[str, Any]:
    nothing = {"instance_id": None, "rack_id": None, "server_assignor": None, "topic_partitions": None}
    return {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": -1,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        **nothing,
    }


def _leave_streams(group_id: str, member_id: str) -> dict[str, Any]:
    unchanged = ("active_tasks", "standby_tasks", "warmup_tasks", "client_tags", "task_offsets", "task_end_offsets")
    epochs = {"member_epoch": -1, "endpoint_information_epoch": 0}
    return {"group_id": group_id, "member_id": member_id, **epochs, **dict.fromkeys(unchanged)}
