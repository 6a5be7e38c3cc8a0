"""Requests that a server received, with their responses, and the broker that records them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any, cast, overload

from attrs import Factory, define, evolve, frozen

from groupcoord.broker.broker import Broker, ConnectionT
from groupcoord.broker.connection import Connection, Interceptor
from groupcoord.core.messages import (
    ConsumerGroupHeartbeatResponse,
    CoordinatorType,
    FindCoordinator,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponse,
    SyncGroupResponse,
)
from groupcoord.core.router.authorization import Principal
from groupcoord.errors import ErrorCode, UnknownNameError, did_you_mean
from groupcoord.testing.asserting.groups import MemberDescription
from groupcoord.testing.faults.error_answers import Place, named_partitions, topic_key
from groupcoord.testing.faults.rules import APIS_BY_NAME, named_groups
from groupcoord.wire import RequestHeader, WireResponse
from groupcoord.wire.broker_messages import Fetch, FetchedPartitionData, FetchResponse, Produce
from groupcoord.wire.registry import APIS
from groupcoord.wire.share_messages import ShareFetch, ShareFetchResponse

ENTRIES_MAX = 10_000
"""Limit on kept members, and on partitions of a connection; the oldest are dropped."""


@define(eq=False)
class _Connection:
    client_id: str = ""
    share_member: tuple[str, str] | None = None
    last_fetch: int = 0
    session: set[Place] = Factory(set)
    named: dict[Place, int] = Factory(dict)
    failed: set[Place] = Factory(set)

    def note_fetch(self, number: int, client_id: str, message: Fetch | ShareFetch) -> None:
        forgotten: Sequence[Any]
        if isinstance(message, ShareFetch):
            self.share_member = (message.group_id or "", message.member_id or "")
            epoch, forgotten = message.share_session_epoch, message.forgotten_topics_data
        else:
            epoch, forgotten = message.session_epoch, message.forgotten_topics
        gone = [(topic_key(topic), index) for topic in forgotten for index in topic.partitions]
        named = list(named_partitions(message))
        self.client_id = client_id
        self.last_fetch = number
        self.failed.clear()
        if epoch <= 0:
            self.session.clear()
        if epoch >= 0:
            self.session.update(named)
        self.session.difference_update(gone)
        for place in gone:
            self.named.pop(place, None)
        self.named.update(dict.fromkeys(named, number))
        while len(self.named) > max(ENTRIES_MAX, len(named)):
            del self.named[next(iter(self.named))]

    def note_errors(self, answer: Any) -> None:
        for topic in answer.responses if isinstance(answer, ShareFetchResponse) else answer.topics:
            failed = (one.partition_index for one in topic.partitions if one.error_code is not ErrorCode.NONE)
            self.failed.update((topic_key(topic), index) for index in failed)
        if answer.error_code is not ErrorCode.NONE:
            self.failed.update(self.session, self.named)
        for place in self.failed:
            self.named.pop(place, None)

    def last_fetch_of(self, places: tuple[Place, ...]) -> int:
        if not self.failed.isdisjoint(places):
            return 0
        if not self.session.isdisjoint(places):
            return self.last_fetch
        return max(self.named.get(place, 0) for place in places)


class FetchLog:
    """Partitions that each connection fetches, from requests and responses."""

    def __init__(self) -> None:
        self._connections: dict[int, _Connection] = {}
        self._assigned_at: dict[tuple[str, str], int] = {}

    def note_request(self, number: int, connection: int, client_id: str, message: object) -> None:
        if isinstance(message, Fetch):
            self._connections.setdefault(connection, _Connection()).note_fetch(number, client_id, message)

    def note_answer(self, connection: int, client_id: str, message: Any, answer: Any, request_count: int) -> None:
        if isinstance(message, Fetch | ShareFetch):
            fetching = self._connections.setdefault(connection, _Connection())
            if isinstance(message, ShareFetch):
                # A share-partition may start only with its first response, after records produced meanwhile.
                fetching.note_fetch(request_count, client_id, message)
            fetching.note_errors(answer)
            return
        member_id = _assigned_member(message, answer)
        if member_id is not None:
            self._assigned_at.pop((message.group_id, member_id), None)
            self._assigned_at[message.group_id, member_id] = request_count
            if len(self._assigned_at) > ENTRIES_MAX:
                del self._assigned_at[next(iter(self._assigned_at))]

    def session(self, connection: int) -> frozenset[Place]:
        fetching = self._connections.get(connection)
        return frozenset() if fetching is None else frozenset(fetching.session)

    def closed(self, connection: int) -> None:
        self._connections.pop(connection, None)

    def readers(self, group_id: str, member: MemberDescription, places: tuple[Place, ...]) -> int:
        """Return the number of connections of a member's client that fetched from a partition since its assignment."""
        since = self._assigned_at.get((group_id, member.member_id), 0)
        share_member = (group_id, member.member_id) if member.protocol == "share" else None
        return sum(
            connection.last_fetch_of(places) > since
            for connection in self._connections.values()
            if connection.share_member == share_member
            and (share_member is not None or connection.client_id == member.client_id)
        )


