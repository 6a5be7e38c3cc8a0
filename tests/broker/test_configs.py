"""Settings of topics, groups and the broker: who may ask, what is kept, and what happens when it can't be.

What is answered otherwise is in the recorded conversations of the area ``configs``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.configs.client_metrics import ClientMetrics
from groupcoord.broker.configs.definitions import BROKER_DEFINITIONS, DYNAMIC, TOPIC_DEFINITIONS, BrokerConfigs
from groupcoord.broker.configs.requests import Resources, answer_alter_configs, answer_describe_configs
from groupcoord.broker.work import do_whole
from groupcoord.config import GroupType
from groupcoord.config.group_settings import (
    ConsumerGroupSettings,
    StreamsGroupSettings,
    bounds_of,
)
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.router.authorization import CLUSTER, Permissions
from groupcoord.host import GroupConfigFileError, GroupConfigs, TopicRegistry, make_broker
from groupcoord.messages import ConsumerGroupDescribe, ConsumerGroupHeartbeat
from groupcoord.wire.broker_messages import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopics,
)
from groupcoord.wire.config_messages import (
    AlterConfigOp,
    AlterConfigs,
    ConfigResourceType,
    ConfigSource,
    ConfigToAlter,
    DescribeConfigs,
    DescribedConfigs,
    IncrementalAlterConfigs,
    ResourceToAlter,
    ResourceToDescribe,
)
from tests.broker.data_world import topic_requests
from tests.broker.rules import GROUP, TOPIC, Rules
from tests.broker.wire_world import WireWorld

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
A_GROUP, A_TOPIC, A_BROKER = ConfigResourceType.GROUP, ConfigResourceType.TOPIC, ConfigResourceType.BROKER


def resources_of(topics: TopicRegistry, groups: GroupConfigs | None = None, config: Config | None = None) -> Resources:
    config = config or Config()
    groups = groups or GroupConfigs(config)
    return Resources(config, 1, topics, groups, BrokerConfigs(), ClientMetrics(), lambda: "PLAINTEXT://host:9092")


@pytest.fixture
def resources() -> Resources:
    topics = TopicRegistry()
    topics.ensure("orders", 1)
    return resources_of(topics)


def describe(
    resources: Resources, *wanted: tuple[int, str], permissions: Permissions | None = None
) -> list[DescribedConfigs]:
    request = DescribeConfigs(tuple(ResourceToDescribe(*each) for each in wanted), include_synonyms=True)
    return list(do_whole(answer_describe_configs(request, resources, permissions or Permissions(None, None))).results)


def setting(name: str, value: str | None, operation: int = AlterConfigOp.SET) -> ConfigToAlter:
    return ConfigToAlter(name, value, operation)


def alter(
    resources: Resources, *changes: tuple[int, str, ConfigToAlter], permissions: Permissions | None = None
) -> list[str]:
    wanted = tuple(ResourceToAlter(kind, name, (config,)) for kind, name, config in changes)
    request = IncrementalAlterConfigs(wanted)
    altered = do_whole(answer_alter_configs(request, resources, permissions or Permissions(None, None)))
    return [result.error_code.name for result in altered.responses]


# ---------------------------------------------------------------- what there is


def test_all_settings_of_the_broker(resources: Resources) -> None:
    """All public settings of the configuration, those of topics, and the addresses; few of them are dynamic."""
    told, padded, of_all = describe(resources, (A_BROKER, "1"), (A_BROKER, "0" * 5_000 + "1"), (A_BROKER, ""))
    expected = {name for name, definition in BROKER_DEFINITIONS.items() if not definition.is_internal}
    assert {config.name for config in told.configs} == {config.name for config in padded.configs} == expected
    internal = {
        *("group.consumer.assignor.offload.enable", "group.consumer.regex.refresh.interval.ms"),
        *("group.share.assignor.offload.enable", "group.share.initialize.retry.interval.ms"),
        *("group.streams.assignor.offload.enable", "group.streams.acceptable.recovery.lag"),
        *("group.streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms"),
        *("group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas"),
    }
    own = {"records.enable", "records.memory.max.bytes"}
    assert expected | internal | own >= {*Config().to_properties()}
    assert {config.name for config in told.configs if not config.read_only} == DYNAMIC & expected
    (address,) = (config for config in told.configs if config.name == "advertised.listeners")
    assert (address.value, address.config_source) == ("PLAINTEXT://host:9092", ConfigSource.STATIC_BROKER)
    assert of_all.configs == ()


def test_topics_inherit_from_the_broker() -> None:
    """A topic config that the broker overrides has the broker's value and source."""
    config = Config(message_max_bytes=7, log_cleaner_min_cleanable_ratio=0.25)
    topics = TopicRegistry()
    topics.ensure("orders", 1)
    (told,) = describe(resources_of(topics, config=config), (A_TOPIC, "orders"))
    shown = {config.name: config for config in told.configs}
    assert [synonym.value for synonym in shown["max.message.bytes"].synonyms] == ["7", "1048588"]
    assert shown["max.message.bytes"].config_source == ConfigSource.STATIC_BROKER
    assert shown["min.cleanable.dirty.ratio"].value == "0.25"


