"""The leader: it assigns for all, with an assignor that may be the user's own, and watches the topics."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from groupcoord.core.consumer_protocol import decode_assignment, decode_subscription
from groupcoord.errors import ErrorCode
from groupcoord.member import (
    Assignment,
    AssignmentNeeded,
    Cluster,
    ClusterTopic,
    Failed,
    Joined,
    MetadataNeeded,
    PartitionsAssigned,
    RebalanceProtocol,
    Subscription,
)
from groupcoord.messages import JoinedMember, JoinGroup, SyncGroup

from .script import CLUSTER, MEMBER_ID, TOPIC, Script, partitions, subscription


def lead(script: Script, *others: JoinedMember, **fields: object) -> None:
    own = JoinedMember(MEMBER_ID, None, script.request(JoinGroup).protocols[0].metadata)
    script.join(2, leads=True, members=(own, *others), **fields)


def test_the_leader_assigns_for_all() -> None:
    """From all subscriptions it makes an assignment for each member, in bytes, and syncs with it."""
    script = Script().joining()
    lead(script, JoinedMember("member-2", None, subscription(TOPIC)))
    given = {member_id: decode_assignment(data) for member_id, data in script.request(SyncGroup).assignments}
    assert given == {MEMBER_ID: Assignment(partitions(0, 1)), "member-2": Assignment(partitions(2, 3))}
    assert script.member.is_leader
    script.sync(0, 1)
    assert script.told(Joined) == [Joined(2, MEMBER_ID, "range", True)]


def test_the_leader_asks_for_topics_of_others() -> None:
    """Before the assignment it needs metadata of all members' topics; it watches them from then on."""
    script = Script().joining()
    script.cluster = None
    lead(script, JoinedMember("member-2", None, subscription("other")))
    assert script.told(MetadataNeeded) == [MetadataNeeded(("other", TOPIC))]
    assert script.kinds() == []
    assert script.member.metadata_topics == ("other", TOPIC)
    script.member.update_metadata(Cluster.of({TOPIC: 1, "other": 1}), script.now_ms)
    given = {member_id: decode_assignment(data) for member_id, data in script.request(SyncGroup).assignments}
    assert given["member-2"] == Assignment(partitions(0, topic="other"))


def test_a_topic_that_does_not_exist() -> None:
    """A requested topic without metadata does not exist: the leader continues without it, until it does."""
    script = Script()
    script.cluster = Cluster()
    script.joining()
    lead(script)
    assert decode_assignment(script.request(SyncGroup).assignments[0].assignment) == Assignment(())
    script.sync()
    script.member.update_metadata(CLUSTER, script.now_ms)
    script.look()
    assert script.request(JoinGroup).reason == "cached metadata has changed"


def test_the_leader_joins_again_when_topics_change() -> None:
    """New partitions of any member's topic cause a new assignment; other topics do not."""
    script = Script().stable(0, 1, 2, 3, leads=True)
    script.member.update_metadata(Cluster.of({TOPIC: 4, "unrelated": 1}), script.now_ms)
    assert script.kinds() == []
    script.member.update_metadata(Cluster.of({TOPIC: 5, "unrelated": 1}), script.now_ms)
    assert script.request(JoinGroup).reason == "cached metadata has changed"


def test_a_follower_does_not_watch() -> None:
    script = Script().stable(0)
    script.member.update_metadata(Cluster.of({TOPIC: 9}), script.now_ms)
    assert script.kinds() == []


def test_topics_that_change_while_the_group_rebalances() -> None:
    """A change after the assignment and before its event leads to one more rebalance."""
    script = Script().joining()
    script.join(leads=True)
    script.member.update_metadata(Cluster.of({TOPIC: 9}), script.now_ms)
    script.sync(0, 1, 2, 3)
    assert script.told(PartitionsAssigned) == [PartitionsAssigned(partitions(0, 1, 2, 3))]
    assert script.request(JoinGroup).reason == "cached metadata has changed"


@pytest.mark.parametrize(("rack", "joins"), [("", False), ("a", True)])
def test_racks_that_change(rack: str, joins: bool) -> None:
    """KIP-881: replicas that move to other racks matter to a leader that has a rack itself."""
    script = Script(client_rack=rack)
    script.cluster = Cluster({TOPIC: ClusterTopic(1, (("a", "b"),))})
    script.stable(0, leads=True)
    script.member.update_metadata(Cluster({TOPIC: ClusterTopic(1, (("b", "a"),))}), script.now_ms)
    assert script.kinds() == []
    script.member.update_metadata(Cluster({TOPIC: ClusterTopic(1, (("b", "c"),))}), script.now_ms)
    assert script.kinds() == (["JoinGroup"] if joins else [])


def test_a_returning_static_leader_skips_the_assignment() -> None:
    """KIP-814: it syncs without an assignment, keeps what the sync brings, and watches the topics."""
    script = Script(group_instance_id="instance").joining()
    script.computes = False
    lead(script, JoinedMember("member-2", None, subscription("other")), skip_assignment=True)
    assert script.told(AssignmentNeeded) == []
    assert script.request(SyncGroup).assignments == ()
    script.sync(0)
    assert script.member.is_leader
    script.member.update_metadata(Cluster.of({TOPIC: 4, "other": 2}), script.now_ms)
    assert script.kinds() == ["JoinGroup"]