def _assigned_member(message: Any, answer: Any) -> str | None:
    match answer:
        case SyncGroupResponse(error_code=ErrorCode.NONE):
            return str(message.member_id)
        case ConsumerGroupHeartbeatResponse() | ShareGroupHeartbeatResponse() if answer.assignment is not None:
            return answer.member_id or str(message.member_id)
        case StreamsGroupHeartbeatResponse() if answer.active_tasks is not None:
            return str(message.member_id)
    return None


__tracebackhide__ = True

KEPT_COUNT = 10_000
KEPT_RECORD_BYTES = 16_777_216
"""Limits on requests and their record bytes; the oldest requests are dropped."""


@frozen
class ReceivedRequest:
    """Request with its response or refusal.

    Attributes:
        number: consecutive number, from 1.
        api: Kafka's name: ``OffsetCommit``.
        client_host: host in Kafka's form: ``/127.0.0.1``.
        node_id: the node that received it.
        received_ms: time by the server's clock.
        message: the decoded request, of :mod:`groupcoord.messages` or ``groupcoord.wire``.
        answer: the decoded response, or None.
        refusal: reason for a missing response, or None.
        listener: name of the listener, if there are several.
    """

    number: int
    api: str
    version: int
    client_id: str
    client_host: str
    node_id: int
    connection: int
    received_ms: int
    message: Any
    answer: Any = None
    answered_ms: int | None = None
    refusal: str | None = None
    listener: str = ""

    @property
    def group_ids(self) -> tuple[str, ...]:
        """The groups that the request names."""
        message = self.message
        if isinstance(message, FindCoordinator):
            return message.keys if message.key_type == CoordinatorType.GROUP else ()
        return tuple(group_id for group_id in named_groups(message) if group_id is not None)


class Requests(Sequence[ReceivedRequest]):
    """Immutable sequence of requests in the order of their arrival."""

    def __init__(self, requests: Sequence[ReceivedRequest]) -> None:
        self._requests = tuple(requests)

    def where(
        self,
        api: str | type | None = None,
        *,
        client_id: str | None = None,
        group_id: str | None = None,
        node: int | None = None,
    ) -> Requests:
        """Return the requests that match all given conditions.

        Args:
            api: Kafka's name, or the class of the request: ``"OffsetCommit"`` or ``OffsetCommit``.
            client_id: client id.
            group_id: a group that the request names.
            node: id of the receiving node.

        Raises:
            UnknownNameError: the server has no such API.
        """
        name = None if api is None else _checked_api(api if isinstance(api, str) else api.__name__)
        return Requests(
            [
                request
                for request in self._requests
                if (name is None or request.api == name)
                and (client_id is None or request.client_id == client_id)
                and (group_id is None or group_id in request.group_ids)
                and node in (None, request.node_id)
            ]
        )

    def after(self, number: int) -> Requests:
        """Return the requests with higher numbers."""
        return Requests([request for request in self._requests if request.number > number])

    @overload
    def __getitem__(self, index: int) -> ReceivedRequest: ...

    @overload
    def __getitem__(self, index: slice) -> Requests: ...

    def __getitem__(self, index: int | slice) -> ReceivedRequest | Requests:
        return Requests(self._requests[index]) if isinstance(index, slice) else self._requests[index]

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[ReceivedRequest]:
        return iter(self._requests)

    def __repr__(self) -> str:
        return f"Requests({list(self._requests)!r})"


