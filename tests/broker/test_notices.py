"""Log lines about unsupported features that clients use, since responses may have no reason."""

from __future__ import annotations

import logging

import pytest

from groupcoord import Config, ManualClock, MemoryLogStore
from groupcoord.broker.broker import make_broker
from groupcoord.broker.configs.definitions import ALLOWS_DEAD_LETTERS, TOPIC_DEFINITIONS
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.messages import ConsumerGroupHeartbeat
from groupcoord.wire.broker_messages import CreatableTopic, CreatableTopicConfig, CreateTopics
from groupcoord.wire.config_messages import (
    AlterConfigs,
    ConfigResourceType,
    ConfigToAlter,
    IncrementalAlterConfigs,
    ResourceToAlter,
)

REPLICAS, SEGMENT = CreatableTopicConfig("min.insync.replicas", "2"), CreatableTopicConfig("segment.ms", "60000")


class NotingBroker:
    """A broker with a topic ``orders``, and what it writes to the log."""

    def __init__(self, caplog: pytest.LogCaptureFixture, config: Config | None = None) -> None:
        caplog.set_level(logging.WARNING, "groupcoord.host")
        self._caplog = caplog
        self.topics = TopicRegistry()
        self.topics.ensure("orders", 1)
        config = Config() if config is None else config
        self.broker = make_broker(config=config, clock=ManualClock(), log_store=MemoryLogStore(), topics=self.topics)
        self.connection = self.broker.connect("/10.0.0.7")

    def lines_after(self, *requests: object) -> list[str]:
        """Handle requests; return the lines logged meanwhile."""
        self._caplog.clear()
        for request in requests:
            self.broker.handle(self.connection, request)
        return self._caplog.messages


def create(*names: str, config: CreatableTopicConfig = REPLICAS, validate_only: bool = False) -> CreateTopics:
    topics = tuple(CreatableTopic(name, 1, configs=(config,)) for name in names)
    return CreateTopics(topics, validate_only=validate_only)


def to_alter(name: str, value: str, topic: str = "orders") -> tuple[ResourceToAlter, ...]:
    """Return a setting of a topic to change."""
    return (ResourceToAlter(ConfigResourceType.TOPIC, topic, (ConfigToAlter(name, value),)),)


def test_a_protocol_that_is_switched_off_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """The line has the client and the setting; with the protocol enabled there is none."""
    join = ConsumerGroupHeartbeat("billing", "m", client_id="billing-1")

    assert NotingBroker(caplog).lines_after(join) == []
    assert NotingBroker(
        caplog, Config.from_properties({"group.coordinator.rebalance.protocols": "classic"})
    ).lines_after(join) == [
        "client 'billing-1' at /10.0.0.7 asks for group.protocol=consumer in group 'billing', which is switched off "
        "here: group.coordinator.rebalance.protocols does not name it"
    ]


def test_settings_without_effect_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """A topic that is created with a setting that changes nothing, or gets one, is named with it."""
    world = NotingBroker(caplog)

    assert world.lines_after(create("bills", "mail")) == [
        "topics have got settings that have no effect here: bills (min.insync.replicas=2), mail (min.insync.replicas=2)"
    ]
    assert world.lines_after(AlterConfigs(to_alter("compression.type", "gzip"))) == [
        "topics have got settings that have no effect here: orders (compression.type=gzip)"
    ]
    assert world.lines_after(IncrementalAlterConfigs(to_alter("preallocate", "true"))) == [
        "topics have got settings that have no effect here: orders (compression.type=gzip, preallocate=true)"
    ]


def test_what_has_an_effect_or_changes_nothing_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """No line for effective configs, defaults, validation, refusals, or unchanged values."""
    world = NotingBroker(caplog)
    default = CreatableTopicConfig("min.insync.replicas", "1")
    unknown = CreatableTopicConfig("min.insync", "1")

    assert (
        world.lines_after(
            create("a", config=SEGMENT),
            create("b", config=default),
            create("c", config=unknown),
            create("d", validate_only=True),
            create("orders"),
            IncrementalAlterConfigs(to_alter("preallocate", "true"), validate_only=True),
            AlterConfigs(to_alter("preallocate", "true", topic="unknown")),
        )
        == []
    )
    assert len(world.lines_after(AlterConfigs(to_alter("preallocate", "true")))) == 1
    assert world.lines_after(AlterConfigs(to_alter("preallocate", "maybe"))) == []


def test_many_topics_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Five are named, the others counted."""
    (line,) = NotingBroker(caplog).lines_after(create(*(f"t{number}" for number in range(9))))

    assert line.endswith("t4 (min.insync.replicas=2) and 4 more")


def test_the_settings_that_apply_are_those_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configs that a topic's log reads are exactly those without a warning."""
    topics = TopicRegistry()
    topics.ensure("orders", 1)
    read: set[str] = set()
    data = TopicData(Config(), ManualClock(), topics)
    text = data._text
    monkeypatch.setattr(data, "_text", lambda topic, name: read.add(name) or text(topic, name))
    (topic,) = topics
    data.settings_of(topic)

    applied = {name for name, definition in TOPIC_DEFINITIONS.items() if definition.has_effect}
    assert read == applied - {ALLOWS_DEAD_LETTERS}  # which those look at who send records there
