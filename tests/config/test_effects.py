"""Effects of settings: what is otherwise when one setting of :class:`Config` has another value.

A setting that has no row here, or whose value changes nothing any more, fails. What can't be shown in a few lines is in
:data:`SHOWN_BY`, what has no effect in Kafka either says so where it is declared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from groupcoord import Config, ConfigError
from groupcoord.broker.configs.definitions import GROUP_DEFINITIONS, checked_group_configs, group_settings
from groupcoord.config import SETTINGS, GroupType
from groupcoord.config.group_settings import (
    ConsumerGroupSettings,
    GroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
    settings_of_groups,
)
from tests.config import groups, host, sharing
from tests.tables import as_one_test

Probe = Callable[..., Any]
"""Returns what can be observed of a coordinator or a server with these settings."""


class Effect(NamedTuple):
    """What is observed with the default of a setting, and with another value.

    Attributes:
        key: the setting.
        value: another value.
        before, after: what ``probe`` returns with the default, and with the other value.
        others: settings that hold both times, by attribute.
    """

    key: str
    value: Any
    before: Any
    after: Any
    probe: Probe
    others: dict[str, Any] = {}  # noqa: RUF012 - never changed


def of_each_type(name: str, value: Any, before: Any, after: Any, probe: str, **others: Any) -> list[Effect]:
    """Return an effect for consumer groups, share groups and streams groups."""
    return [
        Effect(f"group.{kind}.{name}", value, before, after, getattr(groups, probe)(kind), others)
        for kind in ("consumer", "share", "streams")
    ]


WRITTEN = ["ShareSnapshot", "ShareUpdate"]
"""The records of a state that is initialized, and then written."""

EFFECTS = (
    # classic groups
    Effect("group.min.session.timeout.ms", 10_001, "NONE", "INVALID_SESSION_TIMEOUT", groups.join),
    Effect("group.max.session.timeout.ms", 9_999, "NONE", "INVALID_SESSION_TIMEOUT", groups.join),
    Effect("group.initial.rebalance.delay.ms", 2_000, 3_000, 2_000, groups.first_rebalance_ms),
    Effect("group.max.size", 1, "MEMBER_ID_REQUIRED", "GROUP_MAX_SIZE_REACHED", groups.second_join),
    # groups of all newer types
    *of_each_type("session.timeout.ms", 50_000, 45_000, 50_000, "session_ms"),
    *of_each_type("heartbeat.interval.ms", 7_000, 5_000, 7_000, "heartbeat_interval_ms"),
    *of_each_type("max.size", 1, "NONE", "GROUP_MAX_SIZE_REACHED", "second_member"),
    *of_each_type("assignment.interval.ms", 0, False, True, "is_assigned_at_once"),
    # consumer groups
    Effect(
        "group.coordinator.rebalance.protocols",
        (GroupType.CLASSIC,),
        "NONE",
        "UNSUPPORTED_VERSION",
        groups.heartbeat("consumer"),
    ),
    Effect("group.consumer.assignors", ("range",), "NONE", "UNSUPPORTED_ASSIGNOR", groups.asks_for_uniform),
    Effect(
        "group.consumer.migration.policy",
        Config.from_properties({"group.consumer.migration.policy": "disabled"}).group_consumer_migration_policy,
        "MEMBER_ID_REQUIRED",
        "INCONSISTENT_GROUP_PROTOCOL",
        groups.classic_member_joins,
    ),
    Effect("group.consumer.regex.refresh.interval.ms", 60_000, 1, 2, groups.matches_in_100_s),
    # offsets
    Effect("offset.metadata.max.bytes", 3, "NONE", "OFFSET_METADATA_TOO_LARGE", groups.commit),
    Effect("offsets.topic.num.partitions", 1, 47, 0, groups.log_partition),
    Effect("message.max.bytes", 10, "NONE", "UNKNOWN_SERVER_ERROR", groups.commit),
    Effect("offsets.commit.timeout.ms", 1_000, 5_000, 1_000, groups.append_timeout_ms),
    Effect("offsets.retention.minutes", 5, 7, -1, groups.offset_after_ten_minutes),
    Effect("offsets.retention.check.interval.ms", 60_000, 600_000, 60_000, groups.first_sweep_ms),
    # share groups
    Effect(
        "group.share.assignors", ("tests.config.groups:FirstTakesAll",), [0, 2], [*range(4)], groups.share_assignment
    ),
    Effect("group.share.initialize.retry.interval.ms", 10_000, 1, 3, groups.initializations_in_20_s),
    Effect("group.share.delivery.count.limit", 2, 5, 2, sharing.deliveries),
    Effect("group.share.record.lock.duration.ms", 20_000, False, True, sharing.is_released_after_25_s),
    Effect("group.share.partition.max.record.locks", 100, 300, 100, sharing.acquired_records),
    Effect(
        "group.share.max.share.sessions",
        1,
        [],
        "SHARE_SESSION_LIMIT_REACHED",
        sharing.second_session,
        {"group_share_max_size": 1},
    ),
    Effect("share.coordinator.state.topic.num.partitions", 1, 14, 0, sharing.state_partition),
    Effect("share.coordinator.write.timeout.ms", 1_000, 5_000, 1_000, sharing.write_timeout_ms),
    Effect("share.coordinator.snapshot.update.records.per.snapshot", 0, WRITTEN, 2 * WRITTEN[:1], sharing.record_types),
    Effect("share.coordinator.state.topic.prune.interval.ms", 60_000, 2, 1, sharing.records_after_a_minute),
    Effect("share.coordinator.cold.partition.snapshot.interval.ms", 60_000, 2, 3, sharing.records_after_a_minute),
    Effect("errors.deadletterqueue.topic.name.prefix", "dead.", 1, 0, sharing.dead_letters, sharing.LETTERS),
    Effect("errors.deadletterqueue.auto.create.topics.enable", True, 0, 1, sharing.dead_letters),
    # streams groups
    Effect("group.streams.num.standby.replicas", 1, 0, 2, groups.standby_tasks),
    Effect("group.streams.initial.rebalance.delay.ms", 2_000, 3_000, 2_000, groups.first_assignment_ms),
    Effect("group.streams.assignors", ("tests.config.groups:NoTasks",), {"0": (0, 1, 2, 3)}, {}, groups.active_tasks),
    Effect("group.streams.rack.aware.assignment.tags", ("zone",), False, True, groups.misses_tags),
    Effect("group.streams.task.offset.interval.ms", 20_000, 60_000, 20_000, groups.task_offset_interval_ms),
    Effect("group.streams.num.warmup.replicas", 0, {}, {"0": (0, 1)}, groups.tasks_of_who_comes_back),
    Effect("group.streams.acceptable.recovery.lag", 7, 10_000, 7, groups.acceptable_recovery_lag),
    # transactions
    Effect("transaction.max.timeout.ms", 50_000, "NONE", "INVALID_TRANSACTION_TIMEOUT", host.start_producer),
    Effect("transaction.abort.timed.out.transaction.cleanup.interval.ms", 3_000, 10_000, 3_000, host.first_abort_ms),
    Effect("transactional.id.expiration.ms", 60_000, "Empty", "Dead", host.state_after_an_hour),
    Effect(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        7_200_000,
        "Dead",
        "Empty",
        host.state_after_an_hour,
        {"transactional_id_expiration_ms": 60_000},
    ),
    # topics and their records
    *(
        Effect(f"{prefix}.segment.bytes", 2_000_000, "104857600", "2000000", host.segment_bytes_of(topic))
        for prefix, topic in (
            ("offsets.topic", "__consumer_offsets"),
            ("transaction.state.log", "__transaction_state"),
            ("share.coordinator.state.topic", "__share_group_state"),
        )
    ),
    Effect("transaction.state.log.num.partitions", 3, 50, 3, host.partitions_of_transactions),
    Effect("num.partitions", 3, 1, 3, host.partitions_of_new_topic),
    Effect("auto.create.topics.enable", False, True, False, host.is_created),
    Effect("fetch.max.bytes", 1_024, 2, 1, host.fetched_batches),
    Effect("max.incremental.fetch.session.cache.slots", 0, True, False, host.has_a_fetch_session),
    Effect("records.enable", False, "NONE", "POLICY_VIOLATION", host.produce),
    Effect("records.memory.max.bytes", 10, "NONE", "POLICY_VIOLATION", host.produce),
    Effect("socket.request.max.bytes", 10, False, True, host.refuses_a_request),
    Effect("log.segment.bytes", 2_000_000, 1, 2, host.segments),
    Effect("log.roll.ms", 30_000, 1, 2, host.segments_over_time),
    Effect("log.retention.ms", 60_000, 0, 2, host.start_offset_after_an_hour),
    Effect("log.retention.bytes", 1, 0, 1, host.start_offset_after_an_hour, {"log_roll_ms": 1_000}),
    Effect("log.retention.check.interval.ms", 60_000, 300_000, 60_000, host.first_retention_ms),
    Effect("log.cleanup.policy", ("compact",), "NONE", "INVALID_RECORD", host.produce_without_key),
    Effect("log.cleaner.min.cleanable.ratio", 1.0, 1, 3, host.records_after_compaction),
    Effect("log.cleaner.min.compaction.lag.ms", 7_200_000, 1, 3, host.records_after_compaction),
    Effect("log.cleaner.delete.retention.ms", 0, 1, 0, host.tombstones_after_compaction),
    Effect("log.cleaner.dedupe.buffer.size", 1, 1, 2, host.records_after_compaction),
)

SHOWN_BY = {
    "connections.max.idle.ms": "host.test_server:test_idle_connections_are_closed",
    "log.cleaner.backoff.ms": "storage.test_compaction:test_the_host_compacts_in_the_background",
    "log.flush.interval.messages": "host.test_serve_command:test_settings_of_the_store",
    "log.flush.interval.ms": "host.test_serve_command:test_settings_of_the_store",
    "max.connections": "host.test_server:test_max_connections",
}
"""By setting, the test under ``tests`` that shows its effect, as that takes sockets, threads or a disk."""

GROUPS: dict[GroupType, type[GroupSettings]] = {
    GroupType.CONSUMER: ConsumerGroupSettings,
    GroupType.SHARE: ShareGroupSettings,
    GroupType.STREAMS: StreamsGroupSettings,
}
OWN_EFFECTS = {
    "share.auto.offset.reset": ("latest", "earliest", [], [(0, 2, 1)], sharing.fetch),
    "share.isolation.level": ("read_uncommitted", "read_committed", True, False, sharing.reads_open_transactions),
    "share.renew.acknowledge.enable": ("true", "false", "NONE", "INVALID_RECORD_STATE", sharing.renew),
    "errors.deadletterqueue.topic.name": ("", "dlq.jobs", 0, 1, sharing.dead_letters_of_group),
    "errors.deadletterqueue.copy.record.enable": ("false", "true", False, True, sharing.copies_records),
    "streams.assignor.name": ("sticky", "none", {"0": (0, 1, 2, 3)}, {}, groups.active_tasks_by),
}
"""By setting that only groups have: two values, what is observed with each, and by what."""


@as_one_test
@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.key)
def test_each_setting_has_its_effect(effect: Effect) -> None:
    """With the default one thing is observed, with another value another."""
    name = effect.key.replace(".", "_")

    assert effect.probe(**effect.others) == effect.before
    assert effect.probe(**effect.others, **{name: effect.value}) == effect.after
    assert effect.before != effect.after


@as_one_test
@pytest.mark.parametrize("key", OWN_EFFECTS)
def test_each_setting_of_groups_alone_has_its_effect(key: str) -> None:
    """So it is with settings that groups have, and brokers have not."""
    first, second, before, after, probe = OWN_EFFECTS[key]

    assert probe({key: first}) == before
    assert probe({key: second}) == after
    assert before != after


@as_one_test
@pytest.mark.parametrize("name", [name for name, each in SETTINGS.items() if each.group_type is not None])
def test_each_bound_has_its_effect(name: str) -> None:
    """A group can't set a value beyond a bound; where a bound has moved since, the bound holds."""
    setting = SETTINGS[name]
    assert setting.group_type is not None
    own = name.removeprefix(f"group_{setting.group_type}_")
    key = setting.key.removeprefix("group.")
    for bound, step in ((setting.lowest, -1), (setting.highest, 1)):
        if bound is not None:
            limit = SETTINGS[bound].default
            beyond, config = limit + step, Config()
            if not SETTINGS[bound].kind.at_least <= beyond:  # type: ignore[attr-defined]
                limit, beyond, config = limit + 1, limit, Config(**{bound: limit + 1})
            with pytest.raises(ConfigError, match=str(limit)):
                checked_group_configs({key: str(beyond)}, config)
            assert checked_group_configs({key: str(limit)}, config) == {key: str(limit)}
            held = group_settings(GROUPS[setting.group_type], {key: str(beyond)}, config)
            assert getattr(held, own) == limit


