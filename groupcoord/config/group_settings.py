"""Which kinds of groups there are, and their settings: the broker's, and those that a group may have of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from groupcoord.config.config import SERVED_PROTOCOLS, Config, RebalanceProtocol

Bounds = Mapping[str, tuple[int | None, int | None]]
"""The lowest and the highest value of settings, by attribute; None: any."""


def served_protocols(config: Config) -> frozenset[RebalanceProtocol]:
    """Return the kinds of groups whose requests are served (``group.coordinator.rebalance.protocols``).

    Share groups are always served, as the feature ``share.version`` says and not that setting (Kafka 4.2).
    """
    configured = {*config.group_coordinator_rebalance_protocols, RebalanceProtocol.SHARE}
    return SERVED_PROTOCOLS.intersection(configured)


class ConsumerGroupSettings(NamedTuple):
    """What holds for the members of one consumer group (KIP-848).

    Attributes:
        session_timeout_ms: after how long a member that is silent is put out.
        heartbeat_interval_ms: how often members are told to send a heartbeat.
        assignment_interval_ms: the least time between two assignments.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int

    @classmethod
    def of(cls, config: Config, own: Mapping[str, int] = MappingProxyType({})) -> ConsumerGroupSettings:
        """Return the settings of a group.

        Args:
            config: has a value for each, and the lowest and highest that a group may have.
            own: the group's own by attribute; what the bounds no longer allow becomes the bound.
        """
        usual = cls(
            config.group_consumer_session_timeout_ms,
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_assignment_interval_ms,
        )
        return usual._replace(**_within(bounds_of_consumer_groups(config), own))


SettingsOfConsumerGroup = Callable[[str], ConsumerGroupSettings]
"""Returns what holds for a consumer group, by its id. Called at each heartbeat: it should be quick."""


def bounds_of_consumer_groups(config: Config) -> Mapping[str, tuple[int, int]]:
    """Return the lowest and the highest value that each setting of a consumer group may have, by attribute."""
    return {
        "session_timeout_ms": (
            config.group_consumer_min_session_timeout_ms,
            config.group_consumer_max_session_timeout_ms,
        ),
        "heartbeat_interval_ms": (
            config.group_consumer_min_heartbeat_interval_ms,
            config.group_consumer_max_heartbeat_interval_ms,
        ),
        "assignment_interval_ms": (
            config.group_consumer_min_assignment_interval_ms,
            config.group_consumer_max_assignment_interval_ms,
        ),
    }


