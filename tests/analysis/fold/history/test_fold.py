"""The fold of one group gives the rows that can be worked out by hand, and claims no more than its records show."""

from __future__ import annotations

import pytest

from groupcoord.analysis.fold.history.causes import (
    COORDINATOR_MOVE,
    EXPIRY_OR_LEAVE,
    JOIN,
    LEADER_REJOIN,
    LEAVE,
    METADATA_CHANGE,
    UNKNOWN,
)
from groupcoord.analysis.fold.history.group_fold import LogOrderError
from groupcoord.analysis.fold.history.rows import DUPLICATE, GROUP
from groupcoord.records.schemas import RecordType

from .group_log import TOPIC_ID, Log, member

# ---------------------------------------------------------------- causes


def test_who_was_there_within_its_session_left() -> None:
    """No session can have passed since the generation began: the member left."""
    row = (
        Log().generation(1, member("a", [0]), member("b", [1])).generation(2, member("a", [0, 1]), at_ms=10_999).last()
    )
    assert (row["cause"], row["confidence"], row["left"], row["partitions_moved"]) == (LEAVE, 1.0, ["b"], 1)


def test_who_was_silent_for_a_session_left_or_expired() -> None:
    log = Log().generation(1, member("a", [0]), member("b", [1])).generation(2, member("a", [0, 1]), at_ms=11_000)
    row = log.last()
    assert (row["cause"], row["confidence"]) == (EXPIRY_OR_LEAVE, 1.0)
    assert "10000 ms before" in row["evidence"]


def test_a_commit_of_its_partition_shows_that_a_member_lived() -> None:
    both = (member("a", [0]), member("b", [1]))
    own = Log().generation(1, *both).commit(1, 40_000).generation(2, member("a", [0, 1]), at_ms=45_000).last()
    other = Log().generation(1, *both).commit(0, 40_000).generation(2, member("a", [0, 1]), at_ms=45_000).last()
    assert (own["cause"], own["confidence"]) == (LEAVE, 0.9)
    assert other["cause"] == EXPIRY_OR_LEAVE


def test_a_member_may_miss_a_rebalance() -> None:
    """One that does not rejoin within a short rebalance time-out is gone without a leave."""
    log = Log().generation(1, member("a"), member("b", rebalance_timeout_ms=2_000))
    assert log.generation(2, member("a"), at_ms=3_000).last()["cause"] == EXPIRY_OR_LEAVE


def test_several_causes_are_told_as_such() -> None:
    row = Log().generation(1, member("a"), member("b")).generation(2, member("a"), member("c")).last()
    assert (row["cause"], row["causes"], row["confidence"]) == (JOIN, [JOIN, LEAVE], 0.5)


def test_a_client_that_comes_back_left_first() -> None:
    """A restart of a dynamic member is a leave and a join of the same client."""
    row = Log().generation(1, member("a"), member("b-1")).generation(2, member("a"), member("b-2")).last()
    assert (row["causes"], row["left_clients"], row["joined_clients"]) == ([LEAVE, JOIN], ["b"], ["b"])


def test_another_subscription_is_a_metadata_change() -> None:
    start = Log().generation(1, member("a"), member("b"))
    assert start.generation(2, member("a"), member("b", topics=("t", "u"))).last()["cause"] == METADATA_CHANGE
    racks = Log().generation(1, member("a", rack_id="r1")).generation(2, member("a", rack_id="r2"))
    assert racks.last()["cause"] == METADATA_CHANGE
    protocols = Log().generation(1, member("a")).generation(2, member("a"), protocol="roundrobin")
    assert protocols.last()["cause"] == METADATA_CHANGE


def test_the_second_step_of_a_cooperative_rebalance() -> None:
    """A member with partitions to revoke rejoins: the leader as such, others with new metadata."""
    both = (member("a", [0], owned=[0]), member("b", [1], owned=[1, 2]), member("c", []))
    after = (member("a", [0], owned=[0]), member("b", [1], owned=[1]), member("c", [2]))
    follower = Log().generation(5, *both, leader="a").generation(6, *after, leader="a").last()
    leader = Log().generation(5, *both, leader="b").generation(6, *after, leader="b").last()
    assert (follower["cause"], leader["cause"]) == (METADATA_CHANGE, LEADER_REJOIN)
    assert "cooperative" in follower["evidence"]


def test_new_partitions_make_the_leader_rejoin() -> None:
    log = Log().generation(1, member("a", [0]), member("b", [1])).generation(2, member("a", [0, 2]), member("b", [1]))
    row = log.last()
    assert (row["cause"], row["partitions_moved"]) == (LEADER_REJOIN, 0)


