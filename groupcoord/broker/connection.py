"""Connection of a client without its socket, and the dispatch of its requests.

As in a Kafka broker, requests of a connection are handled one at a time and in order: while a join or a long poll waits
for its response, the frames behind it wait, too. Sources: ``NetworkReceive``, ``SocketServer`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from attrs import Factory, define, field

from groupcoord.broker.work import (
    Awaited,
    Job,
    Timed,
    Token,
    Turns,
    Work,
    run_in_executor,
)
from groupcoord.core.messages import Node
from groupcoord.core.router.authorization import Permissions, Principal
from groupcoord.wire import (
    ProtocolError,
    RequestHeader,
    WireResponse,
    decode_request,
    encode_response,
    encode_response_parts,
)
from groupcoord.wire.broker_messages import FetchResponse
from groupcoord.wire.produce import names_few

if TYPE_CHECKING:
    from groupcoord.broker.broker import Broker

logger = logging.getLogger("groupcoord.host")

SIZE_BYTES = 4
# A TLS record of type 22 (handshake) and major version 3.
TLS_PREFIX = b"\x16\x03"
HTTP_PREFIXES = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI")

# Unsigned on the fast path: a negative size never equals the length of the data.
_SIZE_FROM = struct.Struct(">I").unpack_from
_SIGNED_SIZE_FROM = struct.Struct(">i").unpack_from

LARGE_REQUEST_BYTES = 16 * 1024
"""Requests from this size on are decoded by a job, unless they name few entries."""

BACKLOG_LIMIT_BYTES = 256 * 1024
"""Reading stops when this many bytes of requests wait."""

OUTPUT_PORTION_BYTES = 256 * 1024
"""Approximate size of the portions in which responses are sent."""

OUTPUT_LIMIT_BYTES = 1024 * 1024
"""No further request is handled while this many bytes of responses are unsent."""


class Interceptor(Timed, Protocol):
    """Observer of requests and responses that may change them, for tests."""

    def takes(self, connection: Connection, header: RequestHeader, request: Any) -> bool:
        """Inspect a decoded request before it is handled.

        An interceptor that takes a request later calls :meth:`Connection.go_on`, with the same or another request,
        :meth:`Connection.answer` or :meth:`Connection.refuse`. Until then the connection handles nothing else.

        Returns:
            True if the interceptor takes the request; False to have it handled normally.
        """

    def disconnected(self, connection: Connection) -> None:
        """Release what is kept for a closed connection."""


@define(eq=False, repr=False, weakref_slot=False)
class Connection:
    """Connection of a client, made by :meth:`Broker.connect`.

    Feed it with :meth:`receive_data`, write what :meth:`take_output` returns, and when :attr:`closing` is set, write
    the rest and close. Responses may come at any time: :meth:`Broker.take_dirty` returns the connections with output.

    Attributes:
        client_host: the client's address in Kafka's form (``/127.0.0.1``).
        nodes: the nodes by id, with their addresses for the client's listener; None if they are the same for all.
        closing: the reason why the host must close the connection, or None.
        client_id: the client id of the ApiVersions request, or "".
        on_answer: takes the response of the waiting request; returns False to have it sent unchanged.
        active_at_s: the time of the last received or sent bytes, by the broker's monotonic clock.
        output_bytes: the number of bytes for :meth:`take_output`.
        software: name and version of the client's software.
        cost_s, cost_at_s, is_queued, queued_at_s: see :class:`~groupcoord.broker.work.Turns`.
    """

    closing_level = logging.WARNING
    """Log level of the reason for closing."""

    _broker: Broker
    client_host: str
    principal: Principal
    _max_request_bytes: int
    nodes: Mapping[int, Node] | None = field(init=False, default=None)
    software: tuple[str, str] = field(init=False, default=("", ""))
    closing: str | None = field(init=False, default=None)
    active_at_s: float = field(init=False, default=Factory(lambda self: self._broker.now_s(), takes_self=True))
    cost_s: float = field(init=False, default=0.0)
    cost_at_s: float = field(init=False, default=0.0)
    is_queued: bool = field(init=False, default=False)
    queued_at_s: float = field(init=False, default=0.0)
    _now_s: Callable[[], float] = field(init=False, default=Factory(lambda self: self._broker.now_s, takes_self=True))
    _turns: Turns = field(init=False, default=Factory(lambda self: self._broker.turns, takes_self=True))
    _buffer: bytearray = field(init=False, factory=bytearray)
    _header: RequestHeader | None = field(init=False, default=None)  # of the waiting request
    client_id: str = field(init=False, default="")
    on_answer: Callable[[WireResponse], bool] | None = field(init=False, default=None)
    _work: Work[None] | None = field(init=False, default=None)  # on a long request or response
    _awaited: Awaited | None = field(init=False, default=None)
    _output: deque[bytes | memoryview] = field(init=False, factory=deque)
    output_bytes: int = field(init=False, default=0)
    _is_dirty: bool = field(init=False, default=False)
    _is_long: bool = field(init=False, default=False)  # whether the waiting request, and so maybe its response, is long
    _is_paused: bool = field(init=False, default=False)
    _is_working: bool = field(init=False, default=False)

    # ------------------------------------------------------------ for the host

    def receive_data(self, data: bytes) -> bool:
        """Take bytes from the peer, and handle the request in them unless others precede it.

        Returns:
            True if the bytes were one request, and no step of it is left.
        """
        # One clock reading for idle time and cost.
        self.active_at_s = now_s = self._now_s()
        # Nearly always one request, and nothing waits.
        size = len(data) - SIZE_BYTES
        if (
            self._header is None
            and not self._buffer
            # A frame of size 0 has no header; the slow path refuses it.
            and 0 < size <= self._max_request_bytes
            and _SIZE_FROM(data)[0] == size
            and self.output_bytes < OUTPUT_LIMIT_BYTES
            and not self._is_paused
            and self.closing is None
            and self._work is None
            # Last, since it starts to measure the cost.
            and self._turns.go_first(self, now_s)
        ):
            # A view saves the copy of a large Produce; small frames are cheaper as bytes.
            self._handle(data[SIZE_BYTES:] if size < LARGE_REQUEST_BYTES else memoryview(data)[SIZE_BYTES:])
            return self._work is None
        if self.closing is None:
            self._buffer += data
            self._wait_for_turn()
        return False

    def take_turn(self) -> bool:
        """Handle received requests, or a portion of a long one, until time is up; return whether more is left."""
        turns = self._turns
        while self._can_handle():
            if self._work is not None:
                self._continue_work()
            else:
                self._handle_next()
            if turns.is_time_up():
                return self._can_handle()
        return False

    def take_output(self) -> bytes:
        """Return and remove bytes to send; empty if there are none.

        Large output is returned in portions. Requests that were held back for it are queued again, so call this and
        :meth:`Broker.run_turn` until both have nothing more.
        """
        parts = self.take_output_parts()
        return parts[0] if len(parts) == 1 and type(parts[0]) is bytes else b"".join(parts)

    def take_output_parts(self) -> list[bytes | memoryview]:
        """Return the bytes of :meth:`take_output` as unjoined pieces."""
        self._is_dirty = False
        output = self._output
        if not output:
            return []
        # Nearly always.
        if len(output) == 1 and self.output_bytes < OUTPUT_LIMIT_BYTES:
            self.output_bytes = 0
            return [output.pop()]
        was_blocked = self.output_bytes >= OUTPUT_LIMIT_BYTES
        parts = [output.popleft()]
        size = len(parts[0])
        while output and size < OUTPUT_PORTION_BYTES:
            size += len(output[0])
            parts.append(output.popleft())
        self.output_bytes -= size
        # Unsent output held requests back.
        if was_blocked and self.output_bytes < OUTPUT_LIMIT_BYTES:
            self._wait_for_turn()
        return parts

    @property
    def wants_reading(self) -> bool:
        """False while the host should not read: paused, or too many bytes wait."""
        # A frame above the limit must be received to its end.
        return not self._is_paused and (len(self._buffer) < BACKLOG_LIMIT_BYTES or not self._has_frame())

    def note_client_id(self) -> None:
        """Store the client id of the current request."""
        if self._header is not None:
            self.client_id = self._header.client_id

    @property
    def permissions(self) -> Permissions:
        """Permissions of the client's principal."""
        return Permissions(self._broker.authorize, self.principal)

    @property
    def is_waiting(self) -> bool:
        """True while a request has no answer yet."""
        return self._header is not None or self._work is not None

    def end(self, reason: str) -> None:
        """Take no further request; the host closes the connection after the output."""
        self.closing = self.closing or reason
        self._buffer.clear()
        self._drop_work()

    @property
    def is_busy(self) -> bool:
        """True while the connection waits for its turn or a job, or works on a request."""
        return self.is_queued or self._work is not None

    def pause(self) -> None:
        """Handle no further request, because the peer does not read its responses."""
        self._is_paused = True

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._is_paused = False
        self._wait_for_turn()

    def close(self) -> None:
        """Drop all requests and output, because the peer is gone."""
        self.closing = self.closing or "closed"
        # Drops a later response of the coordinator.
        self._header = None
        self._buffer.clear()
        self._output.clear()
        self._drop_work()
        self._broker.disconnected(self)

    # ------------------------------------------------------------ for the broker

    def answer(self, response: WireResponse | None) -> None:
        """Send the response of the waiting request. None: it is never sent, and the connection waits until it is
        closed.
        """
        header = self._header
        # The peer may have left, or an interceptor answered already.
        if response is None or header is None:
            return
        if self.on_answer is not None:
            on_answer, self.on_answer = self.on_answer, None
            if on_answer(response):
                return
        # A job encodes long responses.
        if self._is_long:
            self._is_long = False
            self._work_on(self._write_long(header, response))
            return
        try:
            if self._work is not None or type(response) is FetchResponse:  # work may repeat one part many times
                # Not joined: records of a log, or one group described many times.
                self._add_output(encode_response_parts(header, response))
            else:
                frame = encode_response(header, response)
                self._output.append(frame)
                self.output_bytes += len(frame)
        except ProtocolError as error:
            self.refuse(str(error))
            return
        except Exception:
            self._fail("the answer could not be encoded")
            return
        self._header = None
        if not self._is_dirty:
            self._is_dirty = True
            self._broker.dirty.append(self)
        if self._buffer:
            self._wait_for_turn()

    def submit(self, request: Any, token: Token | None = None) -> None:
        """Pass a request to the group coordinator; this connection gets the response if no token is given."""
        self._broker.submit(request, token or self, self.principal)

    def skip_answer(self) -> None:
        """Complete the current request without a response, which its client does not expect."""
        self._header = None
        # The next response may be short.
        self._is_long = False
        self.on_answer = None

    def go_on(self, request: Any) -> None:
        """Handle a request that an interceptor took, or another one in its place."""
        # The client may have left.
        if self._header is None:
            return
        try:
            self._broker.handle(self, request)
        except Exception:
            self._fail("a request could not be handled")

    def answer_when_done(self, work: Work[WireResponse | None], awaited: Awaited | None = None) -> None:
        """Send what work returns, unless that is None; what exceeds a portion is done at the connection's turns."""
        self._work_on(self._answer_with(work, awaited))

    def answer_later(self, work: Work[WireResponse | None]) -> None:
        """Start work at the connection's next turn."""
        # The caller is in the middle of an append of another connection.
        self._work = self._answer_with(work, None)
        self._wait_for_turn()

    def refuse(self, reason: str) -> None:
        """Close the connection: its request is malformed, or can't be answered."""
        self.closing = reason
        self._buffer.clear()
        self._drop_work()
        self._mark_dirty()

    # ------------------------------------------------------------ inside

    def _mark_dirty(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self._broker.dirty.append(self)

    def _wait_for_turn(self) -> None:
        if not self.is_queued and self._can_handle():
            self._turns.add(self)

    def _can_handle(self) -> bool:
        if self._is_paused or self.closing is not None or self.output_bytes >= OUTPUT_LIMIT_BYTES:
            return False
        if self._work is not None:
            return self._awaited is None
        # A waiting request holds up the frames behind it.
        return self._header is None and self._has_frame()

    def _has_frame(self) -> bool:
        buffer = self._buffer
        if len(buffer) < SIZE_BYTES:
            return False
        # An invalid size is refused at once.
        size = _SIGNED_SIZE_FROM(buffer)[0]
        return len(buffer) - SIZE_BYTES >= size or not 0 <= size <= self._max_request_bytes

    def _handle_next(self) -> None:
        buffer = self._buffer
        (size,) = _SIGNED_SIZE_FROM(buffer)
        # The reason names the other protocol.
        if not 0 <= size <= self._max_request_bytes:
            self.refuse(_bad_size(size, bytes(buffer[:SIZE_BYTES]), self._size_limit()))
            return
        if len(buffer) >= BACKLOG_LIMIT_BYTES:
            self._mark_dirty()  # so that the host reads on, even without a response
        end = SIZE_BYTES + size
        if size >= LARGE_REQUEST_BYTES and len(buffer) == end:
            # The frame keeps the old buffer, which saves a copy of up to 100 MB.
            self._buffer = bytearray()
            self._handle(memoryview(buffer)[SIZE_BYTES:])
            return
        # A slice of the bytearray would be a second copy.
        frame = bytes(memoryview(buffer)[SIZE_BYTES:end])
        del buffer[:end]
        self._handle(frame)

    def _size_limit(self) -> str:
        return f"socket.request.max.bytes ({self._max_request_bytes})"

    def _handle(self, frame: bytes | memoryview) -> None:
        try:
            # A large Produce with few partitions is decoded quickly.
            if len(frame) >= LARGE_REQUEST_BYTES and not names_few(frame):
                self._work_on(self._read_large(bytes(frame)))
                return
            self._header, request = decode_request(frame, self.client_host)
            broker = self._broker
            if broker.interceptor is None or not broker.interceptor.takes(self, self._header, request):
                broker.handle(self, request)
        except ProtocolError as error:
            self.refuse(str(error))
        except Exception:
            self._fail("a request could not be handled")

    def _fail(self, what: str) -> None:
        # A bug costs the connection that met it; others are served.
        logger.exception("%s, so the connection of %s is closed", what, self.client_host)
        self.refuse(f"internal error: {what}")

    # ------------------------------------------------------------ long work

    def _work_on(self, work: Work[None]) -> None:
        self._work = work
        if self._is_working:
            return  # the running work continues with it
        # During a turn, the portion has begun already.
        if not self.is_queued:
            self._turns.begin_portion()
        self._continue_work()
        self._wait_for_turn()

    def _answer_with(self, work: Work[WireResponse | None], awaited: Awaited | None) -> Work[None]:
        # The caller took the first step.
        yield awaited
        self.answer((yield from work))

    def _continue_work(self) -> None:
        self._is_working = True
        try:
            while (work := self._work) is not None:
                try:
                    awaited = next(work)
                except StopIteration:
                    if self._work is work:  # it may have been replaced
                        self._work = None
                    continue
                if awaited is None:
                    if self._turns.is_time_up():
                        self._is_long = True  # and so its response may be
                        return
                else:
                    if isinstance(awaited, Job):
                        self._broker.start_job(awaited)
                    if not awaited.is_done:
                        self._awaited = awaited
                        awaited.on_done = self._on_awaited
                        return
        except ProtocolError as error:
            self.refuse(str(error))
        except Exception:
            self._fail("a request could not be handled")
        finally:
            self._is_working = False

    def _on_awaited(self) -> None:
        # A closed connection is not queued.
        self._awaited = None
        self._wait_for_turn()

    def _read_large(self, frame: bytes) -> Work[None]:
        decode = self._broker.decode_large
        self._header, request, refusal = yield from run_in_executor(decode, frame, self.client_host)
        self._is_long = True
        broker = self._broker
        if broker.interceptor is None or not broker.interceptor.takes(self, self._header, request):
            # The interceptor sees refused requests, too.
            broker.handle(self, refusal or request)

    def _write_long(self, header: RequestHeader, response: WireResponse) -> Work[None]:
        parts = yield from run_in_executor(encode_response_parts, header, response)
        self._header = None
        self._add_output(parts)
        self._mark_dirty()

    def _add_output(self, parts: Iterable[bytes | memoryview]) -> None:
        for part in parts:
            if len(part) <= OUTPUT_PORTION_BYTES:
                self._output.append(part)
            else:
                view = memoryview(part)
                self._output += (
                    view[start : start + OUTPUT_PORTION_BYTES] for start in range(0, len(part), OUTPUT_PORTION_BYTES)
                )
            self.output_bytes += len(part)

    def _drop_work(self) -> None:
        work, self._work, self._awaited = self._work, None, None
        # A running generator cannot be closed by what it calls.
        if work is not None and not self._is_working:
            # Drops a job that no thread has started.
            work.close()


Handler = Callable[[Connection, Any], WireResponse | Work[WireResponse | None] | None]
"""Handles a request of a connection. None: the response comes later, was sent already, or is not expected."""


def _bad_size(size: int, prefix: bytes, limit: str) -> str:
    if prefix[:2] == TLS_PREFIX:
        return "this is not Kafka's protocol: the peer speaks TLS"
    if prefix in HTTP_PREFIXES:
        return "this is not Kafka's protocol: the peer speaks HTTP"
    if size < 0:
        return f"a request of negative size ({size})"
    return f"a request of {size} bytes is larger than {limit}"
