"""What a setting is that things can have of their own, and those of topics as Apache Kafka 4.4 defines them
(``LogConfig``), with what holds where they have none.

A few of a topic's settings apply to what it holds (:mod:`groupcoord.broker.records.topic_data`); the others are kept
and shown, and change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from attrs import field, fields_dict, frozen

from groupcoord.config import Config, key_of, kind_of
from groupcoord.config.settings import INT32_MAX, INT64_MAX, Choice, Flag, Kind, Number, Text, trim
from groupcoord.errors import ConfigError
from groupcoord.wire.config_messages import ConfigSource, ConfigSynonym, ConfigType

Configs = Mapping[str, str]
"""The settings that a thing has of its own, as text, by name."""


@frozen
class ReplicaList:
    """Pairs of a partition and a broker, or ``*``: a kind of setting."""

    _PATTERN = re.compile(r"\*|(?:[0-9]+:[0-9]+(?:,[0-9]+:[0-9]+)*)?")

    def parse(self, key: str, raw: Any) -> Any:
        """See :class:`~groupcoord.config.settings.Kind`."""
        # Java's split leaves out what is empty at the end.
        return ",".join(trim(part) for part in raw.split(",")).rstrip(",") if isinstance(raw, str) else raw

    def check(self, key: str, value: object) -> None:
        """See :class:`~groupcoord.config.settings.Kind`."""
        if not isinstance(value, str) or not self._PATTERN.fullmatch(value):
            raise ConfigError(f"setting {key!r} must be '*' or a list as in 0:1,1:1 (partition:broker), not {value!r}")

    def text(self, value: str) -> str:
        """See :class:`~groupcoord.config.settings.Kind`."""
        return value


@frozen
class FreeText(Text):
    """Any text: a kind of setting.

    Attributes:
        config_type: its type, as Kafka calls it.
    """

    config_type: ConfigType = ConfigType.STRING


_CONFIG_FIELDS = frozenset(fields_dict(Config))


class Layer(NamedTuple):
    """Settings of a broker, and where they come from."""

    configs: Configs
    source: ConfigSource


@frozen
class Definition:
    """One setting of a topic, a group or a broker.

    Attributes:
        kind: what values it can have.
        default: its value where nobody says anything.
        broker_key: the broker's setting that holds for those that have none of their own; None: there is none.
        is_internal: it is told only where it was set.
        tells_default: the broker's setting is told, though it has its default.
    """

    name: str
    kind: Kind
    default: Any
    broker_key: str | None = None
    is_internal: bool = field(default=False, kw_only=True)
    tells_default: bool = field(default=True, kw_only=True)

    @property
    def config_type(self) -> ConfigType:
        """Its type, as Kafka calls it."""
        return type_of(self.kind)

    def inherited(self, config: Config, layers: Sequence[Layer] = ()) -> tuple[str, tuple[ConfigSynonym, ...]]:
        """Return what holds without a value of one's own, and the broker's settings that it comes from.

        Args:
            config: what the broker was started with.
            layers: what was set since; the first counts.
        """
        usual = self.kind.text(self.default)
        if self.broker_key is None:
            return usual, ()
        key = self.broker_key
        synonyms = [ConfigSynonym(key, layer.configs[key], layer.source) for layer in layers if key in layer.configs]
        attribute = key.replace(".", "_")
        value = getattr(config, attribute) if attribute in _CONFIG_FIELDS else self.default
        if value != self.default:
            synonyms.append(ConfigSynonym(key, self.kind.text(value), ConfigSource.STATIC_BROKER))
        held = synonyms[0].value if synonyms else usual
        if self.tells_default or value != self.default:
            synonyms.append(ConfigSynonym(key, usual, ConfigSource.DEFAULT))
        return held, tuple(synonyms)


def type_of(kind: Kind) -> ConfigType:
    """Return what Kafka calls a kind of setting."""
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
    """Return settings by their names."""
    return MappingProxyType({definition.name: definition for definition in definitions})


def checked_topic_configs(own: Configs) -> Configs:
    """Return the settings that a topic shall have, all of them, as they are told.

    Raises:
        ConfigError: it can't have them.
    """
    told, values = checked_values(own, TOPIC_DEFINITIONS, "topic")
    shortest, longest = (
        values.get(key, TOPIC_DEFINITIONS[key].default) for key in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if shortest > longest:
        raise ConfigError(f"min.compaction.lag.ms ({shortest}) must not be above max.compaction.lag.ms ({longest})")
    if values.get("remote.storage.enable"):
        raise ConfigError("Tiered Storage functionality is disabled in the broker.")
    return told


def checked_values(own: Configs, definitions: Definitions, what: str) -> tuple[Configs, dict[str, Any]]:
    """Return settings as they are told, and their values, if there are such settings and each may have its value.

    Raises:
        ConfigError: there are none of this name, or one can't have its value.
    """
    told, values = {}, {}
    for name, text in own.items():
        definition = definitions.get(name)
        if definition is None:
            raise ConfigError(f"Unknown {what} config name: {name}")
        values[name] = value = definition.kind.parse(name, text)
        definition.kind.check(name, value)
        told[name] = definition.kind.text(value)
    return told, values


def _int(name: str, default: int, at_least: int, broker_key: str | None = None, at_most: int = INT32_MAX) -> Definition:
    return Definition(name, Number(at_least, at_most), default, broker_key)


def _long(name: str, default: int, at_least: int, broker_key: str | None = None) -> Definition:
    return _int(name, default, at_least, broker_key, INT64_MAX)


def _flag(name: str, broker_key: str | None = None) -> Definition:
    return Definition(name, Flag(), False, broker_key)


def _of_broker(name: str, attribute: str, *, tells_default: bool = True) -> Definition:
    """Return the setting of a topic that has the broker's setting's kind and default."""
    default = fields_dict(Config)[attribute].default
    return Definition(name, kind_of(attribute), default, key_of(attribute), tells_default=tells_default)


_COMPRESSION = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMPS = ("CreateTime", "LogAppendTime")

TOPIC_DEFINITIONS = by_name(
    _of_broker("cleanup.policy", "log_cleanup_policy"),
    Definition("compression.gzip.level", Number(1, 9, besides=-1), -1, "compression.gzip.level"),
    _int("compression.lz4.level", 9, 1, "compression.lz4.level", 17),
    Definition("compression.type", Choice(_COMPRESSION), "producer", "compression.type"),
    _int("compression.zstd.level", 3, -131_072, "compression.zstd.level", 22),
    _long("delete.retention.ms", 86_400_000, 0, "log.cleaner.delete.retention.ms"),
    _flag("errors.deadletterqueue.group.enable"),
    _long("file.delete.delay.ms", 60_000, 0, "log.segment.delete.delay.ms"),
    _long("flush.messages", INT64_MAX, 1, "log.flush.interval.messages"),
    _of_broker("flush.ms", "log_flush_interval_ms", tells_default=False),
    Definition("follower.replication.throttled.replicas", ReplicaList(), ""),
    _int("index.interval.bytes", 4_096, 0, "log.index.interval.bytes"),
    Definition("leader.replication.throttled.replicas", ReplicaList(), ""),
    _long("local.retention.bytes", -2, -2, "log.local.retention.bytes"),
    _long("local.retention.ms", -2, -2, "log.local.retention.ms"),
    _long("max.compaction.lag.ms", INT64_MAX, 1, "log.cleaner.max.compaction.lag.ms"),
    _int("max.decompressed.message.bytes", INT32_MAX - 8, 1, "max.decompressed.message.bytes", INT32_MAX - 8),
    _int("max.message.bytes", 1_048_588, 0, "message.max.bytes"),
    _long("message.timestamp.after.max.ms", 3_600_000, 0, "log.message.timestamp.after.max.ms"),
    _long("message.timestamp.before.max.ms", INT64_MAX, 0, "log.message.timestamp.before.max.ms"),
    Definition("message.timestamp.type", Choice(_TIMESTAMPS), "CreateTime", "log.message.timestamp.type"),
    Definition("min.cleanable.dirty.ratio", Number(0, 1, is_fraction=True), 0.5, "log.cleaner.min.cleanable.ratio"),
    _long("min.compaction.lag.ms", 0, 0, "log.cleaner.min.compaction.lag.ms"),
    _int("min.insync.replicas", 1, 1, "min.insync.replicas"),
    _flag("preallocate", "log.preallocate"),
    _long("remote.copy.lag.bytes", -1, -1, "log.remote.copy.lag.bytes"),
    _long("remote.copy.lag.ms", 0, -1, "log.remote.copy.lag.ms"),
    _flag("remote.log.copy.disable"),
    _flag("remote.log.delete.on.disable"),
    _flag("remote.storage.enable"),
    _of_broker("retention.bytes", "log_retention_bytes"),
    _of_broker("retention.ms", "log_retention_ms", tells_default=False),
    _of_broker("segment.bytes", "log_segment_bytes"),
    _int("segment.index.bytes", 10_485_760, 4, "log.index.size.max.bytes"),
    _long("segment.jitter.ms", 0, 0),
    _of_broker("segment.ms", "log_roll_ms", tells_default=False),
    _flag("unclean.leader.election.enable", "unclean.leader.election.enable"),
)

APPLIED_TOPIC_SETTINGS = frozenset(
    (
        "cleanup.policy",
        "delete.retention.ms",
        "flush.messages",
        "flush.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.ms",
    )
)
"""The settings of a topic that change something in its log, see ``TopicData.settings_of``."""

ALLOWS_DEAD_LETTERS = "errors.deadletterqueue.group.enable"
"""Whether share groups may send records there that they give up (KIP-1191)."""


def settings_without_effect(own: Configs) -> list[str]:
    """Return the names of a topic's own settings that should change something, and don't."""
    return [
        name
        for name, text in own.items()
        if name not in APPLIED_TOPIC_SETTINGS
        and name != ALLOWS_DEAD_LETTERS
        and text != TOPIC_DEFINITIONS[name].kind.text(TOPIC_DEFINITIONS[name].default)
    ]