def test_an_assignor_takes_its_time() -> None:
    """The sync waits for the assignor's result; one for another generation is left aside."""
    script = Script().joining()
    script.computes = False
    script.join(5, leads=True)
    (needed,) = script.told(AssignmentNeeded)
    assert (needed.generation_id, needed.assignor.name, list(needed.subscriptions)) == (5, "range", [MEMBER_ID])
    computed = needed.compute()
    script.wait(10_000)
    assert script.kinds() == ["Heartbeat"] * 3
    script.member.assignment_computed(type(computed)(4, computed.assignments), script.now_ms)
    assert "SyncGroup" not in script.kinds()
    script.member.assignment_computed(computed, script.now_ms)
    assert script.request(SyncGroup).assignments[0].member_id == MEMBER_ID


def test_a_leader_that_is_put_out_while_it_assigns() -> None:
    """The generation is refused before the assignor is done: its result is of no use, the member joins again."""
    script = Script().joining()
    script.computes = False
    script.join(5, leads=True)
    (needed,) = script.told(AssignmentNeeded)
    script.refuse_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert script.kinds() == ["JoinGroup"]
    script.member.assignment_computed(needed.compute(), script.now_ms)
    assert script.kinds() == ["JoinGroup"]
    script.join(6)
    script.sync(0)
    assert script.member.assignment == partitions(0)


def test_a_leader_without_coordinator() -> None:
    """The coordinator is lost before the assignor is done: the member finds it and joins again, with the same id."""
    script = Script().joining()
    script.computes = False
    script.join(5, leads=True)
    (needed,) = script.told(AssignmentNeeded)
    script.member.disconnected(script.now_ms)
    script.member.assignment_computed(needed.compute(), script.now_ms)
    assert script.kinds() == ["FindCoordinator"]
    script.find()
    script.wait(100)
    assert script.request(JoinGroup).member_id == MEMBER_ID


class Stubborn:
    """Custom assignor with a given result."""

    name = "stubborn"
    supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    def __init__(self, given: object) -> None:
        self.given = given
        self.seen: list[tuple[Assignment, int]] = []

    def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
        return b"mine"

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self.seen.append((assignment, generation_id))

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given  # type: ignore[return-value]


def test_a_users_own_assignor() -> None:
    """Its name and user data are in the join; it gets the member's assignment and generation."""
    assignor = Stubborn({MEMBER_ID: Assignment(partitions(1))})
    script = Script([assignor]).joining()
    (protocol,) = script.request(JoinGroup).protocols
    assert (protocol.name, decode_subscription(protocol.metadata).user_data) == ("stubborn", b"mine")
    lead(script)
    (given,) = script.request(SyncGroup).assignments
    assert decode_assignment(given.assignment) == Assignment(partitions(1))
    script.sync(1)
    assert assignor.seen == [(Assignment(partitions(1)), 2)]


def test_an_assignor_that_finds_topics_itself() -> None:
    """Topics that it assigns without a subscription are requested and watched as well."""
    assignor = Stubborn({MEMBER_ID: Assignment(), "member-2": Assignment(partitions(0, topic="internal"))})
    script = Script([assignor]).joining()
    script.cluster = None
    lead(script)
    assert script.told(MetadataNeeded) == [MetadataNeeded(("internal", TOPIC))]
    assert script.kinds() == []
    script.member.update_metadata(Cluster.of({TOPIC: 4, "internal": 1}), script.now_ms)
    assert script.kinds() == ["SyncGroup"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (ZeroDivisionError("no members"), "the assignor 'stubborn' failed: ZeroDivisionError: no members"),
        (None, "returned no assignment for each member id"),
        ({MEMBER_ID: [1]}, "returned no assignment for each member id"),
        ({MEMBER_ID: Assignment(partitions(0, topic="x" * 40_000))}, "can't be written"),
        (
            {MEMBER_ID: Assignment(), "member-2": Assignment(partitions(0))},
            "that their owners have not revoked, which the cooperative protocol forbids: topic-0",
        ),
    ],
    ids=["raises", "nothing", "no-assignment", "too-long", "breaks-the-rules"],
)
def test_an_assignor_that_fails(given: object, words: str) -> None:
    """The member fails with the reason; nothing escapes."""
    script = Script([Stubborn(given)]).joining()
    own = JoinedMember(MEMBER_ID, None, subscription(TOPIC, owned=partitions(0), generation_id=1))
    script.join(2, leads=True, members=(own, JoinedMember("member-2", None, subscription(TOPIC))))
    (failed,) = script.told(Failed)
    assert words in failed.message
    assert script.kinds() == []


def test_an_assignor_that_fails_when_told() -> None:
    class Touchy(Stubborn):
        def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
            raise KeyError("what?")

    script = Script([Touchy(None)]).joining()
    script.join()
    script.sync(0)
    assert script.names()[-2:] == ["PartitionsAssigned", "Failed"]
    assert script.told(Failed)[0].message == "the assignor 'stubborn' failed: KeyError: 'what?'"


def test_an_assignor_that_fails_before_the_join() -> None:
    """An exception of its user data method fails the member."""

    class Secretive(Stubborn):
        def subscription_user_data(self, topics: tuple[str, ...]) -> bytes | None:
            raise OSError("no disk")

    script = Script([Secretive(None)]).subscribed()
    script.member.commit_sync({}, script.now_ms)
    script.member.fetch_offsets(partitions(0), script.now_ms)
    script.find()
    assert script.told(Failed)[0].message == "the subscription can't be written: OSError: no disk"
    assert script.member.next_deadline_ms() == script.sent[-1].deadline_ms
