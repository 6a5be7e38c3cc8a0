"""Properties of every assignment, independent of Java: complete, balanced, sticky, deterministic."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

from groupcoord.core.consumer_protocol import Assignment, Subscription, TopicPartition
from groupcoord.member.assignors import ASSIGNORS, Cluster, ClusterTopic, RebalanceProtocol
from groupcoord.member.assignors.balancing import encode_sticky_user_data

Assignments = Mapping[str, Assignment]
Subscriptions = dict[str, Subscription]
STICKY = ("sticky", "cooperative-sticky")
RACKS = ("r1", "r2", "r3")

calm = settings(max_examples=60)

topic_names = st.sampled_from(["AaBB", "BBAa", "t0", "t1", "t2", "topic-10"])
member_ids = st.text(st.sampled_from("ABCab019-é"), min_size=1, max_size=5) | st.uuids().map(str)


@st.composite
def clusters(draw: st.DrawFn, *, with_racks: bool = False) -> Cluster:
    """Generate topics with up to twelve partitions each, with or without the racks of two replicas."""
    topics = {}
    for name in draw(st.lists(topic_names, min_size=1, unique=True)):
        count = draw(st.integers(1, 12))
        rack = st.none() | st.sampled_from(RACKS)
        racks = draw(st.lists(st.tuples(rack, rack), min_size=count, max_size=count)) if with_racks else None
        topics[name] = ClusterTopic(count, None if racks is None else tuple(racks))
    return Cluster(topics)


@st.composite
def groups(
    draw: st.DrawFn, *, are_equal: bool | None = None, with_racks: bool = False
) -> tuple[Cluster, Subscriptions]:
    """Generate a cluster and members that all subscribe to something there; to the same if ``are_equal``."""
    cluster = draw(clusters(with_racks=with_racks))
    if are_equal is None:
        are_equal = draw(st.booleans())
    some = st.lists(st.sampled_from(sorted(cluster.topics)), min_size=1, unique=True).map(
        lambda names: tuple(sorted(names))
    )
    wanted = st.just(draw(some)) if are_equal else some
    rack = st.none() | st.sampled_from(RACKS) if with_racks else st.none()
    ids = draw(st.lists(member_ids, min_size=1, max_size=9, unique=True))
    return cluster, {member_id: Subscription(draw(wanted), rack_id=draw(rack)) for member_id in ids}


def assign(assignor: str, cluster: Cluster, subscriptions: Subscriptions) -> dict[str, Assignment]:
    return ASSIGNORS[assignor]().assign(cluster, subscriptions)


def with_claims(assignor: str, subscriptions: Subscriptions, assignments: Assignments) -> Subscriptions:
    """Return the subscriptions with which members rejoin after generation 1."""
    rejoining = {}
    for member_id, subscription in subscriptions.items():
        if member_id not in assignments:
            rejoining[member_id] = subscription
            continue
        partitions = assignments[member_id].partitions
        if assignor == "sticky":
            user_data = encode_sticky_user_data(partitions, 1)
            rejoining[member_id] = evolve(subscription, user_data=user_data, generation_id=1)
        else:
            rejoining[member_id] = evolve(subscription, owned_partitions=partitions, generation_id=1)
    return rejoining


def held(assignments: Assignments) -> dict[str, set[TopicPartition]]:
    return {member_id: set(assignment.partitions) for member_id, assignment in assignments.items()}


def everything(cluster: Cluster, subscriptions: Subscriptions) -> list[TopicPartition]:
    """Return the partitions of all subscribed topics, sorted."""
    wanted = {name for subscription in subscriptions.values() for name in subscription.topics}
    return sorted(TopicPartition(name, n) for name in wanted for n in range(cluster.topics[name].partition_count))


@pytest.mark.parametrize("assignor", ASSIGNORS)
@calm
@given(group=groups(with_racks=True))
def test_each_partition_has_one_owner_that_wants_it(assignor: str, group: tuple[Cluster, Subscriptions]) -> None:
    """Every partition of a topic that is subscribed to is given once, to a subscriber, racks or not."""
    cluster, subscriptions = group
    assignments = assign(assignor, cluster, subscriptions)

    given_away = [partition for assignment in assignments.values() for partition in assignment.partitions]
    assert sorted(given_away) == everything(cluster, subscriptions)
    for member_id, assignment in assignments.items():
        assert {partition.topic for partition in assignment.partitions} <= set(subscriptions[member_id].topics)


@pytest.mark.parametrize("assignor", ["roundrobin", *STICKY])
@calm
@given(group=groups(are_equal=True, with_racks=True))
def test_equal_subscriptions_get_equal_shares(assignor: str, group: tuple[Cluster, Subscriptions]) -> None:
    """With equal subscriptions, member counts differ by one at most, racks or not."""
    sizes = [len(assignment.partitions) for assignment in assign(assignor, *group).values()]

    assert max(sizes) - min(sizes) <= 1


@calm
@given(group=groups(with_racks=True))
def test_range_shares_each_topic_equally(group: tuple[Cluster, Subscriptions]) -> None:
    """Of each topic no subscriber has two more than another; without racks everybody's run has no gap."""
    cluster, subscriptions = group
    assignments = assign("range", cluster, subscriptions)
    plain = assign("range", cluster, {member_id: evolve(s, rack_id=None) for member_id, s in subscriptions.items()})
    for name in cluster.topics:
        subscribers = [member_id for member_id, subscription in subscriptions.items() if name in subscription.topics]
        shares = [[p for p in assignments[member_id].partitions if p.topic == name] for member_id in subscribers]
        assert max(map(len, shares), default=0) - min(map(len, shares), default=0) <= 1
        for member_id in subscribers:
            run = [p.partition for p in plain[member_id].partitions if p.topic == name]
            assert run == list(range(run[0], run[0] + len(run))) if run else True


