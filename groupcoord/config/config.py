"""Settings: every limit and timeout under Kafka's own key, validated.

An attribute is the key with underscores for dots: ``group.max.size`` is ``Config.group_max_size``. Defaults and bounds
are those of Apache Kafka 4.4; ``records.…`` are groupcoord's own.

A new setting is one field of :class:`Config`, with the docstring that becomes its row on the site's reference page, and
a row in ``tests/config/test_effects.py``. One that groups may override (``of_groups``) is also a field in
``group_settings.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from attrs import field, fields, frozen

from groupcoord.config.settings import INT32_MAX, INT64_MAX, Choice, Flag, Kind, Names, Number, Text
from groupcoord.errors import ConfigError, did_you_mean

ASSIGNOR_CLASSES = MappingProxyType(
    {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    }
)
"""Names of assignors by the class name that a broker's configuration may have."""


SHARE_ASSIGNOR_CLASSES = MappingProxyType({"org.apache.kafka.coordinator.group.assignor.SimpleAssignor": "simple"})
STREAMS_ASSIGNOR_CLASSES = MappingProxyType(
    {"org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor": "sticky"}
)


class GroupType(StrEnum):
    """The types of groups, as in Kafka's ``Group.GroupType``: values of ``group.coordinator.rebalance.protocols``."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class MigrationPolicy(StrEnum):
    """Conversions that are allowed while a group has members (KIP-848)."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """True if a classic group may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """True if a consumer group may become a classic one."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


def _setting(default: Any, kind: Kind, **traits: bool) -> Any:
    return field(default=default, metadata={"kind": kind, "traits": traits})


def _int(default: int, at_least: int | None = None, at_most: int = INT32_MAX, **traits: bool) -> Any:
    return _setting(default, Number(-at_most - 1 if at_least is None else at_least, at_most), **traits)


def key_of(attribute_name: str) -> str:
    return attribute_name.replace("_", ".")


@frozen
class Config:
    """Settings of a coordinator and its host.

    Settings without a docstring are bounds for overrides of groups: ``group.share.min.…`` and ``max``.

    Raises:
        ConfigError: a value has the wrong type or is out of bounds, or two conflict.
    """

    # classic groups
    group_min_session_timeout_ms: int = _int(6_000)
    """Shortest session timeout that a member of a classic group may request."""
    group_max_session_timeout_ms: int = _int(1_800_000)
    """Longest session timeout that a member of a classic group may request."""
    group_initial_rebalance_delay_ms: int = _int(3_000)
    """Time that a new group waits for further members, and again after each wait in which one joined (KIP-134)."""
    group_max_size: int = _int(INT32_MAX, 1)
    """Maximum members of a group (KIP-389). As in Kafka, a restarting static member is refused too while the group is
    full and stable."""
    # KIP-848 groups
    group_coordinator_rebalance_protocols: tuple[GroupType, ...] = _setting(
        (GroupType.CLASSIC, GroupType.CONSUMER, GroupType.STREAMS), Names(tuple(GroupType))
    )
    """Served protocols, always including ``classic``; requests of others fail with UNSUPPORTED_VERSION. ``share`` is
    accepted without effect, since share groups are always served."""
    group_consumer_session_timeout_ms: int = _int(45_000, 1, of_groups=True)
    """Session timeout of consumer groups (KIP-848)."""
    group_consumer_min_session_timeout_ms: int = _int(45_000, 1)
    group_consumer_max_session_timeout_ms: int = _int(60_000, 1)
    group_consumer_heartbeat_interval_ms: int = _int(5_000, 1, of_groups=True)
    """Heartbeat interval sent to members, shorter than the session timeout."""
    group_consumer_min_heartbeat_interval_ms: int = _int(5_000, 1)
    group_consumer_max_heartbeat_interval_ms: int = _int(15_000, 1)
    group_consumer_max_size: int = _int(INT32_MAX, 1)
    """Maximum members of a consumer group; a returning static member keeps its place."""
    group_consumer_assignors: tuple[str, ...] = _setting(("uniform", "range"), Names(aliases=ASSIGNOR_CLASSES))
    """Assignors that members may select, the first by default; Kafka's may be named by their Java classes, your own as
    ``package.module:Class``."""
    group_consumer_migration_policy: MigrationPolicy = _setting(  # noqa: RUF009 - it returns a field
        MigrationPolicy.BIDIRECTIONAL, Choice(tuple(MigrationPolicy), ignores_case=True)
    )
    """Groups that may change their type while they have members: ``upgrade`` (classic to consumer), ``downgrade``
    (back, when only classic members are left), ``bidirectional``, or ``disabled``, where classic members cannot join a
    consumer group."""
    group_consumer_assignment_interval_ms: int = _int(1_000, 0, of_groups=True)
    """Minimum time between two assignments of a consumer group."""
    group_consumer_min_assignment_interval_ms: int = _int(0, 0)
    group_consumer_max_assignment_interval_ms: int = _int(15_000, 0)
    group_consumer_assignor_offload_enable: bool = _setting(
        True, Flag(), of_groups=True, is_internal=True, has_effect=False
    )
    """Stored and described; without effect in Kafka 4.4 too."""
    group_consumer_regex_refresh_interval_ms: int = _int(600_000, 10_000, is_internal=True)
    """Maximum age of the topics that a regular expression matched."""
    # offsets
    offset_metadata_max_bytes: int = _int(4_096)
    """Maximum length of an offset's metadata, in UTF-16 units as in Kafka."""
    offsets_topic_num_partitions: int = _int(50, 1)
    """Log partitions; determines where a group is, so it cannot change once there is a log."""
    offsets_topic_segment_bytes: int = _int(104_857_600, 1)
    """Size at which a segment file is rolled (host)."""
    message_max_bytes: int = _int(1_048_588, 0)
    """Largest batch; a larger commit fails with UNKNOWN_SERVER_ERROR, a larger producer batch with MESSAGE_TOO_LARGE
    (host)."""
    offsets_commit_timeout_ms: int = _int(5_000, 1)
    """Requests that wait longer for the log fail with COORDINATOR_NOT_AVAILABLE."""
    offsets_retention_minutes: int = _int(10_080, 1)
    """Retention of the offsets of an unused group (KIP-211)."""
    offsets_retention_check_interval_ms: int = _int(600_000, 1, INT64_MAX)
    """Interval of the retention check."""
    # share groups (KIP-932)
    group_share_session_timeout_ms: int = _int(45_000, 1, of_groups=True)
    """Session timeout of share groups (KIP-932)."""
    group_share_min_session_timeout_ms: int = _int(45_000, 1)
    group_share_max_session_timeout_ms: int = _int(60_000, 1)
    group_share_heartbeat_interval_ms: int = _int(5_000, 1, of_groups=True)
    """Heartbeat interval sent to members, shorter than the session timeout."""
    group_share_min_heartbeat_interval_ms: int = _int(5_000, 1)
    group_share_max_heartbeat_interval_ms: int = _int(15_000, 1)
    group_share_max_size: int = _int(200, 1, 1_000)
    """Maximum members of a share group."""
    group_share_assignors: tuple[str, ...] = _setting(("simple",), Names(aliases=SHARE_ASSIGNOR_CLASSES))
    """Assignor of share groups, the first if several; Kafka's may be named by its Java class, your own as
    ``package.module:Class``."""
    group_share_assignment_interval_ms: int = _int(1_000, 0, of_groups=True)
    """Minimum time between two assignments of a share group."""
    group_share_min_assignment_interval_ms: int = _int(0, 0)
    group_share_max_assignment_interval_ms: int = _int(15_000, 0)
    group_share_assignor_offload_enable: bool = _setting(
        True, Flag(), of_groups=True, is_internal=True, has_effect=False
    )
    """Stored and described; without effect in Kafka 4.4 too."""
    group_share_initialize_retry_interval_ms: int = _int(30_000, 1, is_internal=True)
    """Interval after which initialization of a share-partition is retried."""
    group_share_delivery_count_limit: int = _int(5, 2, 10, of_groups=True)
    """Maximum deliveries of a record."""
    group_share_min_delivery_count_limit: int = _int(2, 2, 5)
    group_share_max_delivery_count_limit: int = _int(10, 5, 25)
    group_share_record_lock_duration_ms: int = _int(30_000, 1_000, 3_600_000, of_groups=True)
    """Time that a member holds the acquisition lock of a record."""
    group_share_min_record_lock_duration_ms: int = _int(15_000, 1_000, 30_000)
    group_share_max_record_lock_duration_ms: int = _int(60_000, 30_000, 3_600_000)
    group_share_partition_max_record_locks: int = _int(2_000, 100, 10_000, of_groups=True)
    """Maximum records in flight per share-partition."""
    group_share_min_partition_max_record_locks: int = _int(100, 100, 10_000)
    group_share_max_partition_max_record_locks: int = _int(4_000, 100, 10_000)
    group_share_max_share_sessions: int = _int(2_000, 1)
    """Maximum share sessions of a broker; at least ``group.share.max.size``."""
    share_coordinator_state_topic_num_partitions: int = _int(50, 1)
    """Partitions of ``__share_group_state`` when it is created."""
    share_coordinator_state_topic_segment_bytes: int = _int(104_857_600, 1)
    """Size of its segments (host)."""
    share_coordinator_write_timeout_ms: int = _int(5_000, 1)
    """Requests that wait longer for the share coordinator's log fail with COORDINATOR_NOT_AVAILABLE."""
    share_coordinator_snapshot_update_records_per_snapshot: int = _int(500, 0, 500)
    """Updates of a share-partition between two snapshots."""
    share_coordinator_state_topic_prune_interval_ms: int = _int(300_000, 1)
    """Interval at which unneeded records are deleted."""
    share_coordinator_cold_partition_snapshot_interval_ms: int = _int(300_000, 1)
    """Age at which a state is written again, so that older records can be deleted."""
    # streams groups (KIP-1071)
    group_streams_session_timeout_ms: int = _int(45_000, 1, of_groups=True)
    """Session timeout of streams groups (KIP-1071)."""
    group_streams_min_session_timeout_ms: int = _int(45_000, 1)
    group_streams_max_session_timeout_ms: int = _int(60_000, 1)
    group_streams_heartbeat_interval_ms: int = _int(5_000, 1, of_groups=True)
    """Heartbeat interval sent to members, shorter than the session timeout."""
    group_streams_min_heartbeat_interval_ms: int = _int(5_000, 1)
    group_streams_max_heartbeat_interval_ms: int = _int(15_000, 1)
    group_streams_max_size: int = _int(INT32_MAX, 1)
    """Maximum members of a streams group."""
    group_streams_num_standby_replicas: int = _int(0, 0, of_groups=True)
    """Standby replicas of a task."""
    group_streams_max_standby_replicas: int = _int(2, 0)
    group_streams_initial_rebalance_delay_ms: int = _int(3_000, 0, of_groups=True)
    """Time that an empty streams group waits for more members."""
    group_streams_assignment_interval_ms: int = _int(1_000, 0, of_groups=True)
    """Minimum time between two assignments of a streams group."""
    group_streams_min_assignment_interval_ms: int = _int(0, 0)
    group_streams_max_assignment_interval_ms: int = _int(15_000, 0)
    group_streams_assignors: tuple[str, ...] = _setting(("sticky",), Names(aliases=STREAMS_ASSIGNOR_CLASSES))
    """Assignors of streams groups, the first by default; Kafka's may be named by its Java class."""
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = _setting((), Names(may_be_empty=True), of_groups=True)
    """Tags that clients should have; members without them get a status. As in Kafka 4.4 the assignor ignores them."""
    group_streams_assignor_offload_enable: bool = _setting(
        True, Flag(), of_groups=True, is_internal=True, has_effect=False
    )
    """Stored and described; without effect in Kafka 4.4 too."""
    group_streams_task_offset_interval_ms: int = _int(60_000, 1, of_groups=True, is_internal=True)
    """Interval at which members report task offsets."""
    group_streams_min_task_offset_interval_ms: int = _int(15_000, 1, is_internal=True)
    group_streams_num_warmup_replicas: int = _int(2, 0, of_groups=True, is_internal=True)
    """Stored and described; Kafka 4.4 assigns no warm-up tasks either. Above 0, a member that returns within the
    assignment interval gets its last target at once."""
    group_streams_max_warmup_replicas: int = _int(20, 0, is_internal=True)
    group_streams_acceptable_recovery_lag: int = _int(10_000, 0, INT64_MAX, of_groups=True, is_internal=True)
    """Lag below which a task counts as caught up; sent to members."""
    errors_deadletterqueue_topic_name_prefix: str = _setting("dlq.", Text())
    """Prefix of topics for records that a share group rejected (KIP-1191)."""
    errors_deadletterqueue_auto_create_topics_enable: bool = _setting(False, Flag())
    """Creates such a topic if it is missing."""
    # transactions
    transaction_max_timeout_ms: int = _int(900_000, 1)
    """Longest transaction timeout that a producer may request (host)."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _int(10_000, 1)
    """Interval of the check for timed-out transactions (host)."""
    transactional_id_expiration_ms: int = _int(604_800_000, 1)
    """Time after which an unused transactional id expires (host)."""
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _int(3_600_000, 1)
    """Interval of the check for expired ids (host)."""
    transaction_state_log_num_partitions: int = _int(50, 1)
    """Partitions of ``__transaction_state`` when it is created (host)."""
    transaction_state_log_segment_bytes: int = _int(104_857_600, 1)
    """Size of its segments; in memory 256 KiB at most (host)."""
    # the host
    num_partitions: int = _int(1, 1)
    """Partitions of a topic created without a number (host)."""
    auto_create_topics_enable: bool = _setting(True, Flag())
    """A missing topic is created when a client requests it and allows that (host)."""
    fetch_max_bytes: int = _int(57_671_680, 1_024)
    """Maximum bytes of records in a Fetch response, except for its first batch (host)."""
    max_incremental_fetch_session_cache_slots: int = _int(1_000, 0)
    """Maximum fetch sessions (KIP-227, host)."""
    records_enable: bool = _setting(True, Flag(), is_internal=True, is_kafkas=False)
    """Topics have records; if false they stay empty, and Produce fails (host)."""
    records_memory_max_bytes: int = _int(268_435_456, 0, INT64_MAX, is_internal=True, is_kafkas=False)
    """Memory for the records of all topics and the state of their producers, with a data directory for the latter and
    indexes; beyond it Produce fails (host)."""
    socket_request_max_bytes: int = _int(104_857_600, 1)
    """Largest request (host)."""
    connections_max_idle_ms: int = _int(600_000, at_most=INT64_MAX)
    """Time after which an idle connection is closed; negative: never (host)."""
    max_connections: int = _int(INT32_MAX, 0)
    """Maximum connections (host)."""
    log_segment_bytes: int = _int(1_073_741_824, 1_048_576)
    """Maximum size of a segment of a topic's log; default of ``segment.bytes`` (host)."""
    log_roll_ms: int = _int(604_800_000, 1, INT64_MAX)
    """Maximum age of the active segment; default of ``segment.ms`` (host)."""
    log_retention_ms: int = _int(604_800_000, -1, INT64_MAX)
    """Retention of records, -1: unlimited; default of ``retention.ms`` (host)."""
    log_retention_bytes: int = _int(-1, at_most=INT64_MAX)
    """Retained bytes of a log, negative: unlimited; default of ``retention.bytes`` (host)."""
    log_retention_check_interval_ms: int = _int(300_000, 1, INT64_MAX)
    """Interval of the retention check of topics (host)."""
    log_cleanup_policy: tuple[str, ...] = _setting(("delete",), Names(("compact", "delete"), may_be_empty=True))
    """Cleanup: ``delete``, ``compact``, both, or nothing; default of ``cleanup.policy`` (host)."""
    log_flush_interval_messages: int = _int(INT64_MAX, 1, INT64_MAX)
    """Fsync a log partition after that many records (host)."""
    log_flush_interval_ms: int = _int(INT64_MAX, 0, INT64_MAX)
    """Fsync a log partition with an unflushed record of that age (host)."""
    log_cleaner_min_cleanable_ratio: float = _setting(0.5, Number(0, 1, is_fraction=True))
    """Compact a log partition when a larger part of it is uncompacted; 1: never (host)."""
    log_cleaner_delete_retention_ms: int = _int(86_400_000, 0, INT64_MAX)
    """Time that tombstones and markers stay after their first compaction (host)."""
    log_cleaner_min_compaction_lag_ms: int = _int(0, 0, INT64_MAX)
    """Minimum age of compacted records (host)."""
    log_cleaner_dedupe_buffer_size: int = _int(134_217_728, 1, INT64_MAX)
    """Memory for the keys of one compaction, in bytes (host)."""
    log_cleaner_backoff_ms: int = _int(15_000, 1, INT64_MAX)
    """Pause between two searches for a log to compact (host)."""

    def __attrs_post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            setting.kind.check(setting.key, getattr(self, name))
        if GroupType.CLASSIC not in self.group_coordinator_rebalance_protocols:
            raise ConfigError("setting 'group.coordinator.rebalance.protocols' can't leave out 'classic'")
        for setting in SETTINGS.values():
            lowest, highest = setting.lowest, setting.highest
            for low, high in ((lowest, highest), (lowest, setting.name), (setting.name, highest)):
                if low is not None and high is not None:
                    self._check_order(low, high)
        for group_type in (GroupType.CONSUMER, GroupType.SHARE, GroupType.STREAMS):
            self._check_heartbeat(group_type)
        self._check_order("group_share_max_size", "group_share_max_share_sessions")

    def _check_heartbeat(self, group_type: GroupType) -> None:
        heartbeat, session = f"group_{group_type}_heartbeat_interval_ms", f"group_{group_type}_session_timeout_ms"
        heartbeat_ms, session_ms = getattr(self, heartbeat), getattr(self, session)
        if heartbeat_ms >= session_ms:
            raise ConfigError(
                f"setting {key_of(heartbeat)!r} ({heartbeat_ms}) must be lower than {key_of(session)!r} ({session_ms})"
            )

    def _check_order(self, lower: str, higher: str) -> None:
        low, high = getattr(self, lower), getattr(self, higher)
        if low > high:
            raise ConfigError(f"setting {key_of(lower)!r} ({low}) must not be above {key_of(higher)!r} ({high})")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int | float]) -> Config:
        """Return a configuration from keys and values as in ``server.properties``.

        Args:
            properties: keys dotted as Kafka spells them, or with underscores; values as text or numbers.

        Raises:
            ConfigError: a key is unknown, given in both spellings, or its value is not allowed.
        """
        return cls(**read_properties(properties, {name: setting.kind.parse for name, setting in SETTINGS.items()}))

    def to_properties(self) -> dict[str, str | int | float]:
        """Return all settings under Kafka's keys, as numbers or text."""
        properties: dict[str, str | int | float] = {}
        for name, setting in SETTINGS.items():
            value = getattr(self, name)
            properties[setting.key] = value if isinstance(setting.kind, Number) else setting.kind.text(value)
        return properties


