"""Histories of share and streams groups beyond rebalances: epochs, members, moved tasks and standby copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from groupcoord.analysis.fold.history import EPOCH, GROUP, MEMBER, MEMBERSHIP, MOVE, REBALANCE, REVOCATION
from groupcoord.analysis.fold.history.causes import EXPIRY_OR_LEAVE, JOIN
from groupcoord.analysis.fold.history.ownership import BALANCE, GIVEN_UP, OWNER_GONE, UNASSIGNED
from groupcoord.analysis.fold.history.rows import Row
from groupcoord.records.schemas import RecordType

from .group_log import TOPIC_ID, Log

Tasks = Mapping[str, Sequence[int]]
NOTHING: Tasks = {}


def tasks(found: Tasks) -> list[dict[str, object]]:
    return [{"subtopologyId": name, "partitions": list(numbers)} for name, numbers in found.items()]


class StreamsLog(Log):
    """Writer of one streams group's records, in order."""

    def starts(self, member_id: str, epoch: int, at_ms: int) -> StreamsLog:
        """Write what a join changes, but for assignments."""
        value = {"instanceId": None, "rackId": None, "clientId": member_id, "clientHost": "/h"}
        value |= {"rebalanceTimeoutMs": 60_000, "topologyEpoch": 0, "processId": member_id}
        self.add(RecordType.STREAMS_GROUP_MEMBER_METADATA, value, at_ms, memberId=member_id)
        group = {"epoch": epoch, "metadataHash": 7, "validatedTopologyEpoch": 0}
        self.add(RecordType.STREAMS_GROUP_METADATA, group, at_ms)
        return self

    def plans(self, epoch: int, at_ms: int, **members: Tasks) -> StreamsLog:
        """Write a target assignment of active tasks."""
        for member_id, found in members.items():
            value = {"activeTasks": tasks(found), "standbyTasks": [], "warmupTasks": []}
            self.add(RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, value, at_ms, memberId=member_id)
        target = {"assignmentEpoch": epoch}
        self.add(RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, target, at_ms)
        return self

    def runs(
        self,
        member_id: str,
        epoch: int,
        at_ms: int,
        active: Tasks,
        standby: Tasks = NOTHING,
        ends: Tasks = NOTHING,
    ) -> StreamsLog:
        """Write what a member has, and which active tasks it is to end."""
        value = {"memberEpoch": epoch, "previousMemberEpoch": epoch - 1, "state": 2 if ends else 1}
        told = {"activeTasks": active, "standbyTasks": standby, "warmupTasks": NOTHING}
        told |= {"activeTasksPendingRevocation": ends, "standbyTasksPendingRevocation": NOTHING}
        told |= {"warmupTasksPendingRevocation": NOTHING}
        record = value | {name: tasks(found) for name, found in told.items()}
        self.add(RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, record, at_ms, memberId=member_id)
        return self

    def dies(self, member_id: str, at_ms: int) -> StreamsLog:
        """Write a member's tombstones."""
        for number in (
            RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
            RecordType.STREAMS_GROUP_MEMBER_METADATA,
        ):
            self.add(number, None, at_ms, memberId=member_id)
        return self


def taken_over() -> StreamsLog:
    """Write of a that runs all, of b that takes task 1_0 with a copy, and of a that dies: b takes what is left."""
    log = StreamsLog().starts("a", 2, 1_000).plans(2, 1_000, a={"0": [0, 1], "1": [0]})
    log.runs("a", 2, 2_000, {"0": [0, 1], "1": [0]}).starts("b", 3, 10_000)
    log.runs("b", 3, 10_000, {}, standby={"1": [0]})
    log.plans(3, 11_000, a={"0": [0, 1]}, b={"1": [0]})
    log.runs("a", 2, 11_000, {"0": [0, 1]}, ends={"1": [0]}).runs("a", 3, 12_000, {"0": [0, 1]})
    log.runs("b", 3, 12_500, {"1": [0]}, standby={"0": [0]}).dies("a", 20_000).starts("b", 4, 20_000)
    log.plans(4, 20_000, b={"0": [0, 1], "1": [0]}).runs("b", 4, 23_000, {"0": [0, 1], "1": [0]})
    return log


def told(rows: list[Row], *names: str) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_tasks_that_move() -> None:
    """Former and new owner, cause, time without owner, and whether the new one had a copy of the state."""
    moves = [row for row in taken_over().rows(MOVE) if row["from_member"] is not None]
    names = ("topic", "topic_id", "topic_partition", "from_member", "reason", "unowned_ms", "had_copy")

    assert told(moves, *names) == [
        ("1", None, 0, "a", BALANCE, 500, True),
        ("0", None, 0, "a", OWNER_GONE, 3_000, True),
        ("0", None, 1, "a", OWNER_GONE, 3_000, False),
    ]
    assert {row["reason"] for row in taken_over().rows(MOVE) if row["from_member"] is None} == {UNASSIGNED}


