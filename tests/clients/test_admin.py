"""Admin clients of three libraries: groups, their offsets and topics, listed, described, changed and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from groupcoord.testing.server import ServerThread
from tests.clients.fleet import DEADLINE_S, PARTITION_COUNT, TOPIC
from tests.clients.libraries import CONSUMERS
from tests.clients.member_process import Options
from tests.processes import MemberProcess, committed_offsets, wait_until

pytestmark = pytest.mark.usefixtures("client_libraries")


def commit(server: ServerThread, group_id: str, offsets: dict[int, int]) -> None:
    """Commit without a member, so that the group is simple and empty."""
    with CONSUMERS["kafka-python"](server.bootstrap, group_id, TOPIC) as consumer:
        consumer.commit({partition: (offset, "") for partition, offset in offsets.items()})


@contextmanager
def working_member(server: ServerThread, group_id: str) -> Iterator[MemberProcess]:
    """A member named ``worker`` that owns all partitions, alone in a group."""
    with MemberProcess(Options("kafka-python", server.bootstrap, group_id, TOPIC, "worker")) as process:
        wait_until(lambda: process.commit_count > 0, DEADLINE_S, "the member commits")
        yield process


@pytest.fixture(scope="module")
def member(server: ServerThread) -> Iterator[MemberProcess]:
    """A member of a group named ``busy``."""
    with working_member(server, "busy") as process:
        yield process


@pytest.fixture
def confluent_admin(server: ServerThread) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})


@pytest.fixture
def kafka_python_admin(server: ServerThread) -> Iterator[Any]:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    yield admin
    admin.close()


def error_names(futures: dict[str, Any]) -> dict[str, str]:
    """Return the name of the error of each of confluent's futures, or what it has come to."""
    names = {}
    for key, future in futures.items():
        error = future.exception(DEADLINE_S)
        names[key] = str(future.result()) if error is None else error.args[0].name()
    return names


