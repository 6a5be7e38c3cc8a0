"""Every refusal for want of a permission, as recorded from Apache Kafka 4.4 with its StandardAuthorizer.

Each test denies one or two operations and allows the rest. Topics: ``t`` and ``u`` exist, ``nope`` does not.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from groupcoord import ErrorCode, Resource, ResourceType
from groupcoord.core.router.authorization import CLUSTER
from tests.broker.rules import (
    CLUSTER_DENIED,
    GROUP,
    GROUP_DENIED,
    ID_DENIED,
    NO_OPERATIONS,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTION,
    UNKNOWN,
    Rules,
    errors,
)
from tests.broker.wire_world import (
    COMMIT,
    HEARTBEAT,
    JOIN,
    NO_ID,
    OTHER_ID,
    SYNC,
    TOPIC_ID,
    U_ID,
    Body,
    WireWorld,
    offset,
)

# ---------------------------------------------------------------- who asks


def test_everyone_is_anonymous_by_default(world: WireWorld, rules: Rules) -> None:
    """Without a log-in Kafka's principal is User:ANONYMOUS, to the core and to the host."""
    world.ask(12, 4, HEARTBEAT)
    world.ask(3, 12, metadata_body("t"))
    assert rules.principals == {"User:ANONYMOUS"}


def test_a_principal_from_the_address(rules: Rules) -> None:
    """The host's own function makes the principal of each new connection, once."""
    asked = []

    def principal_of(client_host: str) -> str:
        asked.append(client_host)
        return f"User:{client_host}"

    world = WireWorld(authorize=rules, principal_of=principal_of)
    world.ask(12, 4, HEARTBEAT)
    world.ask(28, 5, transactional_commit("t"))
    assert asked == ["/127.0.0.1"] * 2
    assert rules.principals == {"User:/127.0.0.1"}


# ---------------------------------------------------------------- members of groups


@pytest.mark.parametrize(
    ("api_key", "version", "body", "answer"),
    [
        pytest.param(
            11,
            9,
            JOIN | {"member_id": "m", "session_timeout": 1, "protocols": ()},
            {
                "generation_id": -1,
                "protocol_type": None,
                "protocol_name": None,
                "leader": "",
                "skip_assignment": False,
                "member_id": "",
                "members": [],
            },
            id="JoinGroup",
        ),
        pytest.param(14, 5, SYNC, {"protocol_type": None, "protocol_name": None, "assignment": b""}, id="SyncGroup"),
        pytest.param(12, 4, HEARTBEAT, {}, id="Heartbeat"),
        pytest.param(
            13,
            5,
            {"group_id": "g", "members": ({"member_id": "m", "group_instance_id": None},)},
            {"members": []},
            id="LeaveGroup",
        ),
        pytest.param(13, 2, {"group_id": "g", "member_id": "m"}, {}, id="LeaveGroup 2"),
    ],
)
def test_members(world: WireWorld, rules: Rules, api_key: int, version: int, body: Body, answer: Body) -> None:
    """READ on the group is asked for before anything else is looked at; nothing is echoed."""
    rules.deny("READ", GROUP, "g")
    assert world.ask(api_key, version, body) == {"error_code": ErrorCode[GROUP_DENIED]} | answer


