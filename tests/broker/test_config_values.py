"""Texts of dynamic settings: which are taken, as Kafka does, and that what is taken can be used.

What Kafka takes is recorded in ``config_values.json``: every setting of a topic, a group, a broker and a subscription
to client metrics with the same 160 texts, and ``share.auto.offset.reset`` with a hundred more.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from groupcoord import Config, ManualClock
from groupcoord.broker.configs.client_metrics import CLIENT_METRICS_DEFINITIONS, ClientMetrics
from groupcoord.broker.configs.definitions import (
    BROKER_DEFINITIONS,
    GROUP_DEFINITIONS,
    TOPIC_DEFINITIONS,
    BrokerConfigs,
    Definitions,
    GroupConfigs,
)
from groupcoord.broker.configs.requests import Resources, answer_alter_configs
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.work import do_whole
from groupcoord.config import SETTINGS
from groupcoord.errors import ErrorCode
from groupcoord.wire.config_messages import (
    AlterConfigOp,
    ConfigResourceType,
    ConfigToAlter,
    IncrementalAlterConfigs,
    ResourceToAlter,
)

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "config_values.json").read_text("utf-8"))
RESET = "share.auto.offset.reset"
KINDS: dict[str, tuple[ConfigResourceType, str, Definitions]] = {
    "topic": (ConfigResourceType.TOPIC, "t", TOPIC_DEFINITIONS),
    "group": (ConfigResourceType.GROUP, "g", GROUP_DEFINITIONS),
    "broker": (ConfigResourceType.BROKER, "1", BROKER_DEFINITIONS),
    "client": (ConfigResourceType.CLIENT_METRICS, "s", CLIENT_METRICS_DEFINITIONS),
}

HEX_OR_NO_NUMBER = ("0x1p-1", "NaN")
DIFFERENT = {
    ("topic", "min.cleanable.dirty.ratio"): HEX_OR_NO_NUMBER,
    ("broker", "log.cleaner.min.cleanable.ratio"): HEX_OR_NO_NUMBER,
    ("broker", "log.flush.interval.ms"): ("-1", "-2", "-2147483648"),
    ("broker", "log.retention.ms"): ("-2", "-2147483648"),
    ("broker", "log.cleaner.threads"): ("5", "50"),
    ("broker", "log.cleanup.policy"): ("delete,delete",),
    ("broker", "log.local.retention.ms"): ("-1", "2147483647", "2147483648", "9223372036854775807"),
    ("broker", "log.remote.copy.lag.ms"): ("2147483647", "2147483648", "9223372036854775807"),
    ("client", "match"): ("client_id=(?P<x>a)", "client_id=a{1001}"),
}
"""The texts for which the answer is another one on purpose: docs/gaps.md, "Settings"."""


def is_taken(resources: Resources, kind: str, key: str, text: str) -> bool:
    """Change a config; return whether the error is NONE."""
    resource_type, name, _ = KINDS[kind]
    change = ResourceToAlter(resource_type, name, (ConfigToAlter(key, text, AlterConfigOp.SET),))
    (result,) = do_whole(answer_alter_configs(IncrementalAlterConfigs((change,)), resources)).responses
    assert result.error_code in (ErrorCode.NONE, ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    return result.error_code is ErrorCode.NONE


def use(resources: Resources, data: TopicData) -> None:
    """Have each part of the server read its configs."""
    data.use_broker_configs(resources.layers)
    for topic in resources.topics:
        data.settings_of(topic)
    resources.groups.settings_of("g")
    resources.groups.share_settings_of("g")
    resources.groups.streams_settings_of("g")
    for subscription in resources.client_metrics.subscriptions:
        subscription.is_for({"client_id": "abc"})


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind in KINDS for key in RECORDED["taken"][kind]])
def test_what_kafka_takes_is_taken_and_can_be_used(kind: str, key: str) -> None:
    """NONE for the texts that Kafka takes, and for no other; every part of the server reads what is kept."""
    config = Config()
    topics = TopicRegistry()
    topics.ensure("t", 1)
    resources = Resources(config, 1, topics, GroupConfigs(config), BrokerConfigs(), ClientMetrics(), lambda: "")
    data = TopicData(config, ManualClock(), topics)
    setting = KINDS[kind][2][key].kind
    texts = RECORDED["values"] + (RECORDED["offset_resets"] if key == RESET else [])
    expected = {texts[index] for index in RECORDED["taken"][kind][key]}
    expected ^= {*DIFFERENT.get((kind, key), ())}

    found = set()
    for text in texts:
        if is_taken(resources, kind, key, text):
            found.add(text)
            use(resources, data)
            value = setting.parse(key, text)
            assert setting.parse(key, setting.text(value)) == value
    assert found == expected


def test_every_dynamic_setting_was_recorded() -> None:
    """A setting of Kafka that is added needs a recording."""
    recorded = {*chain.from_iterable(RECORDED["taken"].values())}
    our_own = {each.key.removeprefix("group.") for each in SETTINGS.values() if not each.is_kafkas}
    assert recorded >= {*TOPIC_DEFINITIONS, *GROUP_DEFINITIONS, *CLIENT_METRICS_DEFINITIONS} - our_own
