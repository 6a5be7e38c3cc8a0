"""Definitions of configs: those of topics as Apache Kafka 4.4 defines them (``LogConfig``), and
storage of overrides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from attrs import field, frozen

from groupcoord.broker.json_file import JsonFile
from groupcoord.config import SETTINGS, Config
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


class KeptConfigs:
    """Stored overrides of resources of one type, which need not exist."""

    def __init__(self, file: JsonFile, kind: str) -> None:
        self._file = file
        self._kind = kind
        self._own: dict[str, Configs] = {}
        # Within `read`, so that errors of the content name the file.
        self._file.read(lambda content: self._set(content[kind]))

    def reload(self) -> None:
        self._file.read_if_changed(lambda content: self._set(content[self._kind]))

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
            self._file.write(lambda: {self._kind: {name: dict(configs) for name, configs in own.items()}})
            # After the write, which may fail.
            self._set(own)

    def _set(self, own: dict[str, Configs]) -> None:
        self._own = own
