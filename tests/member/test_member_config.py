"""A consumer's settings: Kafka's keys and defaults, and errors that name the key."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord.errors import ConfigError
from groupcoord.member import Member, MemberConfig, RebalanceProtocol
from tests.tables import as_one_test


def test_defaults() -> None:
    assert MemberConfig().to_properties() == {
        "group.id": None,
        "group.instance.id": None,
        "client.id": "",
        "client.rack": "",
        "session.timeout.ms": 45_000,
        "heartbeat.interval.ms": 3_000,
        "max.poll.interval.ms": 300_000,
        "partition.assignment.strategy": ("range", "cooperative-sticky"),
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 5_000,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 1_000,
        "request.timeout.ms": 30_000,
        "default.api.timeout.ms": 60_000,
        "exclude.internal.topics": True,
        "group.protocol": "classic",
    }


def test_keys_and_values_of_a_properties_file() -> None:
    """Dotted keys, or with underscores; values as text; assignors by protocol name or by Java class."""
    java = "org.apache.kafka.clients.consumer"
    config = MemberConfig.from_properties(
        {
            "group.id": " g ",
            "session_timeout_ms": "6000",
            "enable.auto.commit": "False",
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": f"{java}.StickyAssignor, range,{java}.CooperativeStickyAssignor",
        }
    )
    assert (config.group_id, config.session_timeout_ms, config.heartbeat_interval_ms) == ("g", 6_000, 500)
    assert config.enable_auto_commit is False
    assert config.partition_assignment_strategy == ("sticky", "range", "cooperative-sticky")
    assert MemberConfig.from_properties(config.to_properties()) == config


@as_one_test
@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"sesion.timeout.ms": 1}, "unknown setting 'sesion.timeout.ms'; did you mean 'session.timeout.ms'?"),
        ({"group.id": "a", "group_id": "b"}, "setting 'group.id' is given twice"),
        ({"session.timeout.ms": "6s"}, "setting 'session.timeout.ms' must be a whole number, not '6s'"),
        ({"session.timeout.ms": 6.5}, "setting 'session.timeout.ms' must be a whole number, not 6.5"),
        ({"session.timeout.ms": True}, "setting 'session.timeout.ms' must be a whole number, not True"),
        ({"max.poll.interval.ms": 0}, "setting 'max.poll.interval.ms' must be at least 1, not 0"),
        ({"retry.backoff.ms": -1}, "setting 'retry.backoff.ms' must be at least 0, not -1"),
        ({"session.timeout.ms": 2**31}, "setting 'session.timeout.ms' must be at most 2147483647, not 2147483648"),
        ({"enable.auto.commit": "yes"}, "setting 'enable.auto.commit' must be true or false, not 'yes'"),
        ({"enable.auto.commit": 1}, "setting 'enable.auto.commit' must be true or false, not 1"),
        ({"group.instance.id": ""}, "setting 'group.instance.id' must not be empty"),
        ({"client.id": None}, "setting 'client.id' must be text, not None"),
        ({"group.id": 5}, "setting 'group.id' must be text, not 5"),
        (
            {"partition.assignment.strategy": 5},
            "'partition.assignment.strategy' must be a list of names, not 5",
        ),
        ({"partition.assignment.strategy": ["range", ""]}, "'partition.assignment.strategy' must be a list of names"),
        ({"partition.assignment.strategy": "range,range"}, "'partition.assignment.strategy' has a name twice"),
        ({"heartbeat.interval.ms": 45_000}, "'heartbeat.interval.ms' (45000) must be lower than 'session.timeout.ms'"),
        ({"group.protocol": "streams"}, "setting 'group.protocol' can only be 'classic' or 'consumer', not 'streams'"),
        ({"group.remote.assignor": "range"}, "'group.remote.assignor' can't be set with 'group.protocol' 'classic'"),
        *(
            (
                {"group.protocol": "Consumer", key: value},
                f"setting {key!r} can't be set with 'group.protocol' 'consumer'",
            )
            for key, value in {
                "session.timeout.ms": 45_000,
                "heartbeat.interval.ms": 3_000,
                "partition.assignment.strategy": "range,cooperative-sticky",
            }.items()
        ),
    ],
)
def test_what_is_not_allowed(properties: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MemberConfig.from_properties(properties)
    assert words in str(caught.value)


def test_an_unknown_assignor() -> None:
    config = MemberConfig(partition_assignment_strategy="range,uniform")
    with pytest.raises(ConfigError, match=r"partition\.assignment\.strategy.*'uniform'.*there are range, roundrobin"):
        Member(config)


def test_assignors_that_dont_go_together() -> None:
    class Only:
        def __init__(self, name: str, protocol: RebalanceProtocol) -> None:
            self.name = name
            self.supported_protocols = (protocol,)

    eager, cooperative = Only("a", RebalanceProtocol.EAGER), Only("b", RebalanceProtocol.COOPERATIVE)
    with pytest.raises(ConfigError, match="a, b have no rebalance protocol in common"):
        Member(MemberConfig(), [eager, cooperative])  # type: ignore[list-item]
