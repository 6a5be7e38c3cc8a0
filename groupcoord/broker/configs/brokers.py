"""Broker configs, static and dynamic (KIP-226), and the container of everything that administrators set."""

from __future__ import annotations

from types import MappingProxyType

from attrs import evolve

from groupcoord.broker.cluster.features import Features
from groupcoord.broker.cluster.quotas import Quotas
from groupcoord.broker.configs.client_metrics import ClientMetrics
from groupcoord.broker.configs.definitions import (
    TOPIC_DEFINITIONS,
    Configs,
    Definition,
    Definitions,
    FreeText,
    KeptConfigs,
    Layer,
    checked_values,
)
from groupcoord.broker.json_file import DataFileError, JsonFile, Place
from groupcoord.config import SETTINGS
from groupcoord.config.settings import INT32_MAX, INT64_MAX, Number
from groupcoord.errors import ConfigError
from groupcoord.wire.config_messages import ConfigSource, ConfigType

FILE_NAME = "broker-configs.json"
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
        super().__init__(JsonFile(place, FILE_NAME, "settings of brokers"), "brokers")

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


class Administered:
    """Broker configs, client metrics, quotas and features, each in a file."""

    def __init__(self, place: Place | None = None) -> None:
        self.brokers = BrokerConfigs(place)
        self.client_metrics = ClientMetrics(place)
        self.quotas = Quotas(place)
        self.features = Features(place)
