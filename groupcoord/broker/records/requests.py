"""Requests about what topics hold, and the Fetches that wait for more of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

from groupcoord.broker.answering import answers
from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.connection import Connection
from groupcoord.broker.records.fetch import FetchWait, FetchWaits, answer_unexpected, is_expected, plan_fetch, read
from groupcoord.broker.records.fetch_sessions import FetchSessions
from groupcoord.broker.records.list_offsets import (
    answer_delete_records,
    answer_list_offsets,
    answer_offset_for_leader_epoch,
)
from groupcoord.broker.records.topic_data import CurrentLeaders, TopicData
from groupcoord.broker.work import Work
from groupcoord.core.router.authorization import Permissions
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

if TYPE_CHECKING:
    from groupcoord.broker.records.produce import Verify


class DataRequests:
    """Answers Produce, Fetch, ListOffsets and their kin.

    Args:
        data: what topics hold.
        permissions_of: returns what a connection's client may do.
        verify: the transaction coordinator, asked who may write in a transaction.
        leadership: who leads what.
    """

    def __init__(
        self,
        data: TopicData,
        permissions_of: Callable[[Connection], Permissions],
        verify: Verify,
        leadership: Leadership,
    ) -> None:
        self._data = data
        self._permissions_of = permissions_of
        self._verify = verify
        self._is_sole = leadership.is_sole
        self._leaders = CurrentLeaders(leadership, data)
        self._sessions = FetchSessions(
            data.config.max_incremental_fetch_session_cache_slots if data.logs is not None else 0, data.clock.now_ms
        )
        self.waits = FetchWaits()
        self.on_earlier = self.waits.on_earlier

    @cached_property
    def _producing(self) -> ModuleType:
        """What answers a Produce, with all that reads batches: imported when the first one comes."""
        from groupcoord.broker.records import produce

        return produce

    @answers(Produce)
    def produce(self, connection: Connection, request: Produce) -> Work[WireResponse | None]:
        """Append records."""
        permissions = self._permissions_of(connection)
        response: ProduceResponse = yield from self._producing.answer_produce(
            request, self._data, self._verify, permissions
        )
        if request.acks != 0:
            return response if self._is_sole else self._leaders.add_to_produce(response, connection.nodes)
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

    @answers(ListOffsets)
    def list_offsets(self, connection: Connection, request: ListOffsets) -> Work[WireResponse | None]:
        """Look up offsets."""
        return answer_list_offsets(request, self._data, self._permissions_of(connection))

    @answers(OffsetForLeaderEpoch)
    def offset_for_leader_epoch(
        self, connection: Connection, request: OffsetForLeaderEpoch
    ) -> Work[WireResponse | None]:
        """Tell where leaders' epochs end."""
        return answer_offset_for_leader_epoch(request, self._data, self._permissions_of(connection))

    @answers(DeleteRecords)
    def delete_records(self, connection: Connection, request: DeleteRecords) -> Work[WireResponse | None]:
        """Delete what is before an offset."""
        return answer_delete_records(request, self._data, self._permissions_of(connection))

    # ------------------------------------------------------------ Fetch

    @answers(Fetch)
    def fetch(self, connection: Connection, request: Fetch) -> Work[WireResponse | None]:
        """Read, or wait; a session may name many partitions with few words."""
        if not is_expected(request):
            return (yield from answer_unexpected(request))
        context = yield from self._sessions.open(request)
        if isinstance(context, ErrorCode):
            return FetchResponse(context)
        plan = yield from plan_fetch(request, context.targets, self._data, self._permissions_of(connection))
        result = yield from read(plan)
        if result.waits:
            has_read = any(fetched.records for _, fetched in result.fetched)
            first = None if has_read else result.fetched
            deadline_ms = self._data.clock.now_ms() + request.max_wait_ms
            wait = FetchWait(connection, context, plan, first, deadline_ms, self._end_wait)
            self.waits.add(wait)
            if (yield from wait.watch()):
                return None
            self.waits.remove(connection)
            result = yield from read(plan)
        response = yield from context.respond(result.fetched)
        return self._leaders.add_to_fetch(response, connection.nodes) if result.has_failed else response

    def _end_wait(self, wait: FetchWait) -> None:
        """Answer a Fetch that waited; at its connection's turn, if there is something to read."""
        self.waits.remove(wait.connection)
        work = self._answer_wait(wait)
        if wait.has_changed:
            wait.connection.answer_later(work)  # this is in the middle of somebody else's append
        else:
            wait.connection.answer_when_done(work)

    def _answer_wait(self, wait: FetchWait) -> Work[WireResponse]:
        plan, fetched = wait.plan, wait.fetched
        if wait.has_moved:
            permissions = self._permissions_of(wait.connection)
            plan = yield from plan_fetch(plan.request, wait.context.targets, self._data, permissions)
        has_failed = False
        if fetched is None or wait.has_changed:
            fetched, _, has_failed = yield from read(plan)
        response = yield from wait.context.respond(fetched)
        return self._leaders.add_to_fetch(response, wait.connection.nodes) if has_failed else response

    def next_deadline_ms(self) -> int | None:
        """Return when the time of the first Fetch is up; None if none waits."""
        return self.waits.next_deadline_ms()

    def tick(self, now_ms: int) -> None:
        """Answer the Fetches whose time is up."""
        while (wait := self.waits.take_due(now_ms)) is not None:
            self._end_wait(wait)
