"""Scenario files: a fleet of consumers and what happens to it, in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from random import Random

from attrs import evolve, frozen

from groupcoord.config import Config
from groupcoord.errors import ConfigError
from groupcoord.member import MemberConfig
from groupcoord.sim.actors.fault import Fault
from groupcoord.sim.actors.options import GroupOptions
from groupcoord.sim.cluster.options import ClusterOptions
from groupcoord.sim.kernel.randomness import stream
from groupcoord.sim.scenarios.client_events import CLIENT_EVENTS, SIMPLE_CONSUMER
from groupcoord.sim.scenarios.fault_events import FAULT_EVENTS, EventTargets
from groupcoord.sim.scenarios.options import WorldOptions
from groupcoord.sim.scenarios.table_reader import ScenarioError, TableReader
from groupcoord.sim.scenarios.toml_lines import line_numbers

KINDS = {**FAULT_EVENTS, **CLIENT_EVENTS}
LARGEST_FLEET = 100_000

Planned = Callable[[Random], list[Fault]]
"""An event of the file: what it comes to is drawn from the seed."""


@frozen
class Scenario:
    """A described fleet and what happens to it.

    Attributes:
        name: for reports.
        options: the world without its faults.
        events: what happens.
    """

    name: str
    options: WorldOptions
    events: tuple[Planned, ...]

    def options_of(self, seed: int) -> WorldOptions:
        """Return the world of a seed."""
        faults = [fault for place, event in enumerate(self.events) for fault in event(stream(seed, "event", place))]
        return evolve(self.options, faults=tuple(sorted(faults, key=lambda fault: fault.start_ms)))


def parse_scenario(text: str) -> Scenario:
    """Return the scenario that a file's text describes.

    Raises:
        ScenarioError: the text is no TOML, or does not describe one; the message names key and line.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"this is not TOML: {error}") from error
    root = TableReader(values, (), line_numbers(text))
    root.expect("name", "duration", "settle", "calm", "laws_every", "cluster", "topics", "groups", "events")
    name = root.text("name", "unnamed")
    duration_ms = root.positive_duration("duration")
    cluster = _cluster(root.table("cluster", {}))
    topics = _topics(root.table("topics"))
    groups = _groups(root, topics)
    options = WorldOptions(
        cluster=cluster,
        topics=topics,
        groups=groups,
        duration_ms=duration_ms,
        law_interval_ms=root.duration("laws_every", "1m"),
        settle_ms=root.duration("settle", "15m"),
        calm_ms=root.duration("calm", "10s"),
    )
    tables = root.tables("events", [])
    simple_groups = tuple(table.text("group") for table in tables if table.text("kind") == SIMPLE_CONSUMER)
    targets = EventTargets(cluster, topics, groups, simple_groups)
    events = tuple(_event(table, targets, duration_ms) for table in tables)
    return Scenario(name, options, events)


def _cluster(table: TableReader) -> ClusterOptions:
    table.expect("nodes", "config", "latency", "flush", "failover")
    least_ms, most_ms = table.duration_range("latency", ["1ms", "20ms"])
    failover = table.take("failover", "5s")
    return ClusterOptions(
        node_count=table.number("nodes", 1, at_least=1, at_most=100),
        config=_settings(table, "config"),
        least_latency_ms=least_ms,
        most_latency_ms=most_ms,
        flush_ms=table.duration("flush", "0ms"),
        failure_detection_ms=None if failover == "never" else table.duration("failover", "5s"),
    )


def _settings(table: TableReader, key: str) -> Config:
    settings = table.table(key, {})
    properties = {"offsets.topic.num.partitions": 50, **settings.properties()}
    try:
        return Config.from_properties(properties)
    except ConfigError as error:
        settings.fail(_named(settings, str(error)), str(error))


def _member(table: TableReader) -> MemberConfig:
    settings = table.table("member", {})
    properties = settings.properties()
    for key in ("group.id", "group.instance.id", "client.id"):
        if key in properties:
            settings.fail(_named(settings, f"'{key}'"), "is given by the group")
    try:
        return MemberConfig.from_properties({"group.id": "any", **properties})
    except ConfigError as error:
        settings.fail(_named(settings, str(error)), str(error))


def _named(table: TableReader, message: str) -> str | None:
    """Return which key of a table of settings a complaint is about (the first it names), None if it names none."""
    places = {key: message.find(f"'{key}'") for key in table.properties()}
    named = [key for key, place in places.items() if place >= 0]
    return min(named, key=places.__getitem__, default=None)


def _topics(table: TableReader) -> dict[str, int]:
    topics = {name: table.number(name, at_least=1, at_most=100_000) for name in table.all_keys()}
    if not topics:
        table.fail(None, "must name at least one topic")
    return topics


def _groups(root: TableReader, topics: dict[str, int]) -> tuple[GroupOptions, ...]:
    groups: list[GroupOptions] = []
    for table in root.tables("groups"):
        table.expect("name", "copies", "members", "topics", "static", "start_spread", "clock_skew", "member")
        name, copies = table.text("name"), table.number("copies", 1, at_least=1)
        wanted = table.names("topics")
        for topic in wanted:
            table.require_known("topics", topic, topics)
        group = GroupOptions(
            group_id=name,
            consumer_count=table.number("members", at_least=1, at_most=LARGEST_FLEET),
            topics=wanted,
            is_static=table.flag("static", False),
            member=_member(table),
            start_spread_ms=table.duration("start_spread", "1s"),
            clock_skew_ms=table.duration("clock_skew", "0ms"),
        )
        names = [name] if copies == 1 else [f"{name}-{number}" for number in range(copies)]
        groups += [evolve(group, group_id=each) for each in names]
        if len({each.group_id for each in groups}) < len(groups):
            table.fail("name", f"there are two groups {name!r}")
        if sum(each.consumer_count for each in groups) > LARGEST_FLEET:
            table.fail("members", f"a fleet has at most {LARGEST_FLEET} consumers")
    if not groups:
        root.fail("groups", "must be at least one")
    return tuple(groups)


def _event(table: TableReader, targets: EventTargets, duration_ms: int) -> Planned:
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