def test_no_difference_is_unknown() -> None:
    row = Log().generation(1, member("a", [0])).generation(2, member("a", [0])).last()
    assert (row["cause"], row["causes"], row["confidence"]) == (UNKNOWN, [UNKNOWN], 0.0)


def test_a_move_of_the_coordinator_shows_in_the_leader_epoch() -> None:
    """Batches of another leader epoch were written by another coordinator; it explains what nothing else does."""
    moved = Log().generation(1, member("a"), epoch=0).generation(2, member("a"), epoch=1).last()
    joined = Log().generation(1, member("a"), epoch=4).generation(2, member("a"), member("b"), epoch=5).last()
    assert (moved["cause"], joined["cause"]) == (COORDINATOR_MOVE, JOIN)


# ---------------------------------------------------------------- gaps


def test_a_gap_of_compaction_is_a_row_without_a_cause() -> None:
    """Joins and leaves are those of the whole gap; the last rebalance has no cause."""
    log = Log(complete_from=100).generation(3, member("a"), member("b")).generation(6, member("a"), member("c"))
    first, gap = log.rows()
    assert (first["from_generation"], first["to_generation"], first["cause"]) == (None, 3, UNKNOWN)
    assert (gap["cause"], gap["missing_generations"], gap["confidence"]) == (UNKNOWN, 2, 0.0)
    assert (gap["joined"], gap["left"]) == (["c"], ["b"])
    assert "compaction" in gap["evidence"]


def test_a_gap_without_compaction_was_never_completed() -> None:
    row = Log().generation(3, member("a")).generation(5, member("a"), member("b")).last()
    assert (row["cause"], row["missing_generations"]) == (JOIN, 1)
    assert "never completed" in row["evidence"]


def test_generation_one_follows_an_empty_group() -> None:
    row = Log(complete_from=100).generation(1, member("a")).last()
    assert (row["from_generation"], row["cause"]) == (0, JOIN)


def test_a_group_that_was_deleted_starts_anew() -> None:
    log = Log().generation(1, member("a")).generation(2).add(RecordType.GROUP_METADATA, None)
    rows = log.generation(0, at_ms=9_000).generation(1, member("a"), at_ms=9_500).rows()
    assert [(row["from_generation"], row["to_generation"]) for row in rows] == [(0, 1), (1, 2), (0, 1)]


# ---------------------------------------------------------------- epochs


@pytest.mark.parametrize(
    ("session_timeout_ms", "at_ms", "cause", "confidence"),
    [
        (None, 4_000, LEAVE, 0.8),
        (None, 20_000, EXPIRY_OR_LEAVE, 1.0),
        (45_000, 20_000, LEAVE, 1.0),
        (1_000, 4_000, EXPIRY_OR_LEAVE, 1.0),
    ],
)
def test_sessions_of_consumer_groups_are_a_setting(
    session_timeout_ms: int | None, at_ms: int, cause: str, confidence: float
) -> None:
    """It is not in the log: if given it is proof, otherwise a pause of a few seconds is taken as shorter."""
    log = Log(session_timeout_ms=session_timeout_ms).joins("a", 1, 0).target(1, 0, a=[0]).current("a", 1, [0], 0)
    row = log.goes("a", at_ms).epoch(2, at_ms).last()
    assert (row["cause"], row["confidence"]) == (cause, confidence)


def test_a_commit_before_a_member_had_the_partition_is_no_sign_of_it() -> None:
    log = Log(session_timeout_ms=10_000).joins("a", 1, 0).target(1, 0, a=[0]).current("a", 1, [0], 0)
    log.joins("b", 2, 1_000).target(2, 1_000, a=[], b=[0]).current("b", 2, [], 1_000)
    log.commit(0, 5_000).goes("b", 12_000).epoch(3, 12_000)
    assert log.last()["cause"] == EXPIRY_OR_LEAVE


def test_a_first_epoch_behind_compaction_has_its_newcomers() -> None:
    """Members without an earlier epoch joined in this one; without any the cause is unknown."""
    newcomer = Log(complete_from=10).joins("a", 5, 0).target(5, 0, a=[0]).current("a", 5, [0], 0, previous=0)
    veteran = Log(complete_from=10).joins("a", 5, 0).target(5, 0, a=[0]).current("a", 5, [0], 0, previous=4)
    assert [(row["from_generation"], row["cause"]) for row in newcomer.rows()] == [(None, JOIN)]
    assert [(row["from_generation"], row["cause"]) for row in veteran.rows()] == [(None, UNKNOWN)]