def test_loggers(resources: Resources) -> None:
    """They do not exist: none is described, and none can be altered."""
    logger = ConfigResourceType.BROKER_LOGGER
    told, unnamed = describe(resources, (logger, "1"), (logger, ""))
    assert (told.error_code, told.configs) == (ErrorCode.NONE, ())
    assert unnamed.error_code is ErrorCode.INVALID_REQUEST
    assert alter(resources, (logger, "1", setting("x", "INFO"))) == ["INVALID_CONFIG"]


# ---------------------------------------------------------------- permissions


def test_describing_needs_a_permission_for_each_thing(resources: Resources) -> None:
    """DESCRIBE_CONFIGS on a topic, a group, and the cluster for brokers; the denied come last, unknown ones too."""
    rules = Rules()
    rules.deny("DESCRIBE_CONFIGS", TOPIC, "orders", "absent")
    rules.deny("DESCRIBE_CONFIGS", GROUP, "hidden")
    rules.deny("DESCRIBE_CONFIGS", CLUSTER)
    wanted = [(A_TOPIC, "orders"), (A_GROUP, "hidden"), (A_BROKER, "1"), (A_BROKER, "2"), (8, "1"), (16, "x")]
    told = describe(resources, *wanted, (A_TOPIC, "absent"), (A_GROUP, "g"), permissions=Permissions(rules, "User:bob"))
    assert [(entry.resource_name, entry.error_code.name) for entry in told] == [
        ("g", "NONE"),
        ("orders", "TOPIC_AUTHORIZATION_FAILED"),
        ("hidden", "GROUP_AUTHORIZATION_FAILED"),
        *((name, "CLUSTER_AUTHORIZATION_FAILED") for name in ("1", "2", "1", "x")),
        ("absent", "TOPIC_AUTHORIZATION_FAILED"),
    ]


def test_changing_needs_a_permission_for_each_thing(resources: Resources) -> None:
    """ALTER_CONFIGS is checked before names and values, but after nulls; invalid topic names have their own error, and
    nothing about the broker is revealed.
    """
    rules = Rules()
    rules.deny("ALTER_CONFIGS", TOPIC, "orders", "a b")
    rules.deny("ALTER_CONFIGS", GROUP, "hidden")
    rules.deny("ALTER_CONFIGS", CLUSTER)
    permissions = Permissions(rules, "User:bob")
    bad = setting("nope", "1")
    changes = [(A_TOPIC, "orders", bad), (A_GROUP, "hidden", bad), (A_BROKER, "1", bad), (A_BROKER, "2", bad)]
    assert alter(resources, *changes, permissions=permissions) == [
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
    ]
    null = setting("nope", None)
    changes = [(A_TOPIC, "orders", null), (A_GROUP, "hidden", null), (A_BROKER, "1", null), (A_TOPIC, "a b", bad)]
    assert alter(resources, *changes, permissions=permissions) == ["INVALID_REQUEST"] * 3 + ["INVALID_TOPIC_EXCEPTION"]
    request = AlterConfigs((ResourceToAlter(A_GROUP, "hidden", ()), ResourceToAlter(A_GROUP, "g", ())))
    replaced = do_whole(answer_alter_configs(request, resources, permissions)).responses
    assert [altered.error_code.name for altered in replaced] == ["GROUP_AUTHORIZATION_FAILED", "NONE"]