@frozen
class Setting:
    """Declaration of one setting, a field of :class:`Config`.

    Attributes:
        name: the attribute of :class:`Config`.
        key: Kafka's spelling.
        kind: type and bounds of its values.
        default: the default value.
        group_type: groups of this type may override it; None: none.
        lowest: the setting with the minimum of an override, or None.
        highest: the setting with its maximum, or None.
        is_internal: DescribeConfigs returns it only if it was set, as in Kafka.
        is_kafkas: Kafka has it; False for a setting of groupcoord.
        has_effect: False if it is only kept and described.
    """

    name: str
    key: str
    kind: Kind
    default: Any
    group_type: GroupType | None = None
    lowest: str | None = None
    highest: str | None = None
    is_internal: bool = field(default=False, kw_only=True)
    is_kafkas: bool = field(default=True, kw_only=True)
    has_effect: bool = field(default=True, kw_only=True)


def _declaration(name: str, default: Any, kind: Kind, *, of_groups: bool = False, **traits: Any) -> Setting:
    if not of_groups:
        return Setting(name, key_of(name), kind, default, **traits)
    _, group_type, own_name = name.split("_", 2)
    known = {attribute.name for attribute in fields(Config)}
    ends = (f"group_{group_type}_{end}_{own_name.removeprefix('num_')}" for end in ("min", "max"))
    lowest, highest = (end if end in known else None for end in ends)
    return Setting(name, key_of(name), kind, default, GroupType(group_type), lowest, highest, **traits)


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        each.name: _declaration(each.name, each.default, each.metadata["kind"], **each.metadata["traits"])
        for each in fields(Config)
    }
)
"""Settings by attribute, from which DescribeConfigs, overrides of groups and the reference are derived."""


def read_properties(properties: Mapping[str, Any], parsers: Mapping[str, Callable[[str, Any], Any]]) -> dict[str, Any]:
    """Return values by the names of settings.

    Raises:
        ConfigError: a key is unknown or given in both spellings, or a parser fails.
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
    """Return a hint at the nearest known key; empty if none."""
    return did_you_mean(key_of(name), map(key_of, known))
