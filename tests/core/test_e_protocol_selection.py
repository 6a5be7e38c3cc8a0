"""The vote for a protocol, and whose protocols are refused."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupState
from tests.core.driver import REBALANCE_MS, Driver, Group, protocols_of


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        (["range roundrobin", "roundrobin range"], "range"),
        (["roundrobin range", "range roundrobin"], "range"),
        (["range sticky", "sticky range"], "sticky"),
        (["range cooperative-sticky", "cooperative-sticky range"], "range"),
        (["sticky roundrobin", "roundrobin sticky"], "sticky"),
        (["a b", "b a"], "a"),
        (["eager compatible", "compatible eager"], "compatible"),
        (["roundrobin range", "roundrobin range", "range roundrobin"], "roundrobin"),
        (["zeta aa", "aa zeta"], "zeta"),  # one bucket: by who joined first
        (["aa zeta", "zeta aa"], "aa"),
        (["range roundrobin", "roundrobin"], "roundrobin"),
        (["range roundrobin sticky", "sticky roundrobin"], "sticky"),
    ],
)
def test_the_vote(driver: Driver, group: Group, lists: list[str], chosen: str) -> None:
    """Each member votes for its first choice among what all support; a tie is broken as a Java HashMap would."""
    joins = [group.join(f"m{place}", *names.split()) for place, names in enumerate(lists)]
    driver.sleep(6_000)
    assert {sent.joined.protocol_name for sent in joins} == {chosen}


def test_nothing_in_common(group: Group) -> None:
    """Somebody who shares no protocol with all others is INCONSISTENT_GROUP_PROTOCOL."""
    group.join("a", "range")
    assert group.join("b", "roundrobin").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_sole_member_changes_all_its_protocols(group: Group) -> None:
    """A sole member's own old list counts: a rejoin with a disjoint one is refused and changes nothing."""
    (a,) = group.stable("a")
    assert group.rejoin(a, "sticky").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.state is GroupState.STABLE


@pytest.mark.parametrize(
    "protocols",
    [
        protocols_of("roundrobin", "range"),
        protocols_of("range", "roundrobin", metadata=b"other"),
        protocols_of("range"),
    ],
    ids=["order", "metadata", "names"],
)
def test_what_counts_as_a_change(driver: Driver, group: Group, protocols: tuple) -> None:
    """A follower's list with another order, metadata or names is a change: the group rebalances."""
    members = [group.join(client, "range", "roundrobin").member_id for client in "ab"]
    driver.sleep(6_000)
    group.assign()
    assert group.rejoin(members[1], protocols=protocols).is_waiting
    assert group.state is GroupState.PREPARING_REBALANCE


def test_another_protocol_type(group: Group) -> None:
    """A group with members takes no other protocol type."""
    group.stable("a")
    assert group.join("b", protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_missing_static_member_still_votes(driver: Driver, group: Group) -> None:
    """A static member that has not rejoined counts: who does not share its protocol is refused."""
    a, _ = group.stable("a", "@x", session_ms=200_000)
    group.rejoin(a)
    driver.sleep(REBALANCE_MS)
    assert group.generation == 2
    assert group.join("b", "sticky").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_protocol_listed_twice_is_unusable(driver: Driver, group: Group) -> None:
    """A first member that lists its only protocol twice is never answered: the group stays as it is until it ends."""
    sent = group.join("a", "range", "range")
    driver.sleep(200_000)
    assert sent.is_waiting
    assert group.state is GroupState.PREPARING_REBALANCE
    driver.sleep(100_000)
    assert sent.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.state is GroupState.EMPTY


def test_a_protocol_listed_twice_beside_another(driver: Driver, group: Group) -> None:
    """With another name in the list, that one is chosen."""
    sent = group.join("a", "range", "range", "sticky")
    driver.sleep(3_000)
    assert sent.joined.protocol_name == "sticky"


def test_repeating_oneself_spoils_the_vote(driver: Driver, group: Group) -> None:
    """A name that one lists twice and another lacks can reach the count of all: nobody is answered until they go."""
    joins = [group.join("a", "x", "x", "y"), group.join("b", "y"), group.join("c", "x")]
    driver.sleep(200_000)
    assert [sent.is_waiting for sent in joins] == [True, True, True]
    assert group.state is GroupState.PREPARING_REBALANCE
    driver.sleep(100_000)
    assert [sent.error for sent in joins] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2 + [ErrorCode.NONE]


def test_the_spoiled_vote_of_a_later_round(driver: Driver, group: Group) -> None:
    """The same with a static member that stays away: the round goes on when it is removed."""
    group.join("a", "x", "x", "y")
    group.join("b", "y", instance="b")
    driver.sleep(6_000)
    group.assign()
    joins = [group.join("c", "x", session_ms=100_000), group.rejoin("a-1")]
    driver.sleep(9_999)
    group.left("a-1")
    assert joins[0].is_waiting
    driver.sleep(1)
    assert group.members == ["c-1"]
    assert joins[0].joined.protocol_name == "x"