def test_the_host_asks_for_permission() -> None:
    """Over the wire, with the principal of the connection."""
    rules = Rules()
    rules.deny("DESCRIBE_CONFIGS", GROUP, "g")
    rules.deny("ALTER_CONFIGS", GROUP, "g")
    world = WireWorld(authorize=rules, principal_of=lambda client_host: "User:bob")
    wanted = {"resource_type": 32, "resource_name": "g"}
    body: dict[str, Any] = {"include_synonyms": False, "include_documentation": True}
    (told,) = world.ask(32, 4, body | {"resources": [wanted | {"configuration_keys": None}]})["results"]
    assert told["error_code"] == ErrorCode.GROUP_AUTHORIZATION_FAILED
    for api_key, version in ((44, 1), (33, 2)):
        resources = [wanted | {"configs": []}]
        (altered,) = world.ask(api_key, version, {"resources": resources, "validate_only": False})["responses"]
        assert altered["error_code"] == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert rules.principals == {"User:bob"}


# ---------------------------------------------------------------- what is kept


def test_settings_of_groups_are_kept(tmp_path: Path) -> None:
    """They are written to a file and read again; a deleted config is absent from it."""
    configs = GroupConfigs(Config(), tmp_path)
    configs.replace({"g": {SESSION: "50000"}, "h": {HEARTBEAT: "6000"}})
    configs.replace({"h": {}})
    again = GroupConfigs(Config(), tmp_path)
    assert (again.own("g"), again.own("h")) == ({SESSION: "50000"}, {})
    usual = ConsumerGroupSettings.of(Config())
    assert again.settings_of("g") == evolve(usual, session_timeout_ms=50_000)
    assert again.settings_of("h") == usual


def test_settings_of_streams_groups() -> None:
    """A streams group's own configs hold within the broker's bounds, and the broker's otherwise."""
    configs = GroupConfigs(Config(group_streams_rack_aware_assignment_tags=("zone",)))
    own = {"streams.num.standby.replicas": "1", "streams.acceptable.recovery.lag": "7", SESSION: "50000"}
    configs.replace({"g": own, "tags": {"streams.rack.aware.assignment.tags": "rack,cluster"}})
    usual = configs.streams_settings_of("other")
    assert usual == StreamsGroupSettings(45_000, 5_000, 1_000, 0, 3_000, ("zone",), 60_000, 2, 10_000, "sticky")
    assert configs.streams_settings_of("g") == evolve(usual, num_standby_replicas=1, acceptable_recovery_lag=7)
    assert configs.streams_settings_of("tags") == evolve(usual, rack_aware_assignment_tags=("rack", "cluster"))


def test_every_bounded_setting_has_a_bound() -> None:
    """Each of these configs has a minimum or maximum for groups, or both, in the broker's settings."""
    bounds = {(kind, name): both for kind in GroupType for name, both in bounds_of(kind, Config()).items()}
    one_sided = {name for (_, name), both in bounds.items() if None in both}

    assert one_sided == {"num_standby_replicas", "num_warmup_replicas", "task_offset_interval_ms"}
    of_all = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
    assert bounds.keys() >= {(kind, name) for kind in GroupType if kind is not GroupType.CLASSIC for name in of_all}
    of_share = ("delivery_count_limit", "record_lock_duration_ms", "partition_max_record_locks")
    assert bounds.keys() >= {(GroupType.SHARE, name) for name in of_share}


def test_bounds_that_have_moved(tmp_path: Path) -> None:
    """A group's config is described as it was set; the effective value is within the present bounds."""
    GroupConfigs(Config(), tmp_path).replace({"g": {SESSION: "45000"}})
    moved = GroupConfigs(
        Config(group_consumer_min_session_timeout_ms=50_000, group_consumer_session_timeout_ms=55_000), tmp_path
    )
    assert moved.own("g") == {SESSION: "45000"}
    assert moved.settings_of("g").session_timeout_ms == 50_000
    GroupConfigs(Config(), tmp_path).replace({"s": {"streams.num.standby.replicas": "2"}})
    assert GroupConfigs(Config(group_streams_max_standby_replicas=1), tmp_path).streams_settings_of("s") == (
        StreamsGroupSettings.of(Config(group_streams_num_standby_replicas=1))
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "does not hold settings of groups"),
        ('{"version": 2, "groups": {}}', "has version 2; this program knows 1"),
        ('{"version": 1, "groups": {"g": {"consumer.session.timeout.ms": "x"}}}', "does not hold settings of groups"),
        ('{"version": 1, "groups": {"g": 1}}', "does not hold settings of groups"),
    ],
)
def test_a_file_that_is_no_file_of_settings(tmp_path: Path, content: str, reason: str) -> None:
    """The error has its name and the reason."""
    path = tmp_path / "group-configs.json"
    path.write_text(content)
    with pytest.raises(GroupConfigFileError, match=rf"group-configs\.json: {reason}"):
        GroupConfigs(Config(), tmp_path)


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    """A folder in its place is refused as well."""
    (tmp_path / "group-configs.json").mkdir()
    with pytest.raises(GroupConfigFileError, match=r"cannot be read"):
        GroupConfigs(Config(), tmp_path)


