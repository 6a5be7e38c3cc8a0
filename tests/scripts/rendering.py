"""Short lines for responses and log records, which omit default values."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import Any
from uuid import UUID

from groupcoord.core.groups.consumer.reconciliation import MemberState
from groupcoord.core.log.records import (
    ZERO_UUID,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    GroupMetadataRecord,
    GroupTombstone,
    OffsetCommitRecord,
    OffsetTombstone,
    TransactionMarker,
)
from groupcoord.errors import ErrorCode
from groupcoord.messages import (
    CompleteTransactionResponse,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    SyncGroupResponse,
    TopicResult,
    TxnOffsetCommitResponse,
)
from groupcoord.testing.topics import readable


def words(*parts: str | None) -> str:
    """Join what there is with spaces."""
    return " ".join(part for part in parts if part)


def text_of(data: bytes) -> str:
    """Show bytes: as text where they are, else their number."""
    if not data:
        return '""'
    if data.isascii() and data.decode("ascii").isprintable():
        return data.decode("ascii")
    return f"({len(data)} bytes)"


def partitions_of(topics: Iterable[tuple[UUID, Iterable[int]]]) -> str:
    """Show partitions, sorted by the names of their topics."""
    shown = sorted((readable(topic_id), sorted(indexes)) for topic_id, indexes in topics)
    return f"[{' '.join(f'{name}/{index}' for name, indexes in shown for index in indexes)}]"


@singledispatch
def render(value: Any) -> str:
    """Return an answer or a record as one line."""
    raise TypeError(f"no line for {value!r}")


# ---------------------------------------------------------------- answers


@render.register
def _(answer: JoinGroupResponse) -> str:
    members = " ".join(words(m.member_id, m.group_instance_id and f"({m.group_instance_id})") for m in answer.members)
    return words(
        answer.error_code.name,
        f"member={answer.member_id}" if answer.member_id else None,
        f"generation={answer.generation_id}" if answer.generation_id >= 0 else None,
        f"protocol={answer.protocol_name}" if answer.protocol_name else None,
        f"leader={answer.leader}" if answer.leader else None,
        "skip-assignment" if answer.skip_assignment else None,
        f"members=[{members}]" if members else None,
    )


@render.register
def _(answer: SyncGroupResponse) -> str:
    if answer.error_code is not ErrorCode.NONE:
        return answer.error_code.name
    return f"NONE assignment={text_of(answer.assignment)}"


@render.register
def _(answer: HeartbeatResponse) -> str:
    return answer.error_code.name


@render.register
def _(answer: CompleteTransactionResponse) -> str:
    return answer.error_code.name


@render.register
def _(answer: LeaveGroupResponse) -> str:
    left = ", ".join(
        f"{words(entry.member_id or None, entry.group_instance_id and f'({entry.group_instance_id})')} "
        f"{entry.error_code.name}".strip()
        for entry in answer.members
    )
    return words(answer.error_code.name, f"[{left}]" if left else None)


def results_of(topics: Iterable[TopicResult]) -> str:
    """Show what became of each partition; what several have in common once, with their number."""
    results = [(f"{topic.name}/{p.partition_index}", p.error_code) for topic in topics for p in topic.partitions]
    codes = {code for _, code in results}
    if len(codes) == 1:
        return codes.pop().name + (f" ({len(results)})" if len(results) > 1 else "")
    return ", ".join(f"{name} {code.name}" for name, code in results) or "nothing"


@render.register
def _(answer: OffsetCommitResponse) -> str:
    return results_of(answer.topics)


@render.register
def _(answer: TxnOffsetCommitResponse) -> str:
    return results_of(answer.topics)


@render.register
def _(answer: OffsetDeleteResponse) -> str:
    return answer.error_code.name if answer.error_code is not ErrorCode.NONE else results_of(answer.topics)


@render.register
def _(answer: OffsetFetchResponse) -> str:
    (group,) = answer.groups
    offsets = [
        words(
            f"{topic.name}/{entry.partition_index}={entry.committed_offset}",
            f"epoch={entry.committed_leader_epoch}" if entry.committed_leader_epoch >= 0 else None,
            f"metadata={entry.metadata}" if entry.metadata else None,
            entry.error_code.name if entry.error_code is not ErrorCode.NONE else None,
        )
        for topic in group.topics
        for entry in topic.partitions
    ]
    return words(group.error_code.name, ", ".join(offsets) or "no offsets")


@render.register
def _(answer: DescribeGroupsResponse) -> str:
    (group,) = answer.groups
    members = ", ".join(
        words(
            entry.member_id,
            entry.group_instance_id and f"({entry.group_instance_id})",
            f"metadata={text_of(entry.member_metadata)}",
            f"assignment={text_of(entry.member_assignment)}",
        )
        for entry in group.members
    )
    return words(
        group.error_code.name,
        group.group_state,
        f"type={group.protocol_type}" if group.protocol_type else None,
        f"protocol={group.protocol_data}" if group.protocol_data else None,
        f"[{members}]" if members else None,
    )


@render.register
def _(answer: ListGroupsResponse) -> str:
    groups = ", ".join(
        words(
            group.group_id, group.group_state, group.protocol_type, "KIP-848" if group.group_type == "consumer" else ""
        )
        for group in answer.groups
    )
    return words(answer.error_code.name, f"[{groups}]")


@render.register
def _(answer: DeleteGroupsResponse) -> str:
    return ", ".join(f"{result.group_id} {result.error_code.name}" for result in answer.results)


@render.register
def _(answer: ConsumerGroupHeartbeatResponse) -> str:
    return words(
        answer.error_code.name,
        f"member={answer.member_id}" if answer.member_id else None,
        f"epoch={answer.member_epoch}" if answer.error_code is ErrorCode.NONE else None,
        None if answer.assignment is None else f"assignment={partitions_of(answer.assignment)}",
    )


@render.register
def _(answer: ConsumerGroupDescribeResponse) -> str:
    (group,) = answer.groups
    members = ", ".join(
        words(
            member.member_id,
            member.instance_id and f"({member.instance_id})",
            f"epoch={member.member_epoch}",
            f"has {partitions_of((topic.topic_id, topic.partitions) for topic in member.assignment)}",
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    )
    return words(
        group.error_code.name,
        group.group_state,
        f"epoch={group.group_epoch} target={group.assignment_epoch}" if group.group_state else None,
        f"[{members}]" if members else None,
    )


# ---------------------------------------------------------------- records


@render.register
def _(record: GroupMetadataRecord) -> str:
    members = ", ".join(
        words(m.member_id, m.group_instance_id and f"({m.group_instance_id})", f"has {text_of(m.assignment)}")
        for m in record.members
    )
    return words(
        f"group {record.group_id} generation={record.generation_id}",
        f"type={record.protocol_type}" if record.protocol_type else None,
        f"protocol={record.protocol_name}" if record.protocol_name else None,
        f"leader={record.leader}" if record.leader else None,
        f"[{members}]" if members else "without members",
    )


KINDS = {
    2: "group {0}",
    3: "epoch of {0}",
    4: "partition metadata of {0}",
    5: "member {1} of {0}",
    6: "target epoch of {0}",
    7: "target of {1} in {0}",
    8: "assignment of {1} in {0}",
    16: "expression {1} of {0}",
}
"""By the type of a group's record, what it says something of: a group, and a member or an expression."""


