"""Scenario files in TOML: a fleet of consumers, its events, and variants with other values of some keys."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, NoReturn

from attrs import evolve, frozen

from groupcoord.assignors import Assignor, choose_assignors
from groupcoord.cluster.slot_store import SNAPSHOT_BYTES_MIN
from groupcoord.config import Config, GroupType
from groupcoord.config.files import KeyPath, flattened, parse_toml
from groupcoord.config.group_settings import bounds_of
from groupcoord.errors import ConfigError
from groupcoord.member import MemberConfig
from groupcoord.member.classic.leader import chosen_assignors
from groupcoord.sim.actors.clients import Fault
from groupcoord.sim.actors.environment import GroupOptions, GroupProtocol
from groupcoord.sim.cluster.leading import ClusterOptions, ReplicaOptions
from groupcoord.sim.kernel import stream
from groupcoord.sim.scenarios.events import CLIENT_EVENTS, FAULT_EVENTS, PROGRAMS, SIMPLE_CONSUMER, EventTargets
from groupcoord.sim.scenarios.faults import WorldOptions
from groupcoord.sim.scenarios.table_reader import ScenarioError, ScenarioReader, line_numbers, scenario_reader

KINDS = {**FAULT_EVENTS, **CLIENT_EVENTS}
LARGEST_FLEET = 100_000
MIXED = "mixed"
GROUP_CONFIG_PREFIX = "consumer."
GROUP_KEYS = (
    *("name", "copies", "members", "topics", "regex", "protocol", "consumer_protocol_members", "assignor", "config"),
    *("static", "start_spread", "clock_skew", "member", "processing"),
)

Planned = Callable[[Random], list[Fault]]
"""Event of a file: returns its faults, drawn from the randomness of a seed."""


@frozen
class Scenario:
    """Fleet with its events.

    Attributes:
        name: name for reports.
        variant: name of the variant, or empty.
        options: the world without its faults.
        events: the events.
    """

    name: str
    options: WorldOptions
    events: tuple[Planned, ...]
    variant: str = ""

    def options_of(self, seed: int) -> WorldOptions:
        """Return the world of a seed."""
        faults = [fault for place, event in enumerate(self.events) for fault in event(stream(seed, "event", place))]
        return evolve(self.options, faults=tuple(sorted(faults, key=lambda fault: fault.start_ms)))


def parse_scenario(text: str) -> Scenario:
    """Return the scenario in the text of a file.

    Raises:
        ScenarioError: the text is not TOML, or not a scenario; the message holds key and line.
    """
    return scenario_of(load_toml(text), line_numbers(text))


def load_toml(text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError as error:
        raise ScenarioError(f"this is not TOML: {error}") from error


def scenario_of(values: Mapping[str, Any], lines: Mapping[KeyPath, int]) -> Scenario:
    root = scenario_reader(values, lines)
    root.expect(
        "name",
        "duration",
        "measure_from",
        "settle",
        "calm",
        "laws_every",
        "cluster",
        "topics",
        "groups",
        "events",
        "variants",
    )
    name = root.text("name", "unnamed")
    duration_ms = root.positive_duration("duration")
    cluster = _cluster(root.table("cluster", {}))
    topics = _topics(root.table("topics"))
    groups, group_configs = _groups(root, topics, cluster.config)
    cluster = evolve(cluster, group_configs=group_configs)
    options = WorldOptions(
        cluster=cluster,
        topics=topics,
        groups=groups,
        duration_ms=duration_ms,
        measure_from_ms=_measure_from(root, duration_ms),
        law_interval_ms=root.duration("laws_every", "1m"),
        settle_ms=root.duration("settle", "15m"),
        calm_ms=root.duration("calm", "10s"),
    )
    tables = root.tables("events", [])
    if not groups and not any(table.text("kind") in PROGRAMS for table in tables):
        root.fail("groups", "must be at least one, unless there is an event " + " or ".join(PROGRAMS))
    simple_groups = tuple(table.text("group") for table in tables if table.text("kind") == SIMPLE_CONSUMER)
    targets = EventTargets(cluster, topics, groups, simple_groups)
    events = tuple(_event(table, targets, duration_ms) for table in tables)
    return Scenario(name, options, events)


def _measure_from(root: ScenarioReader, duration_ms: int) -> int:
    measure_from_ms = root.duration("measure_from", "0ms")
    if measure_from_ms >= duration_ms:
        root.fail("measure_from", "must lie before the end of the run, its duration")
    return measure_from_ms


def _cluster(table: ScenarioReader) -> ClusterOptions:
    table.expect("nodes", "config", "latency", "flush", "failover", "lease", "replicas")
    least_ms, most_ms = table.duration_range("latency", ["1ms", "20ms"])
    failover, lease = table.take("failover", "5s"), table.take("lease", "none")
    config = _settings(table, "config")
    lease_ms = None if lease == "none" else table.duration("lease")
    session_ms = config.group_consumer_session_timeout_ms
    if lease_ms is not None and not 0 < lease_ms <= session_ms:
        table.fail("lease", f"must not be longer than group.consumer.session.timeout.ms ({session_ms})")
    has_replicas = table.take("replicas", None) is not None
    if has_replicas and lease_ms is not None:
        table.fail("replicas", "have their own leases: set either lease or replicas")
    return ClusterOptions(
        node_count=table.number("nodes", 1, at_least=1, at_most=100),
        config=config,
        least_latency_ms=least_ms,
        most_latency_ms=most_ms,
        flush_ms=table.duration("flush", "0ms"),
        failure_detection_ms=None if failover == "never" else table.duration("failover", "5s"),
        lease_ms=lease_ms,
        replicas=_replicas(table.table("replicas"), session_ms) if has_replicas else None,
    )


def _replicas(table: ScenarioReader, session_ms: int) -> ReplicaOptions:
    table.expect("lease", "dead", "beat", "snapshot_bytes", "stale_percent", "late_percent")
    lease_ms, dead_ms = table.positive_duration("lease", "1s"), table.positive_duration("dead", "1500ms")
    if not lease_ms < dead_ms:
        table.fail("lease", f"must be shorter than dead ({dead_ms} ms)")
    if lease_ms > session_ms:
        table.fail("lease", f"must not be longer than group.consumer.session.timeout.ms ({session_ms})")
    return ReplicaOptions(
        lease_ms=lease_ms,
        dead_ms=dead_ms,
        beat_ms=table.positive_duration("beat", "250ms"),
        snapshot_bytes_min=table.number("snapshot_bytes", SNAPSHOT_BYTES_MIN, at_most=1_000_000_000),
        stale_percent=table.number("stale_percent", 0, at_most=99),
        late_percent=table.number("late_percent", 0, at_most=100),
    )


def _settings(table: ScenarioReader, key: str) -> Config:
    settings = table.table(key, {})
    properties = {"offsets.topic.num.partitions": 50, **settings.properties()}
    try:
        config = Config.from_properties(properties)
        assignors_of(config)
    except ConfigError as error:
        settings.fail(_named(settings, str(error)), str(error))
    return config


def _member(table: ScenarioReader, protocol: GroupProtocol) -> MemberConfig:
    settings = table.table("member", {})
    properties = settings.properties()
    for key in ("group.id", "group.instance.id", "client.id", "group.protocol", "group.remote.assignor"):
        if key in properties:
            settings.fail(_named(settings, f"'{key}'"), "is given by the group")
    try:
        config = MemberConfig.from_properties({"group.id": "any", "group.protocol": protocol.value, **properties})
        chosen_assignors(config.partition_assignment_strategy)
    except ConfigError as error:
        settings.fail(_named(settings, str(error)), str(error))
    # The settings of consumers with the consumer protocol are derived from these.
    return evolve(config, group_protocol=GroupProtocol.CLASSIC.value)


def _group_config(table: ScenarioReader, config: Config) -> dict[str, int]:
    settings = table.table("config", {})
    bounds = bounds_of(GroupType.CONSUMER, config)
    own: dict[str, int] = {}
    for key, value in settings.properties().items():
        name = key.removeprefix(GROUP_CONFIG_PREFIX).replace(".", "_")
        if not key.startswith(GROUP_CONFIG_PREFIX) or name not in bounds:
            known = ", ".join(GROUP_CONFIG_PREFIX + each.replace("_", ".") for each in bounds)
            settings.fail(key, f"is not a setting of a group; the settings are {known}")
        least, most = bounds[name]
        # Each bounded setting of a consumer group has both bounds.
        assert least is not None
        assert most is not None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            settings.fail(key, f"must be a whole number from {least} to {most}, not {value!r}")
        own[name] = value
    return own


def _consumer_protocol_count(table: ScenarioReader, consumer_count: int) -> int:
    protocol = table.text("protocol", GroupProtocol.CLASSIC.value)
    names = [*(each.value for each in GroupProtocol), MIXED]
    if protocol not in names:
        table.fail("protocol", f"must be one of {', '.join(names)}, not {protocol!r}")
    if protocol == MIXED:
        return table.number("consumer_protocol_members", at_least=1, at_most=consumer_count)
    if table.take("consumer_protocol_members", None) is not None:
        table.fail("consumer_protocol_members", f"goes with protocol {MIXED!r}")
    return consumer_count if protocol == GroupProtocol.CONSUMER.value else 0


def _subscription(table: ScenarioReader, topics: dict[str, int]) -> tuple[tuple[str, ...], str]:
    regex = table.text("regex", "")
    if not regex:
        wanted = table.names("topics")
        for topic in wanted:
            table.require_known("topics", topic, topics)
        return wanted, ""
    if table.take("topics", None) is not None:
        table.fail("topics", "can't be set together with regex")
    try:
        matching = re.compile(regex)
    except re.error as error:
        table.fail("regex", f"{regex!r} is not a regular expression: {error}")
    return tuple(topic for topic in topics if matching.fullmatch(topic)), regex


def _named(table: ScenarioReader, message: str) -> str | None:
    places = {key: message.find(f"'{key}'") for key in table.properties()}
    named = [key for key, place in places.items() if place >= 0]
    return min(named, key=places.__getitem__, default=None)


def _topics(table: ScenarioReader) -> dict[str, int]:
    topics = {name: table.number(name, at_least=1, at_most=100_000) for name in table.values}
    if not topics:
        table.fail(None, "must name at least one topic")
    return topics


def _groups(
    root: ScenarioReader, topics: dict[str, int], config: Config
) -> tuple[tuple[GroupOptions, ...], dict[str, dict[str, int]]]:
    groups: list[GroupOptions] = []
    group_configs: dict[str, dict[str, int]] = {}
    for table in root.tables("groups", []):
        table.expect(*GROUP_KEYS)
        group, copies, own = (
            _group(table, topics, config),
            table.number("copies", 1, at_least=1),
            _group_config(table, config),
        )
        names = [group.group_id] if copies == 1 else [f"{group.group_id}-{number}" for number in range(copies)]
        groups += [evolve(group, group_id=each) for each in names]
        group_configs.update(dict.fromkeys(names, own) if own else {})
        if len({each.group_id for each in groups}) < len(groups):
            table.fail("name", f"there are two groups {group.group_id!r}")
        if sum(each.consumer_count for each in groups) > LARGEST_FLEET:
            table.fail("members", f"a fleet has at most {LARGEST_FLEET} consumers")
    return tuple(groups), group_configs


def _assignor(table: ScenarioReader, config: Config) -> str | None:
    name = table.text("assignor", "")
    if name and name not in (known := assignors_of(config)):
        table.fail("assignor", f"must be one of {', '.join(known)}, not {name!r}")
    return name or None


def assignors_of(config: Config) -> dict[str, Assignor]:
    return choose_assignors(config.group_consumer_assignors, ())


def _group(table: ScenarioReader, topics: dict[str, int], config: Config) -> GroupOptions:
    consumer_count = table.number("members", at_least=1, at_most=LARGEST_FLEET)
    consumer_protocol_count = _consumer_protocol_count(table, consumer_count)
    # Settings that only the classic protocol has are refused if no consumer starts with it.
    is_consumer = consumer_protocol_count == consumer_count
    wanted, regex = _subscription(table, topics)
    return GroupOptions(
        group_id=table.text("name"),
        consumer_count=consumer_count,
        topics=wanted,
        regex=regex,
        is_static=table.flag("static", False),
        consumer_protocol_count=consumer_protocol_count,
        remote_assignor=_assignor(table, config),
        member=_member(table, GroupProtocol.CONSUMER if is_consumer else GroupProtocol.CLASSIC),
        processing_ms=table.duration_range("processing", "0ms"),
        start_spread_ms=table.duration("start_spread", "1s"),
        clock_skew_ms=table.duration("clock_skew", "0ms"),
    )


def _event(table: ScenarioReader, targets: EventTargets, duration_ms: int) -> Planned:
    kind = table.text("kind")
    parse = KINDS.get(kind)
    if parse is None:
        table.fail("kind", f"must be one of {', '.join(KINDS)}, not {kind!r}")
    least_ms, most_ms = table.duration_range("at")
    if most_ms > duration_ms:
        table.fail("at", "comes after the end of the run, its duration")
    make = parse(table, targets)
    table.finish()
    return lambda chance: make(chance, chance.randint(least_ms, most_ms))


EVERY = "*"
OF_KAFKA = ("config", "member")
"""Tables with Kafka's dotted keys."""