def test_settings_of_topics_are_kept(tmp_path: Path) -> None:
    topics = TopicRegistry(tmp_path)
    topics.ensure("orders", 1)
    topics.ensure("bills", 1)
    resources = resources_of(topics)
    changes = [(A_TOPIC, name, setting("retention.ms", " 7 ")) for name in ("orders", "bills")]
    assert alter(resources, *changes) == ["NONE", "NONE"]
    with topics.edit() as edit:
        edit.delete("bills")
    topics.ensure("bills", 1)
    kept = {topic.name: dict(topic.configs) for topic in TopicRegistry(tmp_path)}
    assert kept == {"orders": {"retention.ms": "7"}, "bills": {}}


def test_a_new_topic_has_the_settings_it_was_made_with() -> None:
    """The response has all configs; of a repeated name the last value counts."""
    topics = TopicRegistry()
    configs = (CreatableTopicConfig("retention.ms", "1"), CreatableTopicConfig("retention.ms", " 2 "))
    request = CreateTopics((CreatableTopic("orders", 1, 1, configs=configs),))
    (made,) = do_whole(topic_requests(topics, Config(message_max_bytes=7)).create(request)).topics
    told = {config.name: (config.value, config.config_source) for config in made.configs or ()}
    assert list(told) == list(TOPIC_DEFINITIONS)
    assert told["retention.ms"] == ("2", ConfigSource.TOPIC)
    assert told["max.message.bytes"] == ("7", ConfigSource.STATIC_BROKER)
    assert told["preallocate"] == ("false", ConfigSource.DEFAULT)


def test_the_offsets_topic_says_that_it_is_compacted() -> None:
    """The host makes it with the settings that Kafka makes it with."""
    broker = make_broker(
        config=Config(offsets_topic_segment_bytes=2**20), clock=ManualClock(), log_store=MemoryLogStore()
    )
    topic = broker.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(2**20),
    }


def test_settings_that_can_not_be_written(tmp_path: Path) -> None:
    """KAFKA_STORAGE_ERROR for groups, with unchanged configs; topics are not affected."""
    topics = TopicRegistry()
    topics.ensure("orders", 1)
    groups = GroupConfigs(Config(), tmp_path / "gone")
    resources = resources_of(topics, groups)
    changes = [(A_GROUP, "g", setting(SESSION, "50000")), (A_TOPIC, "orders", setting("retention.ms", "7"))]
    assert alter(resources, *changes) == ["KAFKA_STORAGE_ERROR", "NONE"]
    assert groups.own("g") == {}


def test_topics_that_can_not_be_written(tmp_path: Path) -> None:
    """Altering topic configs fails with KAFKA_STORAGE_ERROR if the file can't be written."""
    folder = tmp_path / "data"
    folder.mkdir()
    topics = TopicRegistry(folder)
    topics.ensure("orders", 1)
    (folder / "topics.json").unlink()
    folder.rmdir()
    resources = resources_of(topics)
    assert alter(resources, (A_TOPIC, "orders", setting("retention.ms", "7"))) == ["KAFKA_STORAGE_ERROR"]
    topic = topics.get("orders")
    assert topic is not None
    assert topic.configs == {}


def test_the_coordinator_asks_the_host() -> None:
    """A group's configs reach its members from then on, and expire sessions."""
    configs, clock = GroupConfigs(Config()), ManualClock()
    coordinator = make_broker(
        config=Config(), clock=clock, log_store=MemoryLogStore(), group_configs=configs
    ).coordinator
    join = ConsumerGroupHeartbeat(
        "g", "m", rebalance_timeout_ms=60_000, subscribed_topic_names=("orders",), topic_partitions=()
    )
    joined = coordinator.call(join)
    assert joined.heartbeat_interval_ms == 5_000
    configs.replace({"g": {SESSION: "50000", HEARTBEAT: "6000"}})
    heartbeat = ConsumerGroupHeartbeat("g", "m", joined.member_epoch)
    assert coordinator.call(heartbeat).heartbeat_interval_ms == 6_000
    for passed_ms, member_count in ((49_999, 1), (1, 0)):
        clock.advance(passed_ms)
        coordinator.tick()
        (group,) = coordinator.call(ConsumerGroupDescribe(("g",))).groups
        assert len(group.members) == member_count