def test_confluent_groups(server: ServerThread, member: MemberProcess, confluent_admin: Any) -> None:
    """confluent-kafka lists, describes and deletes groups; a busy group is not deleted, a missing one is not found."""
    from confluent_kafka import ConsumerGroupState, ConsumerGroupType

    commit(server, "idle", {0: 1})
    listed = confluent_admin.list_consumer_groups().result(DEADLINE_S)
    assert listed.errors == []
    groups = {group.group_id: group for group in listed.valid}
    assert groups.keys() >= {"busy", "idle"}
    assert (groups["busy"].state, groups["busy"].is_simple_consumer_group) == (ConsumerGroupState.STABLE, False)
    assert (groups["idle"].state, groups["idle"].is_simple_consumer_group) == (ConsumerGroupState.EMPTY, True)
    assert {group.type for group in groups.values()} == {ConsumerGroupType.CLASSIC}
    stable = confluent_admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(DEADLINE_S)
    names = [group.group_id for group in stable.valid]
    assert "busy" in names
    assert "idle" not in names

    described = confluent_admin.describe_consumer_groups(["busy", "idle", "missing"])
    busy, idle, missing = (future.result(DEADLINE_S) for future in described.values())
    assert (busy.state, busy.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    (only,) = busy.members
    assert (only.client_id, only.host, only.group_instance_id) == ("worker", "/127.0.0.1", None)
    assigned = [(partition.topic, partition.partition) for partition in only.assignment.topic_partitions]
    assert sorted(assigned) == [(TOPIC, partition) for partition in range(PARTITION_COUNT)]
    assert (idle.state, idle.members) == (ConsumerGroupState.EMPTY, [])
    assert missing.state == ConsumerGroupState.DEAD

    deleted = confluent_admin.delete_consumer_groups(["busy", "idle", "missing"])
    assert error_names(deleted) == {"busy": "NON_EMPTY_GROUP", "idle": "None", "missing": "GROUP_ID_NOT_FOUND"}
    left = confluent_admin.list_consumer_groups().result(DEADLINE_S)
    assert "idle" not in [group.group_id for group in left.valid]
    assert committed_offsets(server.port, "idle", TOPIC) == {}


def test_confluent_offsets(server: ServerThread, member: MemberProcess, confluent_admin: Any) -> None:
    """confluent-kafka lists and alters a group's offsets; those of a group with members are not altered."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    def listed(*partitions: int, require_stable: bool = False) -> dict[int, int]:
        named = [TopicPartition(TOPIC, partition) for partition in partitions] or None
        wanted = [ConsumerGroupTopicPartitions("altered", named)]
        future = confluent_admin.list_consumer_group_offsets(wanted, require_stable=require_stable)["altered"]
        return {found.partition: found.offset for found in future.result(DEADLINE_S).topic_partitions}

    def alter(group_id: str, offset: int) -> dict[int, Any]:
        wanted = ConsumerGroupTopicPartitions(group_id, [TopicPartition(TOPIC, 2, offset)])
        (future,) = confluent_admin.alter_consumer_group_offsets([wanted]).values()
        return {found.partition: found.error for found in future.result(DEADLINE_S).topic_partitions}

    commit(server, "altered", {1: 10, 2: 20})
    assert listed() == {1: 10, 2: 20}
    assert listed(2, 3, require_stable=True) == {2: 20, 3: -1001}
    assert alter("altered", 15) == {2: None}
    assert listed() == {1: 10, 2: 15}
    (error,) = alter("busy", 15).values()
    assert error.name() == "UNKNOWN_MEMBER_ID"


def test_kafka_python_groups(server: ServerThread, member: MemberProcess, kafka_python_admin: Any) -> None:
    """kafka-python lists, describes and deletes groups; a busy group is not deleted, a missing one is not found."""
    commit(server, "idle", {0: 1})
    listed = {group["group_id"]: group for group in kafka_python_admin.list_groups()}
    assert {key: listed["busy"][key] for key in ("protocol_type", "group_state", "group_type")} == {
        "protocol_type": "consumer",
        "group_state": "Stable",
        "group_type": "classic",
    }
    assert (listed["idle"]["protocol_type"], listed["idle"]["group_state"]) == ("", "Empty")

    described = kafka_python_admin.describe_groups(["busy", "idle", "missing"])
    busy, idle, missing = (described[name] for name in ("busy", "idle", "missing"))
    assert (busy["group_state"], busy["protocol_data"], busy["error"]) == ("Stable", "range", None)
    (only,) = busy["members"]
    assert (only["client_id"], only["client_host"]) == ("worker", "/127.0.0.1")
    assert (idle["group_state"], idle["members"], idle["error"]) == ("Empty", [], None)
    assert (missing["group_state"], missing["authorized_operations"]) == ("Dead", None)
    assert "Group missing not found." in missing["error"]

    assert kafka_python_admin.delete_groups(["busy", "idle", "missing"]) == {
        "busy": "NonEmptyGroupError",
        "idle": "OK",
        "missing": "GroupIdNotFoundError",
    }
    assert "idle" not in [group["group_id"] for group in kafka_python_admin.list_groups()]


def test_kafka_python_offsets(server: ServerThread, member: MemberProcess, kafka_python_admin: Any) -> None:
    """kafka-python lists, alters, resets and deletes a group's offsets; not those its members read from."""
    from kafka import OffsetAndMetadata, TopicPartition
    from kafka.errors import GroupSubscribedToTopicError, NoError

    first, second = TopicPartition(TOPIC, 1), TopicPartition(TOPIC, 2)
    commit(server, "reset", {1: 10})
    wanted = {second: OffsetAndMetadata(20, "why", -1)}
    assert kafka_python_admin.alter_group_offsets("reset", wanted) == {second: NoError}
    assert kafka_python_admin.list_group_offsets("reset") == {
        "reset": {first: OffsetAndMetadata(10, "", -1), second: OffsetAndMetadata(20, "why", -1)}
    }
    assert kafka_python_admin.reset_group_offsets("reset", {first: 0})[first] == {"error": NoError, "offset": 0}
    assert committed_offsets(server.port, "reset", TOPIC) == {1: 0, 2: 20}
    assert kafka_python_admin.delete_group_offsets("reset", [second]) == {second: NoError}
    assert committed_offsets(server.port, "reset", TOPIC) == {1: 0}
    assert kafka_python_admin.delete_group_offsets("busy", [second]) == {second: GroupSubscribedToTopicError}


def test_kafka_python_removes_a_member(server: ServerThread, kafka_python_admin: Any) -> None:
    """A member that an admin removes joins again by itself, under another id."""
    from kafka.admin import MemberToRemove

    def described() -> tuple[str, list[str]]:
        group = kafka_python_admin.describe_groups(["purged"])["purged"]
        return group["group_state"], [found["member_id"] for found in group["members"]]

    def is_back() -> bool:
        state, member_ids = described()
        return state == "Stable" and len(member_ids) == 1 and member_ids != [removed_id]

    with working_member(server, "purged") as member:
        _, (removed_id,) = described()
        kafka_python_admin.remove_group_members("purged", [MemberToRemove(member_id=removed_id)])
        wait_until(is_back, DEADLINE_S, "the member joins again")
        commits = member.commit_count
        wait_until(lambda: member.commit_count > commits, DEADLINE_S, "the member commits again")


def test_aiokafka_groups(server: ServerThread, member: MemberProcess) -> None:
    """aiokafka's admin client, which speaks old versions, lists and describes groups and their offsets."""
    from aiokafka import TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient

    commit(server, "idle", {3: 30})

    async def check() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap)
        await admin.start()
        try:
            groups = await admin.list_consumer_groups()
            assert set(groups) >= {("busy", "consumer"), ("idle", "")}
            (response,) = await admin.describe_consumer_groups(["busy"])
            (_, group_id, state, protocol_type, protocol, members, *_) = response.groups[0]
            assert (group_id, state, protocol_type, protocol) == ("busy", "Stable", "consumer", "range")
            assert [found[1] for found in members] == ["worker"]
            offsets = await admin.list_consumer_group_offsets("idle")
            assert {name: found.offset for name, found in offsets.items()}[TopicPartition(TOPIC, 3)] == 30
        finally:
            await admin.close()

    asyncio.run(check())


def test_topics(server: ServerThread, confluent_admin: Any, kafka_python_admin: Any) -> None:
    """A topic that one library makes the others see, extend and delete; its offsets go with it."""
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
    from confluent_kafka.admin import NewTopic

    assert error_names(confluent_admin.create_topics([NewTopic("made", 2, 1)])) == {"made": "None"}
    assert error_names(confluent_admin.create_topics([NewTopic("made", 2, 1)])) == {"made": "TOPIC_ALREADY_EXISTS"}
    (described,) = kafka_python_admin.describe_topics(["made"])
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1]

    async def extend() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap)
        await admin.start()
        try:
            await admin.create_partitions({"made": NewPartitions(3)})
        finally:
            await admin.close()

    asyncio.run(extend())
    assert len(confluent_admin.list_topics("made", timeout=DEADLINE_S).topics["made"].partitions) == 3
    with CONSUMERS["confluent-kafka"](server.bootstrap, "reader", "made") as consumer:
        consumer.commit({0: (7, ""), 2: (9, "")})
    assert committed_offsets(server.port, "reader", "made") == {0: 7, 2: 9}
    kafka_python_admin.delete_topics(["made"])
    assert "made" not in confluent_admin.list_topics(timeout=DEADLINE_S).topics
    assert committed_offsets(server.port, "reader", "made") == {}
