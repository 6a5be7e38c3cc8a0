"""Cluster settings of administrators, in real bytes: quotas, client metrics, configs of brokers and groups. Responses
were recorded from a broker of Kafka 4.4.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.broker import make_broker
from groupcoord.broker.cluster import quotas as quotas_module
from groupcoord.broker.cluster.metadata import CLUSTER_DENIED, Features
from groupcoord.broker.cluster.nodes import Administered
from groupcoord.broker.cluster.quotas import FILE_NAME
from groupcoord.broker.configs.client_metrics import ClientMetrics
from groupcoord.broker.configs.definitions import BrokerConfigs
from groupcoord.broker.json_file import DataFileError
from groupcoord.config import GroupType
from groupcoord.core.router.authorization import CLUSTER, Authorize
from tests.broker.driving import KioClient
from tests.broker.rules import Rules
from tests.broker.wire_world import WireWorld

BROKER, CLIENT_METRICS, TOPIC, GROUP = 4, 16, 2, 32
ZERO_ID = None
"""As kio reads and writes it."""


class Asked:
    """Broker with one connection."""

    def __init__(self, administered: Administered | None = None, authorize: Authorize | None = None) -> None:
        self.clock = ManualClock()
        self.broker = make_broker(
            config=Config(),
            clock=self.clock,
            log_store=MemoryLogStore(),
            administered=administered or Administered(),
            authorize=authorize,
        )
        self.broker.topics.ensure("orders", 1)
        self._client = KioClient(self.broker.connect("/127.0.0.1"))

    def ask(self, api_key: int, version: int, **body: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._client.ask(api_key, version, body)
        return answer

    # ------------------------------------------------------------ quotas

    def alter_quotas(self, *entries: tuple[dict[str, str | None], dict[str, float | None]], dry: bool = False) -> Any:
        told = self.ask(
            49,
            1,
            entries=[
                {
                    "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                    "ops": [
                        {"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()
                    ],
                }
                for entity, limits in entries
            ],
            validate_only=dry,
        )
        return [(entry["error_code"], entry["error_message"]) for entry in told["entries"]]

    def quotas(self, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
        asked = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
        told = self.ask(48, 1, components=asked, strict=strict)
        if told["entries"] is None:
            return told["error_code"], told["error_message"]
        return [
            (
                {part["entity_type"]: part["entity_name"] for part in entry["entity"]},
                {limit["key"]: limit["value"] for limit in entry["values"]},
            )
            for entry in told["entries"]
        ]

    # ------------------------------------------------------------ settings

    def alter(self, kind: int, name: str, **settings: str | None) -> tuple[int, str | None]:
        configs = [
            {"name": key.replace("_", "."), "config_operation": int(value is None), "value": value}
            for key, value in settings.items()
        ]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        (altered,) = self.ask(44, 1, resources=[resource], validate_only=False)["responses"]
        return altered["error_code"], altered["error_message"]

    def describe(self, kind: int, name: str) -> dict[str, Any]:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        asked = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
        (told,) = self.ask(32, 4, **asked)["results"]
        return {config["name"]: config for config in told["configs"]}


@pytest.fixture
def world() -> Asked:
    return Asked()


ANN: dict[str, str | None] = {"user": "ann"}
INVALID = ErrorCode.INVALID_REQUEST

# ---------------------------------------------------------------- quotas


def test_quotas_are_kept_and_described(world: Asked) -> None:
    """All, or those that match; strict: those that have nothing else."""
    of_both: dict[str, str | None] = {"client-id": None, "user": "ann"}
    done = world.alter_quotas(
        (ANN, {"producer_byte_rate": 1024.0}),
        (of_both, {"request_percentage": 12.5}),
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 7.0}),
    )
    assert done == [(0, None)] * 3
    assert len(world.quotas()) == 3
    assert world.quotas(("user", 0, "ann")) == [
        (ANN, {"producer_byte_rate": 1024.0}),
        (of_both, {"request_percentage": 12.5}),
    ]
    assert world.quotas(("user", 2, None), strict=True) == [(ANN, {"producer_byte_rate": 1024.0})]
    assert world.quotas(("user", 0, "ann"), ("client-id", 1, None)) == [(of_both, {"request_percentage": 12.5})]
    assert world.quotas(("user", 1, None)) == world.quotas(strict=True) == []
    assert world.alter_quotas((ANN, {"producer_byte_rate": None})) == [(0, None)]
    assert world.quotas(("user", 2, None), strict=True) == []


@pytest.mark.parametrize(
    ("entity", "limits", "message"),
    [
        (ANN, {"nope": 1.0}, "Invalid configuration key nope"),
        (ANN, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        ({"ip": "::1"}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ({"ip": "no ip!"}, {"connection_creation_rate": 1.0}, "no ip! is not a valid IP or resolvable host."),
        (ANN, {"producer_byte_rate": -1.0}, "Quota producer_byte_rate must be greater than 0"),
        (ANN, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (ANN, {"producer_byte_rate": 1e30}, "Proposed value for producer_byte_rate is too large for a LONG."),
        (ANN, {"producer_byte_rate": float("nan")}, "Quota producer_byte_rate must be a finite number"),
        ({"x": "y"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: x"),
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        (
            ANN | {"ip": "::1"},
            {"producer_byte_rate": 1.0},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
    ],
)
def test_quotas_that_can_not_be(world: Asked, entity: Any, limits: Any, message: str) -> None:
    """They are refused in Kafka's words, and nothing is kept of them."""
    assert world.alter_quotas((entity, limits)) == [(INVALID, message)]
    assert world.quotas() == []


