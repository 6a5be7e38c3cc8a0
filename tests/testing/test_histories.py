"""Histories are true to the protocol, to time and to the log that they left."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.errors import InvalidArgument

from groupcoord import ErrorCode
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMetadataRecord,
)
from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    GroupMetadataRecord,
    GroupTombstone,
    OffsetTombstone,
    TransactionMarker,
)
from groupcoord.laws import errors_in
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DeleteGroups,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchResponse,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    SyncGroup,
    SyncGroupResponse,
    TxnOffsetCommit,
)
from groupcoord.testing import History, histories
from tests.tables import as_one_test

GROUP_KEYS = {CLASSIC_GROUP_KEY: "converted", ConsumerGroupMetadataRecord.key: "converted back"}
"""The keys of the records that a group leaves behind when it changes its kind."""


@given(histories())
def test_time_never_goes_back(history: History) -> None:
    """Requests are in the order of sending, and no response precedes its request."""
    sent = [exchange.sent_ms for exchange in history.exchanges]

    assert sent == sorted(sent)
    assert all(e.answered_ms is None or e.answered_ms >= e.sent_ms for e in history.exchanges)
    assert all((e.answered_ms is None) == (e.response is None) for e in history.exchanges)


@given(histories(protocols=["classic"]))
def test_assignments_are_in_the_log(history: History) -> None:
    """The response of a sync is in the log, under the member and generation of its request."""
    written = {
        (record.group_id, record.generation_id, member.member_id): member.assignment
        for entries in history.logs.values()
        for record in (entry.record for entry in entries)
        if isinstance(record, GroupMetadataRecord)
        for member in record.members
    }
    for exchange in history.exchanges:
        request, response = exchange.request, exchange.response
        if isinstance(response, SyncGroupResponse) and response.error_code is ErrorCode.NONE:
            assert isinstance(request, SyncGroup)
            assert written[request.group_id, request.generation_id, request.member_id] == response.assignment


@given(histories(protocols=["consumer"]))
def test_epochs_and_assignments_are_in_the_log(history: History) -> None:
    """The response of a consumer group heartbeat is in the log, as an assignment of that member's epoch."""
    written = {
        (record.group_id, record.member_id, record.member_epoch, held_in(record))
        for entries in history.logs.values()
        for record in (entry.record for entry in entries)
        if isinstance(record, ConsumerGroupCurrentMemberAssignmentRecord)
    }
    for exchange in history.exchanges:
        request, response = exchange.request, exchange.response
        if isinstance(response, ConsumerGroupHeartbeatResponse) and response.assignment is not None:
            assert isinstance(request, ConsumerGroupHeartbeat)
            told = frozenset((topic.topic_id, index) for topic in response.assignment for index in topic.partitions)
            assert (request.group_id, response.member_id, response.member_epoch, told) in written


def held_in(record: ConsumerGroupCurrentMemberAssignmentRecord) -> frozenset[tuple[UUID, int]]:
    return frozenset((topic.topic_id, index) for topic in record.assigned_partitions for index in topic.partitions)


@given(histories(group_ids=["only"], protocols=["classic"], static_members=False, max_consumers=2))
def test_arguments_are_kept_to(history: History) -> None:
    """Groups, types and the number of members are the requested ones."""
    joins = [e.request for e in history.exchanges if isinstance(e.request, JoinGroup)]

    assert {join.group_id for join in joins} <= {"only"}
    assert {join.group_instance_id for join in joins} <= {None}
    assert len({join.client_id for join in joins}) <= 2


def test_histories_get_somewhere() -> None:
    """There are some in which several share a group of either protocol, members leave, and groups change their kind."""
    found: set[str] = set()

    @settings(max_examples=200, database=None, derandomize=True)
    @given(histories(group_ids=["only"], deaths=False))
    def look(history: History) -> None:
        for exchange in history.exchanges:
            if isinstance(exchange.response, JoinGroupResponse) and len(exchange.response.members) > 1:
                found.add("several")
            if isinstance(exchange.request, LeaveGroup):
                found.add("left")
            if isinstance(exchange.request, ConsumerGroupHeartbeat) and exchange.request.member_epoch < 0:
                found.add("left a consumer group")
        for entries in history.logs.values():
            for record in (entry.record for entry in entries):
                if isinstance(record, ConsumerGroupCurrentMemberAssignmentRecord) and 0 < len(held_in(record)) < 4:
                    found.add("shares of a consumer group")
                if isinstance(record, GroupTombstone) and record.key in GROUP_KEYS:
                    found.add(GROUP_KEYS[record.key])

    look()

    shared = {"several", "shares of a consumer group"}
    assert found == shared | {"left", "left a consumer group", "converted", "converted back"}


