"""Every limit and time-out under Kafka's own key, validated.

An attribute is the key with underscores for dots: ``group.max.size`` is ``Config.group_max_size``. Defaults and
bounds are those of Apache Kafka 4.4; ``records.…`` are groupcoord's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from attrs import field, fields, fields_dict, frozen

from groupcoord.config.settings import INT32_MAX, INT64_MAX, Choice, Flag, Kind, Names, Number, Text
from groupcoord.errors import ConfigError

ASSIGNOR_CLASSES = MappingProxyType(
    {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    }
)
"""A broker's configuration may name assignors by class; here they go by the names that members ask for."""


SHARE_ASSIGNOR_CLASSES = MappingProxyType({"org.apache.kafka.coordinator.group.assignor.SimpleAssignor": "simple"})
"""The same for share groups."""

STREAMS_ASSIGNOR_CLASSES = MappingProxyType(
    {"org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor": "sticky"}
)
"""The same for streams groups."""

_OF_MEMBERS = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
_BOUNDED = MappingProxyType(
    {
        "consumer": _OF_MEMBERS,
        "share": (*_OF_MEMBERS, "delivery_count_limit", "record_lock_duration_ms", "partition_max_record_locks"),
        "streams": _OF_MEMBERS,
    }
)
"""By kind, the settings that groups may have of their own between bounds that the broker has as well."""


class GroupType(StrEnum):
    """The types of groups, as in Kafka's ``Group.GroupType``: values of ``group.coordinator.rebalance.protocols``."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class MigrationPolicy(StrEnum):
    """Which groups may change their protocol while they have members (KIP-848)."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """Tell whether a classic group may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """Tell whether a consumer group may become a classic one."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


def _setting(default: float, *, at_least: int | None = None, at_most: int = INT32_MAX) -> Any:
    lowest = -at_most - 1 if at_least is None else at_least
    return _of_kind(default, Number(lowest, at_most, isinstance(default, float)))


def _of_kind(default: Any, kind: Kind) -> Any:
    return field(default=default, metadata={"kind": kind})


def key_of(attribute_name: str) -> str:
    """Return Kafka's dotted key for an attribute of :class:`Config`."""
    return attribute_name.replace("_", ".")


