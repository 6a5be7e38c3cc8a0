"""A broker that keeps what comes and what it answers. One that is not observed has nothing of this in its way."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from groupcoord.broker.broker import Broker
from groupcoord.broker.connection import Connection, ConnectionT, Interceptor
from groupcoord.core.router.authorization import Principal
from groupcoord.testing.asserting.fetch_log import Place
from groupcoord.testing.asserting.requests import RequestLog
from groupcoord.wire import RequestHeader, WireResponse


class ObservedConnection(Connection):
    """A connection that tells what it answers: what leaves, whatever an interceptor has made of it.

    Attributes:
        listener: the name of the listener that it came by, if there are several.
    """

    def __init__(
        self, broker: ObservedBroker, client_host: str, principal: Principal, max_request_bytes: int, *login: Any
    ) -> None:
        super().__init__(broker, client_host, principal, max_request_bytes, *login)
        self._log = broker.request_log
        self._node_id = broker.node.node_id
        self._number = self._log.new_connection()
        self.listener = ""
        self._request_number: int | None = None

    @property
    def fetch_session(self) -> frozenset[Place]:
        """The partitions of the connection's fetch session, which its fetches need not name."""
        return self._log.fetches.session(self._number)

    def note(self, header: RequestHeader, request: object) -> None:
        """Keep the request that has come."""
        self._request_number = self._log.came(
            header, request, self.client_host, self._node_id, self._number, self.listener
        )

    def answer(self, response: WireResponse | None) -> None:
        """See :class:`~groupcoord.broker.connection.Connection`."""
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
        """See :class:`~groupcoord.broker.connection.Connection`."""
        self._request_number = None
        super().skip_answer()

    def refuse(self, reason: str) -> None:
        """See :class:`~groupcoord.broker.connection.Connection`."""
        self._give_up(reason)
        super().refuse(reason)

    def close(self) -> None:
        """See :class:`~groupcoord.broker.connection.Connection`."""
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
    """Return a type of connection with an eye on it: one with a log-in has states of its own."""
    name = f"Observed{usual.__name__}"
    return ObservedConnection if usual is Connection else type(name, (ObservedConnection, usual), {})


class RequestRecorder:
    """The interceptor of an observed broker: keeps requests as they come, and asks another interceptor, if any.

    Attributes:
        following: the other one.
    """

    def __init__(self) -> None:
        self.following: Interceptor | None = None

    def takes(self, connection: Connection, header: RequestHeader, request: Any) -> bool:
        """See :class:`~groupcoord.broker.connection.Interceptor`."""
        if isinstance(connection, ObservedConnection):
            connection.note(header, request)
        return self.following is not None and self.following.takes(connection, header, request)

    def disconnected(self, connection: Connection) -> None:
        """See :class:`~groupcoord.broker.connection.Interceptor`."""
        if self.following is not None:
            self.following.disconnected(connection)

    def next_deadline_ms(self) -> int | None:
        """See :class:`~groupcoord.broker.connection.Interceptor`."""
        return None if self.following is None else self.following.next_deadline_ms()

    def tick(self, now_ms: int) -> None:
        """See :class:`~groupcoord.broker.connection.Interceptor`."""
        if self.following is not None:
            self.following.tick(now_ms)


class ObservedBroker(Broker):
    """A broker that keeps what comes and what it answers.

    Args:
        request_log: where.
        options: see :class:`~groupcoord.broker.broker.Broker`.
    """

    def __init__(self, *, request_log: RequestLog, **options: Any) -> None:
        self.request_log = request_log
        self._recorder = RequestRecorder()
        super().__init__(**options)

    def connect(self, client_host: str, listener: str = "") -> Connection:
        """See :meth:`Broker.connect`."""
        connection = super().connect(client_host, listener)
        if isinstance(connection, ObservedConnection):
            connection.listener = listener
        return connection

    def connection_type(self, usual: type[ConnectionT]) -> type[ConnectionT]:
        """Return the usual type with an eye on it, for connections with a log-in and those without."""
        return cast(type[ConnectionT], _observed(cast(Any, usual)))

    @property
    def interceptor(self) -> Interceptor | None:
        """The observer; what is set here comes behind it."""
        return self._recorder

    @interceptor.setter
    def interceptor(self, following: Interceptor | None) -> None:
        self._recorder.following = following
