"""Which kinds of groups there are, and their settings: the broker's, and those that a group may have of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from groupcoord.config.config import SERVED_PROTOCOLS, Config, RebalanceProtocol


def served_protocols(config: Config) -> frozenset[RebalanceProtocol]:
    """Return the kinds of groups whose requests are served (``group.coordinator.rebalance.protocols``)."""
    return SERVED_PROTOCOLS.intersection(config.group_coordinator_rebalance_protocols)


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
        bounds = bounds_of_consumer_groups(config)
        kept = {name: min(max(value, bounds[name][0]), bounds[name][1]) for name, value in own.items()}
        return usual._replace(**kept)


SettingsOfConsumerGroup = Callable[[str], ConsumerGroupSettings]
"""Returns what holds for a consumer group, by its id. Called at each heartbeat: it should be quick."""


def bounds_of_consumer_groups(config: Config) -> dict[str, tuple[int, int]]:
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