@frozen
class Config:
    """The settings of a coordinator and of the host around it.

    Raises:
        ConfigError: a value has the wrong type or is out of bounds, or two don't go together.
    """

    # classic groups
    group_min_session_timeout_ms: int = _setting(6_000)
    group_max_session_timeout_ms: int = _setting(1_800_000)
    group_initial_rebalance_delay_ms: int = _setting(3_000)
    group_max_size: int = _setting(INT32_MAX, at_least=1)
    # KIP-848 groups
    group_coordinator_rebalance_protocols: tuple[GroupType, ...] = _of_kind(
        (GroupType.CLASSIC, GroupType.CONSUMER, GroupType.STREAMS),
        Names(tuple(GroupType)),
    )
    group_consumer_session_timeout_ms: int = _setting(45_000, at_least=1)
    group_consumer_min_session_timeout_ms: int = _setting(45_000, at_least=1)
    group_consumer_max_session_timeout_ms: int = _setting(60_000, at_least=1)
    group_consumer_heartbeat_interval_ms: int = _setting(5_000, at_least=1)
    group_consumer_min_heartbeat_interval_ms: int = _setting(5_000, at_least=1)
    group_consumer_max_heartbeat_interval_ms: int = _setting(15_000, at_least=1)
    group_consumer_max_size: int = _setting(INT32_MAX, at_least=1)
    group_consumer_assignors: tuple[str, ...] = _of_kind(("uniform", "range"), Names(aliases=ASSIGNOR_CLASSES))
    group_consumer_migration_policy: MigrationPolicy = field(
        default=MigrationPolicy.BIDIRECTIONAL, metadata={"kind": Choice(tuple(MigrationPolicy), ignores_case=True)}
    )
    group_consumer_assignment_interval_ms: int = _setting(1_000, at_least=0)
    group_consumer_min_assignment_interval_ms: int = _setting(0, at_least=0)
    group_consumer_max_assignment_interval_ms: int = _setting(15_000, at_least=0)
    group_consumer_assignor_offload_enable: bool = _of_kind(True, Flag())
    group_consumer_regex_refresh_interval_ms: int = _setting(600_000, at_least=10_000)
    # offsets
    offset_metadata_max_bytes: int = _setting(4_096)
    offsets_topic_num_partitions: int = _setting(50, at_least=1)
    offsets_topic_segment_bytes: int = _setting(104_857_600, at_least=1)
    message_max_bytes: int = _setting(1_048_588, at_least=0)
    offsets_commit_timeout_ms: int = _setting(5_000, at_least=1)
    offsets_retention_minutes: int = _setting(10_080, at_least=1)
    offsets_retention_check_interval_ms: int = _setting(600_000, at_least=1, at_most=INT64_MAX)
    # share groups (KIP-932)
    group_share_session_timeout_ms: int = _setting(45_000, at_least=1)
    group_share_min_session_timeout_ms: int = _setting(45_000, at_least=1)
    group_share_max_session_timeout_ms: int = _setting(60_000, at_least=1)
    group_share_heartbeat_interval_ms: int = _setting(5_000, at_least=1)
    group_share_min_heartbeat_interval_ms: int = _setting(5_000, at_least=1)
    group_share_max_heartbeat_interval_ms: int = _setting(15_000, at_least=1)
    group_share_max_size: int = _setting(200, at_least=1, at_most=1_000)
    group_share_assignors: tuple[str, ...] = _of_kind(("simple",), Names(aliases=SHARE_ASSIGNOR_CLASSES))
    group_share_assignment_interval_ms: int = _setting(1_000, at_least=0)
    group_share_min_assignment_interval_ms: int = _setting(0, at_least=0)
    group_share_max_assignment_interval_ms: int = _setting(15_000, at_least=0)
    group_share_assignor_offload_enable: bool = _of_kind(True, Flag())
    group_share_initialize_retry_interval_ms: int = _setting(30_000, at_least=1)
    group_share_delivery_count_limit: int = _setting(5, at_least=2, at_most=10)
    group_share_min_delivery_count_limit: int = _setting(2, at_least=2, at_most=5)
    group_share_max_delivery_count_limit: int = _setting(10, at_least=5, at_most=25)
    group_share_record_lock_duration_ms: int = _setting(30_000, at_least=1_000, at_most=3_600_000)
    group_share_min_record_lock_duration_ms: int = _setting(15_000, at_least=1_000, at_most=30_000)
    group_share_max_record_lock_duration_ms: int = _setting(60_000, at_least=30_000, at_most=3_600_000)
    group_share_partition_max_record_locks: int = _setting(2_000, at_least=100, at_most=10_000)
    group_share_min_partition_max_record_locks: int = _setting(100, at_least=100, at_most=10_000)
    group_share_max_partition_max_record_locks: int = _setting(4_000, at_least=100, at_most=10_000)
    group_share_max_share_sessions: int = _setting(2_000, at_least=1)
    share_coordinator_state_topic_num_partitions: int = _setting(50, at_least=1)
    share_coordinator_state_topic_segment_bytes: int = _setting(104_857_600, at_least=1)
    share_coordinator_write_timeout_ms: int = _setting(5_000, at_least=1)
    share_coordinator_snapshot_update_records_per_snapshot: int = _setting(500, at_least=0, at_most=500)
    share_coordinator_state_topic_prune_interval_ms: int = _setting(300_000, at_least=1)
    share_coordinator_cold_partition_snapshot_interval_ms: int = _setting(300_000, at_least=1)
    # streams groups (KIP-1071)
    group_streams_session_timeout_ms: int = _setting(45_000, at_least=1)
    group_streams_min_session_timeout_ms: int = _setting(45_000, at_least=1)
    group_streams_max_session_timeout_ms: int = _setting(60_000, at_least=1)
    group_streams_heartbeat_interval_ms: int = _setting(5_000, at_least=1)
    group_streams_min_heartbeat_interval_ms: int = _setting(5_000, at_least=1)
    group_streams_max_heartbeat_interval_ms: int = _setting(15_000, at_least=1)
    group_streams_max_size: int = _setting(INT32_MAX, at_least=1)
    group_streams_num_standby_replicas: int = _setting(0, at_least=0)
    group_streams_max_standby_replicas: int = _setting(2, at_least=0)
    group_streams_initial_rebalance_delay_ms: int = _setting(3_000, at_least=0)
    group_streams_assignment_interval_ms: int = _setting(1_000, at_least=0)
    group_streams_min_assignment_interval_ms: int = _setting(0, at_least=0)
    group_streams_max_assignment_interval_ms: int = _setting(15_000, at_least=0)
    group_streams_assignors: tuple[str, ...] = _of_kind(("sticky",), Names(aliases=STREAMS_ASSIGNOR_CLASSES))
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = _of_kind((), Names(may_be_empty=True))
    group_streams_assignor_offload_enable: bool = _of_kind(True, Flag())
    group_streams_task_offset_interval_ms: int = _setting(60_000, at_least=1)
    group_streams_min_task_offset_interval_ms: int = _setting(15_000, at_least=1)
    group_streams_num_warmup_replicas: int = _setting(2, at_least=0)
    group_streams_max_warmup_replicas: int = _setting(20, at_least=0)
    group_streams_acceptable_recovery_lag: int = _setting(10_000, at_least=0, at_most=INT64_MAX)
    errors_deadletterqueue_topic_name_prefix: str = _of_kind("dlq.", Text())
    errors_deadletterqueue_auto_create_topics_enable: bool = _of_kind(False, Flag())
    # transactions
    transaction_max_timeout_ms: int = _setting(900_000, at_least=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _setting(10_000, at_least=1)
    transactional_id_expiration_ms: int = _setting(604_800_000, at_least=1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _setting(3_600_000, at_least=1)
    transaction_state_log_num_partitions: int = _setting(50, at_least=1)
    transaction_state_log_segment_bytes: int = _setting(104_857_600, at_least=1)
    # the host
    num_partitions: int = _setting(1, at_least=1)
    auto_create_topics_enable: bool = _of_kind(True, Flag())
    fetch_max_bytes: int = _setting(57_671_680, at_least=1_024)
    max_incremental_fetch_session_cache_slots: int = _setting(1_000, at_least=0)
    records_enable: bool = _of_kind(True, Flag())  # this one and the next are groupcoord's own
    records_memory_max_bytes: int = _setting(268_435_456, at_least=0, at_most=INT64_MAX)
    socket_request_max_bytes: int = _setting(104_857_600, at_least=1)
    connections_max_idle_ms: int = _setting(600_000, at_most=INT64_MAX)
    max_connections: int = _setting(INT32_MAX, at_least=0)
    log_segment_bytes: int = _setting(1_073_741_824, at_least=1_048_576)
    log_roll_ms: int = _setting(604_800_000, at_least=1, at_most=INT64_MAX)
    log_retention_ms: int = _setting(604_800_000, at_least=-1, at_most=INT64_MAX)
    log_retention_bytes: int = _setting(-1, at_most=INT64_MAX)
    log_retention_check_interval_ms: int = _setting(300_000, at_least=1, at_most=INT64_MAX)
    log_cleanup_policy: tuple[str, ...] = _of_kind(("delete",), Names(("compact", "delete"), may_be_empty=True))
    log_flush_interval_messages: int = _setting(INT64_MAX, at_least=1, at_most=INT64_MAX)
    log_flush_interval_ms: int = _setting(INT64_MAX, at_least=0, at_most=INT64_MAX)
    log_cleaner_min_cleanable_ratio: float = _setting(0.5, at_least=0, at_most=1)
    log_cleaner_delete_retention_ms: int = _setting(86_400_000, at_least=0, at_most=INT64_MAX)
    log_cleaner_min_compaction_lag_ms: int = _setting(0, at_least=0, at_most=INT64_MAX)
    log_cleaner_dedupe_buffer_size: int = _setting(134_217_728, at_least=1, at_most=INT64_MAX)
    log_cleaner_backoff_ms: int = _setting(15_000, at_least=1, at_most=INT64_MAX)

    def __attrs_post_init__(self) -> None:
        for attribute in fields(Config):
            kind_of(attribute.name).check(key_of(attribute.name), getattr(self, attribute.name))
        if GroupType.CLASSIC not in self.group_coordinator_rebalance_protocols:
            raise ConfigError("setting 'group.coordinator.rebalance.protocols' can't leave out 'classic'")
        for kind, names in _BOUNDED.items():
            for name in names:
                lowest, highest = f"group_{kind}_min_{name}", f"group_{kind}_max_{name}"
                self._check_order(lowest, highest)
                self._check_order(lowest, f"group_{kind}_{name}")
                self._check_order(f"group_{kind}_{name}", highest)
            self._check_heartbeat(kind)
        self._check_order("group_share_max_size", "group_share_max_share_sessions")
        self._check_order("group_streams_num_standby_replicas", "group_streams_max_standby_replicas")
        self._check_order("group_streams_num_warmup_replicas", "group_streams_max_warmup_replicas")
        self._check_order("group_streams_min_task_offset_interval_ms", "group_streams_task_offset_interval_ms")

    def _check_heartbeat(self, kind: str) -> None:
        """Refuse sessions that end before the next heartbeat."""
        heartbeat, session = f"group_{kind}_heartbeat_interval_ms", f"group_{kind}_session_timeout_ms"
        heartbeat_ms, session_ms = getattr(self, heartbeat), getattr(self, session)
        if heartbeat_ms >= session_ms:
            raise ConfigError(
                f"setting {key_of(heartbeat)!r} ({heartbeat_ms}) must be lower than {key_of(session)!r} ({session_ms})"
            )

    def _check_order(self, lower: str, higher: str) -> None:
        """Refuse two settings of which the lower one is above the higher one."""
        low, high = getattr(self, lower), getattr(self, higher)
        if low > high:
            raise ConfigError(f"setting {key_of(lower)!r} ({low}) must not be above {key_of(higher)!r} ({high})")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int | float]) -> Config:
        """Make a configuration from keys and values as they stand in ``server.properties``.

        Args:
            properties: keys dotted as Kafka spells them, or with underscores; values as text or numbers.

        Raises:
            ConfigError: a key is unknown, given in both spellings, or its value is not allowed.
        """
        parsers = {attribute.name: kind_of(attribute.name).parse for attribute in fields(cls)}
        return cls(**read_properties(properties, parsers))

    def to_properties(self) -> dict[str, str | int | float]:
        """Return every setting under Kafka's key: numbers as they are, all else as text."""
        properties: dict[str, str | int | float] = {}
        for attribute in fields(Config):
            kind, value = kind_of(attribute.name), getattr(self, attribute.name)
            properties[key_of(attribute.name)] = value if isinstance(kind, Number) else kind.text(value)
        return properties


def kind_of(attribute_name: str) -> Kind:
    """Return the kind of a setting of :class:`Config`, by its attribute's name."""
    kind: Kind = fields_dict(Config)[attribute_name].metadata["kind"]
    return kind


def read_properties(properties: Mapping[str, Any], parsers: Mapping[str, Callable[[str, Any], Any]]) -> dict[str, Any]:
    """Return values by the names of settings.

    Args:
        properties: keys dotted as Kafka spells them, or with underscores, and values.
        parsers: for each setting there is, by name, what turns Kafka's key and a value into the setting's own.

    Raises:
        ConfigError: a key is unknown or given in both spellings, or a parser says so.
    """
    values: dict[str, Any] = {}
    for key, raw in properties.items():
        name = key.strip().replace(".", "_")
        if name not in parsers:
            raise ConfigError(f"unknown setting {key!r}{suggestion(name, set(parsers))}")
        if name in values:
            raise ConfigError(f"setting {key_of(name)!r} is given twice")
        values[name] = parsers[name](key_of(name), raw)
    return values


def suggestion(name: str, known: set[str]) -> str:
    """Return words for an error message that propose the known name nearest to ``name``; empty if none is near."""
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {key_of(close[0])!r}?" if close else ""
