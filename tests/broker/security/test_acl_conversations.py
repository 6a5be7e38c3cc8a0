"""Conversations about ACLs recorded with Apache Kafka 4.4.0: answered and decided as by its StandardAuthorizer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from groupcoord.broker.json_file import DataFileError
from groupcoord.core.router.authorization import Resource
from tests.broker.security.world import LoginClient, LoginWorld, Values, conversations, from_json
from tests.tables import as_one_test

CONVERSATIONS = conversations("acl_conversations.json")
ACLS: dict[str, str | int | float] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS; User:admin",
}


def acl_world(**arguments: Any) -> LoginWorld:
    """Return a broker that decides by ACLs, with two topics."""
    world = LoginWorld(ACLS | arguments.pop("properties", {}), authorize=None, **arguments)
    with world.broker.topics.edit() as edit:
        for name in ("orders", "other"):
            edit.create(name, 1)
    return world


def sorted_deeply(value: Any) -> Any:
    """Return a value with all lists sorted, since Kafka lists ACLs in the order of a hash map."""
    if isinstance(value, dict):
        return {key: sorted_deeply(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted(map(sorted_deeply, value), key=lambda inner: json.dumps(inner, sort_keys=True))
    return value


def reduced(answer: Any, expected: Any) -> Any:
    """Return what the recording names of an answer."""
    if isinstance(expected, dict):
        return {key: reduced(answer[key], inner) for key, inner in expected.items()}
    if isinstance(expected, list) and len(answer) == len(expected):
        return [reduced(*pair) for pair in zip(sorted_deeply(answer), sorted_deeply(expected), strict=True)]
    return "$any" if expected == "$any" else answer


@as_one_test
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation["name"])
def test_acls_are_answered_and_decided_as_by_kafka(conversation: Values) -> None:
    """Error codes and messages, what is found and deleted, who may do what: as recorded."""
    world = acl_world()
    clients: dict[str, LoginClient] = {}
    asked = ("", 0)
    for step in conversation["steps"]:
        if step["do"] == "log_in":
            clients[step["conn"]] = world.connect()
            clients[step["conn"]].log_in_plain(step["user"], f"{step['user']}-secret")
            continue
        client = clients[step["conn"]]
        if step["do"] == "send":
            asked = step["api"], step["version"]
            client.send(*asked, from_json(step["body"]))
        elif step["do"] == "closed":
            assert client.is_closed
        else:
            answer = client.receive(*asked)
            assert answer is not None
            expected = sorted_deeply(step["body"])
            assert sorted_deeply(reduced(answer, expected)) == expected, step


READ_G1 = {
    "resource_type": 3,
    "resource_name": "g1",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
EVERY = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
HEARTBEAT = {"group_id": "g1", "generation_id": 1, "member_id": "m", "group_instance_id": None}


def heartbeat_of_alice(world: LoginWorld, host: str = "/127.0.0.1") -> str:
    """Return the error of a heartbeat in group g1."""
    client = world.connect(host=host)
    client.log_in_plain("alice", "alice-secret")
    return str(client.ask("Heartbeat", 4, HEARTBEAT)["error_code"])


def create(world: LoginWorld, **changed: object) -> str:
    """Create an ACL; return the error."""
    answer = world.connect("PLAINTEXT").ask("CreateAcls", 3, {"creations": (READ_G1 | changed,)})
    return str(answer["results"][0]["error_code"])


def test_acls_are_kept(tmp_path: Any) -> None:
    """A broker that is started on the same directory decides by the same ACLs; deleted ones are gone."""
    assert create(acl_world(directory=tmp_path)) == "NONE"
    again = acl_world(directory=tmp_path)
    assert heartbeat_of_alice(again) == "UNKNOWN_MEMBER_ID"
    again.connect("PLAINTEXT").ask("DeleteAcls", 3, {"filters": (EVERY,)})

    assert (
        heartbeat_of_alice(again) == heartbeat_of_alice(acl_world(directory=tmp_path)) == "GROUP_AUTHORIZATION_FAILED"
    )


def test_acls_that_can_not_be_written_change_nothing(tmp_path: Any) -> None:
    """The request fails, and the decision stays."""
    world = acl_world(directory=tmp_path / "gone")

    assert create(world) == "UNKNOWN_SERVER_ERROR"
    assert heartbeat_of_alice(world) == "GROUP_AUTHORIZATION_FAILED"


def test_an_acl_may_be_for_one_host() -> None:
    """Only a client from there may."""
    world = acl_world()
    create(world, host="10.0.0.7")

    assert heartbeat_of_alice(world, "/10.0.0.7") == "UNKNOWN_MEMBER_ID"
    assert heartbeat_of_alice(world, "/10.0.0.8") == "GROUP_AUTHORIZATION_FAILED"


def test_what_has_no_acl_may_be_open() -> None:
    """With ``allow.everyone.if.no.acl.found`` a resource without ACLs is open to all principals."""
    world = acl_world(properties={"allow.everyone.if.no.acl.found": "true"})
    assert heartbeat_of_alice(world) == "UNKNOWN_MEMBER_ID"
    create(world, principal="User:bob")

    assert heartbeat_of_alice(world) == "GROUP_AUTHORIZATION_FAILED"


def test_without_an_authorizer_there_are_no_acls() -> None:
    """Each request fails as in Kafka: with the controller's error, or for a description with the broker's."""
    client = LoginWorld(authorize=None).connect("PLAINTEXT")
    created = client.ask("CreateAcls", 3, {"creations": (READ_G1, READ_G1)})
    deleted = client.ask("DeleteAcls", 3, {"filters": (EVERY,)})
    answers = [*created["results"], *deleted["filter_results"], client.ask("DescribeAcls", 3, EVERY)]

    assert [answer["error_code"] for answer in answers] == ["SECURITY_DISABLED"] * 4
    assert [answer["error_message"] for answer in answers] == [
        *["No Authorizer is configured."] * 3,
        "No Authorizer is configured on the broker",
    ]


def test_decisions_are_remembered_until_acls_change() -> None:
    """A repeated decision needs no lookup, and a new ACL applies at once."""
    world = acl_world()
    acls = world.security.acls
    assert acls is not None
    for _ in range(3):
        assert not acls.authorize("User:alice", 3, Resource(3, "g1"))  # type: ignore[arg-type]
    assert acls._decide.cache_info().misses == 1
    create(world)

    assert acls.authorize("User:alice", 3, Resource(3, "g1"))  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1}', '{"version": 1, "acls": [{"host": "*"}]}'])
def test_a_broken_file_of_acls_is_refused(tmp_path: Any, content: str) -> None:
    """The server doesn't start without what may forbid something, and names the file."""
    (tmp_path / "acls.json").write_text(content)

    with pytest.raises(DataFileError, match=r"acls\.json"):
        acl_world(directory=tmp_path)