def test_a_sync_without_protocol_is_refused_first(world: WireWorld, rules: Rules) -> None:
    """The one check that comes before the permission."""
    rules.deny("READ", GROUP, "g")
    answer = world.ask(14, 5, SYNC | {"protocol_type": None})
    assert answer["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# ---------------------------------------------------------------- offsets


def commit_topics(*topics: tuple[str | UUID, tuple[int, ...]]) -> Body:
    named = [
        {
            "name": topic if isinstance(topic, str) else "",
            "topic_id": topic if isinstance(topic, UUID) else NO_ID,
            "partitions": tuple(offset(index) for index in indexes),
        }
        for topic, indexes in topics
    ]
    return {"topics": tuple(named)}


def transactional_commit(*topics: str, producer: Body | None = None, **changes: object) -> Body:
    body = {"group_id": "g", "transactional_id": "x", "producer_id": 77, "producer_epoch": 0}
    body |= {"generation_id": -1, "member_id": "", "group_instance_id": None}
    return body | commit_topics(*((name, (0, 9)) for name in topics)) | (producer or {}) | changes


@pytest.mark.parametrize(
    ("version", "topics", "expected"),
    [
        (9, [("t", (0, 9)), ("nope", (0,))], [("t", [0, 9]), ("nope", [0])]),
        (10, [(TOPIC_ID, (0, 9)), (OTHER_ID, (0,))], [(TOPIC_ID, [0, 9]), (OTHER_ID, [0])]),
    ],
)
def test_commit_to_a_group(
    world: WireWorld, rules: Rules, version: int, topics: list[Any], expected: list[Any]
) -> None:
    """Without READ on the group every partition is refused, even one that does not exist."""
    rules.deny("READ", GROUP, "g")
    answer = world.ask(8, version, COMMIT | commit_topics(*topics))
    assert errors(answer["topics"]) == [(name, [(i, GROUP_DENIED) for i in indexes]) for name, indexes in expected]


def test_commit_to_topics(world: WireWorld, rules: Rules) -> None:
    """Topics without READ are refused on their own, whether they exist or not; an unknown id comes before that."""
    rules.deny("READ", TOPIC, "u", "nope")
    topics = commit_topics(("t", (0, 9)), ("u", (0, 9)), ("nope", (0,)), ("other", (0,)))
    assert errors(world.ask(8, 9, COMMIT | topics)["topics"]) == [
        ("t", [(9, UNKNOWN), (0, "NONE")]),
        ("u", [(0, TOPIC_DENIED), (9, TOPIC_DENIED)]),
        ("nope", [(0, TOPIC_DENIED)]),
        ("other", [(0, UNKNOWN)]),
    ]
    topics = commit_topics((TOPIC_ID, (0, 9)), (U_ID, (0, 9)), (OTHER_ID, (0,)))
    assert errors(world.ask(8, 10, COMMIT | topics)["topics"]) == [
        (TOPIC_ID, [(9, UNKNOWN), (0, "NONE")]),
        (U_ID, [(0, TOPIC_DENIED), (9, TOPIC_DENIED)]),
        (OTHER_ID, [(0, "UNKNOWN_TOPIC_ID")]),
    ]


@pytest.mark.parametrize(
    ("denied", "error"),
    [
        ([("WRITE", TRANSACTION, "x"), ("READ", GROUP, "g")], ID_DENIED),
        ([("READ", GROUP, "g"), ("READ", TOPIC, "t")], GROUP_DENIED),
        ([("READ", TOPIC, "t"), ("READ", TOPIC, "nope")], TOPIC_DENIED),
    ],
)
def test_commit_in_a_transaction(
    world: WireWorld, rules: Rules, denied: list[tuple[str, ResourceType, str]], error: str
) -> None:
    """WRITE on the transactional id, READ on the group, READ on the topic; the producer is not looked at."""
    for rule in denied:
        rules.deny(*rule)
    answer = world.ask(28, 3, transactional_commit("t", "nope"))
    assert errors(answer["topics"]) == [(name, [(0, error), (9, error)]) for name in ("t", "nope")]


def test_what_is_left_of_a_commit_in_a_transaction_is_verified(world: WireWorld, rules: Rules) -> None:
    """Refused topics come out beside the error of the producer."""
    rules.deny("READ", TOPIC, "u")
    answer = world.ask(28, 5, transactional_commit("u", "t"))
    assert errors(answer["topics"]) == [
        ("u", [(0, TOPIC_DENIED), (9, TOPIC_DENIED)]),
        ("t", [(9, UNKNOWN), (0, "INVALID_PRODUCER_ID_MAPPING")]),
    ]


def fetch_body(*group_ids: str, all_topics: bool = False) -> Body:
    topics = tuple(
        {"name": name, "topic_id": topic_id, "partition_indexes": (0,)}
        for name, topic_id in (("u", U_ID), ("t", TOPIC_ID))
    )
    asked = None if all_topics else topics
    groups = [{"group_id": name, "member_id": None, "member_epoch": -1, "topics": asked} for name in group_ids]
    return {"group_id": group_ids[0], "topics": asked, "groups": tuple(groups), "require_stable": False}


def test_fetch_of_a_group(world: WireWorld, rules: Rules) -> None:
    """Without DESCRIBE on the group: each partition has the error in version 1, the whole to 7, then the group."""
    rules.deny("DESCRIBE", GROUP, "g")
    code = ErrorCode[GROUP_DENIED]
    partition = {"partition_index": 0, "committed_offset": -1, "metadata": "", "error_code": code}
    topics = [{"name": name, "partitions": [partition]} for name in ("u", "t")]
    assert world.ask(9, 1, fetch_body("g")) == {"topics": topics}
    for version in (2, 7):
        assert world.ask(9, version, fetch_body("g")) == {"topics": [], "error_code": code}
    for version in (8, 10):
        refused, other = world.ask(9, version, fetch_body("g", "h"))["groups"]
        assert refused == {"group_id": "g", "topics": [], "error_code": code}
        assert other["error_code"] == ErrorCode.NONE


def test_fetch_of_topics(world: WireWorld, rules: Rules) -> None:
    """Without DESCRIBE named topics are refused behind the others; a fetch of everything leaves them out."""
    world.reach("simple")
    world.ask(8, 9, COMMIT | commit_topics(("u", (0,))))
    rules.deny("DESCRIBE", TOPIC, "u")
    for version in (1, 7):
        topics = world.ask(9, version, fetch_body("g"))["topics"]
        assert errors(topics) == [("t", [(0, "NONE")]), ("u", [(0, TOPIC_DENIED)])]
    (group,) = world.ask(9, 10, fetch_body("g"))["groups"]
    assert errors(group["topics"]) == [(TOPIC_ID, [(0, "NONE")]), (U_ID, [(0, TOPIC_DENIED)])]
    for version in (2, 7):
        assert errors(world.ask(9, version, fetch_body("g", all_topics=True))["topics"]) == [("t", [(0, "NONE")])]


def delete_body(*topics: str) -> Body:
    partitions = ({"partition_index": 0}, {"partition_index": 9})
    return {"group_id": "g", "topics": tuple({"name": name, "partitions": partitions} for name in topics)}


def test_delete_offsets(world: WireWorld, rules: Rules) -> None:
    """READ on each topic comes before whether it exists; DELETE on the group replaces all errors."""
    world.reach("simple")
    rules.deny("READ", TOPIC, "u", "nope")
    answer = world.ask(47, 0, delete_body("t", "u", "nope"))
    assert answer["error_code"] == ErrorCode.NONE
    assert errors(answer["topics"]) == [
        ("t", [(9, UNKNOWN), (0, "NONE")]),
        ("u", [(0, TOPIC_DENIED), (9, TOPIC_DENIED)]),
        ("nope", [(0, TOPIC_DENIED), (9, TOPIC_DENIED)]),
    ]
    rules.deny("DELETE", GROUP, "g")
    assert world.ask(47, 0, delete_body("t")) == {"error_code": ErrorCode[GROUP_DENIED], "topics": []}


# ---------------------------------------------------------------- administration of groups


def test_describe_groups(world: WireWorld, rules: Rules) -> None:
    """Groups without DESCRIBE come first, without state and operations."""
    world.reach("simple")
    rules.deny("DESCRIBE", GROUP, "secret")
    body = {"groups": ("g", "secret", "absent"), "include_authorized_operations": True}
    described = world.ask(15, 6, body)["groups"]
    assert [(group["group_id"], ErrorCode(group["error_code"]).name, group["group_state"]) for group in described] == [
        ("secret", GROUP_DENIED, ""),
        ("g", "NONE", "Empty"),
        ("absent", "GROUP_ID_NOT_FOUND", "Dead"),
    ]
    assert [group["authorized_operations"] for group in described] == [NO_OPERATIONS, 3400, NO_OPERATIONS]
    assert [group["error_message"] for group in described] == [None, None, "Group absent not found."]


@pytest.mark.parametrize("version", [5, 6])
def test_authorized_operations_of_a_group(world: WireWorld, rules: Rules, version: int) -> None:
    """What is denied is missing among a group's operations; they are told only if asked for."""
    world.reach("simple")
    rules.deny("DELETE", GROUP, "g")
    body = {"groups": ("g",), "include_authorized_operations": True}
    assert world.ask(15, version, body)["groups"][0]["authorized_operations"] == 3336
    body["include_authorized_operations"] = False
    assert world.ask(15, version, body)["groups"][0]["authorized_operations"] == NO_OPERATIONS


def test_list_groups(world: WireWorld, rules: Rules) -> None:
    """Who may describe the cluster sees all groups, others those that they may describe; nobody gets an error."""
    world.reach("simple")
    world.ask(8, 9, COMMIT | {"group_id": "secret"})
    rules.deny("DESCRIBE", GROUP, "secret")
    body = {"states_filter": (), "types_filter": ()}
    assert {group["group_id"] for group in world.ask(16, 5, body)["groups"]} == {"g", "secret"}
    rules.deny("DESCRIBE", CLUSTER)
    answer = world.ask(16, 5, body)
    assert (answer["error_code"], [group["group_id"] for group in answer["groups"]]) == (ErrorCode.NONE, ["g"])


CONSUMER_HEARTBEAT: Body = {
    "group_id": "g",
    "member_id": "",
    "member_epoch": 0,
    "rebalance_timeout": 60_000,
    "subscribed_topic_names": ("t", "nope"),
    "topic_partitions": (),
}


@pytest.mark.parametrize(
    ("denied", "error"),
    [
        ([], "INVALID_REQUEST"),
        ([("DESCRIBE", GROUP, "g"), ("READ", TOPIC, "t")], "INVALID_REQUEST"),
        ([("DESCRIBE", TOPIC, "nope")], TOPIC_DENIED),
        ([("DESCRIBE", TOPIC, "t"), ("READ", GROUP, "g")], GROUP_DENIED),
    ],
)
def test_consumer_group_heartbeat(world: WireWorld, rules: Rules, denied: Any, error: str) -> None:
    """READ on the group, then DESCRIBE on every topic that is named, there or not; then what the request is."""
    for operation, kind, name in denied:
        rules.deny(operation, kind, name)
    answer = world.ask(68, 1, CONSUMER_HEARTBEAT)
    assert ErrorCode(answer["error_code"]).name == error
    assert (answer["error_message"] is None) == (error != "INVALID_REQUEST")
    assert (answer["member_id"], answer["member_epoch"], answer["assignment"]) == (None, 0, None)


def test_consumer_group_describe(world: WireWorld, rules: Rules) -> None:
    """DESCRIBE is asked for each group; those that it is refused for come first, then those without a name."""
    rules.deny("DESCRIBE", GROUP, "secret")
    body = {"group_ids": ("absent", "", "secret", "absent", "secret"), "include_authorized_operations": True}
    groups = world.ask(69, 1, body)["groups"]
    assert [(group["group_id"], ErrorCode(group["error_code"]).name) for group in groups] == [
        ("secret", GROUP_DENIED),
        ("secret", GROUP_DENIED),
        ("", "INVALID_GROUP_ID"),
        ("absent", "GROUP_ID_NOT_FOUND"),
        ("absent", "GROUP_ID_NOT_FOUND"),
    ]
    assert {(group["group_state"], group["authorized_operations"]) for group in groups} == {("", NO_OPERATIONS)}


def test_delete_groups(world: WireWorld, rules: Rules) -> None:
    """DELETE is asked for each group, and refused for each on its own."""
    world.reach("simple")
    rules.deny("DELETE", GROUP, "g")
    results = world.ask(42, 2, {"groups_names": ("absent", "g", "g")})["results"]
    assert {result["group_id"]: ErrorCode(result["error_code"]).name for result in results} == {
        "absent": "GROUP_ID_NOT_FOUND",
        "g": GROUP_DENIED,
    }


@pytest.mark.parametrize(
    ("key_type", "operation", "where", "error", "message", "message_of_keys"),
    [
        (0, "DESCRIBE", Resource(GROUP, "k"), GROUP_DENIED, "Group authorization failed.", ""),
        (1, "DESCRIBE", Resource(TRANSACTION, "k"), ID_DENIED, "Transactional Id authorization failed.", ""),
        (2, "CLUSTER_ACTION", CLUSTER, CLUSTER_DENIED, None, "Cluster authorization failed."),
    ],
)
def test_find_coordinator(
    world: WireWorld,
    rules: Rules,
    key_type: int,
    operation: str,
    where: Resource,
    error: str,
    message: str | None,
    message_of_keys: str,
) -> None:
    """DESCRIBE on the key, but CLUSTER_ACTION for share groups, which are looked up from version 6 on."""
    rules.deny(operation, where)
    refused = {"node_id": -1, "host": "", "port": -1, "error_code": ErrorCode[error]}
    answer = world.ask(10, 6, {"key_type": key_type, "coordinator_keys": ("k",)})
    assert answer["coordinators"] == [{"key": "k", "error_message": message_of_keys} | refused]
    if message is not None:
        for version in (1, 3):
            assert world.ask(10, version, {"key": "k", "key_type": key_type}) == refused | {"error_message": message}


# ---------------------------------------------------------------- Metadata


def metadata_body(*topics: str | UUID, shows_operations: bool = False) -> Body:
    references = [
        {"name": topic, "topic_id": None} if isinstance(topic, str) else {"name": None, "topic_id": topic}
        for topic in topics
    ]
    return {
        "topics": tuple(references) if topics else None,
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": shows_operations,
        "include_cluster_authorized_operations": shows_operations,
    }


def described_topics(answer: Body) -> list[tuple[object, ...]]:
    return [
        (
            topic["name"],
            topic["topic_id"],
            ErrorCode(topic["error_code"]).name,
            len(topic["partitions"]),
            topic["topic_authorized_operations"],
        )
        for topic in answer["topics"]
    ]


def test_metadata_of_names(world: WireWorld, rules: Rules) -> None:
    """Known topics come first, then unknown names, then what may not be described, whether it exists or not."""
    rules.deny("DESCRIBE", TOPIC, "t", "secret", "a b")
    body = metadata_body("secret", "nope", "t", "u", "a b", "z z", "t", shows_operations=True)
    assert described_topics(world.ask(3, 12, body)) == [
        ("u", U_ID, "NONE", 1, 3576),
        ("nope", None, UNKNOWN, 0, 3576),
        ("z z", None, "INVALID_TOPIC_EXCEPTION", 0, 3576),
        ("secret", None, TOPIC_DENIED, 0, NO_OPERATIONS),
        ("t", None, TOPIC_DENIED, 0, NO_OPERATIONS),
        ("a b", None, TOPIC_DENIED, 0, NO_OPERATIONS),
    ]


def test_metadata_of_ids(world: WireWorld, rules: Rules) -> None:
    """Unknown ids come first; the name of a topic that may not be described is not told."""
    rules.deny("DESCRIBE", TOPIC, "t")
    body = metadata_body(TOPIC_ID, U_ID, OTHER_ID, shows_operations=True)
    assert described_topics(world.ask(3, 12, body)) == [
        (None, OTHER_ID, "UNKNOWN_TOPIC_ID", 0, NO_OPERATIONS),
        ("u", U_ID, "NONE", 1, 3576),
        (None, TOPIC_ID, TOPIC_DENIED, 0, NO_OPERATIONS),
    ]


def test_metadata_of_everything(world: WireWorld, rules: Rules) -> None:
    """What may not be described is left out."""
    rules.deny("DESCRIBE", TOPIC, "t", "__consumer_offsets")
    assert [topic["name"] for topic in world.ask(3, 12, metadata_body())["topics"]] == ["u"]


def test_authorized_operations_of_topics_and_the_cluster(world: WireWorld, rules: Rules) -> None:
    """What is denied is missing; whoever may not describe the cluster is told 0."""
    rules.deny("ALTER", TOPIC, "t")
    rules.deny("CREATE", CLUSTER)
    answer = world.ask(3, 8, metadata_body("t", "u", shows_operations=True))
    assert [topic["topic_authorized_operations"] for topic in answer["topics"]] == [3448, 3576]
    assert answer["cluster_authorized_operations"] == 8064
    rules.deny("DESCRIBE", CLUSTER)
    assert world.ask(3, 8, metadata_body("t", shows_operations=True))["cluster_authorized_operations"] == 0