@pytest.mark.parametrize("assignor", STICKY)
@calm
@given(group=groups(are_equal=False))
def test_nobody_could_take_one_from_a_larger_member(assignor: str, group: tuple[Cluster, Subscriptions]) -> None:
    """A subscriber of a topic has at most one partition less than any owner of the topic's partitions."""
    cluster, subscriptions = group
    assignments = assign(assignor, cluster, subscriptions)
    sizes = {member_id: len(assignment.partitions) for member_id, assignment in assignments.items()}
    for owner, assignment in assignments.items():
        for topic in {partition.topic for partition in assignment.partitions}:
            for member_id, subscription in subscriptions.items():
                assert topic not in subscription.topics or sizes[owner] <= sizes[member_id] + 1


@pytest.mark.parametrize("assignor", STICKY)
@calm
@given(group=groups())
def test_nothing_moves_without_a_cause(assignor: str, group: tuple[Cluster, Subscriptions]) -> None:
    """When everybody rejoins with what they have, they keep it."""
    cluster, subscriptions = group
    first = assign(assignor, cluster, subscriptions)

    assert held(assign(assignor, cluster, with_claims(assignor, subscriptions, first))) == held(first)


@pytest.mark.parametrize("assignor", STICKY)
@calm
@given(group=groups(are_equal=True), data=st.data())
def test_who_stays_keeps_everything(assignor: str, group: tuple[Cluster, Subscriptions], data: st.DataObject) -> None:
    """When members leave a group of equal subscriptions, the others keep what they have and share the rest."""
    cluster, subscriptions = group
    first = assign(assignor, cluster, subscriptions)
    staying = data.draw(st.lists(st.sampled_from(sorted(subscriptions)), min_size=1, unique=True))
    rest = {member_id: subscriptions[member_id] for member_id in subscriptions if member_id in staying}

    second = held(assign(assignor, cluster, with_claims(assignor, rest, first)))

    assert all(second[member_id] >= set(first[member_id].partitions) for member_id in staying)


@pytest.mark.parametrize("assignor", STICKY)
@calm
@given(group=groups(are_equal=True), newcomers=st.lists(member_ids, min_size=1, max_size=4, unique=True))
def test_newcomers_take_no_more_than_their_share(
    assignor: str, group: tuple[Cluster, Subscriptions], newcomers: list[str]
) -> None:
    """When members join a group of equal subscriptions, nothing moves between those that were there."""
    cluster, subscriptions = group
    first = assign(assignor, cluster, subscriptions)
    topics = next(iter(subscriptions.values())).topics
    larger = {member_id: Subscription(topics) for member_id in newcomers} | subscriptions

    second = held(assign(assignor, cluster, with_claims(assignor, larger, first)))

    assert all(second[member_id] <= set(first[member_id].partitions) for member_id in subscriptions)


