"""Every limit and time-out under Kafka's own key, validated.

An attribute is the key with underscores for dots: ``group.max.size`` is ``Config.group_max_size``. Defaults and
bounds are those of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import Attribute, field, fields, frozen

from groupcoord.errors import ConfigError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def _setting(default: float, *, at_least: int | None = None, at_most: int = INT32_MAX) -> Any:
    lowest = -at_most - 1 if at_least is None else at_least
    return field(default=default, metadata={"at_least": lowest, "at_most": at_most})


def key_of(attribute_name: str) -> str:
    """Return Kafka's dotted key for an attribute of :class:`Config`."""
    return attribute_name.replace("_", ".")


@frozen
class Config:
    """The settings of a coordinator and of the host around it.

    Raises:
        ConfigError: a value has the wrong type or is out of bounds.
    """

    # classic groups
    group_min_session_timeout_ms: int = _setting(6_000)
    group_max_session_timeout_ms: int = _setting(1_800_000)
    group_initial_rebalance_delay_ms: int = _setting(3_000)
    group_max_size: int = _setting(INT32_MAX, at_least=1)
    # KIP-848 groups
    group_consumer_session_timeout_ms: int = _setting(45_000, at_least=1)
    group_consumer_min_session_timeout_ms: int = _setting(45_000, at_least=1)
    group_consumer_max_session_timeout_ms: int = _setting(60_000, at_least=1)
    group_consumer_heartbeat_interval_ms: int = _setting(5_000, at_least=1)
    group_consumer_min_heartbeat_interval_ms: int = _setting(5_000, at_least=1)
    group_consumer_max_heartbeat_interval_ms: int = _setting(15_000, at_least=1)
    group_consumer_max_size: int = _setting(INT32_MAX, at_least=1)
    # offsets
    offset_metadata_max_bytes: int = _setting(4_096)
    offsets_topic_num_partitions: int = _setting(50, at_least=1)
    offsets_topic_segment_bytes: int = _setting(104_857_600, at_least=1)
    message_max_bytes: int = _setting(1_048_588, at_least=0)
    offsets_commit_timeout_ms: int = _setting(5_000, at_least=1)
    offsets_retention_minutes: int = _setting(10_080, at_least=1)
    offsets_retention_check_interval_ms: int = _setting(600_000, at_least=1, at_most=INT64_MAX)
    # transactions
    transaction_max_timeout_ms: int = _setting(900_000, at_least=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _setting(10_000, at_least=1)
    transactional_id_expiration_ms: int = _setting(604_800_000, at_least=1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _setting(3_600_000, at_least=1)
    # the host
    num_partitions: int = _setting(1, at_least=1)
    socket_request_max_bytes: int = _setting(104_857_600, at_least=1)
    connections_max_idle_ms: int = _setting(600_000, at_most=INT64_MAX)
    max_connections: int = _setting(INT32_MAX, at_least=0)
    log_flush_interval_messages: int = _setting(INT64_MAX, at_least=1, at_most=INT64_MAX)
    log_flush_interval_ms: int = _setting(INT64_MAX, at_least=0, at_most=INT64_MAX)
    log_cleaner_min_cleanable_ratio: float = _setting(0.5, at_least=0, at_most=1)
    log_cleaner_delete_retention_ms: int = _setting(86_400_000, at_least=0, at_most=INT64_MAX)
    log_cleaner_min_compaction_lag_ms: int = _setting(0, at_least=0, at_most=INT64_MAX)
    log_cleaner_dedupe_buffer_size: int = _setting(134_217_728, at_least=1, at_most=INT64_MAX)
    log_cleaner_backoff_ms: int = _setting(15_000, at_least=1, at_most=INT64_MAX)

    def __attrs_post_init__(self) -> None:
        for attribute in fields(Config):
            _validate(attribute, getattr(self, attribute.name))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int | float]) -> Config:
        """Make a configuration from keys and values as they stand in ``server.properties``.

        Args:
            properties: keys dotted as Kafka spells them, or with underscores; values as text or numbers.

        Raises:
            ConfigError: a key is unknown, given in both spellings, or its value is not allowed.
        """
        parsers = {a.name: _parse_fraction if isinstance(a.default, float) else _parse for a in fields(cls)}
        return cls(**read_properties(properties, parsers))

    def to_properties(self) -> dict[str, int | float]:
        """Return every setting under Kafka's key."""
        return {key_of(attribute.name): getattr(self, attribute.name) for attribute in fields(Config)}


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


def _parse(key: str, raw: str | float) -> int:
    try:
        return int(raw.strip() if isinstance(raw, str) else raw)
    except (ValueError, TypeError):
        raise ConfigError(f"setting {key!r} must be a whole number, not {raw!r}") from None


def _parse_fraction(key: str, raw: str | float) -> float:
    try:
        return float(raw)
    except (ValueError, TypeError):
        raise ConfigError(f"setting {key!r} must be a number, not {raw!r}") from None


def _validate(attribute: Attribute[Any], value: object) -> None:
    is_fraction = isinstance(attribute.default, float)
    bounds = attribute.metadata
    check_number(key_of(attribute.name), value, bounds["at_least"], bounds["at_most"], is_fraction=is_fraction)


def check_number(key: str, value: object, at_least: int, at_most: int, *, is_fraction: bool = False) -> None:
    """Check the value of a numeric setting.

    Raises:
        ConfigError: it is no number (no whole one, unless ``is_fraction``), or out of bounds, which are inclusive.
    """
    allowed = int | float if is_fraction else int
    if not isinstance(value, allowed) or isinstance(value, bool) or value != value:
        raise ConfigError(f"setting {key!r} must be a whole number, not {value!r}")
    if value < at_least:
        raise ConfigError(f"setting {key!r} must be at least {at_least}, not {value}")
    if value > at_most:
        raise ConfigError(f"setting {key!r} must be at most {at_most}, not {value}")


def suggestion(name: str, known: set[str]) -> str:
    """Return words for an error message that propose the known name nearest to ``name``; empty if none is near."""
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {key_of(close[0])!r}?" if close else ""
