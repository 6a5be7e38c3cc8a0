"""Definitions of the configs of topics, brokers (KIP-226) and groups (KIP-848), and storage of their overrides.

Sources: ``LogConfig``, ``GroupConfig`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from attrs import evolve, field, fields, frozen

from groupcoord.broker.json_file import DataFileError, Document, JsonFile, Place
from groupcoord.config import SETTINGS, Config, key_of
from groupcoord.config.group_settings import (
    ConsumerGroupSettings,
    GroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
    bounds_of,
    settings_of_groups,
)
from groupcoord.config.settings import INT32_MAX, INT64_MAX, Choice, Flag, Kind, Number, Text, trim
from groupcoord.errors import ConfigError
from groupcoord.wire.config_messages import ConfigSource, ConfigSynonym, ConfigType

Configs = Mapping[str, str]
"""Overrides of a resource: text by name."""


@frozen
class ReplicaList(Kind):
    """Kind of setting: pairs of partition and broker, or ``*``."""

    _PATTERN = re.compile(r"\*|(?:[0-9]+:[0-9]+(?:,[0-9]+:[0-9]+)*)?")

    def parse(self, key: str, raw: Any) -> Any:
        # Java's split omits trailing empty strings.
        return ",".join(trim(part) for part in raw.split(",")).rstrip(",") if isinstance(raw, str) else raw

    def check(self, key: str, value: object) -> None:
        if not isinstance(value, str) or not self._PATTERN.fullmatch(value):
            raise ConfigError(f"setting {key!r} must be '*' or a list as in 0:1,1:1 (partition:broker), not {value!r}")


@frozen
class FreeText(Text):
    """Kind of setting: any text, under one of Kafka's types."""

    config_type: ConfigType = ConfigType.STRING


class Layer(NamedTuple):
    """Broker configs and their source."""

    configs: Configs
    source: ConfigSource


@frozen
class Definition:
    """Definition of one config of a topic, group or broker.

    Attributes:
        broker_key: the broker config that is its default, or None.
        is_internal: whether it is described only if overridden.
        tells_default: whether the broker config is a synonym also at its default.
    """

    name: str
    kind: Kind
    default: Any
    broker_key: str | None = None
    is_internal: bool = field(default=False, kw_only=True)
    tells_default: bool = field(default=True, kw_only=True)
    has_effect: bool = field(default=True, kw_only=True)

    @property
    def config_type(self) -> ConfigType:
        return type_of(self.kind)

    def inherited(self, config: Config, layers: Sequence[Layer] = ()) -> tuple[str, tuple[ConfigSynonym, ...]]:
        """Return the value without override, and the broker configs it comes from."""
        usual = self.kind.text(self.default)
        if self.broker_key is None:
            return usual, ()
        key = self.broker_key
        # Kafka's order: dynamic of the broker, dynamic of the cluster, static, default.
        synonyms = [ConfigSynonym(key, layer.configs[key], layer.source) for layer in layers if key in layer.configs]
        attribute = key.replace(".", "_")
        value = getattr(config, attribute) if attribute in SETTINGS else self.default
        # Only what server.properties changes counts as static.
        if value != self.default:
            synonyms.append(ConfigSynonym(key, self.kind.text(value), ConfigSource.STATIC_BROKER))
        held = synonyms[0].value if synonyms else usual
        if self.tells_default or value != self.default:
            synonyms.append(ConfigSynonym(key, usual, ConfigSource.DEFAULT))
        return held, tuple(synonyms)


def type_of(kind: Kind) -> ConfigType:
    match kind:
        case Number(is_fraction=True):
            return ConfigType.DOUBLE
        case Number():
            return ConfigType.LONG if kind.at_most > INT32_MAX else ConfigType.INT
        case Flag():
            return ConfigType.BOOLEAN
        case FreeText():
            return kind.config_type
        case Choice() | Text():
            return ConfigType.STRING
    return getattr(kind, "config_type", ConfigType.LIST)


Definitions = Mapping[str, Definition]