def _checked_api(name: str) -> str:
    if name not in APIS_BY_NAME:
        raise UnknownNameError(f"no API that is served is called {name!r}{did_you_mean(name, APIS_BY_NAME)}")
    return name


class RequestLog:
    """Received requests with their responses, within limits.

    Attributes:
        watchers: called with each request on arrival, and again when it is answered or refused.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.count = 0
        self.fetches = FetchLog()
        self.watchers: list[Callable[[ReceivedRequest], None]] = []
        self.connection_numbers = count(1)
        self._kept: dict[int, ReceivedRequest] = {}
        self._record_bytes: dict[int, int] = {}
        self._record_bytes_in_all = 0

    def came(
        self,
        header: RequestHeader,
        message: object,
        client_host: str,
        node_id: int,
        connection: int,
        listener: str = "",
    ) -> int:
        self.count = number = self.count + 1
        self._kept[number] = ReceivedRequest(
            number,
            APIS[header.api_key].name,
            header.api_version,
            header.client_id,
            client_host,
            node_id,
            connection,
            self._now_ms(),
            message,
            listener=listener,
        )
        self.fetches.note_request(number, connection, header.client_id, message)
        self._notify(number)
        if isinstance(message, Produce):
            sizes = (len(p.records or b"") for topic in message.topics for p in topic.partitions)
            self._add_bytes(number, sum(sizes))
        if len(self._kept) > KEPT_COUNT:
            self._forget_oldest()
        return number

    def answered(self, number: int, answer: Any) -> None:
        request = self._kept.get(number)
        if request is None:
            return
        if isinstance(answer, FetchResponse):
            answer = self._copied(number, answer)
        self._kept[number] = evolve(request, answer=answer, answered_ms=self._now_ms())
        self.fetches.note_answer(request.connection, request.client_id, request.message, answer, self.count)
        self._notify(number)

    def refused(self, number: int, reason: str) -> None:
        request = self._kept.get(number)
        if request is not None and request.answered_ms is None:
            self._kept[number] = evolve(request, refusal=reason)
            self._notify(number)

    def closed(self, connection: int) -> None:
        self.fetches.closed(connection)

    def _notify(self, number: int) -> None:
        for watch in self.watchers:
            watch(self._kept[number])

    def requests(self) -> Requests:
        return Requests(tuple(self._kept.values()))

    def clear(self) -> None:
        self._kept.clear()
        self._record_bytes.clear()
        self._record_bytes_in_all = 0

    def _copied(self, number: int, answer: FetchResponse) -> FetchResponse:
        """Return a response with copied records: slices would keep the log's memory."""
        if not any(partition.records for topic in answer.topics for partition in topic.partitions):
            return answer
        topics = tuple(
            topic._replace(partitions=tuple(map(_with_own_records, topic.partitions))) for topic in answer.topics
        )
        sizes = (len(records) for topic in topics for p in topic.partitions for records in p.records)
        self._add_bytes(number, sum(sizes))
        return evolve(answer, topics=topics)

    def _add_bytes(self, number: int, size: int) -> None:
        self._record_bytes[number] = size
        self._record_bytes_in_all += size
        while self._record_bytes_in_all > KEPT_RECORD_BYTES and len(self._kept) > 1:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        number = next(iter(self._kept))
        del self._kept[number]
        self._record_bytes_in_all -= self._record_bytes.pop(number, 0)