# ---------------------------------------------------------------- state


def state(log: Log) -> tuple[str, str]:
    (row,) = log.rows(GROUP)
    return row["type"], row["state"]


def test_states_of_consumer_groups() -> None:
    """As KIP-848 has them: a new epoch, a target, and members that have it."""
    log = Log().joins("a", 2, 0)
    assert state(log) == ("Consumer", "Assigning")
    assert state(log.target(2, 0, a=[0])) == ("Consumer", "Reconciling")
    assert state(log.current("a", 2, [0], 0)) == ("Consumer", "Stable")
    assert state(log.goes("a", 9).epoch(3, 9)) == ("Consumer", "Empty")
    assert log.add(RecordType.CONSUMER_GROUP_METADATA, None).rows(GROUP) == []


def test_the_state_of_a_share_group() -> None:
    told = {"clientId": "c", "clientHost": "/h", "subscribedTopicNames": ["t"], "rackId": None}
    share = Log().add(RecordType.SHARE_GROUP_MEMBER_METADATA, told, memberId="a")
    assert state(share.add(RecordType.SHARE_GROUP_METADATA, {"epoch": 1, "metadataHash": 0})) == ("Share", "Stable")


def test_a_group_takes_the_place_of_one_of_another_type() -> None:
    """Where compaction removed the tombstones, the first group ends as the second begins, and both are reported."""
    told = {"clientId": "c", "clientHost": "/h", "subscribedTopicNames": ["t"], "rackId": None}
    log = Log().joins("a", 1, 100).target(1, 100, a=[0])
    log.add(RecordType.SHARE_GROUP_MEMBER_METADATA, told, 5_000, memberId="b")
    log.add(RecordType.SHARE_GROUP_METADATA, {"epoch": 1, "metadataHash": 0}, 5_000)
    assert [(row["type"], row["joined"]) for row in log.rows()] == [("Consumer", ["a"]), ("Share", ["b"])]


def test_a_group_of_offsets_alone() -> None:
    """It is empty, without a protocol, and a tombstone ends it."""
    (row,) = Log().commit(0, 5).rows(GROUP)
    assert (row["type"], row["state"], row["generation_or_epoch"], row["protocol_type"]) == ("Classic", "Empty", 0, "")
    assert Log().commit(0, 5).add(RecordType.GROUP_METADATA, None).rows(GROUP) == []


def test_partitions_of_several_members_are_told() -> None:
    """In a classic generation, and where a member gets what another still has; share groups may share."""
    classic = Log().generation(1, member("a", [0, 1]), member("b", [1])).rows(DUPLICATE)
    modern = Log().joins("a", 1, 0).target(1, 0, a=[0]).current("a", 1, [0], 0).joins("b", 2, 1)
    rows = modern.target(2, 1, a=[], b=[0]).current("b", 2, [0], 1).rows(DUPLICATE)
    assert [(row["topic"], row["topic_partition"], row["member_ids"]) for row in classic] == [("t", 1, ["a", "b"])]
    assert [(row["topic"], row["topic_partition"], row["member_ids"]) for row in rows] == [(TOPIC_ID, 0, ["a", "b"])]


# ---------------------------------------------------------------- the fold itself


def test_records_out_of_order_are_refused() -> None:
    log = Log(first_offset=5).generation(1, member("a"))
    log.offset = 5
    with pytest.raises(LogOrderError, match="offset 5 comes after that at 5"):
        log.generation(2, member("a"))


def test_a_later_owner_hides_no_commit() -> None:
    """A member that left a KIP-848 group has its last commit, though the partition's next owner commits and leaves,
    too.
    """
    log = Log()
    log.fold.name_topic(TOPIC_ID, "t")
    log.joins("a", 1, 0).joins("b", 2, 1).target(2, 1, a=[0], b=[1]).current("a", 2, [0], 2).current("b", 2, [1], 2)
    log.commit(1, 69_000).goes("b", 70_000).epoch(3, 70_000).target(3, 70_000, a=[0, 1]).current("a", 3, [0, 1], 70_001)
    log.commit(1, 139_000).goes("a", 140_000).epoch(4, 140_000)
    found = [row for row in log.rows() if row["left"]]

    assert [(row["left"], row["cause"]) for row in found] == [(["b"], LEAVE), (["a"], LEAVE)]