NO_CONFIGS: Configs = MappingProxyType({})


def by_name(*definitions: Definition) -> Definitions:
    return MappingProxyType({definition.name: definition for definition in definitions})


def checked_topic_configs(own: Configs) -> Configs:
    configs, values = checked_values(own, TOPIC_DEFINITIONS, "topic")
    shortest, longest = (
        values.get(key, TOPIC_DEFINITIONS[key].default) for key in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if shortest > longest:
        raise ConfigError(f"min.compaction.lag.ms ({shortest}) must not be above max.compaction.lag.ms ({longest})")
    # LogConfig refuses it unless the broker has tiered storage.
    if values.get("remote.storage.enable"):
        raise ConfigError("Tiered Storage functionality is disabled in the broker.")
    return configs


def checked_values(own: Configs, definitions: Definitions, what: str) -> tuple[Configs, dict[str, Any]]:
    configs, values = {}, {}
    for name, text in own.items():
        definition = definitions.get(name)
        if definition is None:
            raise ConfigError(f"Unknown {what} config name: {name}")
        values[name] = value = definition.kind.parse(name, text)
        definition.kind.check(name, value)
        configs[name] = definition.kind.text(value)
    return configs, values


def _like_broker(name: str, broker_key: str, *, tells_default: bool = True) -> Definition:
    declared = SETTINGS[broker_key.replace(".", "_")]
    return Definition(name, declared.kind, declared.default, broker_key, tells_default=tells_default)


def _kept(name: str, kind: Kind, default: Any, broker_key: str | None = None) -> Definition:
    # Stored and described as in Kafka; overrides cause a log line.
    return Definition(name, kind, default, broker_key, has_effect=False)


def _int(at_least: int, at_most: int = INT32_MAX) -> Number:
    return Number(at_least, at_most)


def _long(at_least: int) -> Number:
    return Number(at_least, INT64_MAX)


_COMPRESSION = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMPS = ("CreateTime", "LogAppendTime")
ALLOWS_DEAD_LETTERS = "errors.deadletterqueue.group.enable"
"""Permission for dead letters of share groups in a topic (KIP-1191)."""

TOPIC_DEFINITIONS = by_name(
    _like_broker("cleanup.policy", "log.cleanup.policy"),
    _kept("compression.gzip.level", Number(1, 9, besides=-1), -1, "compression.gzip.level"),
    _kept("compression.lz4.level", _int(1, 17), 9, "compression.lz4.level"),
    _kept("compression.type", Choice(_COMPRESSION), "producer", "compression.type"),
    _kept("compression.zstd.level", _int(-131_072, 22), 3, "compression.zstd.level"),
    _like_broker("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    Definition(ALLOWS_DEAD_LETTERS, Flag(), False),
    _kept("file.delete.delay.ms", _long(0), 60_000, "log.segment.delete.delay.ms"),
    _like_broker("flush.messages", "log.flush.interval.messages"),
    _like_broker("flush.ms", "log.flush.interval.ms", tells_default=False),
    _kept("follower.replication.throttled.replicas", ReplicaList(), ""),
    _kept("index.interval.bytes", _int(0), 4_096, "log.index.interval.bytes"),
    _kept("leader.replication.throttled.replicas", ReplicaList(), ""),
    _kept("local.retention.bytes", _long(-2), -2, "log.local.retention.bytes"),
    _kept("local.retention.ms", _long(-2), -2, "log.local.retention.ms"),
    Definition("max.compaction.lag.ms", _long(1), INT64_MAX, "log.cleaner.max.compaction.lag.ms"),
    _kept("max.decompressed.message.bytes", _int(1, INT32_MAX - 8), INT32_MAX - 8, "max.decompressed.message.bytes"),
    _like_broker("max.message.bytes", "message.max.bytes"),
    Definition("message.timestamp.after.max.ms", _long(0), 3_600_000, "log.message.timestamp.after.max.ms"),
    Definition("message.timestamp.before.max.ms", _long(0), INT64_MAX, "log.message.timestamp.before.max.ms"),
    Definition("message.timestamp.type", Choice(_TIMESTAMPS), "CreateTime", "log.message.timestamp.type"),
    _like_broker("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _like_broker("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _kept("min.insync.replicas", _int(1), 1, "min.insync.replicas"),
    _kept("preallocate", Flag(), False, "log.preallocate"),
    _kept("remote.copy.lag.bytes", _long(-1), -1, "log.remote.copy.lag.bytes"),
    _kept("remote.copy.lag.ms", _long(-1), 0, "log.remote.copy.lag.ms"),
    _kept("remote.log.copy.disable", Flag(), False),
    _kept("remote.log.delete.on.disable", Flag(), False),
    _kept("remote.storage.enable", Flag(), False),
    _like_broker("retention.bytes", "log.retention.bytes"),
    _like_broker("retention.ms", "log.retention.ms", tells_default=False),
    _like_broker("segment.bytes", "log.segment.bytes"),
    _kept("segment.index.bytes", _int(4), 10_485_760, "log.index.size.max.bytes"),
    _kept("segment.jitter.ms", _long(0), 0),
    _like_broker("segment.ms", "log.roll.ms", tells_default=False),
    _kept("unclean.leader.election.enable", Flag(), False, "unclean.leader.election.enable"),
)


def settings_without_effect(own: Configs) -> list[str]:
    """Return the overrides of a topic that should have an effect but have none here."""
    return [
        name
        for name, text in own.items()
        if not TOPIC_DEFINITIONS[name].has_effect
        and text != TOPIC_DEFINITIONS[name].kind.text(TOPIC_DEFINITIONS[name].default)
    ]


class KeptConfigs(Document):
    """Stored overrides of resources of one type, which need not exist."""

    def __init__(self, file: JsonFile, kind: str) -> None:
        self._kind = kind
        self._own: dict[str, Configs] = {}
        super().__init__(file)

    def _load(self, content: dict[str, Any]) -> None:
        self._set(content[self._kind])

    def names(self) -> list[str]:
        return list(self._own)

    def own(self, name: str) -> Configs:
        return self._own.get(name, NO_CONFIGS)

    def replace(self, changed: Mapping[str, Configs]) -> None:
        """Replace all overrides of resources, together.

        Raises:
            OSError: the file can't be written; nothing has changed.
        """
        own = {name: configs for name, configs in {**self._own, **changed}.items() if configs}
        if own != self._own:
            self.file.write(lambda: {self._kind: {name: dict(configs) for name, configs in own.items()}})
            # After the write, which may fail.
            self._set(own)

    def _set(self, own: dict[str, Configs]) -> None:
        self._own = own


ALL_BROKERS = ""
"""Name of the cluster-wide default of all brokers."""

ADVERTISED_LISTENERS = "advertised.listeners"
CLEANER_THREADS = "log.cleaner.threads"
DEDUPE_BUFFER = "log.cleaner.dedupe.buffer.size"
DEDUPE_BYTES_MIN = 1_048_576
RETENTION = "log.retention.ms"


def _own() -> dict[str, Definition]:
    return {
        each.key: Definition(each.key, each.kind, each.default, each.key, is_internal=each.is_internal)
        for each in SETTINGS.values()
    }


def _of_topics() -> dict[str, Definition]:
    return {
        definition.broker_key: evolve(definition, name=definition.broker_key)
        for definition in TOPIC_DEFINITIONS.values()
        if definition.broker_key is not None
    }


THROTTLES = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Set by tools that move partitions; stored only, since nothing is moved."""

BROKER_DEFINITIONS: Definitions = MappingProxyType(
    {
        **_of_topics(),
        # Later than those of topics: its kinds and bounds win.
        **_own(),
        # One thread compacts, in slices.
        CLEANER_THREADS: Definition(CLEANER_THREADS, Number(1, INT32_MAX), 1, CLEANER_THREADS),
        **{name: Definition(name, Number(0, INT64_MAX), INT64_MAX, name, is_internal=True) for name in THROTTLES},
        ADVERTISED_LISTENERS: Definition(
            ADVERTISED_LISTENERS, FreeText(ConfigType.LIST), "", ADVERTISED_LISTENERS, tells_default=False
        ),
    }
)
"""Configs that DescribeConfigs shows for a broker."""

DYNAMIC = frozenset((*_of_topics(), CLEANER_THREADS, DEDUPE_BUFFER, *THROTTLES)) - {"min.insync.replicas"}
"""Configs that can change at run time; with ELR, not ``min.insync.replicas``."""


def checked_broker_configs(own: Configs) -> Configs:
    fixed = [name for name in own if name not in DYNAMIC]
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    configs, values = checked_values(own, BROKER_DEFINITIONS, "broker")
    threads, buffer_bytes = (
        values.get(name, BROKER_DEFINITIONS[name].default) for name in (CLEANER_THREADS, DEDUPE_BUFFER)
    )
    if buffer_bytes < threads * DEDUPE_BYTES_MIN:
        raise ConfigError(f"{DEDUPE_BUFFER} must be at least 1MB per cleaner thread: {buffer_bytes} for {threads}")
    if values.get(RETENTION) == 0:
        raise ConfigError(f"{RETENTION} must be unlimited (-1) or greater than 0")
    return configs


class BrokerConfigs(KeptConfigs):
    """Dynamic broker configs by broker id."""

    def __init__(self, place: Place | None = None) -> None:
        super().__init__(JsonFile(place, "broker-configs.json", "settings of brokers"), "brokers")

    def of_all(self) -> Layer:
        return Layer(self.own(ALL_BROKERS), ConfigSource.ALL_BROKERS)

    def layers(self, node_id: int) -> tuple[Layer, ...]:
        """Return the dynamic configs of a broker; the first layer with a config counts."""
        return Layer(self.own(str(node_id)), ConfigSource.BROKER), self.of_all()

    def _set(self, own: dict[str, Configs]) -> None:
        try:
            # A file edited by hand must not set what can't change at run time.
            super()._set({str(name): checked_broker_configs(configs) for name, configs in own.items()})
        except ConfigError as error:
            raise DataFileError(str(error)) from None


SettingsT = TypeVar("SettingsT", bound=GroupSettings)


class _Bounds(NamedTuple):
    """Bounds of group configs set by the broker; None where there is none."""

    at_least: int | None
    at_most: int | None

    def check(self, key: str, value: int) -> None:
        lowest, highest = self
        if (lowest is None or value >= lowest) and (highest is None or value <= highest):
            return
        # Kafka has a message for each combination of bounds.
        if lowest is not None and highest is not None:
            raise ConfigError(f"{key} must be in the range {lowest} to {highest} inclusive.")
        bound = f"greater than or equal to {lowest}" if highest is None else f"less than or equal to {highest}"
        raise ConfigError(f"{key} must be {bound}")


def _definitions(settings: type[GroupSettings]) -> Iterator[tuple[Definition, str]]:
    """Yield config definitions, each with its attribute."""
    for attribute, declared in settings_of_groups(settings.GROUP_TYPE).items():
        key, is_internal = declared.key, declared.is_internal
        yield Definition(key[6:], declared.kind, declared.default, key, is_internal=is_internal), attribute
    for attribute, own in settings.own_settings().items():
        if own is not None:
            of_broker = SETTINGS.get(own.broker_key.replace(".", "_"))
            default = getattr(fields(settings), attribute).default if of_broker is None else of_broker.default
            yield Definition(own.key, own.kind, default, own.broker_key), attribute


_TAGS = "streams.rack.aware.assignment.tags"
_TYPES: tuple[type[GroupSettings], ...] = (ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings)

GROUP_DEFINITIONS: Definitions = by_name(
    *(definition for settings in _TYPES for definition, _ in _definitions(settings))
)
_ATTRIBUTES: dict[type[GroupSettings], dict[str, str]] = {
    settings: {definition.name: name for definition, name in _definitions(settings) if name in settings.own_settings()}
    for settings in _TYPES
}


def checked_group_configs(own: Configs, config: Config) -> Configs:
    configs, values = checked_values(own, GROUP_DEFINITIONS, "group")
    for settings in _TYPES:
        # GroupConfig.validate checks bounds before relations between configs.
        for name, bounds in bounds_of(settings.GROUP_TYPE, config).items():
            key = key_of(f"{settings.GROUP_TYPE}_{name}")
            if key in values:
                _Bounds(*bounds).check(key, values[key])
    assignors = config.group_streams_assignors
    assignor = values.get("streams.assignor.name", assignors[0])
    if assignor not in assignors:
        known = ", ".join(assignors)
        raise ConfigError(
            f"streams.assignor.name '{assignor}' is not a registered task assignor. "
            f"Registered assignors are: [{known}]."
        )
    if values.get("errors.deadletterqueue.topic.name", "").startswith("__"):
        raise ConfigError("errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")
    tags = [trim(tag) for tag in own.get(_TAGS, "").split(",")]
    if len(set(tags)) < len(tags):
        raise ConfigError(f"{_TAGS} must not contain duplicate tag keys.")
    for group_type in (settings.GROUP_TYPE for settings in _TYPES):
        session, heartbeat = f"{group_type}.session.timeout.ms", f"{group_type}.heartbeat.interval.ms"
        session_ms, heartbeat_ms = (
            values.get(key, int(GROUP_DEFINITIONS[key].inherited(config)[0])) for key in (session, heartbeat)
        )
        if heartbeat_ms >= session_ms:
            raise ConfigError(f"{session} must be greater than {heartbeat}")
    for settings in _TYPES:
        group_settings(settings, configs, config)
    return configs


def group_settings(settings: type[SettingsT], own: Configs, config: Config) -> SettingsT:
    """Return the settings of a group with these overrides."""
    attributes = _ATTRIBUTES[settings].items()
    return settings.of(
        config, {name: GROUP_DEFINITIONS[key].kind.parse(key, own[key]) for key, name in attributes if key in own}
    )


class GroupConfigFileError(DataFileError):
    """Unreadable or malformed file of group configs."""


class _GroupSettings(NamedTuple):
    consumer: ConsumerGroupSettings
    share: ShareGroupSettings
    streams: StreamsGroupSettings


class GroupConfigs(KeptConfigs):
    """Overrides of group configs (KIP-848). A group need not exist.

    Args:
        config: the broker's settings, which are the defaults.
        place: the location of ``group-configs.json``; None for memory.

    Raises:
        GroupConfigFileError: the file has invalid content.
    """

    def __init__(self, config: Config, place: Place | None = None) -> None:
        self._config = config
        self._usual = self._settings_with(NO_CONFIGS)
        self._settings: dict[str, _GroupSettings] = {}
        # Reads the file, and calls `_set`.
        super().__init__(JsonFile(place, "group-configs.json", "settings of groups", GroupConfigFileError), "groups")

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """Return the settings of a consumer group."""
        return self._settings.get(group_id, self._usual).consumer

    def share_settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return the settings of a share group."""
        return self._settings.get(group_id, self._usual).share

    def streams_settings_of(self, group_id: str) -> StreamsGroupSettings:
        """Return the settings of a streams group."""
        return self._settings.get(group_id, self._usual).streams

    def _set(self, own: dict[str, Configs]) -> None:
        before = self._own
        super()._set(own)
        # Computed once, since every heartbeat reads them. A changed group has a new mapping, so identity is enough.
        self._settings = {
            group_id: self._settings[group_id] if before.get(group_id) is configs else self._settings_with(configs)
            for group_id, configs in own.items()
        }

    def _settings_with(self, configs: Configs) -> _GroupSettings:
        config = self._config
        return _GroupSettings(
            group_settings(ConsumerGroupSettings, configs, config),
            group_settings(ShareGroupSettings, configs, config),
            group_settings(StreamsGroupSettings, configs, config),
        )
