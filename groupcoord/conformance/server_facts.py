"""What a server says of itself: the APIs that it lists, and its settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from attrs import field, frozen

from groupcoord.conformance.client import Client, NoResponseError, open_client
from groupcoord.conformance.entities import API_KEYS, BodyError, ResponseError
from groupcoord.conformance.targets import ConnectionClosedError, Server

BROKER_RESOURCE = 4
_NAMES = {key: name for name, key in API_KEYS.items()}
_SOFTWARE = {"client_software_name": "groupcoord-conformance", "client_software_version": "1"}
_NO_ANSWER = (BodyError, ConnectionClosedError, NoResponseError, ResponseError)


@frozen
class ServerFacts:
    """What is known of a server.

    Attributes:
        apis: the APIs that it lists, with the lowest and the highest version.
        settings: its settings under Kafka's keys, of those that were asked for and are known.
        why_unknown: why it didn't tell its settings; empty if it did, or wasn't asked.
    """

    apis: Mapping[str, tuple[int, int]] = field(factory=dict)
    settings: Mapping[str, str] = field(factory=dict)
    why_unknown: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the facts as JSON data."""
        apis = {name: list(versions) for name, versions in sorted(self.apis.items())}
        return {"apis": apis, "settings": dict(sorted(self.settings.items())), "why_unknown": self.why_unknown}


def listed_apis(client: Client) -> dict[str, tuple[int, int]]:
    """Return the APIs that a server lists, with the lowest and the highest version.

    Raises:
        ConnectionClosedError, NoResponseError, ResponseError: the server doesn't say.
    """
    answered = client.ask("ApiVersions", 3, _SOFTWARE)["api_keys"]
    return {
        _NAMES.get(api["api_key"], str(api["api_key"])): (api["min_version"], api["max_version"]) for api in answered
    }


def ask_facts(server: Server, keys: Collection[str], told: Mapping[str, str]) -> ServerFacts:
    """Ask a server for its APIs and for some of its settings.

    Args:
        server: whom.
        keys: the settings to ask for, under Kafka's keys; without any none is asked for.
        told: settings that are known without asking; they count for more than the answer.

    Raises:
        ConnectionClosedError, NoResponseError, ResponseError: the server doesn't say what it lists.
    """
    with open_client(server) as client:
        apis = listed_apis(client)
    if not keys:
        return ServerFacts(apis, told)
    if "DescribeConfigs" not in apis:
        return ServerFacts(apis, told, "it doesn't list DescribeConfigs")
    try:
        found, why_unknown = _ask_settings(server, keys)
    except _NO_ANSWER as error:
        found, why_unknown = {}, f"DescribeConfigs: {error}"
    return ServerFacts(apis, {**found, **told}, why_unknown)


def ask_topics(client: Client) -> dict[str, int]:
    """Return the names of all topics, with how many partitions each has.

    Raises:
        ConnectionClosedError, NoResponseError, ResponseError: the server doesn't say.
    """
    answered = client.ask("Metadata", 4, {"topics": None, "allow_auto_topic_creation": False})["topics"]
    return {topic["name"]: len(topic["partitions"]) for topic in answered}


def ask_groups(client: Client) -> set[str]:
    """Return the ids of all groups that a server lists.

    Raises:
        ConnectionClosedError, NoResponseError, ResponseError: the server doesn't say.
    """
    return {group["group_id"] for group in client.ask("ListGroups", 4, {"states_filter": []})["groups"]}


def _ask_settings(server: Server, keys: Collection[str]) -> tuple[dict[str, str], str]:
    with open_client(server) as client:
        # Any broker will do: the nodes of a cluster are set up alike where it matters to groups.
        query = {"topics": [], "allow_auto_topic_creation": False}
        brokers = client.ask("Metadata", 4, query)["brokers"]
        if not brokers:
            return {}, "it lists no brokers"
        resource = {
            "resource_type": BROKER_RESOURCE,
            "resource_name": str(brokers[0]["node_id"]),
            "configuration_keys": sorted(keys),
        }
        (result,) = client.ask("DescribeConfigs", 1, {"resources": [resource], "include_synonyms": False})["results"]
    if result["error_code"] != "NONE":
        return {}, f"DescribeConfigs: {result['error_code']}"
    return {config["name"]: config["value"] for config in result["configs"] if config["value"] is not None}, ""