def test_an_entity_that_comes_twice(world: Asked) -> None:
    """The first is applied and the second refused; validation changes nothing; refusals come first."""
    twice = (ANN, {"producer_byte_rate": 2.0}), (ANN, {"producer_byte_rate": 3.0})
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={user=ann})"
    assert world.alter_quotas(*twice) == [(INVALID, message)]
    assert world.alter_quotas((ANN, {"producer_byte_rate": 9.0}), dry=True) == [(0, None)]
    assert world.quotas() == [(ANN, {"producer_byte_rate": 2.0})]
    mixed = (ANN, {"producer_byte_rate": 4.0}), ({"x": "y"}, {"producer_byte_rate": 1.0})
    assert [code for code, _ in world.alter_quotas(*mixed)] == [INVALID, 0]
    assert world.quotas() == [(ANN, {"producer_byte_rate": 4.0})]


def test_so_many_entities_have_quotas(world: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused, in the same request or later; those that have some can be changed."""
    monkeypatch.setattr(quotas_module, "ENTITIES_MAX", 2)
    users: list[dict[str, str | None]] = [{"user": name} for name in "abc"]
    done = world.alter_quotas(*((user, {"producer_byte_rate": 1.0}) for user in users))
    assert [code for code, _ in done] == [INVALID, 0, 0]
    assert world.alter_quotas((users[2], {"producer_byte_rate": 1.0})) == [(INVALID, quotas_module.TOO_MANY)]
    assert world.alter_quotas((users[0], {"producer_byte_rate": 2.0})) == [(0, None)]
    assert len(world.quotas()) == 2


def test_quotas_that_can_not_be_written(tmp_path: Path) -> None:
    """The change is refused, and what was before holds."""
    world = Asked(Administered(tmp_path / "gone"))
    assert world.alter_quotas((ANN, {"producer_byte_rate": 1.0})) == [(INVALID, quotas_module.NOT_WRITTEN)]
    assert world.quotas() == []


def test_quotas_need_permissions() -> None:
    """DESCRIBE_CONFIGS and ALTER_CONFIGS on the cluster."""
    rules = Rules()
    rules.deny("DESCRIBE_CONFIGS", CLUSTER)
    rules.deny("ALTER_CONFIGS", CLUSTER)
    world, denied = Asked(authorize=rules), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_DENIED)
    assert world.quotas() == denied
    assert world.alter_quotas((ANN, {"producer_byte_rate": 1.0})) == [denied]


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    """They are in a file, which is read again; one that holds none is refused by its name."""
    Asked(Administered(tmp_path)).alter_quotas((ANN, {"producer_byte_rate": 5.0}))
    assert Asked(Administered(tmp_path)).quotas() == [(ANN, {"producer_byte_rate": 5.0})]
    (tmp_path / FILE_NAME).write_text('{"version": 1, "quotas": [{"entity": 5}]}')
    with pytest.raises(DataFileError, match=r"quotas\.json: does not hold quotas"):
        Administered(tmp_path)


# ---------------------------------------------------------------- settings of brokers


def test_a_broker_setting_holds_at_once(world: Asked) -> None:
    """Its own before that of all brokers, before what it was started with; topics without their own follow."""
    orders = world.broker.topics.get("orders")
    assert orders is not None
    assert world.alter(BROKER, "", message_max_bytes="3000000") == (0, None)
    assert world.broker.data.settings_of(orders).max_message_bytes == 3_000_000
    assert world.alter(BROKER, "1", message_max_bytes="4000000", log_cleaner_threads="2") == (0, None)
    assert world.broker.data.settings_of(orders).max_message_bytes == 4_000_000
    synonyms = [
        {"name": "message.max.bytes", "value": value, "source": source}
        for value, source in (("4000000", 2), ("3000000", 3), ("1048588", 5))
    ]
    for described, name in (
        (world.describe(BROKER, "1"), "message.max.bytes"),
        (world.describe(TOPIC, "orders"), "max.message.bytes"),
    ):
        assert described[name]["synonyms"] == synonyms
        assert (described[name]["value"], described[name]["config_source"]) == ("4000000", 2)
    assert list(world.describe(BROKER, "")) == ["message.max.bytes"]
    assert world.alter(BROKER, "1", message_max_bytes=None) == (0, None)
    assert world.broker.data.settings_of(orders).max_message_bytes == 3_000_000


def test_broker_settings_survive_a_restart(tmp_path: Path) -> None:
    """They hold from the start; a file with a setting that is fixed is refused."""
    Asked(Administered(tmp_path)).alter(BROKER, "1", log_message_timestamp_type="LogAppendTime")
    again = Asked(Administered(tmp_path)).broker
    orders = again.topics.get("orders")
    assert orders is not None
    assert again.data.settings_of(orders).uses_append_time
    (tmp_path / "broker-configs.json").write_text('{"version": 1, "brokers": {"1": {"num.partitions": "7"}}}')
    with pytest.raises(DataFileError, match=r"broker-configs\.json: Cannot update"):
        BrokerConfigs(tmp_path)


# ---------------------------------------------------------------- metrics of clients


def test_subscriptions_are_kept_and_described(world: Asked, tmp_path: Path) -> None:
    """By their names; without settings there is none."""
    kept = Asked(Administered(tmp_path))
    settings = {"metrics": "org.apache.kafka.producer.", "interval_ms": "1000", "match": "client_id=a.*"}
    assert kept.alter(CLIENT_METRICS, "m", **settings) == (0, None)
    again = Asked(Administered(tmp_path))
    told = again.describe(CLIENT_METRICS, "m")
    assert {name: (config["value"], config["config_source"]) for name, config in told.items()} == {
        "interval.ms": ("1000", 7),
        "match": ("client_id=a.*", 7),
        "metrics": ("org.apache.kafka.producer.", 7),
    }
    assert again.ask(74, 0)["config_resources"] == [{"resource_name": "m"}]
    assert again.alter(CLIENT_METRICS, "m", **dict.fromkeys(settings)) == (0, None)
    assert again.ask(74, 0)["config_resources"] == []
    (tmp_path / "client-metrics.json").write_text('{"version": 1, "client-metrics": {"m": {"match": "x"}}}')
    with pytest.raises(DataFileError, match="Illegal client matching pattern: x"):
        ClientMetrics(tmp_path)


def test_there_are_so_many_subscriptions(world: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused; one that is there can be changed."""
    monkeypatch.setattr("groupcoord.broker.configs.requests.SUBSCRIPTIONS_MAX", 1)
    assert world.alter(CLIENT_METRICS, "one", interval_ms="1000")[0] == 0
    assert world.alter(CLIENT_METRICS, "two", interval_ms="1000")[0] == ErrorCode.POLICY_VIOLATION
    assert world.alter(CLIENT_METRICS, "one", interval_ms="2000")[0] == 0


def test_clients_are_told_which_metrics_are_wanted(world: Asked) -> None:
    """Subscriptions match clients by attributes; early requests and early pushes are throttled; the last push is
    accepted at once.
    """
    world.alter(CLIENT_METRICS, "theirs", metrics="a.", match="client_id=somebody")
    world.alter(CLIENT_METRICS, "all", metrics="b.", interval_ms="1000")
    told = world.ask(71, 0, client_instance_id=ZERO_ID)
    assert (told["requested_metrics"], told["push_interval"]) == (["b."], 1_000)
    client_id, subscription_id = told["client_instance_id"], told["subscription_id"]
    early = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert world.ask(71, 0, client_instance_id=client_id)["error_code"] == early

    def push(
        terminating: bool = False, subscription: int = subscription_id, compression: int = 0, size: int = 0
    ) -> int:
        error_code: int = world.ask(
            72,
            0,
            client_instance_id=client_id,
            subscription_id=subscription,
            terminating=terminating,
            compression_type=compression,
            metrics=b"x" * size,
        )["error_code"]
        return error_code

    assert (push(), push()) == (0, early)
    world.clock.advance(1_000)
    assert push(subscription=subscription_id + 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    world.clock.advance(1_000)
    assert push(compression=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    world.clock.advance(1_000)
    assert push(size=1_048_577) == ErrorCode.TELEMETRY_TOO_LARGE
    assert (push(terminating=True), push(terminating=True)) == (0, INVALID)


def test_a_changed_subscription_ends_the_wait_for_the_interval(world: Asked) -> None:
    world.alter(CLIENT_METRICS, "all", metrics="b.", interval_ms="1000")
    client_id = world.ask(71, 0, client_instance_id=ZERO_ID)["client_instance_id"]
    for interval_ms in range(2_000, 7_000, 1_000):  # some of the subscription ids, which are checksums, are lower
        world.alter(CLIENT_METRICS, "all", metrics="b.", interval_ms=str(interval_ms))
        answer = world.ask(71, 0, client_instance_id=client_id)
        assert (answer["error_code"], answer["push_interval"]) == (0, interval_ms)


# ---------------------------------------------------------------- features, members, folders, tokens

FAILED = "The update failed for all features since the following feature had an error: Invalid update version "


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "reason"),
    [
        ("group.version", 1, 1, None),
        ("metadata.version", 33, 2, None),
        ("kraft.version", 0, 1, None),
        ("metadata.version", 34, 1, "Local controller 1 only supports versions 7-33"),
        ("nope", 1, 1, "Local controller 1 does not support this feature."),
        ("nope", 0, 3, "Feature nope not found."),
        ("kraft.version", 1, 2, "Can't downgrade to a newer version."),
        ("group.version", -1, 1, "A feature version cannot be less than 0."),
        ("group.version", 1, 9, "The controller does not support the given upgrade type."),
        (
            "group.version",
            0,
            1,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        ),
        ("eligible.leader.replicas.version", 0, 2, "The level of this feature stays 1 here."),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_features_stay_as_they_are(
    world: Asked, feature: str, level: int, upgrade_type: int, reason: str | None, version: int
) -> None:
    """The level that is there is taken, every other refused; to version 1 with an entry for each feature."""
    update = {"feature": feature, "max_version_level": level, "upgrade_type": upgrade_type}
    told = world.ask(57, version, timeout=1, feature_updates=[update], validate_only=False)
    message = None if reason is None else f"{FAILED}{level} for feature {feature}. {reason}"
    expected = ErrorCode.NONE if reason is None else ErrorCode.INVALID_UPDATE_VERSION
    assert (told["error_code"], told["error_message"]) == (expected, message)
    if version == 1:
        done = {"feature": feature, "error_code": 0, "error_message": "NONE"}
        assert told["results"] == ([done] if reason is None else [])


def test_a_kind_of_groups_is_switched_off_and_on(world: Asked) -> None:
    """At level 0 its requests are refused, and ApiVersions no longer names the feature; then all is as it was."""

    def level(level: int, upgrade_type: int, *, validate_only: bool = False) -> int:
        update = {"feature": "group.version", "max_version_level": level, "upgrade_type": upgrade_type}
        code: int = world.ask(57, 2, timeout=1, feature_updates=[update], validate_only=validate_only)["error_code"]
        return code

    def described() -> int:
        groups = world.ask(69, 1, group_ids=["g"], include_authorized_operations=False)["groups"]
        code: int = groups[0]["error_code"]
        return code

    def finalized() -> tuple[bool, int]:
        told = world.ask(18, 4, client_software_name="x", client_software_version="1")
        names = [feature["name"] for feature in told["finalized_features"]]
        assert 68 in [api["api_key"] for api in told["api_keys"]]
        return "group.version" in names, told["finalized_features_epoch"]

    assert level(0, 2, validate_only=True) == ErrorCode.NONE
    assert (described(), finalized()) == (ErrorCode.GROUP_ID_NOT_FOUND, (True, 0))
    assert level(0, 1) == ErrorCode.INVALID_UPDATE_VERSION
    assert level(0, 2) == ErrorCode.NONE
    assert (described(), finalized()) == (ErrorCode.UNSUPPORTED_VERSION, (False, 1))
    assert level(1, 2) == ErrorCode.INVALID_UPDATE_VERSION
    assert level(1, 1) == ErrorCode.NONE
    assert (described(), finalized()) == (ErrorCode.GROUP_ID_NOT_FOUND, (True, 2))


def test_levels_of_features_that_can_not_be_written(tmp_path: Path) -> None:
    """The update fails, and the former level stays."""
    world = Asked(Administered(tmp_path / "gone"))
    update = {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
    told = world.ask(57, 1, timeout=1, feature_updates=[update], validate_only=False)
    assert told["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.ask(18, 4, client_software_name="x", client_software_version="1")["finalized_features_epoch"] == 0


def test_levels_of_features_are_kept(tmp_path: Path) -> None:
    """They are in a file, which is read again; one that holds something else is named."""
    features = Features(tmp_path)
    features.change({"group.version": 0})
    again = Features(tmp_path)
    assert again.epoch == 1
    assert GroupType.CONSUMER not in again.served_protocols(Config())
    (tmp_path / "features.json").write_text('{"version": 1, "epoch": 1, "levels": {"group.version": "low"}}')
    with pytest.raises(DataFileError, match="levels of features"):
        Features(tmp_path)


def test_the_cluster_keeps_its_members(world: Asked) -> None:
    """A broker that runs may be unregistered, and is still there; voters are fixed."""
    outcome = {
        (64, "broker_id", 1): (0, ""),
        (64, "broker_id", 7): (ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 7 is not currently registered"),
    }
    for (api_key, name, value), expected in outcome.items():
        told = world.ask(api_key, 0, **{name: value})
        assert (told["error_code"], told["error_message"]) == expected
    voter: dict[str, Any] = {"voter_id": 1, "voter_directory_id": ZERO_ID, "timeout": 1, "listeners": []}
    for api_key, change in ((80, "adding"), (81, "removing")):
        told = world.ask(api_key, 0, cluster_id=None, **voter)
        message = f"Cluster doesn't support {change} voter because the kraft.version feature is 0"
        assert (told["error_code"], told["error_message"]) == (ErrorCode.UNSUPPORTED_VERSION, message)
        other = world.ask(api_key, 0, cluster_id="other", **voter)
        assert other["error_code"] == ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("version", [1, 2])
def test_logs_stay_in_their_folder(world: Asked, version: int) -> None:
    """The only folder is accepted for existing partitions; of repeated partitions the last counts."""
    here = world.ask(35, 4, topics=None)["results"][0]["log_dir"]

    def move(*dirs: tuple[str, str, list[int]]) -> Any:
        wanted = [{"path": path, "topics": [{"name": name, "partitions": found}]} for path, name, found in dirs]
        told = world.ask(34, version, dirs=wanted)["results"]
        return {
            (topic["topic_name"], one["partition_index"]): one["error_code"]
            for topic in told
            for one in topic["partitions"]
        }

    assert move((here, "orders", [0, 9]), (here, "nope", [0])) == {("orders", 0): 0, ("orders", 9): 3, ("nope", 0): 3}
    assert move(("/elsewhere", "orders", [0])) == {("orders", 0): ErrorCode.LOG_DIR_NOT_FOUND}
    assert move(("/elsewhere", "orders", [0]), (here, "orders", [0])) == {("orders", 0): 0}


def test_there_are_no_delegation_tokens() -> None:
    """As without a secret key: who has not logged in must not ask at all."""
    for principal, expected in (
        ("User:ANONYMOUS", ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        ("User:ann", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
    ):
        world = WireWorld(principal_of=lambda client_host, principal=principal: principal)
        assert world.ask(41, 3, {"owners": None}) == {"error_code": expected, "tokens": []}
