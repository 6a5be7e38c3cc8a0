"""A request of a client as a rule meets it: what it says, and what shall become of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from enum import Enum
from typing import Any
from uuid import UUID

from groupcoord.broker.connection import Connection
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.router.authorization import Principal
from groupcoord.errors import ErrorCode
from groupcoord.testing.faults.error_answers import refuse
from groupcoord.testing.faults.partition_errors import Place, merge, named_partitions, refused, without
from groupcoord.wire import RequestHeader, WireResponse
from groupcoord.wire.broker_messages import Fetch
from groupcoord.wire.share_messages import ShareFetch


class Outcome(Enum):
    """What a rule has decided of a request."""

    ANSWERED = "answered"
    REFUSED = "refused"  # where the answer has to be made of the one that the broker gives
    DROPPED = "dropped"
    DISCONNECTED = "disconnected"


def named_groups(request: Any) -> tuple[str | None, ...]:
    """Return the groups that a request names, each of which may be null."""
    if hasattr(request, "group_id"):
        return (request.group_id,)
    if hasattr(request, "group_ids"):
        return tuple(request.group_ids)
    return tuple(group.group_id for group in getattr(request, "groups", ()))


class Call:
    """One request, and its answer when there is one.

    Functions that rules call get it, look at it and say what is to be done: :meth:`answer`, :meth:`fail`, :meth:`drop`,
    :meth:`disconnect`, each of which ends the matter, :meth:`delay` before whatever follows, or a new :attr:`request`
    or :attr:`response` in place of the present one. A function that says nothing lets it go on as if it weren't there.

    Attributes:
        api: Kafka's name of the API, such as ``OffsetCommit``.
        version: the version of the request.
        client_id: what the client calls itself.
        client_host: where it is, in Kafka's form: ``/127.0.0.1``.
        principal: for whom it speaks.
        node_id: the node that was asked.
    """

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        request: Any,
        topics: TopicRegistry,
        node_id: int,
        session: Iterable[Place] = (),
    ) -> None:
        self.api = type(request).__name__
        self.version = header.api_version
        self.client_id = header.client_id
        self.client_host = connection.client_host
        self.principal: Principal = connection.principal
        self.node_id = node_id
        self.connection = connection
        self.steps_left: deque[Callable[[], None]] = deque()
        self.outcome: Outcome | None = None
        self.error_code = ErrorCode.NONE
        self.delay_ms = 0
        self.is_held = False
        self.failed: list[WireResponse] = []
        self._session = session
        self._request = copy(request)  # readers of bytes give one object to many requests that are alike
        self._response: WireResponse | None = None
        self._topics = topics

    @property
    def request(self) -> Any:
        """The request as :mod:`groupcoord.messages` and :mod:`groupcoord.wire` have it; another one can be put in its
        place before it is handled."""
        return self._request

    @request.setter
    def request(self, request: Any) -> None:
        if self._response is not None:
            raise ValueError(f"this {self.api} was handled; what can be changed is its response")
        if type(request) is not type(self._request):
            raise TypeError(f"a {self.api} can't become a {type(request).__name__}")
        self._request = request

    @property
    def response(self) -> WireResponse | None:
        """The answer, before it leaves; None while the request isn't handled. Another one can be put in its place."""
        return self._response

    @response.setter
    def response(self, response: Any) -> None:
        if type(response).__name__ != f"{self.api}Response":
            raise TypeError(f"a {self.api} is answered with a {self.api}Response, not with {response!r}")
        self._response = response

    @property
    def group_ids(self) -> tuple[str | None, ...]:
        """The groups that the request names."""
        return named_groups(self._request)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the request names, those too that it names by id."""
        return tuple(dict.fromkeys([*self._topic_names(), *(self._name_of(topic) for topic, _ in self._session)]))

    def _topic_names(self) -> Iterator[str]:
        for holder in (self._request, *getattr(self._request, "groups", ())):
            for topic in getattr(holder, "topics", None) or ():
                name = getattr(topic, "name", None) or getattr(topic, "topic", None)
                known = self._topics.get_by_id(getattr(topic, "topic_id", ZERO_UUID))
                if name is not None or known is not None:
                    yield str(name) if known is None else known.name

    @property
    def partitions(self) -> tuple[tuple[str, int], ...]:
        """The partitions that the request names, or its fetch session has, by topic name and number."""
        return tuple((self._name_of(topic), index) for topic, index in self._places)

    @property
    def _places(self) -> list[Place]:
        return list(dict.fromkeys([*named_partitions(self._request), *self._session]))

    def _name_of(self, topic: str | UUID) -> str:
        known = self._topics.get_by_id(topic) if isinstance(topic, UUID) else None
        return str(topic) if known is None else known.name

    # ------------------------------------------------------------ what is to be done

    def answer(self, response: WireResponse) -> None:
        """Answer with this; a request that isn't handled yet won't be.

        Raises:
            TypeError: that is no answer to this API.
        """
        self.response = response
        self.outcome = Outcome.ANSWERED

    def fail(self, error_code: ErrorCode) -> None:
        """Answer with an error, as a broker that refuses the whole request: at the top of its answer, or at every entry
        where that has no such place. A request that isn't handled yet won't be.
        """
        response = refuse(self._request, error_code)
        if response is not None:
            self.answer(response)
        else:
            self.error_code = error_code
            self.outcome = Outcome.REFUSED

    def fail_partitions(self, error_code: ErrorCode, chosen: Callable[[str, int], bool]) -> None:
        """Answer with an error at some partitions. The others are handled, unless there are none.

        Args:
            error_code: the error.
            chosen: tells by topic name and number which partitions fail.
        """
        places = [place for place in self._places if chosen(self._name_of(place[0]), place[1])]
        failed = refused(self._request, places, error_code)
        if self._response is not None:
            self.response = merge(self._response, failed)
        elif len(places) == len(self._places) and not isinstance(self._request, Fetch | ShareFetch):
            self.answer(failed)
        else:
            self.request = without(self._request, lambda topic, index: (topic, index) in places)
            self.failed.append(failed)

    def drop(self) -> None:
        """Never answer. As a broker answers in order, nothing that comes on this connection is answered any more."""
        self.outcome = Outcome.DROPPED

    def disconnect(self) -> None:
        """Close the connection instead of an answer."""
        self.outcome = Outcome.DISCONNECTED

    def delay(self, duration_ms: int) -> None:
        """Wait before whatever follows: by the server's clock, which a test may turn.

        Raises:
            ValueError: the duration is negative.
        """
        if duration_ms < 0:
            raise ValueError(f"time cannot go back: delay({duration_ms})")
        self.delay_ms += duration_ms

    def __repr__(self) -> str:
        answer = "" if self._response is None else f" → {self._response!r}"
        return f"<{self.api} {self.version} of {self.client_id!r}: {self._request!r}{answer}>"