def parse_variants(text: str, settings: Mapping[str, Any] | None = None) -> list[Scenario]:
    """Return the scenarios in the text of a file: one for each variant, or a single one.

    Args:
        text: the text.
        settings: keys set in all of them, as :func:`read_setting` returns them.

    Raises:
        ScenarioError: the text is not TOML, or not a scenario; the message holds key and line.
    """
    values = load_toml(text)
    lines = line_numbers(text)
    root = scenario_reader(values, lines)
    common = _changed(values, settings or {}, "")
    tables = root.tables("variants", [])
    if not tables:
        return [scenario_of(common, lines)]
    scenarios: list[Scenario] = []
    for table in tables:
        table.expect("name", "set", "unset")
        name = table.text("name")
        if any(scenario.variant == name for scenario in scenarios):
            table.fail("name", f"there are two variants {name!r}")
        own = dict(flattened("", table.take("set", {})))
        changed = _changed(common, own, f"variant {name!r}: ")
        for key in table.names("unset") if table.take("unset", None) is not None else ():
            _unset(changed, key, f"variant {name!r}: {key}")
        try:
            scenario = scenario_of(changed, lines)
        except ScenarioError as error:
            if str(error) == _error_of(common, lines):  # the variant did not cause it
                raise
            raise ScenarioError(f"variant {name!r}: {error}") from None
        scenarios.append(evolve(scenario, variant=name))
    return scenarios


