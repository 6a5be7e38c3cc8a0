"""What came to a server and what was answered: kept for tests, up to a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from attrs import evolve, frozen

from groupcoord.core.messages import CoordinatorType, FindCoordinator
from groupcoord.errors import UnknownNameError
from groupcoord.testing.asserting.fetch_log import FetchLog
from groupcoord.testing.asserting.words import did_you_mean
from groupcoord.testing.faults.calls import named_groups
from groupcoord.testing.faults.words import APIS_BY_NAME
from groupcoord.wire.api import RequestHeader
from groupcoord.wire.broker_messages import FetchedPartitionData, FetchResponse, Produce
from groupcoord.wire.registry import APIS

__tracebackhide__ = True

KEPT_COUNT = 10_000
KEPT_RECORD_BYTES = 16_777_216
"""So many requests are kept, and so many bytes of records in them; older ones are forgotten."""


@frozen
class ReceivedRequest:
    """A request that has come, and what became of it.

    Attributes:
        number: 1 for the first that came, and so on.
        api: Kafka's name of it: ``OffsetCommit``.
        version: of the API.
        client_id: what the client calls itself.
        client_host: where it is, in Kafka's form: ``/127.0.0.1``.
        node_id: the node that it came to.
        connection: which of the server's connections it came on, counted from 1.
        received_ms: when, by the server's clock.
        message: the request, decoded: a class of :mod:`groupcoord.messages`, or of ``groupcoord.wire`` where it isn't
            the group coordinator's.
        answer: the answer, likewise; None if there is none (yet).
        answered_ms: when it was given.
        refusal: why there will be no answer, if the connection was closed before.
        listener: the name of the listener that it came by, if there are several.
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
        """The groups that it names."""
        message = self.message
        if isinstance(message, FindCoordinator):
            return message.keys if message.key_type == CoordinatorType.GROUP else ()
        return tuple(group_id for group_id in named_groups(message) if group_id is not None)


class Requests(Sequence[ReceivedRequest]):
    """Requests in the order in which they came; stays as it is while others come."""

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
        """Return those that are of an API, from a client, about a group, to a node: all that is given must hold.

        Args:
            api: Kafka's name of it, or the class of the decoded request: ``"OffsetCommit"``, or ``OffsetCommit``.
            client_id: what the client calls itself.
            group_id: a group that the request names.
            node: the id of the node that it came to.

        Raises:
            UnknownNameError: no API that is served has this name.
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
        """Return those that came after the one with a number."""
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
    """Keeps what came and what was answered.

    Args:
        now_ms: the server's clock.

    Attributes:
        count: how many requests have come.
        fetches: who fetches what.
        watchers: are called with each request when it comes, and again when it is answered or refused.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.count = 0
        self.fetches = FetchLog()
        self.watchers: list[Callable[[ReceivedRequest], None]] = []
        self._connection_count = 0
        self._kept: dict[int, ReceivedRequest] = {}
        self._record_bytes: dict[int, int] = {}
        self._record_bytes_in_all = 0

    def new_connection(self) -> int:
        """Return the number of a new connection."""
        self._connection_count += 1
        return self._connection_count

    def came(
        self,
        header: RequestHeader,
        message: object,
        client_host: str,
        node_id: int,
        connection: int,
        listener: str = "",
    ) -> int:
        """Keep a request, and return its number."""
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
        self._tell(number)
        if isinstance(message, Produce):
            sizes = (len(p.records or b"") for topic in message.topics for p in topic.partitions)
            self._add_bytes(number, sum(sizes))
        if len(self._kept) > KEPT_COUNT:
            self._forget_oldest()
        return number

    def answered(self, number: int, answer: Any) -> None:
        """Keep the answer to a request."""
        request = self._kept.get(number)
        if request is None:
            return
        if isinstance(answer, FetchResponse):
            answer = self._copied(number, answer)
        self._kept[number] = evolve(request, answer=answer, answered_ms=self._now_ms())
        self.fetches.note_answer(request.connection, request.client_id, request.message, answer, self.count)
        self._tell(number)

    def refused(self, number: int, reason: str) -> None:
        """Note why a request has no answer."""
        request = self._kept.get(number)
        if request is not None and request.answered_ms is None:
            self._kept[number] = evolve(request, refusal=reason)
            self._tell(number)

    def closed(self, connection: int) -> None:
        """Note that a connection is closed."""
        self.fetches.closed(connection)

    def _tell(self, number: int) -> None:
        for watch in self.watchers:
            watch(self._kept[number])

    def requests(self) -> Requests:
        """Return what is kept."""
        return Requests(tuple(self._kept.values()))

    def clear(self) -> None:
        """Forget what has come; numbers go on."""
        self._kept.clear()
        self._record_bytes.clear()
        self._record_bytes_in_all = 0

    def _copied(self, number: int, answer: FetchResponse) -> FetchResponse:
        """Return an answer with records of its own: those of the log would keep all of its memory."""
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