def _with_own_records(partition: FetchedPartitionData) -> FetchedPartitionData:
    return partition._replace(records=(b"".join(partition.records),)) if partition.records else partition


class ObservedConnection(Connection):
    """Connection that records requests and the responses finally sent."""

    def __init__(
        self, broker: ObservedBroker, client_host: str, principal: Principal, max_request_bytes: int, *login: Any
    ) -> None:
        super().__init__(broker, client_host, principal, max_request_bytes, *login)
        self._log = broker.request_log
        self._node_id = broker.node.node_id
        self._number = next(self._log.connection_numbers)
        self.listener = ""
        self._request_number: int | None = None

    @property
    def fetch_session(self) -> frozenset[Place]:
        return self._log.fetches.session(self._number)

    def note(self, header: RequestHeader, request: object) -> None:
        self._request_number = self._log.came(
            header, request, self.client_host, self._node_id, self._number, self.listener
        )

    def answer(self, response: WireResponse | None) -> None:
        if response is not None:
            held_back = self.on_answer
            if held_back is None:
                self._note_answer(response)
            else:

                def is_held_back(answer: WireResponse) -> bool:
                    if held_back(answer):
                        return True
                    self._note_answer(answer)
                    return False

                self.on_answer = is_held_back
        super().answer(response)

    def skip_answer(self) -> None:
        self._request_number = None
        super().skip_answer()

    def refuse(self, reason: str) -> None:
        self._give_up(reason)
        super().refuse(reason)

    def close(self) -> None:
        self._give_up("the connection was closed before")
        self._log.closed(self._number)
        super().close()

    def _note_answer(self, response: WireResponse) -> None:
        if self._request_number is not None:
            self._log.answered(self._request_number, response)
            self._request_number = None

    def _give_up(self, reason: str) -> None:
        if self._request_number is not None:
            self._log.refused(self._request_number, reason)
            self._request_number = None


@cache
def _observed(usual: type[Connection]) -> type[Connection]:
    name = f"Observed{usual.__name__}"
    return ObservedConnection if usual is Connection else type(name, (ObservedConnection, usual), {})


class RequestRecorder:
    """Interceptor that records requests and passes them to another interceptor."""

    def __init__(self) -> None:
        self.following: Interceptor | None = None

    def takes(self, connection: Connection, header: RequestHeader, request: Any) -> bool:
        if isinstance(connection, ObservedConnection):
            connection.note(header, request)
        return self.following is not None and self.following.takes(connection, header, request)

    def disconnected(self, connection: Connection) -> None:
        if self.following is not None:
            self.following.disconnected(connection)

    def next_deadline_ms(self) -> int | None:
        return None if self.following is None else self.following.next_deadline_ms()

    def tick(self, now_ms: int) -> None:
        if self.following is not None:
            self.following.tick(now_ms)


class ObservedBroker(Broker):
    """Broker that records requests and responses."""

    def __init__(self, *, request_log: RequestLog, **settings: Any) -> None:
        self.request_log = request_log
        self._recorder = RequestRecorder()
        super().__init__(**settings)

    def connect(self, client_host: str, listener: str = "") -> Connection:
        connection = super().connect(client_host, listener)
        if isinstance(connection, ObservedConnection):
            connection.listener = listener
        return connection

    def connection_type(self, usual: type[ConnectionT]) -> type[ConnectionT]:
        return cast(type[ConnectionT], _observed(cast(Any, usual)))

    @property
    def interceptor(self) -> Interceptor | None:
        """The recorder; an assigned interceptor follows it."""
        return self._recorder

    @interceptor.setter
    def interceptor(self, following: Interceptor | None) -> None:
        self._recorder.following = following