class ShareGroupSettings(NamedTuple):
    """What holds for one share group (KIP-932).

    Attributes:
        session_timeout_ms, heartbeat_interval_ms, assignment_interval_ms: see :class:`ConsumerGroupSettings`.
        delivery_count_limit: how often a record is delivered at most.
        record_lock_duration_ms: how long a member has a record to itself.
        partition_max_record_locks: so many records are looked at, from the first one on that isn't finished.
        auto_offset_reset: where a group begins: ``earliest``, ``latest`` or ``by_duration:…``.
        isolation_level: ``read_committed`` or ``read_uncommitted``.
        renew_acknowledge_enable: whether members may renew their locks (KIP-1222).
        dead_letter_topic: where records go that are given up (KIP-1191); empty: nowhere.
        copies_dead_letters: whether they go there with key and value.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    delivery_count_limit: int
    record_lock_duration_ms: int
    partition_max_record_locks: int
    auto_offset_reset: str = "latest"
    isolation_level: str = "read_uncommitted"
    renew_acknowledge_enable: bool = True
    dead_letter_topic: str = ""
    copies_dead_letters: bool = False

    @classmethod
    def of(cls, config: Config, own: Mapping[str, Any] = MappingProxyType({})) -> ShareGroupSettings:
        """Return the settings of a group; see :meth:`ConsumerGroupSettings.of`."""
        usual = cls(
            config.group_share_session_timeout_ms,
            config.group_share_heartbeat_interval_ms,
            config.group_share_assignment_interval_ms,
            config.group_share_delivery_count_limit,
            config.group_share_record_lock_duration_ms,
            config.group_share_partition_max_record_locks,
        )
        bounded = {name: value for name, value in own.items() if name in SHARE_SETTINGS_WITH_BOUNDS}
        return usual._replace(**{**own, **_within(bounds_of_share_groups(config), bounded)})


SHARE_SETTINGS_WITH_BOUNDS = ShareGroupSettings._fields[:6]
"""The settings that brokers have as well, with the lowest and the highest that a group may have."""


def bounds_of_share_groups(config: Config) -> Bounds:
    """Return the lowest and the highest value that each setting of a share group may have, by attribute."""
    return {
        "session_timeout_ms": (
            config.group_share_min_session_timeout_ms,
            config.group_share_max_session_timeout_ms,
        ),
        "heartbeat_interval_ms": (
            config.group_share_min_heartbeat_interval_ms,
            config.group_share_max_heartbeat_interval_ms,
        ),
        "assignment_interval_ms": (
            config.group_share_min_assignment_interval_ms,
            config.group_share_max_assignment_interval_ms,
        ),
        "delivery_count_limit": (
            config.group_share_min_delivery_count_limit,
            config.group_share_max_delivery_count_limit,
        ),
        "record_lock_duration_ms": (
            config.group_share_min_record_lock_duration_ms,
            config.group_share_max_record_lock_duration_ms,
        ),
        "partition_max_record_locks": (
            config.group_share_min_partition_max_record_locks,
            config.group_share_max_partition_max_record_locks,
        ),
    }


class StreamsGroupSettings(NamedTuple):
    """What holds for one streams group (KIP-1071).

    Attributes:
        session_timeout_ms, heartbeat_interval_ms, assignment_interval_ms: see :class:`ConsumerGroupSettings`.
        num_standby_replicas: how many members keep the state of a task besides the one that runs it.
        initial_rebalance_delay_ms: how long a group that was empty waits for more members.
        assignor_name: who assigns tasks.
        rack_aware_assignment_tags: by which tags of clients standby tasks are to be spread.
        task_offset_interval_ms: how often members are to tell how far they are with tasks.
        num_warmup_replicas: how many tasks may be prepared elsewhere at a time, before they move.
        acceptable_recovery_lag: how far behind a task may be to be taken for caught up.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    num_standby_replicas: int
    initial_rebalance_delay_ms: int
    assignor_name: str
    rack_aware_assignment_tags: tuple[str, ...]
    task_offset_interval_ms: int
    num_warmup_replicas: int
    acceptable_recovery_lag: int

    @classmethod
    def of(cls, config: Config, own: Mapping[str, Any] = MappingProxyType({})) -> StreamsGroupSettings:
        """Return the settings of a group; see :meth:`ConsumerGroupSettings.of`."""
        usual = cls(
            config.group_streams_session_timeout_ms,
            config.group_streams_heartbeat_interval_ms,
            config.group_streams_assignment_interval_ms,
            config.group_streams_num_standby_replicas,
            config.group_streams_initial_rebalance_delay_ms,
            config.group_streams_assignors[0],
            config.group_streams_rack_aware_assignment_tags,
            config.group_streams_task_offset_interval_ms,
            config.group_streams_num_warmup_replicas,
            config.group_streams_acceptable_recovery_lag,
        )
        bounds = bounds_of_streams_groups(config)
        bounded = {name: value for name, value in own.items() if name in bounds}
        return usual._replace(**{**own, **_within(bounds, bounded)})


SettingsOfStreamsGroup = Callable[[str], StreamsGroupSettings]
"""Returns what holds for a streams group, by its id. Called at each heartbeat: it should be quick."""


def bounds_of_streams_groups(config: Config) -> Bounds:
    """Return the lowest and the highest value that settings of a streams group may have, by attribute."""
    return {
        "session_timeout_ms": (
            config.group_streams_min_session_timeout_ms,
            config.group_streams_max_session_timeout_ms,
        ),
        "heartbeat_interval_ms": (
            config.group_streams_min_heartbeat_interval_ms,
            config.group_streams_max_heartbeat_interval_ms,
        ),
        "assignment_interval_ms": (
            config.group_streams_min_assignment_interval_ms,
            config.group_streams_max_assignment_interval_ms,
        ),
        "num_standby_replicas": (None, config.group_streams_max_standby_replicas),
        "num_warmup_replicas": (None, config.group_streams_max_warmup_replicas),
        "task_offset_interval_ms": (config.group_streams_min_task_offset_interval_ms, None),
    }


def _within(bounds: Bounds, own: Mapping[str, int]) -> dict[str, int]:
    return {name: _clamped(value, *bounds[name]) for name, value in own.items()}


def _clamped(value: int, lowest: int | None, highest: int | None) -> int:
    value = value if lowest is None else max(value, lowest)
    return value if highest is None else min(value, highest)
