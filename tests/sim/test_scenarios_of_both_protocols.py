"""Scenario files of both protocols: the groups' protocol, the coordinator's settings, and the time of a change."""

from __future__ import annotations

import re

import pytest

from groupcoord.sim import GroupProtocol, ProtocolChange, ScenarioError, TopicCreation, TopicDeletion, parse_scenario
from tests.tables import as_one_test

GOOD = """
duration = "5m"

[topics]
orders-eu = 4
orders-us = 2
audit = 1

[[groups]]
name = "billing"
members = 4
protocol = "mixed"
consumer_protocol_members = 1
assignor = "range"
regex = "orders-.*"
[groups.member]
session.timeout.ms = 10000
[groups.config]
consumer.heartbeat.interval.ms = 6000

[[groups]]
name = "archive"
members = 2
protocol = "consumer"
topics = ["audit"]

[[events]]
kind = "upgrade"
group = "billing"
at = "1m"
every = "10s"
down = "2s"

[[events]]
kind = "downgrade"
group = "archive"
graceful = false
at = "2m"

[[events]]
kind = "create-topic"
topic = "orders-asia"
partitions = 3
at = "3m"

[[events]]
kind = "delete-topic"
topic = "audit"
at = "4m"
down = "10s"

[[events]]
kind = "delete-topic"
topic = "orders-us"
at = "5m"
down = "forever"
"""


def test_what_a_file_says_of_protocols() -> None:
    """Members of each protocol have the settings that it knows; groups have their own at the coordinator."""
    options = parse_scenario(GOOD).options_of(1)

    billing, archive = options.groups
    assert [billing.first_protocol_of(index) for index in range(4)] == [GroupProtocol.CLASSIC] * 3 + [
        GroupProtocol.CONSUMER
    ]
    assert (billing.topics, archive.topics) == (("orders-eu", "orders-us"), ("audit",))
    classic, consumer = (billing.config_of("c", protocol) for protocol in GroupProtocol)
    assert (classic.session_timeout_ms, classic.group_protocol) == (10_000, "classic")
    assert (consumer.group_protocol, consumer.group_remote_assignor) == ("consumer", "range")
    assert options.cluster.group_configs == {"billing": {"heartbeat_interval_ms": 6_000}}
    changes = [fault for fault in options.faults if isinstance(fault, ProtocolChange)]
    assert [(c.start_ms, c.end_ms, c.consumer, c.protocol.value, c.is_graceful) for c in changes] == [
        (60_000, 62_000, 0, "consumer", True),
        (70_000, 72_000, 1, "consumer", True),
        (80_000, 82_000, 2, "consumer", True),
        (90_000, 92_000, 3, "consumer", True),
        (120_000, 125_000, 4, "classic", False),
        (150_000, 155_000, 5, "classic", False),
    ]
    assert [fault.topic for fault in options.faults if isinstance(fault, TopicCreation)] == ["orders-asia"]
    deletions = [fault for fault in options.faults if isinstance(fault, TopicDeletion)]
    assert [(d.topic, d.start_ms, d.end_ms, d.partition_count) for d in deletions] == [
        ("audit", 240_000, 250_000, options.topics["audit"]),
        ("orders-us", 300_000, 300_000, 0),
    ]


BAD = [
    ('"mixed"', '"modern"', "groups[0].protocol: must be one of classic, consumer, mixed, not 'modern'"),
    ("members = 1", "members = 5", "groups[0].consumer_protocol_members: must be a whole number from 1 to 4, not 5"),
    ('protocol = "mixed"\n', "", "groups[0].consumer_protocol_members: goes with protocol 'mixed'"),
    ('regex = "orders-.*"', 'regex = "("', "groups[0].regex: '(' is not a regular expression"),
    ('regex = "orders-.*"', 'regex = "o.*"\ntopics = ["audit"]', "groups[0].topics: can't be set together with regex"),
    ("session.timeout.ms", "group.protocol", "groups[0].member.group.protocol: is given by the group"),
    (
        "heartbeat.interval.ms",
        "poll.ms",
        "groups[0].config.consumer.poll.ms: is not a setting of a group; the settings are",
    ),
    ("= 6000", "= 1", "must be a whole number from 5000 to 15000, not 1"),
    (
        'topics = ["audit"]',
        'topics = ["audit"]\nmember.session.timeout.ms = 9000',
        "can't be set with 'group.protocol'",
    ),
    ('"orders-asia"', '"orders-eu"', "events[2].topic: there is a topic 'orders-eu' from the start"),
    ('topic = "audit"', 'topic = "ledger"', "events[3].topic: there is no topic 'ledger'"),
    ('down = "10s"', 'down = "never"', "events[3].down: "),
]


@as_one_test
@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[message[:40] for _, _, message in BAD])
def test_complaints_name_the_key(old: str, new: str, message: str) -> None:
    """Every message has the key of the error."""
    assert old in GOOD

    with pytest.raises(ScenarioError, match=re.escape(message)):
        parse_scenario(GOOD.replace(old, new, 1))
