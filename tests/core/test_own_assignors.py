"""Assignors of consumer groups from an embedding program or a setting."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from groupcoord import Config, ConfigError, ErrorCode, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.assignors import choose_assignors
from groupcoord.messages import ConsumerGroupDescribe, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse
from groupcoord.testing.topics import Topics
from tests.core.own_assignors import Deal, Uniform
from tests.tables import as_one_test

DEAL = "tests.core.own_assignors:Deal"


def coordinator(*assignors: str, store: MemoryLogStore | None = None) -> GroupCoordinator:
    """A coordinator with a topic, and these assignors in its settings."""
    made = GroupCoordinator(
        config=Config(group_consumer_assignors=assignors, offsets_topic_num_partitions=1),
        clock=ManualClock(),
        log_store=store or MemoryLogStore(),
        topics=Topics(orders=5),
    )
    made.load_all()
    return made


def join(made: GroupCoordinator, member_id: str, assignor: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return made.call(
        ConsumerGroupHeartbeat(
            "group",
            member_id,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("orders",),
            server_assignor=assignor,
            topic_partitions=(),
        )
    )


def test_a_class_that_a_setting_names() -> None:
    """Members select it by its name, administrators see it, and it assigns."""
    made = coordinator("uniform", DEAL)
    assert join(made, "a", "deal").error_code is ErrorCode.NONE
    (described,) = made.call(ConsumerGroupDescribe(("group",))).groups
    assert described.assignor_name == "deal"
    refused = join(made, "b", DEAL)
    assert refused.error_code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused.error_message == f"ServerAssignor {DEAL} is not supported. Supported assignors: uniform, deal."


def test_the_first_is_the_default() -> None:
    """Members that ask for none get it."""
    made = coordinator(DEAL, "range")
    join(made, "a")
    (described,) = made.call(ConsumerGroupDescribe(("group",))).groups
    assert described.assignor_name == "deal"
    assert [p.partitions for p in described.members[0].target_assignment] == [(0, 1, 2, 3, 4)]


def test_an_assignor_that_is_made_already() -> None:
    """A path may lead to an assignor itself, also further inside of a module."""
    assert choose_assignors(["tests.core.own_assignors:Packages.deal"]).keys() == {"deal"}


@as_one_test
@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("mine", "there is no assignor 'mine'"),
        ("org.example.Mine", "there is no assignor 'org.example.Mine'"),
        ("no_such_module:Mine", "can't load 'no_such_module:Mine': No module named 'no_such_module'"),
        (":Mine", "can't load ':Mine': Empty module name"),
        ("tests.core.own_assignors:Mine", "has no attribute 'Mine'"),
        ("tests.core.own_assignors:Needy", "missing 1 required positional argument: 'rack'"),
        (
            "tests.core.own_assignors:Nameless",
            "'tests.core.own_assignors:Nameless' is no assignor: it needs a name and a method 'assign'",
        ),
        ("json:loads", "'json:loads' is no assignor: it needs a name and a method 'assign'"),
        (
            "tests.core.own_assignors:Uniform",
            "'tests.core.own_assignors:Uniform' has the name 'uniform', which is taken",
        ),
    ],
)
def test_what_is_no_assignor(named: str, problem: str) -> None:
    """The message names each invalid assignor and its problem."""
    with pytest.raises(ConfigError, match=r"^setting 'group\.consumer\.assignors': ") as refused:
        coordinator("range", named)
    assert problem in str(refused.value)


def test_two_of_one_name() -> None:
    """Two assignors with one name are refused."""
    with pytest.raises(ConfigError, match="has the name 'deal', which is taken"):
        coordinator(DEAL, "tests.core.own_assignors:Packages.deal")
    with pytest.raises(ConfigError, match="there are two assignors with the name 'uniform'"):
        GroupCoordinator(assignors=[Uniform()])
    with pytest.raises(ConfigError, match="has the name 'deal', which is taken"):
        choose_assignors([DEAL], [Deal()])


def test_an_assignor_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """Its bug is in the log of the program; who joins is refused, and nothing is written."""
    made = coordinator("tests.core.own_assignors:Broken", "uniform")
    with caplog.at_level(logging.ERROR):
        assert join(made, "a").error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text
    assert not list(made.log_store.read(0))
    assert join(made, "a", "uniform").error_code is ErrorCode.NONE


def test_an_assignor_that_has_no_assignment(caplog: pytest.LogCaptureFixture) -> None:
    """It is no error of the server: the join is refused, and nothing is logged."""
    made = coordinator("tests.core.own_assignors:Undecided")
    assert join(made, "a").error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not caplog.records


def test_an_assignor_that_is_gone_after_a_restart() -> None:
    """Members that the log has ask for it; as in Kafka a new assignment then fails, until they ask for another."""
    store = MemoryLogStore()
    join(coordinator("uniform", DEAL, store=store), "a", "deal")
    restarted = coordinator("uniform", store=store)
    assert join(restarted, "b").error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert join(restarted, "a", "uniform").error_code is ErrorCode.NONE
    assert join(restarted, "b").error_code is ErrorCode.NONE


def test_a_module_that_is_no_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions of its import become a message of one line."""
    (tmp_path / "broken_assignors.py").write_text("class Mine(")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="can't load 'broken_assignors:Mine': '\\(' was never closed"):
        coordinator("broken_assignors:Mine")