@render.register
def _(record: GroupTombstone) -> str:
    kind, name = record.key
    return f"{KINDS[kind].format(record.group_id, name)} is gone"


@render.register
def _(record: ConsumerGroupMetadataRecord) -> str:
    return f"epoch of {record.group_id} is {record.epoch}"


@render.register
def _(record: ConsumerGroupMemberMetadataRecord) -> str:
    classic = record.classic_member_metadata
    return words(
        f"member {record.member_id} of {record.group_id}",
        record.instance_id and f"({record.instance_id})",
        f"topics={','.join(record.subscribed_topic_names)}" if record.subscribed_topic_names else None,
        f"regex={record.subscribed_topic_regex}" if record.subscribed_topic_regex else None,
        f"assignor={record.server_assignor}" if record.server_assignor else None,
        f"classic={','.join(protocol.name for protocol in classic.supported_protocols)}" if classic else None,
    )


@render.register
def _(record: ConsumerGroupTargetAssignmentMetadataRecord) -> str:
    return f"target epoch of {record.group_id} is {record.assignment_epoch}"


@render.register
def _(record: ConsumerGroupTargetAssignmentMemberRecord) -> str:
    return f"target of {record.member_id} in {record.group_id} is {partitions_of(record.topic_partitions)}"


@render.register
def _(record: ConsumerGroupCurrentMemberAssignmentRecord) -> str:
    pending = [(topic_id, partitions) for topic_id, partitions, _ in record.partitions_pending_revocation]
    return words(
        f"assignment of {record.member_id} in {record.group_id} epoch={record.member_epoch}",
        MemberState(record.state).name,
        partitions_of((topic_id, partitions) for topic_id, partitions, _ in record.assigned_partitions),
        f"gives back {partitions_of(pending)}" if pending else None,
    )


@render.register
def _(record: ConsumerGroupRegularExpressionRecord) -> str:
    return f"expression {record.regular_expression} of {record.group_id} matches {','.join(record.topics) or 'nothing'}"


@render.register
def _(record: OffsetCommitRecord) -> str:
    return words(
        f"offset {record.group_id} {record.topic}/{record.partition}={record.offset}",
        f"epoch={record.leader_epoch}" if record.leader_epoch >= 0 else None,
        f"metadata={record.metadata}" if record.metadata else None,
        "with an expiry" if record.expire_timestamp_ms >= 0 else None,
        f"id={readable(record.topic_id)}" if record.topic_id != ZERO_UUID else None,
        f"of producer {record.producer_id}" if record.producer_id >= 0 else None,
    )


@render.register
def _(record: OffsetTombstone) -> str:
    return f"offset {record.group_id} {record.topic}/{record.partition} is gone"


@render.register
def _(record: TransactionMarker) -> str:
    return f"producer {record.producer_id} {'commits' if record.committed else 'aborts'}"