def _error_of(values: Mapping[str, Any], lines: Mapping[KeyPath, int]) -> str:
    try:
        scenario_of(values, lines)
    except ScenarioError as error:
        return str(error)
    return ""


def read_setting(text: str) -> tuple[str, Any]:
    """Return key and value of ``KEY=VALUE``; the value is TOML, or else plain text.

    Raises:
        ScenarioError: there is no key.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise ScenarioError(f"must be KEY=VALUE, such as groups.billing.members=5, not {text!r}")
    try:
        return key, parse_toml(f"value = {value}")["value"]
    except ValueError:
        return key, value


def _changed(values: Mapping[str, Any], settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    changed = copy.deepcopy(dict(values))
    for key, value in settings.items():
        for table, name in _places(changed, key.split("."), f"{where}{key}"):
            table[name] = value
    return changed


def _unset(values: dict[str, Any], key: str, subject: str) -> None:
    places = [(table, name) for table, name in _places(values, key.split("."), subject) if name in table]
    for table, name in places:
        del table[name]
    if not places:
        _fail(subject, "is not set, and can't be unset")


def _places(table: dict[str, Any], path: list[str], subject: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each table at a path, with its last key; create missing tables of settings, topics and cluster."""
    key, *rest = path
    if not rest:
        yield table, key
    elif key in OF_KAFKA:
        table[key] = dict(flattened("", table.get(key, {})))
        yield table[key], ".".join(rest)
    elif key == "topics" and not isinstance(table.get(key), list):
        yield table.setdefault(key, {}), ".".join(rest)
    elif isinstance(found := table.get(key), list):
        for each in _chosen(found, rest[0], subject):
            yield from _places(each, rest[1:] or _fail(subject, "needs a key after it"), subject)
    elif isinstance(found, dict) or (found is None and key == "cluster"):
        yield from _places(table.setdefault(key, {}), rest, subject)
    else:
        _fail(subject, f"there is no table {key!r}")


def _chosen(tables: list[Any], which: str, subject: str) -> list[dict[str, Any]]:
    named = [table for table in tables if isinstance(table, dict) and which in (EVERY, table.get("name"))]
    if not named and which.isdecimal() and int(which) < len(tables):
        return [tables[int(which)]]
    return named or _fail(subject, f"there is no {which!r}; a name, a number from 0 on, or *")


def _fail(subject: str, message: str) -> NoReturn:
    raise ScenarioError(f"{subject}: {message}")