@as_one_test
@pytest.mark.parametrize("group_type", GROUPS)
def test_groups_have_settings_of_their_own(group_type: GroupType) -> None:
    settings_class = GROUPS[group_type]
    names = {name for name, each in settings_of_groups(group_type).items() if each.has_effect}
    declared = {name for name, own in settings_class.own_settings().items() if own is None}
    assert names == declared
    for name in sorted(names):
        setting = SETTINGS[f"group_{group_type}_{name}"]
        value = ("zone",) if setting.default == () else setting.default + (1 if setting.highest else 0) or 1
        held = group_settings(settings_class, {setting.key.removeprefix("group."): setting.kind.text(value)}, Config())
        assert getattr(held, name) == value


def test_no_setting_is_left_out() -> None:
    """Each setting is in one of these tables, is a bound of another, or is declared to have no effect."""
    bounds = {SETTINGS[end].key for each in SETTINGS.values() for end in (each.lowest, each.highest) if end is not None}
    without = {each.key for each in SETTINGS.values() if not each.has_effect}
    shown = [*(effect.key for effect in EFFECTS), *SHOWN_BY, *bounds, *without]

    assert sorted(shown) == sorted(each.key for each in SETTINGS.values())
    assert without == {f"group.{kind}.assignor.offload.enable" for kind in GROUPS}
    of_groups_alone = {own.key for each in GROUPS.values() for own in each.own_settings().values() if own is not None}
    assert OWN_EFFECTS.keys() == of_groups_alone
    assert of_groups_alone < GROUP_DEFINITIONS.keys()


@as_one_test
@pytest.mark.parametrize("key", SHOWN_BY)
def test_other_tests_show_what_is_said_of_them(key: str) -> None:
    """The test is there, and names the setting."""
    module, name = SHOWN_BY[key].split(":")
    source = inspect.getsource(getattr(import_module(f"tests.{module}"), name))

    assert key in source or key.replace(".", "_") in source
    assert Path(__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py").exists()