def test_histories_of_newer_groups_get_somewhere() -> None:
    """Several have records or tasks, some leave, and who comes to a group of another kind is refused."""
    found: set[str] = set()

    @settings(max_examples=40, database=None, derandomize=True)
    @given(
        histories(group_ids=["only"], protocols=["share", "streams"], deaths=False, deletions=False, transactions=False)
    )
    def look(history: History) -> None:
        for exchange in history.exchanges:
            request, response = exchange.request, exchange.response
            if isinstance(request, OffsetFetch):
                continue
            assert isinstance(request, ShareGroupHeartbeat | StreamsGroupHeartbeat | OffsetCommit)
            if isinstance(request, OffsetCommit):
                found.add("committed")
                continue
            assert isinstance(response, ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse)
            kind = "share" if isinstance(request, ShareGroupHeartbeat) else "streams"
            if response.error_code is not ErrorCode.NONE:
                found.add(f"{kind} refused")
            elif request.member_epoch < 0:
                found.add(f"{kind} left")
            elif response.assignment if isinstance(response, ShareGroupHeartbeatResponse) else response.active_tasks:
                found.add(f"{kind} assigned")

    look()

    both = {f"{kind} {what}" for kind in ("share", "streams") for what in ("refused", "left", "assigned")}
    assert found == both | {"committed"}


def test_offsets_come_in_transactions_and_go() -> None:
    """A hundred examples have all that a reader of logs can forget: tombstones, expiry, how a transaction ended."""
    found: set[str] = set()

    @settings(max_examples=100, database=None, derandomize=True)
    @given(histories())
    def look(history: History) -> None:
        deleted_ms = {e.sent_ms for e in history.exchanges if isinstance(e.request, OffsetDelete | DeleteGroups)}
        for request, response in ((each.request, each.response) for each in history.exchanges):
            if isinstance(request, TxnOffsetCommit | OffsetDelete | DeleteGroups) and not any(errors_in(response)):
                found.add(type(request).__name__)
            if isinstance(response, OffsetFetchResponse) and any(group.topics for group in response.groups):
                found.add("OffsetFetch")
        for entry in (entry for log in history.logs.values() for entry in log):
            if isinstance(entry.record, OffsetTombstone):
                found.add("offset deleted" if entry.timestamp_ms in deleted_ms else "offset expired")
            elif isinstance(entry.record, TransactionMarker):
                found.add("committed" if entry.record.committed else "aborted")

    look()

    requests = {"TxnOffsetCommit", "OffsetDelete", "DeleteGroups", "OffsetFetch"}
    assert found == requests | {"offset deleted", "offset expired", "committed", "aborted"}


@given(histories(deletions=False, transactions=False))
def test_what_is_not_wanted_does_not_happen(history: History) -> None:
    """Without deletions and transactions no offset goes, and none is committed in one."""
    records = [entry.record for log in history.logs.values() for entry in log]
    assert not any(isinstance(record, OffsetTombstone | TransactionMarker) for record in records)


@as_one_test
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group_ids": "alpha"}, "group_ids='alpha' must be a collection"),
        ({"group_ids": ()}, r"group_ids=\(\) must be a collection"),
        ({"protocols": "consumer"}, "protocols='consumer' must be a collection"),
        (
            {"protocols": ["connect"]},
            r"protocols=\['connect'\] must be a collection of at least one of classic, consumer, share, streams",
        ),
        ({"max_steps": -1}, "max_steps=-1 must be a whole number"),
        ({"max_consumers": 1.5}, "max_consumers=1.5 must be a whole number"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    @settings(database=None)
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        data.draw(histories(**arguments))  # type: ignore[arg-type]

    with pytest.raises(InvalidArgument, match=message):
        draw()
