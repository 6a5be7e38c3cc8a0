"""The records of one group, written one after the other into a fold: for tests that work out rows by hand."""

from __future__ import annotations

from collections.abc import Sequence

from groupcoord.analysis.fold.history.group_fold import FoldOptions, GroupFold
from groupcoord.analysis.fold.history.rows import REBALANCE, Row
from groupcoord.core.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)
from groupcoord.records.schemas import RecordType
from groupcoord.records.typed import TypedRecord
from groupcoord.schema.engine import Values

SESSION_MS = 10_000
TOPIC_ID = "AWOEiKsoQr2TO7n23NCAlg"
OTHER_TOPIC_ID = "9JwYqoUBRjCic4lkmxKcpg"


def member(
    member_id: str,
    partitions: Sequence[int] = (),
    *,
    instance_id: str | None = None,
    topics: tuple[str, ...] = ("t",),
    owned: Sequence[int] = (),
    rebalance_timeout_ms: int = 60_000,
    rack_id: str | None = None,
) -> Values:
    """Return a member of a classic group's record."""
    pairs = [tuple(TopicPartition("t", index) for index in indexes) for indexes in (partitions, owned)]
    return {
        "memberId": member_id,
        "groupInstanceId": instance_id,
        "clientId": member_id.split("-")[0],
        "clientHost": "/127.0.0.1",
        "rebalanceTimeout": rebalance_timeout_ms,
        "sessionTimeout": SESSION_MS,
        "subscription": encode_subscription(Subscription(topics, owned_partitions=pairs[1], rack_id=rack_id)),
        "assignment": encode_assignment(Assignment(pairs[0])),
    }


class Log:
    """Writer of one group's records, in order."""

    def __init__(self, *, complete_from: int = 0, session_timeout_ms: int | None = None, first_offset: int = 0) -> None:
        self.fold = GroupFold("g", 0, FoldOptions(session_timeout_ms, complete_from))
        self.offset = first_offset

    def add(
        self, number: RecordType, value: Values | None, at_ms: int = 0, epoch: int | None = None, **key: str
    ) -> Log:
        record = TypedRecord(number, {"groupId": "g", **key}, None if value is None else 0, value)
        self.fold.apply(self.offset, at_ms, record, epoch)
        self.offset += 1
        return self

    def generation(
        self,
        number: int,
        *members: Values,
        at_ms: int | None = None,
        leader: str | None = None,
        protocol: str = "range",
        protocol_type: str = "consumer",
        epoch: int | None = None,
    ) -> Log:
        """Write a classic group's record, a second after the previous one unless ``at_ms`` is given."""
        at_ms = number * 1_000 if at_ms is None else at_ms
        value = {
            "protocolType": protocol_type if number else "",
            "generation": number,
            "protocol": protocol if members else None,
            "leader": leader or (members[0]["memberId"] if members else None),
            "currentStateTimestamp": at_ms,
            "members": list(members),
        }
        return self.add(RecordType.GROUP_METADATA, value, at_ms, epoch)

    def commit(self, partition: int, at_ms: int) -> Log:
        self.fold.committed(self.offset, at_ms, "t", partition)
        self.offset += 1
        return self

    def joins(self, member_id: str, epoch: int, at_ms: int, **changes: object) -> Log:
        """Write what a join of a KIP-848 member changes, but for assignments."""
        value = {
            "instanceId": None,
            "rackId": None,
            "clientId": member_id,
            "clientHost": "/h",
            "subscribedTopicNames": ["t"],
            "subscribedTopicRegex": None,
            "rebalanceTimeoutMs": 60_000,
            "serverAssignor": None,
            **changes,
        }
        self.add(RecordType.CONSUMER_GROUP_MEMBER_METADATA, value, at_ms, memberId=member_id)
        return self.epoch(epoch, at_ms)

    def epoch(self, number: int, at_ms: int, metadata_hash: int = 7) -> Log:
        value = {"epoch": number, "metadataHash": metadata_hash}
        return self.add(RecordType.CONSUMER_GROUP_METADATA, value, at_ms)

    def target(self, epoch: int, at_ms: int, **members: Sequence[int]) -> Log:
        """Write a target assignment."""
        for member_id, partitions in members.items():
            value = {"topicPartitions": [{"topicId": TOPIC_ID, "partitions": list(partitions)}]}
            self.add(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, value, at_ms, memberId=member_id)
        value = {"assignmentEpoch": epoch}
        return self.add(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, value, at_ms)

    def current(self, member_id: str, epoch: int, partitions: Sequence[int], at_ms: int, previous: int = 0) -> Log:
        """Write what a member has."""
        value = {
            "memberEpoch": epoch,
            "previousMemberEpoch": previous,
            "state": 0,
            "assignedPartitions": [{"topicId": TOPIC_ID, "partitions": list(partitions)}] if partitions else [],
            "partitionsPendingRevocation": [],
        }
        number = RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT
        return self.add(number, value, at_ms, memberId=member_id)

    def goes(self, member_id: str, at_ms: int) -> Log:
        """Write a member's tombstones."""
        for number in (
            RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        ):
            self.add(number, None, at_ms, memberId=member_id)
        return self

    def rows(self, kind: str = REBALANCE) -> list[Row]:
        self.fold.finish()
        return [row for found, row in self.fold.take_rows() if found == kind]

    def last(self) -> Row:
        return self.rows()[-1]