def test_tasks_that_are_given_up() -> None:
    (row,) = taken_over().rows(REVOCATION)
    assert (row["client_id"], row["partition_count"], row["took_ms"], row["end"]) == ("a", 1, 1_000, GIVEN_UP)
    assert row["partitions"] == [{"topic": "1", "topic_id": None, "partitions": [0]}]


def test_members_of_streams_groups() -> None:
    """Standby and active tasks, lifetimes and epochs, with Kafka's names of the states."""
    rows = [row for row in taken_over().rows(MEMBER) if row["generation"] == 3 and row["member_id"] == "b"]
    lives = taken_over().rows(MEMBERSHIP)
    states = {row["state"] for row in taken_over().rows(EPOCH) if row["whose"] == "member" and row["state"]}

    assert told(rows, "assignment", "standby", "warmup") == [
        (
            [{"topic": "1", "topic_id": None, "partitions": [0]}],
            [{"topic": "0", "topic_id": None, "partitions": [0]}],
            [],
        )
    ]
    assert told(lives, "member_id", "protocol", "began", "end", "ended_ms") == [
        ("a", "streams", JOIN, EXPIRY_OR_LEAVE, 20_000),
        ("b", "streams", JOIN, None, None),
    ]
    assert states == {"Stable", "UnrevokedTasks"}
    assert taken_over().rows(REBALANCE)[-1]["target_ms"] == 20_000


def test_states_of_streams_groups() -> None:
    """NotReady without a validated topology; a member that has to give tasks up is reconciling until it has."""

    def state(log: Log) -> str:
        (row,) = log.rows(GROUP)
        return str(row["state"])

    log = StreamsLog().starts("a", 2, 0)
    assert state(log) == "NotReady"
    assert state(log.add(RecordType.STREAMS_GROUP_TOPOLOGY, {"epoch": 0, "subtopologies": []})) == "Assigning"
    assert state(log.plans(2, 0).runs("a", 2, 0, {"0": [0, 1]})) == "Stable"
    assert state(log.runs("a", 2, 0, {"0": [0]}, ends={"0": [1]})) == "Reconciling"


def test_topics_of_share_groups_have_names() -> None:
    """There are no commits with names; the record of initialized topics has them."""
    log = Log()
    value = {"rackId": None, "clientId": "a", "clientHost": "/h", "subscribedTopicNames": ["t"]}
    log.add(RecordType.SHARE_GROUP_MEMBER_METADATA, value, memberId="a")
    log.add(RecordType.SHARE_GROUP_METADATA, {"epoch": 1, "metadataHash": 7})
    known = [{"topicId": TOPIC_ID, "topicName": "t", "partitions": [0]}]
    states = {"initializingTopics": [], "initializedTopics": known, "deletingTopics": []}
    log.add(RecordType.SHARE_GROUP_STATE_PARTITION_METADATA, states)
    partitions = [{"topicId": TOPIC_ID, "partitions": [0]}]
    current = {"memberEpoch": 1, "previousMemberEpoch": 0, "state": 0, "assignedPartitions": partitions}
    log.add(RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, current, memberId="a")
    (row,) = log.rows(MEMBER)

    assert row["assignment"] == [{"topic": "t", "topic_id": TOPIC_ID, "partitions": [0]}]


def test_share_groups_share_partitions() -> None:
    """They have epochs and members' lives, and no moves: several members may have a partition."""
    log = Log()
    for member_id, epoch in (("a", 1), ("b", 2)):
        value = {"rackId": None, "clientId": member_id, "clientHost": "/h", "subscribedTopicNames": ["t"]}
        log.add(RecordType.SHARE_GROUP_MEMBER_METADATA, value, 1_000 * epoch, memberId=member_id)
        log.add(RecordType.SHARE_GROUP_METADATA, {"epoch": epoch, "metadataHash": 7}, 1_000 * epoch)
        partitions = [{"topicId": TOPIC_ID, "partitions": [0]}]
        number = RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER
        log.add(number, {"topicPartitions": partitions}, 1_000 * epoch, memberId=member_id)
        log.add(RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, {"assignmentEpoch": epoch}, 1_000 * epoch)
        current = {"memberEpoch": epoch, "previousMemberEpoch": 0, "state": 0, "assignedPartitions": partitions}
        log.add(RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, current, 1_000 * epoch, memberId=member_id)
    log.fold.finish()
    rows = log.fold.take_rows()
    found = {kind: [row for of, row in rows if of == kind] for kind in (MEMBERSHIP, EPOCH, MOVE, REBALANCE)}

    assert told(found[MEMBERSHIP], "member_id", "protocol", "began_ms") == [
        ("a", "share", 1_000),
        ("b", "share", 2_000),
    ]
    assert [row["whose"] for row in found[EPOCH]] == ["group", "target", "member"] * 2
    assert found[MOVE] == []
    assert [(row["cause"], row["ended_ms"]) for row in found[REBALANCE]] == [(JOIN, 1_000), (JOIN, None)]
