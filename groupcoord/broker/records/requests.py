"""Requests about what topics hold, and the Fetches that wait for more of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

from groupcoord.broker.answering import answers
from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.connection import Connection
from groupcoord.broker.portions import FEW, Work
from groupcoord.broker.records.administration import answer_delete_records, answer_offset_for_leader_epoch
from groupcoord.broker.records.current_leaders import CurrentLeaders
from groupcoord.broker.records.fetch_sessions import FetchContext, Fetched, FetchSessions
from groupcoord.broker.records.fetch_waits import FetchWait, FetchWaits
from groupcoord.broker.records.fetching import plan_fetch, read, unexpected_fetch
from groupcoord.broker.records.list_offsets import answer_list_offsets, looks_into_batches
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.core.front.authorization import Permissions
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse
from groupcoord.wire.broker_messages import (
    DeleteRecords,
    Fetch,
    FetchResponse,
    ListOffsets,
    OffsetForLeaderEpoch,
    Produce,
    ProduceResponse,
)
from groupcoord.wire.pacing import Pace, in_portions

if TYPE_CHECKING:
    from groupcoord.broker.records.producing import Verify


class DataRequests:
    """Answers Produce, Fetch, ListOffsets and their kin.

    Handlers return the answer, or None if it comes later, or none is awaited.

    Args:
        data: what topics hold.
        pace: how long the work of a turn may go on.
        permissions_of: returns what a connection's client may do.
        verify: the transaction coordinator, asked who may write in a transaction.
        leadership: who leads what.
    """

    def __init__(
        self,
        data: TopicData,
        pace: Pace,
        permissions_of: Callable[[Connection], Permissions],
        verify: Verify,
        leadership: Leadership,
    ) -> None:
        self._data = data
        self._pace = pace
        self._permissions_of = permissions_of
        self._verify = verify
        self._leaders = None if leadership.is_sole else CurrentLeaders(leadership, data)
        self._sessions = FetchSessions(
            data.config.max_incremental_fetch_session_cache_slots if data.logs is not None else 0, data.clock.now_ms
        )
        self.waits = FetchWaits()

    @cached_property
    def _producing(self) -> ModuleType:
        """What answers a Produce, with all that reads batches: imported when the first one comes."""
        from groupcoord.broker.records import producing

        return producing

    @answers(Produce, may_pause=True)
    def produce(self, connection: Connection, request: Produce) -> WireResponse | None:
        """Append records; where batches have to be looked into, in portions."""
        if self._data.logs is None or not self._producing.looks_into_batches(request, self._data):
            return self._append(connection, request)
        connection.answer_in_portions(in_portions(self._pace, self._append, connection, request))
        return None

    def _append(self, connection: Connection, request: Produce) -> WireResponse | None:
        response: ProduceResponse = self._producing.answer_produce(
            request, self._data, self._verify, self._permissions_of(connection)
        )
        if request.acks != 0:
            return response if self._leaders is None else self._leaders.told_by_produce(response, connection.nodes)
        # No answer can tell the client of an error; as a Kafka broker does, closing the connection must.
        failed = (
            partition
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code is not ErrorCode.NONE
        )
        first = next(failed, None)
        if first is None:
            connection.skip_answer()
        else:
            connection.refuse(f"Produce with acks=0 failed: {first.error_message or first.error_code.name}")
        return None

    @answers(ListOffsets, may_pause=True)
    def list_offsets(self, connection: Connection, request: ListOffsets) -> WireResponse | None:
        """Look up offsets; where batches may have to be read, in portions."""
        permissions = self._permissions_of(connection)
        if self._data.logs is None or not looks_into_batches(request):
            return answer_list_offsets(request, self._data, permissions)
        connection.answer_in_portions(in_portions(self._pace, answer_list_offsets, request, self._data, permissions))
        return None

    @answers(OffsetForLeaderEpoch, may_pause=True)
    def offset_for_leader_epoch(self, connection: Connection, request: OffsetForLeaderEpoch) -> WireResponse | None:
        """Tell where leaders' epochs end."""
        return answer_offset_for_leader_epoch(request, self._data, self._permissions_of(connection))

    @answers(DeleteRecords, may_pause=True)
    def delete_records(self, connection: Connection, request: DeleteRecords) -> WireResponse | None:
        """Delete what is before an offset."""
        return answer_delete_records(request, self._data, self._permissions_of(connection))

    # ------------------------------------------------------------ Fetch

    @answers(Fetch, may_pause=True)
    def fetch(self, connection: Connection, request: Fetch) -> WireResponse | None:
        """Read, or wait; a session may name many partitions with few words, which then are read in portions."""
        unexpected = unexpected_fetch(request)
        if unexpected is not None:
            return unexpected
        context = self._sessions.open(request)
        if isinstance(context, ErrorCode):
            return FetchResponse(context)
        if len(context.targets) <= FEW:
            return self._read(connection, request, context)
        connection.answer_in_portions(in_portions(self._pace, self._read, connection, request, context))
        return None

    def _read(self, connection: Connection, request: Fetch, context: FetchContext) -> FetchResponse | None:
        plan = plan_fetch(request, context.targets, self._data, self._permissions_of(connection))
        result = read(plan)
        if not result.waits:
            return self._answer(connection, context, result.fetched)
        has_read = any(fetched.records for _, fetched in result.fetched)
        deadline_ms = self._data.clock.now_ms() + request.max_wait_ms
        wait = FetchWait(connection, context, plan, None if has_read else result.fetched, deadline_ms, self._end_wait)
        self.waits.add(wait)
        if wait.watch():
            return None
        self.waits.remove(connection)
        return self._answer(connection, context, read(plan).fetched)

    def _answer(self, connection: Connection, context: FetchContext, fetched: Fetched) -> FetchResponse:
        response = context.respond(fetched)
        return response if self._leaders is None else self._leaders.told_by_fetch(response, connection.nodes)

    def _end_wait(self, wait: FetchWait) -> None:
        """Answer a Fetch that waited: at its connection's turn, if there is something to read."""
        self.waits.remove(wait.connection)
        if wait.fetched is not None and not wait.has_changed:
            wait.connection.answer(wait.context.respond(wait.fetched))
        else:
            wait.connection.answer_in_portions(self._read_again(wait))

    def _read_again(self, wait: FetchWait) -> Work[WireResponse]:
        result = yield from in_portions(self._pace, read, wait.plan)
        return (yield from in_portions(self._pace, self._answer, wait.connection, wait.context, result.fetched))

    def tick(self, now_ms: int) -> None:
        """Answer the Fetches whose time is up."""
        while (wait := self.waits.take_due(now_ms)) is not None:
            self._end_wait(wait)