@calm
@given(before=groups(), after=st.data())
def test_cooperative_members_never_own_the_same(before: tuple[Cluster, Subscriptions], after: st.DataObject) -> None:
    """A partition is given only once its owner gave it up, and a few rounds after any change all is given.

    With equal subscriptions two rounds do. Otherwise what was withheld in one round can tip the balance of the next.
    """
    cluster, subscriptions = before
    assignments = assign("cooperative-sticky", cluster, subscriptions)
    some = st.lists(st.sampled_from(sorted(cluster.topics)), min_size=1, unique=True)
    changed = {
        member_id: Subscription(tuple(sorted(after.draw(some))))
        for member_id in after.draw(
            st.lists(st.sampled_from(sorted(subscriptions)) | member_ids, min_size=1, unique=True)
        )
    }
    rounds = 2 if len({subscription.topics for subscription in changed.values()}) == 1 else 6
    for _ in range(rounds):
        owned = {member_id: found for member_id, found in held(assignments).items() if member_id in changed}
        assignments = assign("cooperative-sticky", cluster, with_claims("cooperative-sticky", changed, assignments))
        for member_id, partitions in held(assignments).items():
            for other, kept in owned.items():
                assert other == member_id or not partitions & kept

    given_away = [partition for assignment in assignments.values() for partition in assignment.partitions]
    assert sorted(given_away) == everything(cluster, changed)


@calm
@given(group=groups(with_racks=True))
def test_racks_that_all_share_change_nothing(group: tuple[Cluster, Subscriptions]) -> None:
    """Members in racks get what members without racks get, if every partition has replicas in all racks."""
    cluster, subscriptions = group
    everywhere = Cluster(
        {name: evolve(t, replica_racks=(RACKS,) * t.partition_count) for name, t in cluster.topics.items()}
    )
    plain = {member_id: evolve(subscription, rack_id=None) for member_id, subscription in subscriptions.items()}
    for assignor in ASSIGNORS:
        if assignor != "range":
            assert assign(assignor, everywhere, subscriptions) == assign(assignor, everywhere, plain)


@pytest.mark.parametrize("assignor", ["range", *STICKY])
def test_members_get_what_is_in_their_rack(assignor: str) -> None:
    cluster = Cluster({"t": ClusterTopic(6, (("r2",), ("r1",), ("r3",), ("r2",), ("r3",), ("r1",)))})
    subscriptions = {f"m{rack}": Subscription(("t",), rack_id=rack) for rack in RACKS}

    assert {
        member_id: sorted(p.partition for p in a.partitions)
        for member_id, a in assign(assignor, cluster, subscriptions).items()
    } == {
        "mr1": [1, 5],
        "mr2": [0, 3],
        "mr3": [2, 4],
    }


def test_a_group_without_members_or_topics_has_nothing() -> None:
    """No members: no assignments. No topics, or none with partitions: empty ones."""
    for assignor in ASSIGNORS:
        assert assign(assignor, Cluster.of({"t": 3}), {}) == {}
        for cluster in (Cluster(), Cluster.of({"t": 0})):
            assert assign(assignor, cluster, {"m": Subscription(("t",))}) == {"m": Assignment()}
            assert assign(assignor, cluster, {"m": Subscription(), "n": Subscription(("t",))}) == {
                "m": Assignment(),
                "n": Assignment(),
            }


def test_what_members_tell_the_leader() -> None:
    """Range and round-robin nothing; sticky nothing at first; cooperative-sticky the generation, -1 at first."""
    new = {name: make() for name, make in ASSIGNORS.items()}
    assert {name: assignor.name for name, assignor in new.items()} == {name: name for name in ASSIGNORS}
    assert [assignor.subscription_user_data(("t",)) for assignor in new.values()] == [None, None, None, b"\xff" * 4]
    for assignor in new.values():
        assignor.on_assignment(Assignment((TopicPartition("t", 1),)), 9)
    assert [assignor.subscription_user_data(("t",)) for assignor in new.values()] == [
        None,
        None,
        b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x09",
        b"\x00\x00\x00\x09",
    ]


def test_only_the_cooperative_one_is_cooperative() -> None:
    """It supports the eager protocol, too, for groups in transition."""
    protocols = {name: make().supported_protocols for name, make in ASSIGNORS.items()}

    assert protocols.pop("cooperative-sticky") == (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)
    assert set(protocols.values()) == {(RebalanceProtocol.EAGER,)}


@pytest.mark.parametrize(("count", "racks"), [(-1, None), (2, ((),)), (0, ((),))])
def test_impossible_topics_are_refused(count: int, racks: tuple[tuple[str, ...], ...] | None) -> None:
    """There are no negative numbers of partitions, and racks are given for every partition or none."""
    with pytest.raises(ValueError, match="partitions"):
        ClusterTopic(count, racks)
